package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxLanes = 4096
	// openRate is how many lanes the opener opens a second once it has used up a
	// burst of MaxLanes. The acceptor tolerates twice both, and openStall more: what
	// a connection that stalled, for as long as one may, delivers at once.
	openRate  = 1000
	openStall = openRate * int(writeTimeout/time.Second)
)

// Options are the settings of a session. The zero value works.
type Options struct {
	// Logger gets one line when the peer breaks the protocol, and at debug level
	// what yamux has to say. Default: slog.Default().
	Logger *slog.Logger
	// MaxFrame returns the longest body this side receives of a type, at most
	// [MaxFrame]. It must not block. Default: 128 KiB for every type.
	MaxFrame func(Type) int
	// MaxLanes is how many lanes the session may have. The opener has no more. The
	// acceptor, for which lanes count until their handlers have returned, ends the
	// session at more than twice the number. Default: 4096.
	MaxLanes int
	// Window is how many bytes of a stream the peer may send ahead of what was
	// read: 256 KiB, the default, to 4 MiB. More is for receiving in bulk over
	// long distances.
	Window int
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxLanes <= 0 {
		o.MaxLanes = defaultMaxLanes
	}
	o.Window = min(max(o.Window, defaultWindow), maxWindow)
	return o
}

// Session is a connection in which one side, the opener, begins exchanges and the
// other, the acceptor, answers them. Either side calls [Session.Control] first.
//
// Its methods are safe for concurrent use.
type Session struct {
	mux     mux
	peer    Peer
	options Options
	opener  bool
	opens   *limiter // how fast the opener opens
	lanes   pool

	born  time.Time
	heard atomic.Int64 // when a frame was last received, since born

	dying chan struct{} // closed when the session ends
	done  chan struct{} // closed when its goroutines have returned
	tasks sync.WaitGroup

	mu        sync.Mutex // guards what follows; never held while blocked
	reason    error      // why it ended
	after     error      // what is returned of its use since
	control   *Control
	begun     bool // Control was called
	serving   bool // Serve was called
	stopServe context.CancelFunc
}

func newSession(m mux, peer Peer, o Options, opener bool) *Session {
	s := &Session{
		mux:     m,
		peer:    peer,
		options: o,
		opener:  opener,
		lanes:   pool{opener: opener, max: o.MaxLanes},
		born:    time.Now(),
		dying:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	if opener {
		s.opens = newLimiter(openRate, o.MaxLanes)
	} else {
		s.lanes.max *= 2
	}
	return s
}

// Peer returns who is at the other end.
func (s *Session) Peer() Peer { return s.peer }

// Control returns the control stream, the first of the session: the opener opens
// it, the acceptor waits for it until ctx ends. Nothing else works before.
//
// The error is [ErrProtocol] when it was called before, [ErrSessionClosed], or
// ctx's.
func (s *Session) Control(ctx context.Context) (*Control, error) {
	c, err := s.openControl(ctx)
	if err != nil {
		return nil, err
	}
	if !s.start(c.readLoop) {
		return nil, s.closedErr()
	}
	return c, nil
}

// Converse is Control for who has nothing else to do until the session ends, and
// needs no goroutine while nothing is said: it reads the control stream itself. ctx
// bounds the wait for the stream.
// It calls begin, which may send and receive; then hear with each frame, one after the
// other, in goroutines that last as long as there is something to hear. It returns
// when the session has ended and neither runs any more. The first error of either ends
// the session and is returned, else that of Control or [ErrSessionClosed].
func (s *Session) Converse(ctx context.Context, begin func(*Control) error, hear func(Frame) error) error {
	c, err := s.openControl(ctx)
	if err != nil {
		return err
	}
	c.listen(begin, hear)
	s.run(c.readLoop)
	c.in.close(s.closedErr()) // a session that has ended before runs nothing
	return c.listened()
}

// openControl opens the control stream, which is not read yet.
func (s *Session) openControl(ctx context.Context) (*Control, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	st, err := s.firstStream(ctx)
	if err != nil {
		return nil, s.openFailed(ctx, err)
	}
	c := newControl(newLane(s, st))
	s.mu.Lock()
	s.control = c
	s.mu.Unlock()
	return c, nil
}

func (s *Session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return fmt.Errorf("%w: Control was called before", ErrProtocol)
	}
	s.begun = true
	return nil
}

func (s *Session) firstStream(ctx context.Context) (stream, error) {
	if !s.opener {
		return s.mux.accept(ctx)
	}
	return s.mux.open(ctx)
}

// openFailed ends the session, unless it was only that ctx ended.
func (s *Session) openFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil && !s.isDying() {
		return ctx.Err()
	}
	s.lost(err)
	return s.closedErr()
}

// Exchange begins an exchange on an idle lane, or else on a new one, for which it
// waits until ctx ends. Only the opener may. Nothing is sent by it.
//
// The error is [ErrTooManyLanes], [ErrSessionClosed], ctx's, or [ErrProtocol] for
// an acceptor or before Control.
func (s *Session) Exchange(ctx context.Context) (*Exchange, error) {
	if err := s.ready(true); err != nil {
		return nil, err
	}
	l := s.lanes.get()
	if l == nil {
		var err error
		if l, err = s.openLane(ctx); err != nil {
			return nil, err
		}
	}
	return l.ask()
}

