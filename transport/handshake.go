package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
)

// welcome is the byte with which the TLS server says that it has accepted the
// client's certificate. In TLS 1.3 the client's handshake is over before.
const welcome = 1

var errNoWelcome = errors.New("the server did not say that it accepts the certificate")

func sendWelcome(c net.Conn, _ Identity) error {
	_, err := c.Write([]byte{welcome})
	return err
}

func awaitWelcome(c net.Conn) error {
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if b[0] != welcome {
		return errNoWelcome
	}
	return nil
}

// shakeTLS runs the handshake of c, which is over nc, until ctx ends, and finish after it.
func shakeTLS(ctx context.Context, nc *handshakeConn, c *tls.Conn, finish func(net.Conn, Identity) error) (Peer, error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) })
	defer stop()
	if err := c.Handshake(); err != nil {
		return Peer{}, err
	}
	nc.liftLimit()
	peer, err := peerOf(c)
	if err != nil {
		return Peer{}, err
	}
	if err := finish(c, peer.Identity); err != nil {
		return Peer{}, err
	}
	if !stop() {
		return Peer{}, ctx.Err()
	}
	return peer, nil
}

// peerOf describes the other end of a finished handshake.
func peerOf(c *tls.Conn) (Peer, error) {
	state := c.ConnectionState()
	cert := state.PeerCertificates[0]
	id, err := IdentityOf(cert)
	if err != nil {
		return Peer{}, err
	}
	return Peer{
		Identity:    id,
		Addr:        c.RemoteAddr().String(),
		Protocol:    state.NegotiatedProtocol,
		Fingerprint: fingerprint(cert.RawSubjectPublicKeyInfo),
	}, nil
}

// handshakeError makes err, of a handshake with nc, the error that is returned.
func handshakeError(ctx context.Context, nc net.Conn, err error) error {
	stage := StageTLS
	switch {
	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		err = ctx.Err()
	case errors.Is(err, ErrIdentity):
		stage = StageIdentity
	}
	return &HandshakeError{Stage: stage, Addr: nc.RemoteAddr().String(), Err: err}
}

// authorize reports whether id may speak protocol.
func authorize(id Identity, protocol string, allow map[string]Role) error {
	role, ok := allow[protocol]
	if !ok {
		return fmt.Errorf("protocol %q is not spoken here", protocol)
	}
	return id.require(role)
}

// clientConfig returns the configuration for one handshake as a client, after which the
// fleet has to be checked: a client may show its certificate last.
func clientConfig(tc *tls.Config, protocol string, want Role) (*tls.Config, *ownFleet) {
	c := privateClone(tc)
	c.NextProtos = []string{protocol}
	c.ClientSessionCache = nil
	// Not every peer has a DNS name: verifyChain does instead what crypto/tls then does not.
	c.InsecureSkipVerify = true
	own := new(ownFleet)
	own.watchCertificate(c)
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if state.NegotiatedProtocol != protocol {
			return fmt.Errorf("the peer does not speak %s", protocol)
		}
		if err := verifyChain(c, c.RootCAs, x509.ExtKeyUsageServerAuth, state.PeerCertificates); err != nil {
			return err
		}
		id, err := IdentityOf(state.PeerCertificates[0])
		if err != nil {
			return err
		}
		if err := id.require(want); err != nil {
			return err
		}
		return verifyMore(tc, state)
	}
	return c, own
}

// serverConfig returns the configuration for handshakes as a server.
func serverConfig(tc *tls.Config, allow map[string]Role) *tls.Config {
	c := privateClone(tc)
	c.NextProtos = slices.Sorted(maps.Keys(allow))
	c.ClientAuth = tls.RequireAnyClientCert // verifyChain looks at it before crypto/tls would
	c.SessionTicketsDisabled = true
	c.GetConfigForClient = nil
	var own ownFleet
	own.watchCertificate(c)
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verifyChain(c, c.ClientCAs, x509.ExtKeyUsageClientAuth, state.PeerCertificates); err != nil {
			return err
		}
		id, err := IdentityOf(state.PeerCertificates[0])
		if err != nil {
			return err
		}
		if err := cmp.Or(authorize(id, state.NegotiatedProtocol, allow), own.checkPeer(id)); err != nil {
			return err
		}
		return verifyMore(tc, state)
	}
	return c
}

func privateClone(tc *tls.Config) *tls.Config {
	if tc == nil {
		tc = new(tls.Config)
	}
	c := tc.Clone()
	c.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	if c.CurvePreferences == nil {
		c.CurvePreferences = modestCurves
	}
	return c
}

// modestCurves are the key exchanges that cost little: a client chooses one before anything is known of it. What they leave out of those
// that crypto/tls has takes three times as long with P-384, and seven times with P-521.
var modestCurves = []tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.X25519, tls.CurveP256}

// verifyMore runs the check that tc itself asks for.
func verifyMore(tc *tls.Config, state tls.ConnectionState) error {
	if tc == nil || tc.VerifyConnection == nil {
		return nil
	}
	return tc.VerifyConnection(state)
}
