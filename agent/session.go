package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

const (
	// greetingTime is how long the beginning of a session may take.
	greetingTime = 30 * time.Second
	// factsTime is how long finding out about the host may take.
	factsTime = 10 * time.Second
	// defaultBeat is the interval of heartbeats when nobody says another.
	defaultBeat = 10 * time.Second
	minBeat     = 10 * time.Millisecond
	maxBeat     = 24 * time.Hour
)

// session is a conversation with a dispatcher, or with a direct caller.
type session struct {
	agent     *Agent
	log       *slog.Logger
	peer      transport.Peer
	transport *transport.Session
	control   *transport.Exchange
	opened    chan struct{} // closed when the greeting is over
	direct    bool
	origin    string          // of its attempts, in their keys
	base      context.Context // of its procedures: ends never
	scope     *scope
	vacancy   chan struct{} // 1 slot: attempts are taken on again
	news      chan struct{} // 1 slot: the agent offers other procedures
	over      chan struct{} // closed when nobody is told anything over it any more

	greeted      time.Time  // when HELLO was sent; zero: it was not
	epoch        int64      // since WELCOME
	store        string     // the dispatcher's, since WELCOME
	told         int        // the version of the catalogue that the dispatcher has
	about        harp.Value // the facts that it has
	toldProblems int        // the version of the problems that it has
	closed       bool       // takes on no more attempts; guarded by the mutex of attempts
}

// converse speaks with who is at the other end of conn until the session ends, or
// ctx: then it takes no more calls, interrupts what this scope still runs when its grace is
// over, and closes the session when that has ended and was told. It reports whether the session was open for calls.
func (a *Agent) converse(ctx context.Context, conn *transport.Conn, st *scope) (opened bool, err error) {
	counted, refusal := a.sessions.beginSession(conn.Peer())
	if !counted {
		return false, refusal
	}
	defer a.sessions.endSession(conn.Peer(), refusal)
	opening, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	ts, err := conn.Acceptor(opening, transport.Options{Logger: a.log, MaxFrame: wire.MaxBody, Budget: a.peers})
	if err != nil {
		return false, err
	}
	s := a.newSession(ctx, ts, st)
	var served sync.WaitGroup
	served.Go(func() { ts.Serve(s.handle) }) //nolint:errcheck // the session's own Err says why
	defer served.Wait()
	defer ts.Close(nil)
	defer a.leave(s)
	if err := s.beginConversation(opening, refusal); err != nil {
		return false, err
	}
	close(s.opened)
	s.noteLine("session opened")
	err = s.run(ctx)
	s.noteLine("session ended", "reason", fmt.Sprint(err))
	return true, err
}

// noteLine logs what becomes of the session. Sessions of direct callers are many, and of no concern to others.
func (s *session) noteLine(message string, args ...any) {
	if s.direct {
		s.log.Debug(message, args...)
		return
	}
	s.agent.repeated.Info(s.peer.Identity.String(), message, append(args, "peer", s.peer.Identity.String(), "addr", s.peer.Addr)...)
}

func (a *Agent) newSession(ctx context.Context, ts *transport.Session, st *scope) *session {
	peer := ts.Peer()
	s := &session{
		agent:     a,
		log:       a.log.With("peer", peer.Identity.String(), "addr", peer.Addr),
		peer:      peer,
		transport: ts,
		control:   ts.Control(),
		opened:    make(chan struct{}),
		direct:    peer.Protocol == transport.ProtocolDirect,
		base:      context.WithoutCancel(ctx),
		scope:     st,
		vacancy:   make(chan struct{}, 1),
		news:      make(chan struct{}, 1),
		over:      make(chan struct{}),
	}
	if s.direct {
		s.origin = peer.Identity.String()
	}
	return s
}

// beginConversation says who speaks, and hears it. A direct caller that is refused is told so.
func (s *session) beginConversation(ctx context.Context, refusal error) error {
	if s.direct {
		return s.welcome(ctx, refusal)
	}
	return s.introduce(ctx)
}

// run answers calls until the session ends, or ctx.
func (s *session) run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { s.controlLoop(s.base) })
	loops.Go(s.vacancyLoop)
	loops.Go(s.newsLoop)
	select {
	case <-ctx.Done():
		s.endAttempts()
	case <-s.transport.Done():
	}
	s.transport.Close(nil)
	s.agent.attempts.close(s)
	loops.Wait()
	return s.transport.Err()
}

