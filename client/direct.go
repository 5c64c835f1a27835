package client

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// DirectHost is a connection to one agent, without a dispatcher between: calls start at
// once or not at all, and nothing is stored. It is safe for concurrent use.
//
// It does not connect again: once the connection is lost, Call returns
// ErrUnreachable.
type DirectHost struct {
	dialer  dialer
	session *session

	mu     sync.Mutex // guards closed: nothing is added to calls after it is set
	closed bool
	calls  sync.WaitGroup
}

// DialAgent connects to the agent at addr, a host with or without a port. It tries
// once, for at most 10 s. The name of the agent's host is that in its certificate.
//
// Errors: a *FieldError for an address that has no host, or a port that cannot be; a *HostError, which says at which stage
// the agent could not be reached. It is ErrDenied when one side does not accept who the other
// is, or Config.TLS is not set and needed, and else ErrUnreachable.
func DialAgent(ctx context.Context, addr string, cfg Config) (*DirectHost, error) {
	if err := cfg.checkAddr(addr); err != nil {
		return nil, err
	}
	d := dialer{
		addr: addr, cfg: cfg.withDefaults(wire.AgentPort),
		protocol: transport.ProtocolDirect, role: transport.RoleAgent,
		noAnswer: harp.ErrUnreachable, instance: harp.NewID(),
	}
	s, err := d.openSession(ctx)
	if err != nil {
		return nil, err
	}
	return &DirectHost{dialer: d, session: s}, nil
}

// Host returns the name of the agent's host.
func (a *DirectHost) Host() string { return a.session.Peer().Identity.Name }

// Close ends the connection. The calls on it end as lost, ErrLost and ErrClosed, and
// the agent stops their procedures. Close is idempotent.
func (a *DirectHost) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.session.closeAndWait(harp.ErrClosed)
	a.calls.Wait()
	return nil
}

// Call calls a procedure and returns when the call is on its way. args is an [Args],
// a struct, a map with string keys, [Pos] or nil. Without SilenceTimeout and MaxExecTime
// the procedure's own limits hold, or else the agent's.
//
// Here ctx is that of the call: when it ends, the agent is told to stop the
// procedure and has 10 s for it; then the call is given up.
//
// A call that has ended is forgotten: another with its [harp.JobID] runs.
//
// Errors: ErrInvalid (a field; also an option that only a dispatcher can heed: Queue,
// Concurrency, Priority, StartAfter, StartBefore, OfflineWait, WhenOffline, Retry, IdempotencyKey),
// ErrUnreachable when the connection was lost before, ErrClosed, ErrCancelled when
// ctx had ended; after these the procedure did not run. ErrLost when the connection
// was lost meanwhile.
func (a *DirectHost) Call(ctx context.Context, procedure string, args any, opts ...harp.Option) (*DirectCall, error) {
	c := &DirectCall{
		procedure: procedure, host: a.Host(), ctx: ctx,
		agent: a, ended: make(chan struct{}),
	}
	req, err := harp.NewRequest(c.host, procedure, args, opts...)
	if err == nil {
		err = checkDirect(req)
	}
	if err != nil {
		return nil, c.callError(err)
	}
	if !a.addCall() {
		return nil, c.callError(harp.ErrClosed)
	}
	if err := c.sendCall(req); err != nil {
		return nil, c.callError(err)
	}
	return c, nil
}

// addCall notes that a call is under way; false once it is closed.
func (a *DirectHost) addCall() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.calls.Add(1)
	}
	return !a.closed
}

// checkDirect refuses what only a dispatcher can heed: an option that is ignored is
// a broken promise.
func checkDirect(r harp.Request) error {
	for _, o := range []struct {
		field string
		given bool
	}{
		{"queue", r.Queue != nil},
		{"concurrency", r.Concurrency != 0},
		{"priority", r.Priority != 0},
		{"start_after", !r.StartAfter.IsZero()},
		{"start_before", !r.StartBefore.IsZero()},
		{"offline_wait", r.OfflineWait != 0},
		{"when_offline", r.WhenOffline != harp.WaitForHost},
		{"retry", len(r.Retry.On) > 0 || r.Retry.Attempts > 1},
		{"idempotency_key", r.IdempotencyKey != ""},
	} {
		if o.given {
			return &harp.FieldError{Field: o.field, Message: "needs a dispatcher"}
		}
	}
	return nil
}

