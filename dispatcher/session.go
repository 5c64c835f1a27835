package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

const (
	greetingTime = 30 * time.Second // for HELLO, for its turn then, and for the rest up to READY
	dialTime     = 10 * time.Second // to connect to a host, handshake included
	probeTime    = 3 * time.Second  // for an older session to show that its agent lives, and a greeting that it goes on
	reconnectCap = 10 * time.Second // the longest pause told to agents
	maxRecords   = 1 << 48          // more than any attempt has

	maxHelloField = 256 // bytes of what an agent says of itself in a word, as its software
)

// session is a host's agent while it is connected.
type session struct {
	d              *Dispatcher
	host           *host
	tr             *transport.Session
	control        *transport.Exchange
	hello          wire.Hello
	taken          uint64    // how many calls of the store the agent's journal has ever taken, as HELD says
	welcomed       time.Time // when WELCOME was sent
	epoch          uint64
	ended          chan struct{} // closed when nothing of the session is left
	unlockGreeting func()        // lets the next agent of the host be greeted
	endLong        func()        // lets the next long greeting go on; nil: this one is not
	resumes        []resumption  // attempts that the agent is to be asked for
	pages          int           // bytes of the greeting, or of the list of procedures that comes
	readies        atomic.Int64  // how often the agent has said that it takes calls
	claimPending   atomic.Bool   // claims when there is space
	unanswered     atomic.Int64  // bytes of calls that were written and not answered

	attempts    sync.WaitGroup // and what else works for the session
	controlLoop sync.WaitGroup // the goroutine that reads the control exchange
	starts      starts

	mu      sync.Mutex    // guards what follows
	closing bool          // takes no more attempts
	beat    time.Duration // interval of its heartbeat
	asked   time.Duration // another one, that the agent was told and has not answered; 0: none
	ping    *pendingPing  // whether it is there, that the agent was asked and has not answered; nil: none
	live    map[string]*attempt
}

// errReplaced ends a session whose agent has connected anew.
var errReplaced = errors.New("replaced by a newer session of the same host")

// serveAgent is the life of an agent's session, whoever dialled: greeting,
// reconciliation, calls, and the end. It returns why the session ended.
func (d *Dispatcher) serveAgent(ctx context.Context, conn *transport.Conn) error {
	opening, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	tr, err := conn.Opener(opening, d.sessionOptions())
	cancel()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { tr.Close(context.Cause(ctx)) })()
	s := &session{
		d: d, host: d.hosts.get(conn.Peer().Identity.Name), tr: tr, control: tr.Control(),
		ended: make(chan struct{}), live: map[string]*attempt{}, unlockGreeting: func() {}, beat: d.beat(),
	}
	s.controlLoop.Go(func() { s.runControl(ctx) })
	err = tr.Serve(nil)
	s.controlLoop.Wait()
	return errors.Join(err, s.endSession())
}

// runControl greets the agent and handles what it says then.
func (s *session) runControl(ctx context.Context) {
	if err := s.beginSession(ctx); err != nil {
		s.tr.Close(err)
		return
	}
	s.receiveControl(ctx)
}

// receiveControl handles what there is of the control exchange. Then its goroutine ends: most
// of thousands of sessions say nothing for long.
func (s *session) receiveControl(ctx context.Context) {
	for {
		f, ok, err := s.control.TryReceive()
		if ok {
			err = s.handleFrame(ctx, f)
		}
		switch {
		case err != nil:
			s.tr.Close(err)
			return
		case !ok && s.control.Await(func() { s.controlLoop.Go(func() { s.receiveControl(ctx) }) }):
			return
		}
	}
}

// greetAgent is the session's beginning, up to READY.
func (s *session) greetAgent(ctx context.Context) error {
	if err := within(ctx, greetingTime, s.receiveHello); err != nil {
		return err
	}
	if err := within(ctx, greetingTime, s.awaitTurn); err != nil {
		return err
	}
	return within(ctx, greetingTime, s.greetInTurn)
}

