// Package devca makes certificates for development, examples and tests on one
// machine: an authority in a folder and a certificate for whoever asks. Its key
// lies in a file, so that it is no authority to run a fleet with.
package devca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/harpcaller/harp/transport"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is made again.
	renewBefore = 24 * time.Hour
	// backdate lets clocks differ.
	backdate = time.Hour
)

// The files of an authority in its folder. The first holds key and certificate,
// so that there is never one without the other.
const (
	authorityFile = "ca.key"
	certFile      = "ca.crt"
)

// CA is a certificate authority of one fleet. Its methods are safe for concurrent
// use, also by several processes with the same folder.
type CA struct {
	dir   string // "": in memory only
	fleet string
	pair  pair
	pool  *x509.CertPool
}

// Open returns the authority kept in dir, which it makes there on first use: the
// folder, ca.key (mode 0600) and ca.crt. The certificates it makes are kept there,
// too. An empty dir keeps all in memory.
//
// The error names the file that cannot be read or written, or says that the
// authority in dir is of another fleet or has expired.
func Open(dir, fleet string) (*CA, error) {
	id := transport.Identity{Fleet: fleet, Role: transport.RoleDispatcher, Name: "x"}
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("devca: %w", err)
	}
	p, err := openAuthority(dir, fleet)
	if err != nil {
		return nil, fmt.Errorf("devca: %w", err)
	}
	ca := &CA{dir: dir, fleet: fleet, pair: p, pool: x509.NewCertPool()}
	ca.pool.AddCert(p.cert)
	if err := ca.checkAuthority(); err != nil {
		return nil, err
	}
	return ca, nil
}

// openAuthority reads the authority in dir or makes it.
func openAuthority(dir, fleet string) (pair, error) {
	if dir == "" {
		return newAuthority(fleet)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pair{}, err
	}
	path := filepath.Join(dir, authorityFile)
	p, err := readPair(path)
	if errors.Is(err, os.ErrNotExist) {
		p, err = makeAuthority(path, fleet)
	}
	if err != nil {
		return pair{}, err
	}
	return p, replaceFile(filepath.Join(dir, certFile), p.certPEM(), 0o644)
}

// makeAuthority makes an authority at path, unless another process was faster;
// then that one's counts.
func makeAuthority(path, fleet string) (pair, error) {
	p, err := newAuthority(fleet)
	if err != nil {
		return pair{}, err
	}
	both, err := p.bothPEM()
	if err != nil {
		return pair{}, err
	}
	if err := createFile(path, both, 0o600); err != nil {
		return pair{}, err
	}
	return readPair(path)
}

// checkAuthority reports whether the authority is what was asked for.
func (ca *CA) checkAuthority() error {
	cert := ca.pair.cert
	if len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != ca.fleet {
		return fmt.Errorf("devca: %s is the authority of fleet %q, not of %q",
			filepath.Join(ca.dir, authorityFile), cert.Subject.Organization, ca.fleet)
	}
	if time.Now().After(cert.NotAfter) {
		return fmt.Errorf("devca: %s has expired; remove it to have another made",
			filepath.Join(ca.dir, authorityFile))
	}
	return nil
}

func newAuthority(fleet string) (pair, error) {
	now := time.Now()
	return newPair(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "harp development authority", Organization: []string{fleet}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil)
}

// TLS returns the configuration with which id dials and listens. id's fleet may
// be empty for the authority's. The certificate is kept in the folder and used
// again; one that has expired is made again with the same key.
//
// The error is a [transport.ErrIdentity], or names the file that cannot be read
// or written.
func (ca *CA) TLS(id transport.Identity) (*tls.Config, error) {
	leaf, err := ca.leaf(id)
	if err != nil {
		return nil, fmt.Errorf("devca: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{leaf.certificate()},
		RootCAs:      ca.pool,
		ClientCAs:    ca.pool,
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// WriteFiles writes what [transport.LoadTLS] reads for id: base.crt, base.key
// (mode 0600) and ca.crt in dir. The error is a [transport.ErrIdentity], or names
// the file that cannot be read or written.
func (ca *CA) WriteFiles(dir, base string, id transport.Identity) error {
	leaf, err := ca.leaf(id)
	if err != nil {
		return fmt.Errorf("devca: %w", err)
	}
	key, err := leaf.keyPEM()
	if err != nil {
		return fmt.Errorf("devca: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{
		{certFile, ca.pair.certPEM(), 0o644},
		{base + ".key", key, 0o600},
		{base + ".crt", leaf.certPEM(), 0o644},
	} {
		if err := replaceFile(filepath.Join(dir, f.name), f.data, f.mode); err != nil {
			return fmt.Errorf("devca: %w", err)
		}
	}
	return nil
}

// leaf returns the certificate of id, from the folder if it is there and good.
func (ca *CA) leaf(id transport.Identity) (pair, error) {
	if id.Fleet == "" {
		id.Fleet = ca.fleet
	}
	if id.Fleet != ca.fleet {
		return pair{}, fmt.Errorf("%w: %s is not of fleet %s", transport.ErrIdentity, id, ca.fleet)
	}
	if err := id.Validate(); err != nil {
		return pair{}, err
	}
	if ca.dir == "" {
		return ca.issue(id, nil)
	}
	path := filepath.Join(ca.dir, leafFile(id))
	old, err := readPair(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ca.issueToFile(path, id, nil)
	case err != nil:
		return pair{}, err
	case ca.isGood(old, id):
		return old, nil
	}
	return ca.issueToFile(path, id, old.key)
}

// issueToFile issues a certificate and writes it to path.
func (ca *CA) issueToFile(path string, id transport.Identity, key *ecdsa.PrivateKey) (pair, error) {
	p, err := ca.issue(id, key)
	if err != nil {
		return pair{}, err
	}
	both, err := p.bothPEM()
	if err != nil {
		return pair{}, err
	}
	return p, replaceFile(path, both, 0o600)
}

// issue makes a certificate for id and key, or a new key if nil. Either side may
// dial, so that it is good for both.
func (ca *CA) issue(id transport.Identity, key *ecdsa.PrivateKey) (pair, error) {
	now := time.Now()
	return newPair(key, &x509.Certificate{
		Subject:     pkix.Name{CommonName: string(id.Role), Organization: []string{ca.fleet}},
		URIs:        []*url.URL{id.URI()},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, &ca.pair)
}

// isGood reports whether p is of this authority, for id, and good for a while.
func (ca *CA) isGood(p pair, id transport.Identity) bool {
	got, err := transport.IdentityOf(p.cert)
	return err == nil && got == id &&
		p.cert.CheckSignatureFrom(ca.pair.cert) == nil &&
		time.Now().Add(renewBefore).Before(p.cert.NotAfter)
}

// leafFile returns the name of the file with the certificate of id.
func leafFile(id transport.Identity) string {
	name := url.PathEscape(id.Name)
	if len(name) > 100 {
		name = digest(id.Name)
	}
	return string(id.Role) + "-" + name + ".pem"
}