// endAttempts takes no more calls, ends what runs when its grace is over, and waits for it and
// for its end to be taken, as long as the session lasts.
func (s *session) endAttempts() {
	own := s.agent.attempts.close(s)
	if !s.scope.drain(own, s.agent.cfg.Limits.Grace, s.transport.Done()) {
		return // its scope drains on
	}
	for _, at := range own {
		at.interrupt(harp.ErrClosed)
	}
	for _, at := range own {
		select {
		case <-at.returned.done():
		case <-s.transport.Done():
			return
		}
	}
	grace := time.NewTimer(s.agent.cfg.Limits.Grace)
	defer grace.Stop()
	for _, at := range own {
		select {
		case <-at.left.done():
		case <-s.transport.Done():
			return
		case <-grace.C:
			return
		}
	}
}

// handle answers one exchange, when the session is open.
func (s *session) handle(x *transport.Exchange, first transport.Frame) {
	select {
	case <-s.opened:
	case <-s.transport.Done():
		return
	}
	switch {
	case first.Type == wire.TypeCall:
		s.call(x, first.Body)
	case first.Type == wire.TypeResume && !s.direct:
		s.resume(x, first.Body)
	default:
		s.violated("frame type %d begins an exchange", first.Type)
	}
}

// warn logs what the peer can do again and again: the first time, and then how often.
func (s *session) warn(message string, args ...any) {
	who := s.peer.Identity.String()
	s.agent.repeated.Warn(who, message, append(args, "peer", who, "addr", s.peer.Addr)...)
}

// violated ends the session because the peer breaks the protocol.
func (s *session) violated(format string, a ...any) {
	s.transport.Close(fmt.Errorf("%w: %s", transport.ErrProtocol, fmt.Sprintf(format, a...)))
}

// controlLoop answers what a dispatcher says later.
func (s *session) controlLoop(ctx context.Context) {
	for {
		f, err := s.control.Receive(ctx)
		if err != nil {
			return
		}
		if err := s.handleFrame(f); err != nil {
			s.violated("frame type %d in the control exchange: %v", f.Type, err)
			return
		}
	}
}

// errUnexpected is a frame that the peer may not send.
var errUnexpected = errors.New("not expected")

// handleFrame answers FORGET, which asks whether the agent is there, and BEAT.
func (s *session) handleFrame(f transport.Frame) error {
	switch {
	case s.direct:
		return errUnexpected
	case f.Type == wire.TypeForget:
		return s.handleForget(f.Body)
	case f.Type == wire.TypeBeat:
		return s.handleBeat(f.Body)
	}
	return errUnexpected
}

func (s *session) handleForget(body []byte) error {
	var m wire.Forget
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	s.forget(m)
	if m.Last || len(m.Attempts) == 0 {
		s.send(wire.TypeReady, wire.Ready{})
	}
	return nil
}

// handleBeat holds to another interval of heartbeats, and then says so: until it is
// heard the dispatcher makes allowance for either.
func (s *session) handleBeat(body []byte) error {
	var m wire.Beat
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	every := s.beat(time.Duration(m.Heartbeat))
	s.send(wire.TypeBeat, wire.Beat{Heartbeat: int64(every)})
	return nil
}

// vacancyLoop says READY when the agent is no longer busy.
func (s *session) vacancyLoop() {
	for {
		select {
		case <-s.vacancy:
			if !s.direct {
				s.send(wire.TypeReady, wire.Ready{})
			}
		case <-s.transport.Done():
			return
		}
	}
}

// newsLoop says what the agent offers, and what is wrong with it, when that has changed.
func (s *session) newsLoop() {
	if s.direct {
		return
	}
	certificate := time.NewTicker(certificateEvery)
	defer certificate.Stop()
	for {
		if s.agent.catalogue.current() != s.told {
			s.sendProcedures()
		}
		if s.agent.problems.current() != s.toldProblems {
			s.sendFacts()
		}
		select {
		case <-s.news:
		case <-certificate.C:
			s.agent.lookAtCertificate()
		case <-s.transport.Done():
			return
		}
	}
}

// send sends a message on the control exchange. That it cannot be sent is the end of
// the session, which others notice.
func (s *session) send(t transport.Type, message any) {
	_ = s.control.Send(t, false, wire.Encode(message))
}

// receive returns the next message on the control exchange, which must be of a type.
func (s *session) receive(ctx context.Context, want transport.Type, message any) error {
	f, err := s.control.Receive(ctx)
	if err != nil {
		return err
	}
	if f.Type != want {
		return fmt.Errorf("%w: frame type %d instead of %d", transport.ErrProtocol, f.Type, want)
	}
	return wire.Decode(f.Body, message)
}

// beat starts the heartbeat, within bounds, and returns its interval.
func (s *session) beat(every time.Duration) time.Duration {
	if every <= 0 {
		every = defaultBeat
	}
	every = min(max(every, minBeat), maxBeat)
	s.transport.Beat(every)
	return every
}
