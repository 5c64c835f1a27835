//go:build linux

package hostile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"time"
)

// liesOfNobody are told before a certificate is known. Each is told to the dispatcher and to
// an agent that is dialled.
var liesOfNobody = bothPorts([]lie{
	{name: "bytes that are not TLS", tell: tellNoTLS},
	{name: "connections that say nothing", tell: tellNothing},
	{name: "a ClientHello that comes a byte at a time", tell: tellSlowly},
	{name: "a ClientHello that never ends", tell: tellHalfHello},
	{name: "a handshake that stops in the middle", tell: tellHalfShake},
	{name: "connections that are reset at once", tell: tellReset},
	{name: "handshakes without a certificate", tell: tellNoCertificate},
	{name: "a flood of handshakes by strangers", tell: tellStrangers},
	{name: "a chain of 110 certificates with P-521", tell: tellLongChain},
	{name: "a key of RSA with 16,384 bits", tell: tellLongKey},
	{name: "certificates that certify each other", tell: tellMutualChain},
	{name: "a certificate of 1 MiB", tell: tellLongCertificate},
	{name: "an expired certificate", tell: tellExpired},
	{name: "names with control characters", tell: refusedNames("a\x00b", "a\nb", "a\x1b[2Jb", "a\x7fb", "a%00b", "a%0Ab", "a%1B[2J")},
	{name: "names that look like others", tell: refusedNames("a%E2%80%AEb", "a%E2%80%8Bb", "e%CC%81", "a\u200bb", "a\u202eb", "%EF%BB%BFa")},
	{name: "names that are paths", tell: refusedNames("../../etc", "..%2F..%2Fetc", "a/b", "", "%2E%2E%2Fa", ".%2Fa")},
	{name: "names that are too long", tell: refusedNames(strings.Repeat("a", 256), strings.Repeat("a", 8000))},
	{name: "URIs that are written otherwise", tell: tellOtherURIs},
	{name: "a certificate for another role", tell: tellOtherRole},
	{name: "protocols that are not spoken", tell: tellOtherProtocol},
	{name: "TLS 1.2", tell: tellOldTLS},
	{name: "rubbish after the ClientHello", tell: tellRubbish},
	{name: "a flood of exchanges of keys that cost much", tell: tellLongExchange},
})

// bothPorts lets lies be told to either.
func bothPorts(all []lie) (both []lie) {
	for _, l := range all {
		l.as = nobody
		for _, to := range []role{dispatcher, agent} {
			l := l
			l.to = to
			if to == agent {
				l.name += ", to an agent"
			}
			both = append(both, l)
		}
	}
	return both
}

// ownRole is the role of somebody who may dial those who are lied to.
func (t *teller) ownRole() role { return caller }

func (t *teller) ownProtocol() string { return protocols[[2]role{t.ownRole(), t.to}] }

// ownURI is a URI of one who may.
func (t *teller) uri(name string) string { return "harp://faults/" + string(t.ownRole()) + "/" + name }

// ownCertificate is a good one.
func (t *teller) ownCertificate() (tls.Certificate, error) {
	return t.ca.identify(string(t.ownRole()), "liar")
}

// clientHello is a first message as crypto/tls sends it.
func (t *teller) clientHello(curves ...tls.CurveID) []byte {
	here, there := net.Pipe()
	defer here.Close()
	t.work.Go(func() {
		_, _ = t.shake(there, t.ownProtocol(), tls.Certificate{}, curves...)
		_ = there.Close()
	})
	head := make([]byte, 5)
	_, _ = io.ReadFull(here, head)
	body := make([]byte, int(head[3])<<8|int(head[4]))
	_, _ = io.ReadFull(here, body)
	return append(head, body...)
}

// isClosed reads until the other side closes the connection. It fails if it doesn't before the
// lie is over.
func isClosed(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	if errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("the connection was not closed: %w", err)
	}
	return nil
}

// refused makes a handshake that must be refused: in TLS 1.3 the client hears of it when it
// reads.
func (t *teller) refused(protocol string, cert tls.Certificate) error {
	conn, err := t.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	secured, err := t.shake(conn, protocol, cert)
	if err != nil {
		return nil // it was refused early
	}
	var b [1]byte
	if n, err := secured.Read(b[:]); n > 0 || t.ctx.Err() != nil {
		return fmt.Errorf("the handshake is taken: %w", err)
	}
	return nil
}

func tellNoTLS(t *teller) error {
	random := make([]byte, 64<<10)
	_, _ = rand.Read(random) // never fails
	texts := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), random, bytes.Repeat([]byte{0xff}, 1000), make([]byte, 1000),
		{22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xff},
		{22, 3, 1, 0, 4, 2, 0, 0, 0},
		{22, 3, 1, 0, 0},
		[]byte("SSH-2.0-x\r\n"),
	}
	return t.each(t.many(3, 100)*len(texts), func(i int) error {
		conn, err := t.dial()
		if err != nil {
			return err
		}
		_, _ = conn.Write(texts[i%len(texts)]) // it may be closed already
		return isClosed(conn)
	})
}