func (s *session) receiveHello(ctx context.Context) error {
	f, err := s.control.Receive(ctx)
	if err != nil {
		return err
	}
	return s.decodeExpected(ctx, f, wire.TypeHello, &s.hello)
}

// within bounds the time of a step.
func within(ctx context.Context, t time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t)
	defer cancel()
	return step(ctx)
}

// awaitTurn waits until no other agent of the host is being greeted, and not too many of all hosts are. One that
// says nothing gives way to it.
func (s *session) awaitTurn(ctx context.Context) error {
	s.host.waiting.Add(1)
	defer s.host.waiting.Add(-1)
	unlock, err := s.host.lockGreeting(ctx)
	if err != nil {
		return err
	}
	release, err := s.d.greetings.takeSlot(ctx, s.d.greetings.all)
	if err != nil {
		unlock()
		return err
	}
	s.unlockGreeting = func() {
		s.endPages()
		release()
		unlock()
	}
	return nil
}

// greetInTurn is what of the greeting only one agent of a host does at a time.
func (s *session) greetInTurn(ctx context.Context) error {
	if err := s.admitAgent(ctx); err != nil {
		_ = s.control.Send(wire.TypeUnwelcome, false, wire.Encode(wire.Unwelcome{Failure: err})) // it is refused in any case
		return err
	}
	if err := s.openSession(ctx); err != nil {
		return err
	}
	if err := s.sendWelcome(); err != nil {
		return err
	}
	if err := s.receiveState(ctx); err != nil {
		return err
	}
	s.startBeat()
	return nil
}

// expectFrame receives the one frame that may come now in the greeting.
func (s *session) expectFrame(ctx context.Context, t transport.Type, message any) error {
	f, err := s.receiveGreeting(ctx)
	if err != nil {
		return err
	}
	return s.decodeExpected(ctx, f, t, message)
}

func (s *session) decodeExpected(ctx context.Context, f transport.Frame, t transport.Type, message any) error {
	if f.Type != t {
		return fmt.Errorf("frame %d where %d was expected: %w", f.Type, t, transport.ErrProtocol)
	}
	const least = 256 // what a page takes that says nothing
	sent := max(len(f.Body), least)
	if err := s.countBytes(ctx, sent); err != nil {
		return err
	}
	if err := wire.Decode(f.Body, message); err != nil {
		return err
	}
	return s.countBytes(ctx, max(sizeOfPage(message)-sent, 0))
}

// sizeOfPage is about how many bytes a page takes when it is decoded, without its texts: items that say nothing
// are short on their way, and long in memory.
func sizeOfPage(message any) (n int) {
	const text = int(unsafe.Sizeof(""))
	switch page := message.(type) {
	case *wire.Procedures:
		for i := range page.Procedures {
			p := &page.Procedures[i]
			n += int(unsafe.Sizeof(*p)) + text*(len(p.Params)+len(p.Traits))
		}
	case *wire.Held:
		n = len(page.Attempts) * int(unsafe.Sizeof(wire.HeldAttempt{}))
	}
	return n
}

// errStalled ends a greeting that does not go on while another agent waits for its turn.
var errStalled = errors.New("nothing came, and another agent waits to be greeted")

// receiveGreeting receives the next frame of the greeting.
func (s *session) receiveGreeting(ctx context.Context) (f transport.Frame, err error) {
	for {
		err := within(ctx, probeTime, func(ctx context.Context) (err error) {
			f, err = s.control.Receive(ctx)
			return err
		})
		switch {
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return f, err
		case s.host.waiting.Load() > 0 || s.d.greetings.waiting.Load() > 0:
			return f, errStalled
		}
	}
}

