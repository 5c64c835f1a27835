package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

const (
	greetingTime = 30 * time.Second // from the control stream to READY; the agent may look for facts
	dialTime     = 10 * time.Second // to connect to a host, handshake included
	probeTime    = 3 * time.Second  // for an older session to show that its agent lives
	reconnectCap = 10 * time.Second // the longest pause told to agents
)

// session is a host's agent while it is connected.
type session struct {
	d       *Dispatcher
	host    *host
	tr      *transport.Session
	control *transport.Control
	hello   wire.Hello
	epoch   uint64
	ready   chan struct{} // has room for one READY
	ended   chan struct{} // closed when nothing of the session is left
	pass    func()        // lets the next agent of the host be greeted

	attempts sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closing bool       // takes no more attempts
	live    map[string]*attempt
	lost    []store.Transition // attempts whose outcome the session's end left open
}

// errReplaced ends a session whose agent has connected anew.
var errReplaced = errors.New("replaced by a newer session of the same host")

// serveAgent is the life of an agent's session, whoever dialled: greeting,
// reconciliation, calls, and the end. It returns why the session ended.
func (d *Dispatcher) serveAgent(ctx context.Context, conn *transport.Conn) error {
	tr, err := conn.Opener(d.sessionOptions())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { tr.Close(context.Cause(ctx)) })()
	s := &session{
		d: d, host: d.hosts.get(conn.Peer().Identity.Name), tr: tr,
		ready: make(chan struct{}, 1), ended: make(chan struct{}), live: map[string]*attempt{}, pass: func() {},
	}
	err = s.greet(ctx)
	if err == nil {
		err = s.serve(ctx)
	}
	tr.Close(err)
	return errors.Join(err, s.finish())
}

// greet is the session's beginning, up to READY.
func (s *session) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	var err error
	if s.control, err = s.tr.Control(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, wire.TypeHello, &s.hello); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	if err := s.admit(ctx); err != nil {
		failure := harp.FailureOf(err)
		_ = s.control.Send(transport.Frame{Type: wire.TypeUnwelcome, Body: wire.Encode(wire.Unwelcome{Failure: wire.Encode(failure)})}) // it is refused in any case
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.welcome(); err != nil {
		return err
	}
	if err := s.introduce(ctx); err != nil {
		return err
	}
	s.control.Beat(s.d.cfg.Heartbeat)
	return nil
}

