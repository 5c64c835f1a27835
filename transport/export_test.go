package transport

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
)

// NetConn returns the connection beneath c, to break the protocol on it.
func NetConn(c *Conn) net.Conn { return c.nc }

// Raw is an end of a connection with streams but without a session, to send on
// them what a session never would.
type Raw struct{ mux Mux }

// NewRaw makes streams of a connection.
func NewRaw(c *Conn, opener bool) (*Raw, error) {
	m, err := newMux(c.nc, Options{}.withDefaults(), opener)
	if err == nil {
		m.Expect(1 << 30)
	}
	return &Raw{m}, err
}

// Open opens a stream, whether this side may or not.
func (r *Raw) Open() (io.ReadWriter, error) { return rawStream(r.mux.Open(context.Background())) }

// RawStream is a stream without a session.
type RawStream struct{ Stream }

func rawStream(st Stream, err error) (io.ReadWriter, error) { return RawStream{st}, err }

// Write writes p, in pieces as a session does.
func (s RawStream) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, writeSize) {
		if err := s.WriteWithin(piece, 0); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Accept returns the next stream of the peer.
func (r *Raw) Accept(ctx context.Context) (io.ReadWriter, error) { return rawStream(r.mux.Accept(ctx)) }

// Close closes the connection.
func (r *Raw) Close() { r.mux.Close() }

// CheckChain keeps the bounds of certificates.
func CheckChain(chain []*x509.Certificate) error { return checkChain(chain) }

// Trusted returns those of some certificates that lead to a root.
func Trusted(roots *x509.CertPool, certs []*x509.Certificate) *x509.CertPool {
	return trusted(x509.VerifyOptions{Roots: roots}, certs)
}

// AppendFrame appends a frame as it is sent.
func AppendFrame(b []byte, f Frame) []byte { return f.append(b) }

// ReadFrame reads a frame as a session does.
func ReadFrame(r io.Reader, limit func(Type) int) (Frame, error) {
	fr := frameReader{r: r, limit: limit}
	return fr.readFrame()
}

// SetLastNumber makes the next exchange get the number after n.
func SetLastNumber(s *Session, n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = n
}

// SendBeat sends a heartbeat though it may not be time.
func SendBeat(s *Session) { s.out.sendBeat() }

// Waiting returns how many bytes of frames wait to be taken.
func Waiting(s *Session) int64 { return s.waiting.Load() }

// Queued returns how many bytes of frames wait to be written.
func Queued(s *Session) int {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return len(s.out.buf)
}

// Kept returns how large the buffers of a session's writer are, and whether it runs.
func Kept(s *Session) (bytes int, writing bool) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return cap(s.out.buf) + cap(s.out.spare), s.out.writing
}

// LimitOpen lets a budget have so many bytes for exchanges that one identity has opened alone.
func LimitOpen(b *Budget, n int64) { b.open.most = 2 * n }

// ExchangePrice is what one costs of it.
const ExchangePrice = exchangePrice

// LimitAnswers lets a budget have so many bytes for answers to one identity alone that were not sent.
func LimitAnswers(b *Budget, n int64) { b.answers.most = 2 * n }

// Held returns how much of a budget is in use.
func Held(b *Budget) (bodies, frames, answers, open int64) {
	return b.bodies.used.Load(), b.frames.used.Load(), b.answers.used.Load(), b.open.used.Load()
}

// LimitAhead lets a budget have room for n sessions whose bodies come ahead.
func LimitAhead(b *Budget, n int64) { b.ahead.most = n * 2 * maxAhead }

// HeldAhead returns how much of a budget is in use for bodies that come ahead.
func HeldAhead(b *Budget) int64 { return b.ahead.used.Load() }

// ExpectBodies lets so many bytes of long bodies come that were not let in.
func ExpectBodies(s *Session, n int) { s.mux.Expect(n) }

// KeptBuffers returns how much of a budget is in use for what yamux keeps between bodies.
func KeptBuffers(b *Budget) int64 { return b.kept.used.Load() }

// MaxKept is how much of that there may be.
const MaxKept = maxKept

// Known returns of how many identities a budget knows something.
func Known(b *Budget) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.peers)
}

// IdentityReceived is how much that was not taken an identity may have.
const IdentityReceived = maxIdentityReceived

// OfIdentities is how much of what has come, and was not taken, counts for identities.
func OfIdentities(b *Budget) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		n += p.received.used.Load()
	}
	return n
}

// Unsecured returns a connection whose other end is taken to be a peer, with yamux and without TLS.
func Unsecured(nc net.Conn, peer Identity) *Conn { return &Conn{nc: nc, peer: Peer{Identity: peer}} }

// LimitBodies lets a budget have so many bytes for bodies.
func LimitBodies(b *Budget, n int64) { b.bodies.most = n }

// BodiesUnderWay returns what a session has to do with long bodies: none if nothing is.
func BodiesUnderWay(s *Session) string {
	b := &s.bodies
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead == 0 && b.announced == 0 && b.untaken == 0 && b.coming == 0 && len(b.sending) == 0 && s.waiting.Load() == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes ahead, %d announced, %d untaken, %d coming, %d being sent, %d bytes waiting",
		b.ahead, b.announced, b.untaken, b.coming, len(b.sending), s.waiting.Load())
}