// countBytes counts the bytes of what comes in pages, of which there is to be an end. It waits if that becomes long
// and others are. Errors: transport.ErrProtocol, context.Cause.
func (s *session) countBytes(ctx context.Context, n int) (err error) {
	switch s.pages += n; {
	case s.pages > maxGreeting:
		return fmt.Errorf("more than %d bytes before its end: %w", maxGreeting, transport.ErrProtocol)
	case s.pages > shortGreeting && s.endLong == nil:
		s.endLong, err = s.d.greetings.takeSlot(ctx, s.d.greetings.long)
	}
	return err
}

// endPages is for when all pages have come.
func (s *session) endPages() {
	if s.pages = 0; s.endLong != nil {
		s.endLong()
		s.endLong = nil
	}
}

// admitAgent refuses an agent that cannot be talked to, or one whose name another live
// agent bears: a cloned machine must not declare the first one's jobs lost.
func (s *session) admitAgent(ctx context.Context) error {
	if s.hello.Version != wire.Version {
		return failures.New("refused", fmt.Sprintf("this dispatcher speaks version %[2]d of the protocol, not %[1]d", s.hello.Version, wire.Version)).Err()
	}
	if err := checkAgentHello(s.hello); err != nil {
		return err
	}
	old := s.host.currentSession()
	if old == nil {
		return nil
	}
	if !s.isSameAgent(old) && old.probeAgent(ctx) {
		s.d.repeated.Warn(s.host.name, "second agent refused: another one of this name is connected", "host", s.host.name, "addr", s.tr.Peer().Addr)
		if s.host.noteDuplicate(s.tr.Peer().Addr) {
			s.d.appendEvents(harp.Event{Type: harp.EventHostDuplicate, Host: s.host.name, Reason: s.tr.Peer().Addr})
		}
		return failures.New("duplicate_host", s.host.name).Err()
	}
	old.tr.Close(errReplaced)
	select {
	case <-old.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkAgentHello refuses what an agent says of itself that is longer than it may be: it is stored. Errors:
// *harp.FieldError.
func checkAgentHello(h wire.Hello) error {
	for _, f := range []struct{ name, value string }{
		{"software", h.Software},
		{"instance", h.Instance},
		{"boot", h.BootID},
		{"journal", h.Journal},
	} {
		if len(f.value) > maxHelloField {
			return &harp.FieldError{Field: f.name, Message: fmt.Sprintf("is %d bytes, at most %d", len(f.value), maxHelloField)}
		}
	}
	return harp.CheckLabels(h.Labels)
}

// isSameAgent reports whether the agent is that of another session: what it says of its instance
// counts only if it has the same key.
func (s *session) isSameAgent(old *session) bool {
	return s.hello.Instance == old.hello.Instance && s.tr.Peer().Fingerprint == old.tr.Peer().Fingerprint
}

// openSession notes the session in the store and raises the host's epoch. What is stored
// of the agent's journal stays until it is reconciled: record replaces it. How many calls it has taken, as an end has told, may not be stored.
func (s *session) openSession(ctx context.Context) error {
	known, err := s.d.store.Host(ctx, s.host.name)
	if err != nil && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	if heard := s.host.storedRow(); heard.Journal == known.Journal {
		known.Taken = max(known.Taken, heard.Taken)
	}
	h := s.hello
	s.epoch, err = s.d.store.OpenSession(ctx, store.Session{
		Host: s.host.name, Fingerprint: s.tr.Peer().Fingerprint, Owner: s.d.name,
		Instance: h.Instance, Boot: h.BootID, Journal: known.Journal, Taken: known.Taken,
		Software: h.Software, Labels: h.Labels, At: s.d.now(),
	})
	if err != nil {
		return err
	}
	row, err := s.d.store.Host(ctx, s.host.name)
	if err == nil {
		s.host.setRow(row)
	}
	return err
}

func (s *session) sendWelcome() error {
	s.welcomed = time.Now()
	return s.control.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{
		Version: wire.Version, Software: version.Software(), Store: s.d.store.ID(), Epoch: int64(s.epoch),
		Heartbeat: int64(s.beat), Reconnect: int64(reconnectCap), Time: s.d.now().UnixNano(), Max: int64(s.d.cfg.Limits.Attempts),
	}))
}