// DirectCall is one call of a procedure of an [DirectHost]. It is safe for concurrent
// use.
//
// The agent may be 1 MiB of records ahead of what was read; then the procedure is
// held back until more is read, by a loop over Records or by Get.
type DirectCall struct {
	procedure, host string
	agent           *DirectHost
	ctx             context.Context // the call's: see DirectHost.Call
	exchange        *transport.Exchange

	ended chan struct{} // closed when the end is noted

	mu      sync.Mutex    // guards what follows; never held while blocked
	more    chan struct{} // 1 slot: there may be a record to take; nil: nobody has asked
	acking  chan struct{} // 1 slot: the goroutine that fills it may acknowledge; nil: none has
	records []harp.Record // received, not taken
	loops   int           // over Records, under way
	gets    int           // that wait for the end
	next    uint64        // number of the next record to receive
	held    int           // bytes received and not acknowledged
	taken   int           // bytes of them that were taken
	unwatch func() bool   // ends the watch over ctx
	sent    bool
	givenUp bool       // before it was sent
	over    bool       // the end is noted
	began   bool       // the procedure, as far as is known
	value   harp.Value // how it ended
	err     error
	lost    bool // err is about the connection: records may be missing
}

// Records yields the records that were not read yet, and those that come, until the
// procedure has ended, however it ended; Get tells how. Of several loops each gets
// some of them. It yields an error only when the connection was lost: the last
// thing, ErrLost.
func (c *DirectCall) Records() iter.Seq2[harp.Record, error] {
	return func(yield func(harp.Record, error) bool) {
		c.enterLoop()
		defer c.leaveLoop()
		for {
			r, ok, err := c.nextRecord()
			if err != nil {
				yield(harp.Record{}, err)
			}
			if err != nil || !ok || !yield(r, nil) {
				return
			}
		}
	}
}

// Get waits until the procedure has ended and returns its value. While it waits,
// records are dropped unless a loop over Records is under way; that loop goes on
// holding the procedure back, so that Get must not be called from within it: break
// first.
//
// Errors: a *RemoteError when the procedure failed, ErrTimeout, ErrCancelled and
// ctx's, ErrRejected (and ErrNotFound, ErrInvalid or ErrDenied by its reason), ErrLost.
func (c *DirectCall) Get() (harp.Value, error) {
	c.mu.Lock()
	c.gets++
	due := c.dropLocked()
	c.mu.Unlock()
	c.acknowledge(due)
	<-c.ended
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets--
	if c.err != nil {
		return nil, c.callError(c.err)
	}
	return slices.Clone(c.value), nil
}

func (c *DirectCall) enterLoop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loops++
	if c.more == nil {
		c.more = make(chan struct{}, 1)
	}
}

// leaveLoop leaves what was not read to the next loop, or to Get to drop.
func (c *DirectCall) leaveLoop() {
	c.mu.Lock()
	c.loops--
	due := c.dropLocked()
	c.mu.Unlock()
	c.acknowledge(due)
}

// nextRecord waits for the next record; ok is false when none comes any more.
func (c *DirectCall) nextRecord() (r harp.Record, ok bool, err error) {
	for {
		over := c.isOver() // asked first: what came before the end is there now
		r, ok, due := c.pollRecord()
		if ok {
			c.acknowledge(due)
			return r, true, nil
		}
		if over {
			return harp.Record{}, false, c.lostErr()
		}
		select {
		case <-c.more:
		case <-c.ended:
		}
	}
}

// pollRecord takes a record if there is one.
func (c *DirectCall) pollRecord() (r harp.Record, ok, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) == 0 {
		return harp.Record{}, false, false
	}
	r, c.records = c.records[0], c.records[1:]
	c.taken += weight(r)
	if len(c.records) > 0 {
		wake.Signal(c.more) // for another loop
	}
	return r, true, c.dueLocked()
}

func (c *DirectCall) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *DirectCall) lostErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return c.callError(c.err)
	}
	return nil
}

// dropLocked drops what nobody reads while Get waits for the end, and reports
// whether an acknowledgement is due.
func (c *DirectCall) dropLocked() bool {
	if c.gets > 0 && c.loops == 0 && !c.isOver() {
		for _, r := range c.records {
			c.taken += weight(r)
		}
		c.records = nil
	}
	return c.dueLocked()
}

// weight is what a record takes of the window.
func weight(r harp.Record) int { return len(r.Value) + 32 }

// dueLocked reports whether so much was taken that it is worth a frame.
func (c *DirectCall) dueLocked() bool { return c.taken >= wire.Window/4 }

// acknowledge tells the agent what was taken, if that is still due. One at a time
// does, so that what is told only rises.
func (c *DirectCall) acknowledge(due bool) {
	if !due || c.isOver() {
		return
	}
	acking := c.ackSlot()
	acking <- struct{}{}
	defer func() { <-acking }()
	if ack, due := c.nextAck(); due {
		_ = c.exchange.Send(wire.TypeAck, false, wire.Encode(ack)) // the receive loop sees what is wrong
	}
}

// ackSlot returns the slot that a goroutine fills before it acknowledges.
func (c *DirectCall) ackSlot() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acking == nil {
		c.acking = make(chan struct{}, 1)
	}
	return c.acking
}

func (c *DirectCall) nextAck() (wire.Ack, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dueLocked() {
		return wire.Ack{}, false
	}
	c.held -= c.taken
	c.taken = 0
	return wire.Ack{Next: int64(c.next) - int64(len(c.records)), Window: wire.Window}, true
}
