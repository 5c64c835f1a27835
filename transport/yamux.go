package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	maxStreams  = 1 + maxBodyStreams // that a side opens
	openBacklog = maxStreams         // streams opened and not yet accepted

	// turnTime is how long a write may wait for those of other streams: for ever. Over a slow
	// line the turns of all streams take long. Of a write whose turn it is yamuxConn sees
	// that the peer takes it.
	turnTime = 1000 * time.Hour
)

// yamuxMux carries streams over a connection with yamux.
type yamuxMux struct {
	conn    *yamuxConn
	session *yamux.Session
}

// newYamux makes a mux of a connection. The opener is yamux's client, whoever
// dialled.
func newYamux(nc net.Conn, o Options, opener bool) (*yamuxMux, error) {
	config := &yamux.Config{
		AcceptBacklog:          openBacklog,
		EnableKeepAlive:        false,
		KeepAliveInterval:      writeTimeout, // not used, but zero is refused
		ConnectionWriteTimeout: turnTime,
		MaxStreamWindowSize:    mainWindow,
		StreamOpenTimeout:      0, // none: a stream is accepted when a frame that names it was read
		StreamCloseTimeout:     60 * time.Second,
		Logger:                 yamuxLog{o.Logger},
	}
	start := yamux.Server
	if opener {
		start = yamux.Client
	}
	m := &yamuxMux{conn: newYamuxConn(nc, opener)}
	var err error
	if m.session, err = start(m.conn, config); err != nil {
		_ = m.conn.Close()
		return nil, fmt.Errorf("transport: %w", err)
	}
	return m, nil
}

func (m *yamuxMux) Open(context.Context) (Stream, error) {
	st, err := m.session.OpenStream()
	if err != nil {
		return nil, err
	}
	return &yamuxStream{Stream: st}, nil
}

func (m *yamuxMux) Accept(ctx context.Context) (Stream, error) {
	st, err := m.session.AcceptStreamWithContext(ctx)
	if err != nil {
		return nil, err
	}
	m.conn.accepted()
	return &yamuxStream{Stream: st}, nil
}

// Opened returns a stream that was seen in what was read: yamux hands it on before anything that came behind it.
func (m *yamuxMux) Opened() (st Stream, ok bool, err error) {
	if m.conn.unaccepted.Load() == 0 {
		return nil, false, nil
	}
	st, err = m.Accept(context.Background())
	return st, err == nil, err
}

// Expect lets n more bytes come on the streams for bodies.
func (m *yamuxMux) Expect(n int) { m.conn.expected.Add(int64(n)) }

// Close sends what was written before it ends the session.
func (m *yamuxMux) Close() {
	m.conn.finishSending()
	m.session.Close() //nolint:errcheck // always nil
}

// broken are the ends of a session that only a peer that is not yamux, or not
// well-meaning, can cause.
var broken = []error{
	yamux.ErrInvalidVersion, yamux.ErrInvalidMsgType, yamux.ErrDuplicateStream,
	yamux.ErrRecvWindowExceeded, yamux.ErrUnexpectedFlag,
}

// Cause returns what the peer did that is not yamux, else the connection's first failure,
// which may be that of a write that yamux cut short, else what yamux ended with.
func (m *yamuxMux) Cause() error {
	err := m.endCause()
	for _, b := range broken {
		if errors.Is(err, b) {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	}
	return cmp.Or(m.conn.cause(), err)
}

func (m *yamuxMux) Heard() time.Time { return m.conn.born.Add(time.Duration(m.conn.heard.Load())) }

// endCause returns what yamux ended with, nil while it has not.
func (m *yamuxMux) endCause() error {
	if !m.session.IsClosed() {
		return nil
	}
	for { // a closed session returns why it ended, sooner or later
		st, err := m.session.AcceptStream()
		if err != nil {
			return err
		}
		st.Close() //nolint:errcheck // the session is gone
	}
}

// yamuxStream is a stream of yamux.
type yamuxStream struct {
	*yamux.Stream
	until time.Time // the deadline of writes
}

// deadlineStep is how much later than it must a write may time out, so that not each
// has to set the deadline.
const deadlineStep = time.Second

func (s *yamuxStream) WriteWithin(p []byte, within time.Duration) error {
	if latest := time.Now().Add(within); within > 0 && latest.After(s.until) {
		s.until = latest.Add(deadlineStep)
		_ = s.SetWriteDeadline(s.until) // always nil
	}
	_, err := s.Write(p)
	return err
}

func (s *yamuxStream) ID() uint32 { return s.StreamID() }

func (s *yamuxStream) Shrink() { s.Stream.Shrink() }

// yamuxLog passes yamux's complaints on at debug level: what matters of them is
// in the reason the session ends with.
type yamuxLog struct{ *slog.Logger }

func (l yamuxLog) Print(v ...any)                 { l.logLine(fmt.Sprint(v...)) }
func (l yamuxLog) Println(v ...any)               { l.logLine(fmt.Sprintln(v...)) }
func (l yamuxLog) Printf(format string, v ...any) { l.logLine(fmt.Sprintf(format, v...)) }

func (l yamuxLog) logLine(text string) {
	l.Debug("yamux", "text", strings.TrimSpace(text))
}
