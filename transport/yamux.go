package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/time/rate"
)

const (
	acceptBacklog = 1024
	openBacklog   = 16 // streams opened and not yet accepted
	defaultWindow = 256 << 10
	maxWindow     = 4 << 20
)

// yamuxMux carries streams over a connection with yamux.
type yamuxMux struct {
	gather  *gather
	session *yamux.Session
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
	if opener {
		config.AcceptBacklog = openBacklog
		g := newGather(nc, nil)
		session, err := yamux.Client(g, config)
		return newYamuxMux(g, session, err)
	}
	g := newGather(nc, rate.NewLimiter(2*openRate, 2*o.MaxLanes+1))
	session, err := yamux.Server(g, config)
	return newYamuxMux(g, session, err)
}

func newYamuxMux(g *gather, session *yamux.Session, err error) (*yamuxMux, error) {
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("transport: %w", err)
	}
	return &yamuxMux{gather: g, session: session}, nil
}

func (m *yamuxMux) open(context.Context) (stream, error) {
	st, err := m.session.OpenStream()
	if err != nil {
		return nil, err
	}
	return &yamuxStream{st}, nil
}

func (m *yamuxMux) accept(ctx context.Context) (stream, error) {
	st, err := m.session.AcceptStreamWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return &yamuxStream{st}, nil
}

func (m *yamuxMux) close() { m.session.Close() } //nolint:errcheck // always nil

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
type yamuxStream struct{ *yamux.Stream }

// Write writes p, for at most writeTimeout.
func (s *yamuxStream) Write(p []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(writeTimeout)) // always nil
	n, err := s.Stream.Write(p)
	if errors.Is(err, yamux.ErrStreamClosed) || errors.Is(err, yamux.ErrConnectionReset) {
		err = errStreamClosed
	}
	return n, err
}

// Close closes the stream and unblocks Read, which yamux would leave waiting for
// the peer.
func (s *yamuxStream) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0)) // always nil
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
