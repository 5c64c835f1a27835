package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp/transport"
)

// certifier makes certificates of authorities.
type certifier struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCertifier(t *testing.T, name string, by *certifier) *certifier {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certifier{key: key}
	if by == nil {
		by = c
	}
	c.cert = by.certify(t, name, key)
	return c
}

func (c *certifier) certify(t *testing.T, name string, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	parent := c.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestTrusted: intermediate certificates count, in any order, if they lead to a root, and not if they
// have certified each other, also under the root's name.
func TestTrusted(t *testing.T) {
	root := newCertifier(t, "root", nil)
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	first := newCertifier(t, "first", root)
	second := newCertifier(t, "second", first)
	third := newCertifier(t, "third", second)
	good := []*x509.Certificate{third.cert, second.cert, first.cert}
	all := x509.NewCertPool()
	for _, cert := range good {
		all.AddCert(cert)
	}
	stranger := newCertifier(t, "root", nil)
	var mutual []*x509.Certificate
	for range 3 {
		mutual = append(mutual, stranger.certify(t, "root", stranger.key))
	}
	for name, c := range map[string]struct {
		certs []*x509.Certificate
		want  *x509.CertPool
	}{
		"in order":                    {good, all},
		"the other way round":         {[]*x509.Certificate{first.cert, second.cert, third.cert}, all},
		"mixed":                       {[]*x509.Certificate{second.cert, third.cert, first.cert}, all},
		"beside those of a stranger":  {slices.Concat(mutual, good), all},
		"none":                        {nil, x509.NewCertPool()},
		"that certify each other":     {mutual, x509.NewCertPool()},
		"without the one at the root": {good[:2], x509.NewCertPool()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := transport.Trusted(roots, c.certs); !got.Equal(c.want) {
				t.Errorf("%d are trusted of %d", len(got.Subjects()), len(c.certs)) //nolint:staticcheck // no system's pool
			}
		})
	}
}
