package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"slices"
	"time"

	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/internal/wire"
)

// chain is the certificates from the one that signed the caller's to the authority's.
type chain []*x509.Certificate

// from and until are when all of the chain is good.
func (ch chain) from() time.Time {
	return slices.MaxFunc(ch, func(a, b *x509.Certificate) int { return a.NotBefore.Compare(b.NotBefore) }).NotBefore
}

func (ch chain) until() time.Time {
	return slices.MinFunc(ch, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// chainsOf returns the chains of a context's certificate: none if no authority has signed it.
// What time it is, and from when on which is good, does not matter: an authority may be
// younger than what it has signed anew.
func chainsOf(caFile string, tc *tls.Config) ([]chain, error) {
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	var roots, between []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			roots = append(roots, cert)
		}
	}
	for _, der := range tc.Certificates[0].Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between = append(between, cert)
		}
	}
	return chainsFrom(tc.Certificates[0].Leaf, between, roots), nil
}

func chainsFrom(cert *x509.Certificate, between, roots []*x509.Certificate) (found []chain) {
	for _, root := range roots {
		if isSignedBy(cert, root) {
			found = append(found, chain{root})
		}
	}
	for i, issuer := range between {
		if isSignedBy(cert, issuer) {
			for _, rest := range chainsFrom(issuer, slices.Delete(slices.Clone(between), i, i+1), roots) {
				found = append(found, append(chain{issuer}, rest...))
			}
		}
	}
	return found
}

func isSignedBy(cert, issuer *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, issuer.RawSubject) && cert.CheckSignatureFrom(issuer) == nil
}

// checkContext refuses a context that no dispatcher would let in now. Errors: harp.ErrInvalid.
func checkContext(at contexts.Context, tc *tls.Config, now time.Time) error {
	if err := wire.CheckAddr(at.Addr); err != nil {
		return err
	}
	leaf := tc.Certificates[0].Leaf
	if err := checkDates("certificate", leaf.NotBefore, leaf.NotAfter, now); err != nil {
		return err
	}
	chains, err := chainsOf(at.CA, tc)
	if err != nil {
		return invalid("ca", "%s", err)
	}
	if len(chains) == 0 {
		return invalid("ca", "%s did not sign %s", at.CA, at.Cert)
	}
	best := newestChain(chains)
	return checkDates("authority", best.from(), best.until(), now)
}

// newestChain is the chain that is good for longest.
func newestChain(chains []chain) chain {
	return slices.MaxFunc(chains, func(a, b chain) int { return a.until().Compare(b.until()) })
}

func checkDates(what string, from, until, now time.Time) error {
	switch {
	case now.Before(from):
		return invalid(what, "is not valid before %s; is this machine's clock right?", from.Format(time.RFC3339))
	case now.After(until):
		return invalid(what, "expired at %s", until.Format(time.RFC3339))
	}
	return nil
}
