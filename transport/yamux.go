package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	acceptBacklog = 1024
	openBacklog   = 16 // streams opened and not yet accepted
	defaultWindow = 256 << 10
	maxWindow     = 4 << 20
)

// yamuxMux carries streams over a connection with yamux.
//
// Between the moment a session of yamux notices its end and the moment it has
// closed its streams, every goroutine blocked on a stream spins, and a few dozen
// of them take seconds to let the session go on. So the mux knows the streams and
// makes each of them time out before.
type yamuxMux struct {
	gather  *gather
	session *yamux.Session
	aborted atomic.Bool

	mu      sync.Mutex // guards what follows; never held while blocked
	streams map[*yamuxStream]struct{}
}

// newYamux makes a mux of a connection. The opener is yamux's client, whoever
// dialled.
func newYamux(nc net.Conn, o Options, opener bool) (*yamuxMux, error) {
	config := &yamux.Config{
		AcceptBacklog:          acceptBacklog,
		EnableKeepAlive:        false,
		KeepAliveInterval:      writeTimeout, // not used, but zero is refused
		ConnectionWriteTimeout: writeTimeout,
		MaxStreamWindowSize:    uint32(o.Window),
		StreamOpenTimeout:      30 * time.Second,
		StreamCloseTimeout:     60 * time.Second,
		Logger:                 yamuxLog{o.Logger},
	}
	var opens *limiter
	start := yamux.Server
	if opener {
		config.AcceptBacklog = openBacklog
		start = yamux.Client
	} else {
		opens = newLimiter(2*openRate, 2*o.MaxLanes+openStall)
	}
	m := &yamuxMux{streams: make(map[*yamuxStream]struct{})}
	m.gather = newGather(nc, opens, m.abort)
	var err error
	if m.session, err = start(m.gather, config); err != nil {
		_ = m.gather.Close()
		return nil, fmt.Errorf("transport: %w", err)
	}
	return m, nil
}

func (m *yamuxMux) open(context.Context) (stream, error) {
	st, err := m.session.OpenStream()
	if err != nil {
		return nil, err
	}
	return m.add(st), nil
}

func (m *yamuxMux) accept(ctx context.Context) (stream, error) {
	st, err := m.session.AcceptStreamWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return m.add(st), nil
}

func (m *yamuxMux) add(st *yamux.Stream) *yamuxStream {
	s := &yamuxStream{Stream: st, mux: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[s] = struct{}{}
	if m.aborted.Load() {
		_ = s.SetDeadline(longAgo) // always nil
	}
	return s
}

func (m *yamuxMux) remove(s *yamuxStream) {
	m.mu.Lock()
	delete(m.streams, s)
	m.mu.Unlock()
}

// abort makes all that is blocked on a stream return. What was received can still
// be read.
func (m *yamuxMux) abort() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.aborted.Store(true)
	for s := range m.streams {
		_ = s.SetDeadline(longAgo) // always nil
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func (m *yamuxMux) rest() { m.gather.rest() }

// close sends what was written before it ends the session.
func (m *yamuxMux) close() {
	m.gather.finish()
	m.session.Close() //nolint:errcheck // always nil
}

// broken are the ends of a session that only a peer that is not yamux, or not
// well-meaning, can cause.
var broken = []error{
	yamux.ErrInvalidVersion, yamux.ErrInvalidMsgType, yamux.ErrDuplicateStream,
	yamux.ErrRecvWindowExceeded, yamux.ErrUnexpectedFlag,
}

// cause returns the connection's first failure, else what yamux ended with.
func (m *yamuxMux) cause() error {
	if err := m.gather.cause(); err != nil {
		return err
	}
	if !m.session.IsClosed() {
		return nil
	}
	st, err := m.session.AcceptStream() // a closed session returns why it ended
	if err == nil {
		st.Close() //nolint:errcheck // the session is gone
		return nil
	}
	for _, b := range broken {
		if errors.Is(err, b) {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	}
	return err
}

// yamuxStream is a stream of yamux.
type yamuxStream struct {
	*yamux.Stream
	mux   *yamuxMux
	until time.Time // the deadline of writes; belongs to who writes
}

// Read reads what there is. yamux may report a deadline though something is there
// to be read; after the end of the connection nobody would ask again.
func (s *yamuxStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if errors.Is(err, yamux.ErrTimeout) {
		n, err = s.Stream.Read(p)
	}
	return n, err
}

// deadlineStep is how much later than it must a write may time out, so that not each
// has to set the deadline.
const deadlineStep = time.Second

// Write writes p, for at most writeTimeout.
func (s *yamuxStream) Write(p []byte) (int, error) {
	if latest := time.Now().Add(writeTimeout); latest.After(s.until) {
		s.until = latest.Add(deadlineStep)
		_ = s.SetWriteDeadline(s.until) // always nil
	}
	if s.mux.aborted.Load() { // before or after, abort is seen
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Write(p)
	if errors.Is(err, yamux.ErrStreamClosed) || errors.Is(err, yamux.ErrConnectionReset) {
		err = errStreamClosed
	}
	return n, err
}

// Close closes the stream and unblocks Read, which yamux would leave waiting for
// the peer.
func (s *yamuxStream) Close() error {
	s.mux.remove(s)
	_ = s.SetReadDeadline(longAgo) // always nil
	return s.Stream.Close()
}

func (s *yamuxStream) shrink() { s.Shrink() }

// yamuxLog passes yamux's complaints on at debug level: what matters of them is
// in the reason the session ends with.
type yamuxLog struct{ *slog.Logger }

func (l yamuxLog) Print(v ...any)                 { l.line(fmt.Sprint(v...)) }
func (l yamuxLog) Println(v ...any)               { l.line(fmt.Sprintln(v...)) }
func (l yamuxLog) Printf(format string, v ...any) { l.line(fmt.Sprintf(format, v...)) }

func (l yamuxLog) line(text string) {
	l.Debug("yamux", "text", strings.TrimSpace(text))
}