// enter waits until no other agent of the host is being greeted. Of two that come
// at the same time the second must find the first.
func (s *session) enter(ctx context.Context) error {
	select {
	case s.host.door <- struct{}{}:
		s.pass = sync.OnceFunc(func() { <-s.host.door })
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expect receives the one frame that may come now.
func (s *session) expect(ctx context.Context, t transport.Type, message any) error {
	f, err := s.control.Receive(ctx)
	if err != nil {
		return err
	}
	if f.Type != t {
		return fmt.Errorf("frame %d where %d was expected: %w", f.Type, t, transport.ErrProtocol)
	}
	return wire.Decode(f.Body, message)
}

// admit refuses an agent that cannot be talked to, or one whose name another live
// agent bears: a cloned machine must not declare the first one's jobs lost.
func (s *session) admit(ctx context.Context) error {
	if s.hello.Version != wire.Version {
		return harp.NewFailure("refused", fmt.Sprintf("protocol version %d is not spoken here, %d is", s.hello.Version, wire.Version)).Err()
	}
	old := s.host.current()
	if old == nil {
		return nil
	}
	if old.hello.Instance != s.hello.Instance && old.answers(ctx) {
		s.d.log.Warn("second agent refused: another one with its name is connected", "host", s.host.name, "addr", s.tr.Peer().Addr)
		return harp.NewFailure("duplicate_host", "host "+s.host.name+" is connected already").Err()
	}
	old.tr.Close(errReplaced)
	select {
	case <-old.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answers asks the agent whether it is there.
func (s *session) answers(ctx context.Context) bool {
	select {
	case <-s.ready: // an older answer
	default:
	}
	if s.control.Send(transport.Frame{Type: wire.TypeForget, Body: wire.Encode(wire.Forget{Last: true})}) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	select {
	case <-s.ready:
		return true
	case <-s.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// open notes the session in the store and raises the host's epoch.
func (s *session) open(ctx context.Context) (err error) {
	h := s.hello
	s.epoch, err = s.d.store.OpenSession(ctx, store.Session{
		Host: s.host.name, Fingerprint: s.tr.Peer().Fingerprint, Owner: s.d.name,
		Instance: h.Instance, Boot: h.BootID, Journal: h.Journal, Position: uint64(max(h.Position, 0)),
		Software: h.Software, Labels: h.Labels, At: time.Now(),
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

func (s *session) welcome() error {
	return s.control.Send(transport.Frame{Type: wire.TypeWelcome, Body: wire.Encode(wire.Welcome{
		Version: wire.Version, Software: harp.Software, Store: s.d.store.ID(), Epoch: int64(s.epoch),
		Heartbeat: int64(s.d.cfg.Heartbeat), Reconnect: int64(reconnectCap), Time: time.Now().UnixNano(), Max: int64(s.d.cfg.Limits.Attempts),
	})})
}

// introduce takes what the agent says of itself and reconciles what it holds: all
// of it is of sessions that are over, whose jobs have ended as lost.
func (s *session) introduce(ctx context.Context) error {
	var (
		facts wire.Facts
		docs  []harp.ProcedureDoc
		held  []wire.HeldAttempt
	)
	if err := s.expect(ctx, wire.TypeFacts, &facts); err != nil {
		return err
	}
	for last := false; !last; {
		var page wire.Procedures
		if err := s.expect(ctx, wire.TypeProcedures, &page); err != nil {
			return err
		}
		for _, p := range page.Procedures {
			docs = append(docs, procedureDoc(p))
		}
		last = page.Last
	}
	for last := false; !last; {
		var page wire.Held
		if err := s.expect(ctx, wire.TypeHeld, &page); err != nil {
			return err
		}
		held, last = append(held, page.Attempts...), page.Last
	}
	if err := s.record(ctx, facts.Facts, docs); err != nil {
		return err
	}
	if err := s.forget(held); err != nil {
		return err
	}
	var ready wire.Ready
	return s.expect(ctx, wire.TypeReady, &ready)
}

// record keeps what the agent said of its host.
func (s *session) record(ctx context.Context, facts harp.Value, docs []harp.ProcedureDoc) error {
	if err := facts.Validate(); err != nil {
		return err
	}
	row := s.host.update(func(row *store.Host) {
		row.Facts, row.Procedures, row.Connected, row.LastHeard = facts, docs, true, time.Now().UTC()
	})
	s.host.setRow(row)
	return s.d.store.PutHost(ctx, row)
}

func (s *session) forget(held []wire.HeldAttempt) error {
	const page = 256
	for {
		n := min(page, len(held))
		f := wire.Forget{Attempts: held[:n], Last: n == len(held)}
		if err := s.control.Send(transport.Frame{Type: wire.TypeForget, Body: wire.Encode(f)}); err != nil || f.Last {
			return err
		}
		held = held[n:]
	}
}

func procedureDoc(p wire.Procedure) harp.ProcedureDoc {
	return harp.ProcedureDoc{
		Name: p.Name, Summary: p.Summary, Doc: p.Doc, Params: p.Params,
		Args: json.RawMessage(p.Args), Record: json.RawMessage(p.Record), Result: json.RawMessage(p.Result),
		Timeout: time.Duration(p.Timeout), MaxExecTime: time.Duration(p.MaxExecTime),
		Streams: p.Streams, Idempotent: p.Idempotent, Traits: p.Traits,
	}
}

// serve lets calls start and listens to the agent until the session ends.
func (s *session) serve(ctx context.Context) error {
	if old := s.host.attach(s); old != nil {
		old.tr.Close(errReplaced)
	}
	s.pass()
	s.host.setTrouble("")
	s.d.log.Info("host is online", "host", s.host.name, "addr", s.tr.Peer().Addr, "software", s.hello.Software)
	s.d.store.SetGate(s.host.name, store.Gate{Open: true, Most: s.d.cfg.Limits.Attempts})
	if err := s.d.claim(ctx, s.host.name); err != nil {
		return err
	}
	for {
		f, err := s.control.Receive(ctx)
		if err != nil {
			return err
		}
		if err := s.hear(ctx, f); err != nil {
			return err
		}
	}
}

// hear takes one frame of the control stream.
func (s *session) hear(ctx context.Context, f transport.Frame) error {
	switch f.Type {
	case wire.TypeReady:
		select {
		case s.ready <- struct{}{}:
		default:
		}
		return s.d.claim(ctx, s.host.name)
	case wire.TypeFacts:
		var facts wire.Facts
		if err := wire.Decode(f.Body, &facts); err != nil {
			return err
		}
		return s.record(ctx, facts.Facts, s.host.stored().Procedures)
	case wire.TypeProcedures:
		return s.hearProcedures(ctx, f)
	}
	return fmt.Errorf("frame %d on the control stream: %w", f.Type, transport.ErrProtocol)
}

// hearProcedures takes a new list, of which f is the first page.
func (s *session) hearProcedures(ctx context.Context, f transport.Frame) error {
	var docs []harp.ProcedureDoc
	for {
		var page wire.Procedures
		if f.Type != wire.TypeProcedures {
			return fmt.Errorf("frame %d amid procedures: %w", f.Type, transport.ErrProtocol)
		}
		if err := wire.Decode(f.Body, &page); err != nil {
			return err
		}
		for _, p := range page.Procedures {
			docs = append(docs, procedureDoc(p))
		}
		if page.Last {
			return s.record(ctx, s.host.stored().Facts, docs)
		}
		var err error
		if f, err = s.control.Receive(ctx); err != nil {
			return err
		}
	}
}

// finish is the session's end: no more starts, then, when its attempts have
// returned, what they left open. The order matters: a host is away before its jobs
// are lost.
func (s *session) finish() error {
	defer close(s.ended)
	s.pass()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	if s.host.current() == s {
		s.d.store.SetGate(s.host.name, store.Gate{Reason: harp.ReasonOffline, LastHeard: s.tr.Heard()})
		s.d.wakeClock()
		s.d.log.Info("host is away", "host", s.host.name, "why", s.tr.Err())
	}
	s.host.detach(s)
	s.attempts.Wait()
	if s.d.ctx.Err() != nil {
		return nil // what was under way is found again when the store is opened
	}
	return s.settle()
}

// settle ends what the session left open, and notes when the host was last heard.
func (s *session) settle() error {
	ctx := s.d.ctx
	for chunk := range slices.Chunk(s.lost, 500) {
		if _, err := s.d.apply(ctx, chunk...); err != nil {
			return err
		}
	}
	if s.epoch == 0 {
		return nil // it never was a session of the host
	}
	row := s.host.update(func(row *store.Host) { row.Connected = s.host.session != nil })
	if row.Name == "" {
		return nil
	}
	return s.d.store.PutHost(ctx, row)
}
