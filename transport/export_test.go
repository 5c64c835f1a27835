package transport

import (
	"context"
	"io"
	"net"
)

// NetConn returns the connection beneath c, to break the protocol on it.
func NetConn(c *Conn) net.Conn { return c.nc }

// Raw is an end of a connection with streams but without a session, to send on
// them what a session never would.
type Raw struct{ mux mux }

// NewRaw makes streams of a connection.
func NewRaw(c *Conn, opener bool) (*Raw, error) {
	m, err := newMux(c.nc, Options{}.withDefaults(), opener)
	return &Raw{m}, err
}

// Open opens a stream, whether this side may or not.
func (r *Raw) Open() (io.ReadWriteCloser, error) { return r.mux.open(context.Background()) }

// Accept returns the next stream of the peer.
func (r *Raw) Accept(ctx context.Context) (io.ReadWriteCloser, error) { return r.mux.accept(ctx) }

// Close closes the connection.
func (r *Raw) Close() { r.mux.close() }

// AppendFrame appends a frame as it is sent.
func AppendFrame(b []byte, f Frame) []byte { return append(f.appendHeader(b), f.Body...) }

// ReadFrame reads a frame as a session does.
func ReadFrame(r io.Reader, limit func(Type) int) (Frame, error) {
	fr := frameReader{r: r, limit: limit}
	return fr.read()
}

// Lanes returns how many lanes a session has, and how many of them are idle.
func Lanes(s *Session) (all, idle int) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	for l := range s.lanes.lanes {
		if !l.idle.IsZero() {
			idle++
		}
	}
	return len(s.lanes.lanes), idle
}

// SendBeat sends a heartbeat though it may not be time.
func SendBeat(c *Control) { c.sendBeat() }