// receiveState takes what the agent says of itself and reconciles what it holds.
func (s *session) receiveState(ctx context.Context) error {
	var facts wire.Facts
	if err := s.expectFrame(ctx, wire.TypeFacts, &facts); err != nil {
		return err
	}
	docs, err := s.expectProcedures(ctx)
	if err != nil {
		return err
	}
	held, err := s.expectHeld(ctx)
	if err != nil {
		return err
	}
	forget, err := s.reconcile(ctx, held)
	if err != nil {
		return err
	}
	if err := s.recordAgent(ctx, facts.Facts, docs); err != nil {
		return err
	}
	s.host.setProblems(facts.Problems)
	if err := s.sendForget(forget); err != nil {
		return err
	}
	var ready wire.Ready
	if err := s.expectFrame(ctx, wire.TypeReady, &ready); err != nil {
		return err
	}
	return s.noteOnline(ctx)
}

func (s *session) expectHeld(ctx context.Context) (held []wire.HeldAttempt, err error) {
	for {
		var page wire.Held
		if err := s.expectFrame(ctx, wire.TypeHeld, &page); err != nil {
			return nil, err
		}
		for _, h := range page.Attempts {
			if h.Acked < 0 || h.Acked > maxRecords {
				return nil, fmt.Errorf("%d acknowledged records: %w", h.Acked, transport.ErrProtocol)
			}
		}
		if held = append(held, page.Attempts...); page.Last {
			s.taken = uint64(max(page.Taken, 0)) //nolint:gosec // not negative
			return held, nil
		}
	}
}

// recordAgent keeps what the agent said of its host and its journal.
func (s *session) recordAgent(ctx context.Context, facts harp.Value, docs []harp.ProcedureDoc) error {
	s.host.updateRow(func(row *store.Host) {
		row.Journal, row.Taken = s.hello.Journal, s.taken
	})
	return s.recordHost(ctx, facts, docs)
}

// noteTaken keeps how many calls the agent's journal has taken, as an end says, with which that is stored: where it
// says less later, it was rolled back.
func (s *session) noteTaken(taken uint64) {
	s.host.updateRow(func(row *store.Host) {
		row.Taken = max(row.Taken, taken)
	})
}

// recordHost stores what the agent said, and only then shows it: what the store refuses is not
// kept. For want of space it is shown all the same.
func (s *session) recordHost(ctx context.Context, facts harp.Value, docs []harp.ProcedureDoc) error {
	hasBegun := s.host.currentSession() == s
	said := func(row *store.Host) {
		row.Facts, row.Procedures, row.Connected, row.LastHeard = facts, docs, row.Connected || hasBegun, s.d.now().UTC()
	}
	row := s.host.storedRow()
	said(&row)
	err := s.d.store.PutHost(ctx, row)
	if err == nil || errors.Is(err, harp.ErrNoSpace) {
		s.host.setRow(s.host.updateRow(said))
		s.d.reviewHolds(s.host)
	}
	return err
}

// noteOnline stores that the host is connected, once nothing keeps its session from beginning: of an agent whose greetings come to no end
// nobody would be told that it is away. For want of space that is stored with its next news.
func (s *session) noteOnline(ctx context.Context) error {
	row := s.host.storedRow()
	if row.Connected {
		return nil
	}
	row.Connected, row.LastHeard = true, s.d.now().UTC()
	err := s.d.store.PutHost(ctx, row)
	if errors.Is(err, harp.ErrNoSpace) {
		return nil
	}
	if err == nil {
		s.host.updateRow(func(h *store.Host) { h.Connected, h.LastHeard = true, row.LastHeard })
	}
	return err
}

