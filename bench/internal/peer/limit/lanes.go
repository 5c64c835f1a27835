package limit

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// gatherer is a connection that writes together what was written while the last
// write was under way.
type gatherer struct {
	net.Conn
	mu      sync.Mutex // guards what follows
	buf     []byte
	err     error
	wake    chan struct{} // 1 slot
	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup

	streams []*yamux.Stream // guarded by mu
	ended   bool            // guarded by mu
}

// keep notes a stream for end.
func (g *gatherer) keep(s *yamux.Stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = append(g.streams, s)
	if g.ended {
		_ = s.SetReadDeadline(time.Unix(1, 0))
	}
}

// end lets nobody wait for a stream any more: when a session of yamux ends, who does
// spins until it has closed the streams, and thousands keep it from that.
func (g *gatherer) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, s := range g.streams {
		_ = s.SetReadDeadline(time.Unix(1, 0))
	}
}

// Read ends the streams when the connection has.
func (g *gatherer) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if err != nil {
		g.end()
	}
	return n, err
}

func gather(c net.Conn) *gatherer {
	g := &gatherer{Conn: c, wake: make(chan struct{}, 1), closing: make(chan struct{})}
	g.done.Go(g.loop)
	return g
}

func (g *gatherer) Write(b []byte) (int, error) {
	g.mu.Lock()
	g.buf = append(g.buf, b...)
	err := g.err
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return len(b), err
}

func (g *gatherer) loop() {
	var spare []byte
	for {
		select {
		case <-g.wake:
		case <-g.closing:
			return
		}
		g.mu.Lock()
		out := g.buf
		g.buf = spare[:0]
		g.mu.Unlock()
		if _, err := g.Conn.Write(out); err != nil {
			g.mu.Lock()
			g.err = err
			g.mu.Unlock()
		}
		spare = out
	}
}

func (g *gatherer) Close() error {
	g.once.Do(func() { close(g.closing) })
	err := g.Conn.Close()
	g.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // it is closed by whoever comes first
	}
	return err
}

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput, c.EnableKeepAlive, c.AcceptBacklog = io.Discard, false, 8192
	return c
}

// lanes are the kept streams of a connection, each for one question at a time.
type lanes struct {
	conn    *gatherer
	session *yamux.Session
	mu      sync.Mutex // guards free
	free    []*lane
}

type lane struct {
	stream io.ReadWriteCloser
	in     *bufio.Reader
}

func dialLanes(addr string, tc *tls.Config) (*lanes, error) {
	c, err := tls.Dial("tcp", addr, tc)
	if err != nil {
		return nil, err
	}
	g := gather(c)
	s, err := yamux.Client(g, config())
	return &lanes{conn: g, session: s}, err
}

// ask sends a question and returns the answer.
func (l *lanes) ask(question []byte) ([]byte, error) {
	way, err := l.take()
	if err != nil {
		return nil, err
	}
	if err := writeFrame(way.stream, question); err != nil {
		return nil, err
	}
	answer, err := readFrame(way.in)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, way)
	return answer, nil
}

func (l *lanes) take() (*lane, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		way := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		return way, nil
	}
	l.mu.Unlock()
	s, err := l.session.OpenStream()
	if err != nil {
		return nil, err
	}
	l.conn.keep(s)
	return &lane{s, bufio.NewReaderSize(s, 512)}, nil
}

func (l *lanes) Close() error {
	l.conn.end()
	return l.session.Close()
}

// maxFrame bounds what is read.
const maxFrame = 1 << 20

func writeFrame(w io.Writer, b []byte) error {
	out := make([]byte, 0, 4+len(b))
	out = binary.BigEndian.AppendUint32(out, uint32(len(b))) //nolint:gosec // far below
	_, err := w.Write(append(out, b...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, errors.New("limit: frame too large")
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
