package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// LoadTLS reads from PEM files what either side of a connection needs: its
// certificate, followed by intermediate ones if any, the key of it, and the
// authorities whose certificates its peers must have.
//
// The error names the file and wraps what is wrong with it; it is an
// [ErrIdentity] when the certificate has no harp identity.
func LoadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("transport: certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("transport: key: %w", err)
	}
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("transport: authorities: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("transport: certificate %s with key %s: %w", certFile, keyFile, err)
	}
	if _, err := IdentityOf(cert.Leaf); err != nil {
		return nil, fmt.Errorf("transport: certificate %s: %w", certFile, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		return nil, fmt.Errorf("transport: authorities %s: %w", caFile, errNoCertificate)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ClientCAs:    pool,
		MinVersion:   tls.VersionTLS13,
	}, nil
}

var errNoCertificate = errors.New("no certificate in PEM form")
