package lab

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/harpcaller/harp/transport"
)

// Fleet is in the certificates of harp.
const Fleet = "bench"

// life is how long certificates are good.
const life = 48 * time.Hour

// authority makes certificates, all of one key: ten thousand agents need not wait
// for as many keys.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "harp bench", Organization: []string{Fleet}},
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}, nil, key)
	if err != nil {
		return nil, err
	}
	return authorityOf(key, der)
}

func authorityOf(key *ecdsa.PrivateKey, der []byte) (*authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, cert: cert, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a, nil
}

// sign makes a certificate; its own authority if parent is nil.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	if parent == nil {
		parent = template
	}
	return x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, key)
}

// TLS is the configuration with which somebody of harp's dials and listens.
func (l *Lab) TLS(role transport.Role, name string) (*tls.Config, error) {
	id := transport.Identity{Fleet: Fleet, Role: role, Name: name}
	der, err := l.ca.issue([]*url.URL{id.URI()})
	if err != nil {
		return nil, err
	}
	return l.ca.config(der), nil
}

// PeerTLS is the configuration with which anybody else dials and listens: TLS 1.3
// with certificates on both sides, as harp's.
func (l *Lab) PeerTLS() (*tls.Config, error) {
	der, err := l.ca.issue(nil)
	if err != nil {
		return nil, err
	}
	c := l.ca.config(der)
	c.ServerName = "localhost"
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// issue makes a certificate for this machine's loopback.
func (a *authority) issue(uris []*url.URL) ([]byte, error) {
	return sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost", Organization: []string{Fleet}},
		URIs:        uris,
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, a.key)
}

func (a *authority) config(der []byte) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}},
		RootCAs:      a.pool, ClientCAs: a.pool, MinVersion: tls.VersionTLS13,
	}
}

// write writes key and certificate to one file.
func (a *authority) write(path string) error {
	key, err := a.keyPEM()
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(key, certPEM(a.cert.Raw)...), 0o600)
}

func (a *authority) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func readAuthority(path string) (*authority, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keyBlock, rest := pem.Decode(b)
	certBlock, _ := pem.Decode(bytes.TrimSpace(rest))
	if keyBlock == nil || certBlock == nil {
		return nil, errors.New(path + " holds no key and certificate")
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New(path + " holds another kind of key")
	}
	return authorityOf(own, certBlock.Bytes)
}

// The files that servers of other makers read their certificate from.
const (
	ServerCert = "server.crt"
	ServerKey  = "server.key"
	CACert     = "ca.crt"
)

func (l *Lab) writeServerFiles() error {
	der, err := l.ca.issue(nil)
	if err != nil {
		return err
	}
	key, err := l.ca.keyPEM()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(l.Path(ServerCert), certPEM(der), 0o644),       //nolint:gosec // servers that run as another user read it
		os.WriteFile(l.Path(CACert), certPEM(l.ca.cert.Raw), 0o644), //nolint:gosec // as above
		os.WriteFile(l.Path(ServerKey), key, 0o600),
	)
}
