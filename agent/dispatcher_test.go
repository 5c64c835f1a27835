package agent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// dispatcher is a dispatcher reduced to its half of the protocol.
type dispatcher struct {
	t        testing.TB
	addr     string
	sessions chan *peer    // those that are READY
	ponders  time.Duration // before it answers HELLO

	mu      sync.Mutex
	welcome wire.Welcome
	refuse  *harp.Failure // answers HELLO
	hellos  int
}

// listen starts a dispatcher that agents dial.
func listen(t testing.TB, p place) *dispatcher { return listenAs(t, p, dispatcherID.Name) }

// listenAs is listen for one of another name.
func listenAs(t testing.TB, p place, name string) *dispatcher {
	id := dispatcherID
	id.Name = name
	d := &dispatcher{
		t:        t,
		sessions: make(chan *peer),
		welcome:  wire.Welcome{Version: wire.Version, Store: "store", Heartbeat: int64(time.Hour)},
	}
	l := p.listen(t, id)
	d.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	cfg := transport.ServeConfig{
		TLS:       p.config(t, id),
		Logger:    silent,
		Protocols: map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent},
	}
	go func() { served <- transport.Serve(ctx, l, cfg, d.serve) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

// serve speaks with an agent until either has had enough.
func (d *dispatcher) serve(ctx context.Context, conn *transport.Conn) {
	p, err := d.meet(ctx, conn)
	if err != nil {
		return
	}
	defer p.session.Close(nil)
	select {
	case d.sessions <- p:
	case <-p.session.Done():
		return
	}
	select {
	case <-ctx.Done():
	case <-p.session.Done():
	}
}

// meet is the beginning of a session.
func (d *dispatcher) meet(ctx context.Context, conn *transport.Conn) (*peer, error) {
	s, err := conn.Opener(ctx, transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		return nil, err
	}
	p := newPeer(d.t, s)
	if err := p.hear(ctx, wire.TypeHello, &p.hello); err != nil {
		return nil, err
	}
	time.Sleep(d.ponders)
	d.mu.Lock()
	d.hellos++
	welcome, refuse := d.welcome, d.refuse
	d.mu.Unlock()
	if refuse != nil {
		p.say(wire.TypeUnwelcome, wire.Unwelcome{Failure: refuse.Err()})
		<-s.Done()
		return nil, s.Err()
	}
	p.epoch = welcome.Epoch
	p.say(wire.TypeWelcome, welcome)
	p.session.Beat(time.Duration(welcome.Heartbeat))
	return p, p.reconcile(ctx)
}

// newPeer makes a peer of a session, which it reads.
func newPeer(t testing.TB, s *transport.Session) *peer {
	go s.Serve(nil) //nolint:errcheck // who needs to know asks the session
	return &peer{t: t, session: s, control: s.Control()}
}

// set changes the next WELCOME.
func (d *dispatcher) set(change func(*dispatcher)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// peer is the other side of an agent's session: a dispatcher's or direct caller's.
type peer struct {
	t          testing.TB
	session    *transport.Session
	control    *transport.Exchange
	hello      wire.Hello
	facts      harp.Value
	problems   []harp.HostProblem
	procedures []harp.ProcedureDoc
	held       []wire.HeldAttempt
	taken      int64 // by the agent's journal, as HELD says
	epoch      int64
}

// say sends on the control stream; that the session ended shows elsewhere.
func (p *peer) say(t transport.Type, message any) {
	_ = p.control.Send(t, false, wire.Encode(message))
}

// hear receives a message on the control stream.
func (p *peer) hear(ctx context.Context, want transport.Type, message any) error {
	f, err := p.control.Receive(ctx)
	if err != nil {
		return err
	}
	if f.Type != want {
		p.t.Errorf("control frame of type %d, want %d", f.Type, want)
	}
	return wire.Decode(f.Body, message)
}

// reconcile hears what the agent has, and lets it forget nothing.
func (p *peer) reconcile(ctx context.Context) error {
	var facts wire.Facts
	if err := p.hear(ctx, wire.TypeFacts, &facts); err != nil {
		return err
	}
	p.facts, p.problems = facts.Facts, facts.Problems
	for last := false; !last; {
		var m wire.Procedures
		if err := p.hear(ctx, wire.TypeProcedures, &m); err != nil {
			return err
		}
		p.procedures, last = append(p.procedures, m.Procedures...), m.Last
	}
	for last := false; !last; {
		var m wire.Held
		if err := p.hear(ctx, wire.TypeHeld, &m); err != nil {
			return err
		}
		p.held, p.taken, last = append(p.held, m.Attempts...), m.Taken, m.Last
	}
	p.say(wire.TypeForget, wire.Forget{Last: true})
	return p.hear(ctx, wire.TypeReady, new(wire.Ready))
}

// exchange is one question to an agent.
type exchange struct {
	t  testing.TB
	x  *transport.Exchange
	id string

	early *transport.Frame // received, and given back
}

// forget says that nobody will ask for attempts again, and waits until that is heard.
func (p *peer) forget(attempts ...wire.HeldAttempt) {
	p.t.Helper()
	p.say(wire.TypeForget, wire.Forget{Attempts: attempts, Last: true})
	if err := p.hear(p.t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
		p.t.Fatal(err)
	}
}

// resume asks for an attempt's records from a number on.
func (p *peer) resume(id string, from int64, change ...func(*wire.Resume)) *exchange {
	p.t.Helper()
	m := wire.Resume{Job: id, Attempt: 1, Epoch: p.epoch, From: from, Window: wire.Window}
	for _, f := range change {
		f(&m)
	}
	x := p.begin(wire.TypeResume, wire.Encode(m))
	x.id = id
	return x
}

// begin sends the first frame of an exchange.
func (p *peer) begin(typ transport.Type, body []byte) *exchange {
	p.t.Helper()
	x, err := p.session.Exchange()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := x.Send(typ, false, body); err != nil {
		p.t.Fatal(err)
	}
	return &exchange{t: p.t, x: x}
}

// call sends a CALL with what change makes of it.
func (p *peer) call(procedure string, args any, change ...func(*wire.Call, *harp.Request)) *exchange {
	p.t.Helper()
	v, err := harp.NewValue(args)
	if err != nil {
		p.t.Fatal(err)
	}
	req := harp.Request{ID: harp.NewID(), Host: agentID.Name, Procedure: procedure, Args: v}
	c := wire.Call{Attempt: 1, Window: wire.Window, Epoch: p.epoch, Principal: harp.Principal{Kind: "caller", Name: "ops", Auth: "certificate"}}
	for _, f := range change {
		f(&c, &req)
	}
	c.Request = req.Encode()
	x := p.begin(wire.TypeCall, wire.Encode(c))
	x.id = req.ID
	return x
}

func (x *exchange) send(typ transport.Type, message any) {
	x.t.Helper()
	if err := x.x.Send(typ, false, wire.Encode(message)); err != nil {
		x.t.Fatal(err)
	}
}

func (x *exchange) ack(next int64) { x.t.Helper(); x.send(wire.TypeAck, wire.Ack{Next: next}) }
func (x *exchange) cancel()        { x.t.Helper(); x.send(wire.TypeCancel, wire.Cancel{}) }

// receive returns the next frame.
func (x *exchange) receive() transport.Frame {
	x.t.Helper()
	if f := x.early; f != nil {
		x.early = nil
		return *f
	}
	f, err := x.x.Receive(context.Background())
	if err != nil {
		x.t.Fatalf("receive: %v", err)
	}
	return f
}

// expect receives a message of one type.
func expect[M any](x *exchange, want transport.Type) M {
	x.t.Helper()
	f := x.receive()
	if f.Type != want {
		x.t.Fatalf("frame of type %d, want %d: %s", f.Type, want, harp.Value(f.Body))
	}
	var m M
	if err := wire.Decode(f.Body, &m); err != nil {
		x.t.Fatal(err)
	}
	return m
}

// accepted receives ACCEPTED, unless END comes at once, which stands for it.
func (x *exchange) accepted() *exchange {
	x.t.Helper()
	f := x.receive()
	if f.Type == wire.TypeEnd {
		x.early = &f
		return x
	}
	x.early = &f
	if m := expect[wire.Accepted](x, wire.TypeAccepted); m.Started == nil || m.Started.Time == 0 {
		x.t.Error("ACCEPTED without STARTED")
	}
	return x
}

// refused receives REFUSED and returns its error.
func (x *exchange) refused() harp.Failure {
	x.t.Helper()
	m := expect[wire.Refused](x, wire.TypeRefused)
	x.x.Release()
	return harp.FailureOf(m.Failure)
}

// notNow receives NOT_NOW and returns its reason.
func (x *exchange) notNow() string {
	x.t.Helper()
	m := expect[wire.NotNow](x, wire.TypeNotNow)
	x.x.Release()
	return m.Reason
}

// isNotNow reports whether NOT_NOW comes, which it takes.
func (x *exchange) isNotNow() bool {
	x.t.Helper()
	f := x.receive()
	x.early = &f
	if f.Type != wire.TypeNotNow {
		return false
	}
	x.notNow()
	return true
}

// ended receives records from the first on, acknowledges them, and then END.
func (x *exchange) ended() (wire.End, []wire.Record) { x.t.Helper(); return x.endedFrom(0) }

// rest is ended from whatever record comes first.
func (x *exchange) rest() (wire.End, []wire.Record) { x.t.Helper(); return x.endedFrom(-1) }

// endedFrom is ended from a record on; -1: from whatever comes first.
func (x *exchange) endedFrom(next int64) (wire.End, []wire.Record) {
	x.t.Helper()
	var records []wire.Record
	for {
		f := x.receive()
		switch f.Type {
		case wire.TypeRecords:
			var m wire.Records
			if err := wire.Decode(f.Body, &m); err != nil {
				x.t.Fatal(err)
			}
			if next >= 0 && m.First != next {
				x.t.Fatalf("records from %d, want %d", m.First, next)
			}
			records = append(records, m.Records...)
			next = m.First + int64(len(m.Records))
			x.ack(next)
		case wire.TypeStopping, wire.TypeAccepted, wire.TypeStarted:
		case wire.TypeEnd:
			var m wire.End
			if err := wire.Decode(f.Body, &m); err != nil {
				x.t.Fatal(err)
			}
			x.ackEnd(m)
			return m, records
		default:
			x.t.Fatalf("frame of type %d", f.Type)
		}
	}
}

// ending is rest, without the records.
func (x *exchange) ending() wire.End {
	x.t.Helper()
	end, _ := x.rest()
	return end
}

// end receives END alone.
func (x *exchange) end() wire.End {
	x.t.Helper()
	m := expect[wire.End](x, wire.TypeEnd)
	x.ackEnd(m)
	return m
}

// ackEnd acknowledges END; a direct session needs no such thing.
func (x *exchange) ackEnd(m wire.End) {
	if x.x.Session().Peer().Protocol == transport.ProtocolAgent {
		_ = x.x.Send(wire.TypeAck, false, wire.Encode(wire.Ack{Next: m.Records, End: true}))
	}
	x.x.Release()
}

// value decodes the value of an END.
func value[T any](t testing.TB, end wire.End) T {
	t.Helper()
	var v T
	if end.Failure != nil {
		t.Fatalf("failed: %v", end.Failure)
	}
	if err := end.Value.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// failure returns the failure of an END.
func failure(t testing.TB, end wire.End) harp.Failure {
	t.Helper()
	if end.Failure == nil {
		t.Fatalf("did not fail: %s", end.Value)
	}
	return harp.FailureOf(end.Failure)
}

// connect starts an agent that is connected to a dispatcher, and returns the
// dispatcher's side of the session.
func connect(t testing.TB, p place, a *agent.Agent) (*peer, *dispatcher, *running) {
	t.Helper()
	d := listen(t, p)
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
	return <-d.sessions, d, r
}