func tellNothing(t *teller) error {
	err := t.each(t.many(300, 3000), func(int) error {
		_, err := t.dial()
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellSlowly(t *teller) error {
	hello := t.clientHello()
	for range t.many(100, 1000) {
		conn, err := t.dial()
		if err != nil {
			return err
		}
		t.work.Go(func() {
			for i := range hello {
				if _, err := conn.Write(hello[i : i+1]); err != nil {
					return
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-t.ctx.Done():
					return
				}
			}
		})
	}
	return t.hold()
}

func tellHalfHello(t *teller) error {
	hello := t.clientHello()
	err := t.each(t.many(200, 3000), func(i int) error {
		conn, err := t.dial()
		if err == nil {
			_, _ = conn.Write(hello[:len(hello)-1-i%len(hello)/2])
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellHalfShake(t *teller) error {
	hello := t.clientHello()
	err := t.each(t.many(100, 1000), func(int) error {
		conn, err := t.dial()
		if err == nil {
			_, _ = conn.Write(hello)
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellLongExchange sends the same first message again and again: it costs whoever sends it nothing to have keys exchanged on
// a curve where that takes long.
func tellLongExchange(t *teller) error {
	for _, curve := range []tls.CurveID{tls.CurveP384, tls.SecP384r1MLKEM1024, tls.CurveP521} {
		hello := t.clientHello(curve)
		err := t.each(t.many(50, 1000), func(int) error {
			conn, err := t.dial()
			if err != nil {
				return err
			}
			_, _ = conn.Write(hello)
			answer := make([]byte, 1)
			if n, err := conn.Read(answer); n > 0 && answer[0] != tlsAlert {
				return fmt.Errorf("keys are exchanged with %s: %w", curve, err)
			}
			return conn.Close()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tlsAlert is the kind of a record of TLS that says what is wrong.
const tlsAlert = 21

func tellReset(t *teller) error {
	return t.each(t.many(300, 3000), func(i int) error {
		conn, err := t.dial()
		if err != nil {
			return err
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // close resets
		if i%2 == 0 {
			_, _ = conn.Write([]byte{22, 3, 1})
		}
		return conn.Close()
	})
}

func tellNoCertificate(t *teller) error {
	return t.each(t.many(50, 500), func(int) error { return t.refused(t.ownProtocol(), tls.Certificate{}) })
}

// stranger is a certificate by an authority of its own.
func stranger(t *teller) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := template(t.uri("liar"))
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func tellStrangers(t *teller) error {
	cert, err := stranger(t)
	if err != nil {
		return err
	}
	return t.each(t.many(200, 2000), func(int) error { return t.refused(t.ownProtocol(), cert) })
}

func tellLongChain(t *teller) error {
	cert, err := t.ownCertificate()
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return err
	}
	parent := template()
	parent.IsCA, parent.BasicConstraintsValid, parent.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, parent, parent, key.Public(), key)
	if err != nil {
		return err
	}
	chain := [][]byte{cert.Certificate[0]}
	for range 110 {
		chain = append(chain, der)
	}
	return t.each(t.many(16, 200), func(int) error {
		return t.refused(t.ownProtocol(), tls.Certificate{Certificate: chain, PrivateKey: cert.PrivateKey})
	})
}

// tellMutualChain shows four certificates of one name and key, each of which may have certified any other, in the name of the
// authority.
func tellMutualChain(t *teller) error {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return err
	}
	var chain [][]byte
	for i := range 4 {
		c := template(t.uri(fmt.Sprint("liar", i))) // without names of their own they would count as one
		c.SerialNumber, c.Subject = big.NewInt(int64(i+1)), t.ca.cert.Subject
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			return err
		}
		chain = append(chain, der)
	}
	return t.each(t.many(100, 2000), func(int) error {
		return t.refused(t.ownProtocol(), tls.Certificate{Certificate: chain, PrivateKey: key})
	})
}

// tellLongKey shows a key of which there is no private one: the chain is looked at before.
func tellLongKey(t *teller) error {
	n := new(big.Int).Lsh(big.NewInt(1), 16384-1)
	c := template(t.uri("liar"))
	der, err := x509.CreateCertificate(rand.Reader, c, t.ca.cert, &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}, t.ca.key)
	if err != nil {
		return err
	}
	own, err := t.ownCertificate()
	if err != nil {
		return err
	}
	return t.each(t.many(8, 100), func(int) error {
		return t.refused(t.ownProtocol(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own.PrivateKey})
	})
}

func tellLongCertificate(t *teller) error {
	c := template(t.uri("liar"))
	c.DNSNames = nil
	c.Subject.CommonName = strings.Repeat("x", 1<<20)
	cert, err := t.ca.sign(c)
	if err != nil {
		return err
	}
	return t.each(t.many(8, 100), func(int) error { return t.refused(t.ownProtocol(), cert) })
}

func tellExpired(t *teller) error {
	old, early := template(t.uri("liar")), template(t.uri("liar"))
	old.NotAfter = time.Now().Add(-time.Minute)
	early.NotBefore = time.Now().Add(time.Hour)
	for _, c := range []*x509.Certificate{old, early} {
		cert, err := t.ca.sign(c)
		if err != nil {
			return err
		}
		if err := t.refused(t.ownProtocol(), cert); err != nil {
			return err
		}
	}
	return nil
}

// refusedNames lets somebody come under names that none may have.
func refusedNames(names ...string) func(*teller) error {
	return func(t *teller) error {
		for _, name := range names {
			if err := t.refusedURIs(t.uri(name)); err != nil {
				return fmt.Errorf("name %.50q: %w", name, err)
			}
		}
		return nil
	}
}

// refusedURIs shows a certificate with these.
func (t *teller) refusedURIs(uris ...string) error {
	cert, err := t.ca.sign(template(uris...))
	if err != nil {
		return err
	}
	return t.refused(t.ownProtocol(), cert)
}

func tellOtherURIs(t *teller) error {
	own := "/" + string(t.ownRole()) + "/liar"
	for _, uris := range [][]string{
		{"harp://others" + own},
		{"HARP://faults" + own},
		{"harp://FAULTS" + own},
		{"harp://faults:1" + own},
		{"harp://x@faults" + own},
		{"harp://faults" + own + "?x"},
		{"harp://faults" + own + "#x"},
		{"harp:faults" + own},
		{"harp://faults" + own + "/"},
		{"harp://faults/" + strings.ToUpper(string(t.ownRole())) + "/liar"},
		{"harp://faults//liar"},
		{"harp://faults/liar"},
		{t.uri("a"), t.uri("b")},
		{t.uri("a"), t.uri("a")},
		{},
		{"https://faults" + own},
		{t.uri("li%61r")},
	} {
		if err := t.refusedURIs(uris...); err != nil {
			return fmt.Errorf("%q: %w", uris, err)
		}
	}
	return nil
}

func tellOtherRole(t *teller) error {
	for _, as := range []role{caller, agent, dispatcher, "root", nobody} {
		for ends, protocol := range protocols {
			if ends == [2]role{as, t.to} {
				continue
			}
			cert, err := t.ca.identify(string(as), "liar")
			if err != nil {
				return err
			}
			if t.to == dispatcher && ends == [2]role{dispatcher, agent} && as == agent {
				continue // the protocol is the same in both directions
			}
			if t.to == agent && ends == [2]role{agent, dispatcher} && as == dispatcher {
				continue
			}
			if err := t.refused(protocol, cert); err != nil {
				return fmt.Errorf("%s as %s: %w", as, protocol, err)
			}
		}
	}
	return nil
}

func tellOtherProtocol(t *teller) error {
	cert, err := t.ownCertificate()
	if err != nil {
		return err
	}
	for _, protocol := range []string{"h2", "harp-enrol/1", "harp-call/2", "HARP-CALL/1", strings.Repeat("x", 255)} {
		if err := t.refused(protocol, cert); err != nil {
			return fmt.Errorf("%s: %w", protocol, err)
		}
	}
	return nil
}

func tellOldTLS(t *teller) error {
	cert, err := t.ownCertificate()
	if err != nil {
		return err
	}
	return t.each(t.many(20, 200), func(int) error {
		conn, err := t.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		secured := tls.Client(conn, &tls.Config{
			Certificates: []tls.Certificate{cert}, NextProtos: []string{t.ownProtocol()},
			InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, //nolint:gosec // it is the other side that has to look
		})
		if err := secured.HandshakeContext(t.ctx); err == nil {
			return errors.New("TLS 1.2 is spoken")
		}
		return nil
	})
}

func tellRubbish(t *teller) error {
	hello := t.clientHello()
	return t.each(t.many(30, 300), func(i int) error {
		conn, err := t.dial()
		if err != nil {
			return err
		}
		_, _ = conn.Write(hello)
		if i%2 == 0 {
			_, _ = conn.Write(hello) // once more
		}
		_, _ = conn.Write(bytes.Repeat([]byte{23, 3, 3, 0x40, 0}, 4000))
		return isClosed(conn)
	})
}