// recordNews is recordHost for what the agent says amid a session. A full disk does not end
// that: the news hold, and are stored when the host's row is stored next.
func (s *session) recordNews(ctx context.Context, facts harp.Value, docs []harp.ProcedureDoc) error {
	err := s.recordHost(ctx, facts, docs)
	if errors.Is(err, harp.ErrNoSpace) {
		s.d.log.Warn("what a host offers is not stored yet", "host", s.host.name, "err", err)
		return nil
	}
	return err
}

func (s *session) sendForget(held []wire.HeldAttempt) error {
	const page = 256
	for {
		n := min(page, len(held))
		f := wire.Forget{Attempts: held[:n], Last: n == len(held)}
		if err := s.control.Send(wire.TypeForget, false, wire.Encode(f)); err != nil || f.Last {
			return err
		}
		held = held[n:]
	}
}

// beginSession greets the agent and lets calls start.
func (s *session) beginSession(ctx context.Context) error {
	if err := s.greetAgent(ctx); err != nil {
		return err
	}
	s.d.hosts.attach(s.host, s)
	s.d.reviewHolds(s.host) // before its gate opens: it may have another address
	s.unlockGreeting()
	s.host.setDialError("")
	s.d.hostLines.Info(s.host.name, "host is online", "host", s.host.name, "addr", s.tr.Peer().Addr, "software", s.hello.Software)
	s.d.setGate(s.host.name, store.Gate{Open: true, Most: s.d.cfg.Limits.Attempts, Awaited: s.d.now().Add(s.d.cfg.LostAfter)})
	left := s.host.takeElapsed()
	for _, r := range s.resumes {
		s.resumeAttempt(r, left[r.job.ID])
	}
	return s.claimJobs(ctx)
}

// handleFrame handles one frame of the control exchange.
func (s *session) handleFrame(ctx context.Context, f transport.Frame) error {
	switch f.Type {
	case wire.TypeReady:
		s.noteReady()
		s.readies.Add(1)
		return s.claimJobs(ctx)
	case wire.TypeFacts:
		var facts wire.Facts
		if err := wire.Decode(f.Body, &facts); err != nil {
			return err
		}
		s.host.setProblems(facts.Problems)
		return s.recordNews(ctx, facts.Facts, s.host.storedRow().Procedures)
	case wire.TypeProcedures:
		return s.handleProcedures(ctx, f)
	case wire.TypeBeat:
		return s.handleBeat(f)
	}
	return fmt.Errorf("frame %d in the control exchange: %w", f.Type, transport.ErrProtocol)
}

// endSession is the session's end: no more starts, then its attempts return. Only then is
// the host without a session, so that the next one finds stored whatever was heard
// in this one. What its attempts left open is settled when the agent comes back, or
// unknown if it does not in time.
func (s *session) endSession() error {
	defer close(s.ended)
	s.unlockGreeting()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	if s.host.currentSession() != s {
		return nil // it never was the session of the host
	}
	s.d.setGate(s.host.name, store.Gate{Reason: harp.ReasonOffline, LastHeard: s.lastHeard()})
	s.d.hostLines.Info(s.host.name, "host is away", "host", s.host.name, "why", s.tr.Err())
	s.attempts.Wait()
	err := s.noteAway()
	if err != nil {
		s.d.noteAwayLater(awayRetry, s.host)
	}
	s.d.hosts.detach(s.host)
	if s.d.ctx.Err() == nil {
		s.d.expectAgent(s.host, s.patience()-time.Since(s.tr.Heard()))
	}
	return err
}

// noteAway stores that the host is away, unless the dispatcher stops: then it counts
// as connected when the store is opened again.
func (s *session) noteAway() error {
	if s.d.ctx.Err() != nil {
		return nil
	}
	return s.d.store.PutHost(s.d.ctx, s.host.updateRow(func(row *store.Host) {
		row.Connected, row.LastHeard = false, s.lastHeard().UTC().Truncate(time.Microsecond)
	}))
}

// lastHeard is when the agent was last heard, by the wall clock.
func (s *session) lastHeard() time.Time { return s.d.now().Add(-time.Since(s.tr.Heard())) }
