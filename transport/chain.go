package transport

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
)

// errChain is why certificates are not looked at.
var errChain = errors.New("a chain of certificates that asks for too much work")

// checkChain keeps the bounds.
func checkChain(chain []*x509.Certificate) error {
	if len(chain) > maxChain {
		return fmt.Errorf("%w: %d of them, at most %d", errChain, len(chain), maxChain)
	}
	size := 0
	for _, cert := range chain {
		if size += len(cert.Raw); size > maxChainSize {
			return fmt.Errorf("%w: more than %d bytes", errChain, maxChainSize)
		}
		if !isModest(cert.PublicKey) {
			return fmt.Errorf("%w: a key that is none of ed25519, ECDSA up to P-384 and RSA up to %d", errChain, maxRSA)
		}
	}
	return nil
}

// isModest reports whether what a key has signed is verified in little time.
func isModest(key any) bool {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return true
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384()
	case *rsa.PublicKey:
		return key.N.BitLen() <= maxRSA
	}
	return false
}

// verifyChain checks a peer's certificates as crypto/tls would, within the bounds, but for
// the name if there is none to check. The system's authorities are not asked: they give
// names to web servers, not to agents.
func verifyChain(tc *tls.Config, roots *x509.CertPool, usage x509.ExtKeyUsage, chain []*x509.Certificate) error {
	if roots == nil {
		return errors.New("no authorities to verify the peer with")
	}
	if err := checkChain(chain); err != nil {
		return err
	}
	options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}
	if tc.Time != nil {
		options.CurrentTime = tc.Time()
	}
	options.Intermediates = trusted(options, chain[1:])
	if usage == x509.ExtKeyUsageServerAuth {
		options.DNSName = tc.ServerName
	}
	if _, err := chain[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// trusted returns those of some certificates that lead to a root. What has certified only each other must not be among what
// x509 looks for ways in: of four of these it checks some thirty signatures, for somebody who is not known.
func trusted(options x509.VerifyOptions, certs []*x509.Certificate) *x509.CertPool {
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} // the leaf's is looked at
	options.Intermediates = x509.NewCertPool()
	left := slices.Clone(certs)
	slices.Reverse(left) // each is to certify the one before it
	for more := true; more; {
		more = false
		left = slices.DeleteFunc(left, func(cert *x509.Certificate) bool {
			_, err := cert.Verify(options)
			if err == nil {
				options.Intermediates.AddCert(cert)
				more = true
			}
			return err == nil
		})
	}
	return options.Intermediates
}

// ownFleet is the fleet of the certificate that this side shows. It is known when that was
// shown, or from the beginning.
type ownFleet struct{ name atomic.Pointer[string] }

// watchCertificate makes c tell which certificate is shown.
func (f *ownFleet) watchCertificate(c *tls.Config) {
	if len(c.Certificates) > 0 {
		f.noteCertificate(&c.Certificates[0])
	}
	if get := c.GetCertificate; get != nil {
		c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, err := get(hello)
			f.noteCertificate(cert)
			return cert, err
		}
	}
	if get := c.GetClientCertificate; get != nil {
		c.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := get(request)
			f.noteCertificate(cert)
			return cert, err
		}
	}
}

func (f *ownFleet) noteCertificate(cert *tls.Certificate) {
	if cert == nil || len(cert.Certificate) == 0 {
		return
	}
	leaf := cert.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return
		}
	}
	if id, err := IdentityOf(leaf); err == nil {
		f.name.Store(&id.Fleet)
	}
}

// checkPeer reports whether the peer is of the same fleet. The error is an [ErrIdentity].
func (f *ownFleet) checkPeer(peer Identity) error {
	if own := f.name.Load(); own != nil && *own != peer.Fleet {
		return fmt.Errorf("%w: %s is not of the fleet %s", ErrIdentity, peer, *own)
	}
	return nil
}

// handshakeConn is a connection whose peer is not known yet.
type handshakeConn struct {
	net.Conn
	hello []byte // was read and is still to be returned
	left  int    // bytes that may be read; below 0: any number, as the peer is known
}

var errLongHandshake = errors.New("a handshake of too many bytes")

func (c *handshakeConn) Read(p []byte) (int, error) {
	if len(c.hello) > 0 {
		n := copy(p, c.hello)
		if c.hello = c.hello[n:]; len(c.hello) == 0 {
			c.hello = nil
		}
		return n, nil
	}
	if c.left < 0 {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, errLongHandshake
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// liftLimit lets everything through: the peer is known.
func (c *handshakeConn) liftLimit() { c.left = -1 }
