// Package certs is TLS towards servers of others.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// Config returns a configuration that trusts the system's authorities and those of the files, each of certificates as PEM.
// Errors: os's of reading a file; one that names a file without a certificate.
func Config(files []string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(files) == 0 {
		return config, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate", file)
		}
	}
	config.RootCAs = pool
	return config, nil
}

// Client makes conn one of TLS with the host of an address, host:port. It closes conn if that fails. Errors: crypto/tls's; ctx's.
func Client(ctx context.Context, conn net.Conn, config *tls.Config, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		_ = conn.Close() // nothing was written
		return nil, err
	}
	config = config.Clone()
	config.ServerName = host
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was written
		return nil, err
	}
	return secured, nil
}