// ready reports whether the session has its control stream and this side may do
// what the opener, or the acceptor, does.
func (s *Session) ready(opener bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.after != nil:
		return s.after
	case s.control == nil:
		return fmt.Errorf("%w: Control was not called", ErrProtocol)
	case s.opener != opener:
		return fmt.Errorf("%w: this side of the session does not", ErrProtocol)
	}
	return nil
}

// openLane opens a lane. If it is not open when ctx ends, it becomes an idle one
// once it is.
func (s *Session) openLane(ctx context.Context) (*lane, error) {
	if !s.lanes.reserve() {
		return nil, ErrTooManyLanes
	}
	if err := s.opens.wait(ctx); err != nil {
		s.lanes.cancel()
		return nil, ctx.Err()
	}
	opened := make(chan *lane)
	s.start(func() {
		st, err := s.mux.open(context.Background())
		if err != nil {
			s.lost(fmt.Errorf("open: %w", err))
			return
		}
		l := newLane(s, st)
		s.lanes.add(l)
		select {
		case opened <- l:
		case <-ctx.Done():
			s.lanes.put(l)
		case <-s.dying:
		}
	})
	select {
	case l := <-opened:
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.dying:
		return nil, s.closedErr()
	}
}

// Close ends the session for the reason given, which [Session.Err] returns from
// then on; nil means [ErrSessionClosed]. What was sent before is sent, if the peer
// takes it within a second. Close unblocks all that waits and returns when the
// session's goroutines have; handlers run by Serve it does not wait for, so that
// they may call it. Only the first call has a reason.
func (s *Session) Close(reason error) {
	if reason == nil {
		reason = ErrSessionClosed
	}
	s.fail(reason)
	<-s.done
}

// Done is closed when the session has ended and its goroutines, other than
// handlers, have returned.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session ended, nil while it has not: the reason given to
// Close, [ErrSessionClosed] joined with what became of the connection, or
// [ErrSilent], [ErrMalformed], [ErrFrameTooLarge] or [ErrProtocol].
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// Heard returns when a frame was last received, on any stream, or when the
// session began.
func (s *Session) Heard() time.Time {
	return s.born.Add(time.Duration(s.heard.Load()))
}

func (s *Session) hear() { s.heard.Store(int64(time.Since(s.born))) }

// maxFrame is how long a body of type t may be.
func (s *Session) maxFrame(t Type) int {
	switch {
	case t == heartbeat:
		return 0
	case s.options.MaxFrame == nil:
		return defaultMaxFrame
	}
	return min(s.options.MaxFrame(t), MaxFrame)
}

// start runs f in a goroutine that the end of the session waits for. It reports
// whether it did: a session that has ended runs nothing new.
func (s *Session) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return false
	}
	s.tasks.Go(f)
	return true
}

// run is start for a goroutine that has nothing else to do: it runs f itself.
func (s *Session) run(f func()) {
	s.mu.Lock()
	if s.reason != nil {
		s.mu.Unlock()
		return
	}
	s.tasks.Add(1)
	s.mu.Unlock()
	defer s.tasks.Done()
	f()
}

// fail ends the session without waiting. The first reason counts.
func (s *Session) fail(reason error) {
	s.mu.Lock()
	if s.reason != nil {
		s.mu.Unlock()
		return
	}
	s.reason, s.after = reason, reason
	if !errors.Is(reason, ErrSessionClosed) {
		s.after = fmt.Errorf("%w: %w", ErrSessionClosed, reason)
	}
	control, stopServe := s.control, s.stopServe
	close(s.dying) // within the lock: who finds a reason finds the session dying
	s.mu.Unlock()
	s.complain(reason)
	s.lanes.close()
	if control != nil {
		control.stop()
	}
	if stopServe != nil {
		stopServe()
	}
	go s.end()
}

// end waits for all that belongs to the session.
func (s *Session) end() {
	s.mux.close()
	s.tasks.Wait()
	close(s.done)
}

// complain logs what the peer did wrong.
func (s *Session) complain(reason error) {
	for _, bad := range []error{ErrMalformed, ErrFrameTooLarge, ErrProtocol, ErrSilent} {
		if errors.Is(reason, bad) {
			s.options.Logger.Warn("session closed",
				"peer", s.peer.Identity.String(), "addr", s.peer.Addr, "error", reason.Error())
			return
		}
	}
}

// check ends the session if its connection has ended.
func (s *Session) check() {
	if cause := s.mux.cause(); cause != nil {
		s.lost(cause)
	}
}

// lost ends the session because of its connection. err is what was noticed.
func (s *Session) lost(err error) {
	if cause := s.mux.cause(); cause != nil {
		err = cause
	}
	switch {
	case errors.Is(err, ErrProtocol):
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w by the peer", ErrSessionClosed)
	default:
		err = fmt.Errorf("%w: %w", ErrSessionClosed, err)
	}
	s.fail(err)
}

func (s *Session) isDying() bool {
	select {
	case <-s.dying:
		return true
	default:
		return false
	}
}

// closedErr is the error of using a session that has ended.
func (s *Session) closedErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}
