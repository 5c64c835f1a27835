//go:build linux

package hostile

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/faults/actor"
)

// authority signs whatever it is asked to.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer

	mu     sync.Mutex // guards issued
	issued map[string]tls.Certificate
}

// openAuthority takes over the authority of a fleet.
func openAuthority(dir string) (*authority, error) {
	data, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	a := &authority{issued: map[string]tls.Certificate{}}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			a.cert, err = x509.ParseCertificate(block.Bytes)
		} else {
			var key any
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
			a.key, _ = key.(crypto.Signer)
		}
		if err != nil {
			return nil, err
		}
	}
	if a.cert == nil || a.key == nil {
		return nil, fmt.Errorf("no authority in %s", dir)
	}
	return a, nil
}

// template is a certificate for what the URIs say, as they are written.
func template(uris ...string) *x509.Certificate {
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	var names []asn1.RawValue
	for _, uri := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)})
	}
	if san, err := asn1.Marshal(names); err == nil && len(uris) > 0 {
		t.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: san}}
	}
	return t
}

// sign makes a certificate of a template, with a new key.
func (a *authority) sign(t *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// identify returns the certificate of somebody, the same each time.
func (a *authority) identify(role, name string) (tls.Certificate, error) {
	uri := "harp://" + actor.Fleet + "/" + role + "/" + url.PathEscape(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.issued[uri]; ok {
		return c, nil
	}
	c, err := a.sign(template(uri))
	a.issued[uri] = c
	return c, err
}
