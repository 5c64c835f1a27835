package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// attempt is one try at running a job, on a lane of the host's session.
type attempt struct {
	s   *session
	job store.Job
	x   *transport.Exchange

	mu        sync.Mutex // guards what follows
	called    bool       // CALL was sent: from here on it may run
	cancelled *harp.Principal
}

// sendAll sends jobs that were claimed.
func (d *Dispatcher) sendAll(jobs []store.Job) {
	for _, j := range jobs {
		d.send(j, harp.Submission{})
	}
}

// send runs a claimed job on its host's session. sub is its request if it is at
// hand.
func (d *Dispatcher) send(job store.Job, sub harp.Submission) {
	s := d.hosts.get(job.Host).current()
	if s != nil && s.start(job, sub) {
		return
	}
	// The host went between the claim and now: the call never left.
	if !d.begin() {
		return
	}
	go func() {
		defer d.work.Done()
		d.withdraw(job)
	}()
}

// withdraw sends a job back to its queue: its call did not leave this process.
func (d *Dispatcher) withdraw(job store.Job) {
	_, err := d.apply(d.ctx, store.Transition{ID: job.ID, Event: event(job, store.Withdrawn)})
	if err != nil && d.ctx.Err() == nil {
		d.log.Error("withdraw", "job", job.ID, "err", err)
	}
}

// event is one about the job's attempt.
func event(job store.Job, kind store.Kind) store.Event {
	return store.Event{Kind: kind, At: time.Now(), Attempt: job.Attempt, Fence: job.Fence}
}

// start runs an attempt in a goroutine of the session; false if it takes no more.
func (s *session) start(job store.Job, sub harp.Submission) bool {
	a := &attempt{s: s, job: job}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return false
	}
	s.live[job.ID] = a
	s.attempts.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.attempts.Done()
		err := a.run(sub)
		s.over(a, err)
	}()
	return true
}

// over forgets an attempt. One whose end was not heard is over with the session:
// if its call had left, nobody can say what became of it.
func (s *session) over(a *attempt, err error) {
	s.mu.Lock()
	delete(s.live, a.job.ID)
	s.mu.Unlock()
	if err == nil || s.d.ctx.Err() != nil {
		return
	}
	if !a.called {
		s.d.withdraw(a.job)
		return
	}
	s.tr.Close(fmt.Errorf("job %s: %w", a.job.ID, err))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, store.Transition{
		ID:    a.job.ID,
		Event: store.Event{Kind: store.Lose, At: time.Now(), Reason: harp.LostAgentRestarted},
	})
}

// run is an attempt from CALL to END.
func (a *attempt) run(sub harp.Submission) error {
	ctx := a.s.d.ctx
	row, err := a.s.d.store.Job(ctx, a.job.ID)
	if err != nil {
		return err
	}
	if sub.Request == nil {
		if sub, err = a.s.d.store.Request(ctx, a.job.ID); err != nil {
			return err
		}
	}
	if a.x, err = a.s.tr.Exchange(ctx); err != nil {
		return err
	}
	defer a.x.Release()
	if err := a.call(sub); err != nil {
		return err
	}
	if row.Cancel != nil { // it came between the claim and start
		a.cancel(row.Cancel.By)
	}
	for {
		f, err := a.x.Receive(ctx)
		if err != nil {
			return err
		}
		if over, err := a.hear(ctx, f); over || err != nil {
			return err
		}
	}
}

// call sends CALL.
func (a *attempt) call(sub harp.Submission) error {
	j := a.job
	c := wire.Call{
		Signed:  wire.Signed{Request: sub.Request, Signature: sub.Signature, KeyID: sub.KeyID},
		Attempt: int64(j.Attempt), Fence: int64(j.Fence), Epoch: int64(a.s.epoch),
		Timeout: int64(j.Timeout), MaxExecTime: int64(j.MaxExecTime), Window: wire.Window,
		Principal: wire.Principal{Kind: j.Principal.Kind, Name: j.Principal.Name, Auth: j.Principal.Auth},
	}
	if !j.Expires.IsZero() {
		c.Left = max(1, int64(time.Until(j.Expires)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.called = true
	return a.x.Send(wire.TypeCall, false, wire.Encode(c))
}

// cancel tells the agent, once.
func (a *attempt) cancel(by harp.Principal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancelled != nil {
		return
	}
	if !a.called {
		return // run reads the row after CALL
	}
	a.cancelled = &by
	c := wire.Cancel{By: wire.Principal{Kind: by.Kind, Name: by.Name, Auth: by.Auth}}
	_ = a.x.Send(wire.TypeCancel, false, wire.Encode(c)) // a failed write ends the session, and with it the attempt
}

// tellCancel tells the agent of a job that it shall stop. One that is not on a
// session yet hears it right after its CALL.
func (d *Dispatcher) tellCancel(job store.Job, by harp.Principal) {
	if s := d.hosts.get(job.Host).current(); s != nil {
		s.mu.Lock()
		a := s.live[job.ID]
		s.mu.Unlock()
		if a != nil {
			a.cancel(by)
		}
	}
}

// hear takes one frame of the attempt and says whether it was the last.
func (a *attempt) hear(ctx context.Context, f transport.Frame) (over bool, err error) {
	switch f.Type {
	case wire.TypeAccepted:
		var m wire.Accepted
		err := wire.Decode(f.Body, &m)
		if m.Started != nil {
			a.started()
		}
		return false, err
	case wire.TypeStarted:
		a.started()
		return false, nil
	case wire.TypeRecords:
		return false, a.records(ctx, f.Body)
	case wire.TypeStopping:
		var m wire.Stopping
		if err := wire.Decode(f.Body, &m); err != nil {
			return false, err
		}
		e := event(a.job, store.Stop)
		e.Stopping = stopping(&m)
		return false, a.apply(ctx, e)
	case wire.TypeEnd:
		return true, a.end(ctx, f.Body)
	case wire.TypeRefused:
		var m wire.Refused
		if err := wire.Decode(f.Body, &m); err != nil {
			return true, err
		}
		e := event(a.job, store.Refused)
		e.Failure, err = failure(m.Failure)
		return true, errors.Join(err, a.apply(ctx, e))
	case wire.TypeNotNow:
		return true, a.notNow(ctx, f.Body)
	}
	return false, fmt.Errorf("frame %d in an attempt: %w", f.Type, transport.ErrProtocol)
}

// apply moves the job; what has ended meanwhile is not an error of the attempt.
func (a *attempt) apply(ctx context.Context, e store.Event) error {
	changes, err := a.s.d.apply(ctx, store.Transition{ID: a.job.ID, Event: e})
	if err != nil {
		return err
	}
	if err := changes[0].Err; err != nil && !errors.Is(err, store.ErrIllegal) {
		return err
	}
	return nil
}

// started notes that the procedure has begun, in a commit that nobody waits for. If
// the end is stored first, it has noted the start itself.
func (a *attempt) started() {
	e := event(a.job, store.Started)
	a.s.attempts.Add(1)
	go func() {
		defer a.s.attempts.Done()
		if err := a.apply(a.s.d.ctx, e); err != nil && a.s.d.ctx.Err() == nil {
			a.s.d.log.Error("note start", "job", a.job.ID, "err", err)
		}
	}()
}

// records stores what came and acknowledges it: an ack means committed.
func (a *attempt) records(ctx context.Context, body []byte) error {
	var m wire.Records
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	if m.First < 0 || len(m.Records) == 0 {
		return fmt.Errorf("records from %d, %d of them: %w", m.First, len(m.Records), transport.ErrProtocol)
	}
	in := store.Append{ID: a.job.ID, Attempt: a.job.Attempt, Fence: a.job.Fence, First: uint64(m.First), Arrived: time.Now()}
	for _, r := range m.Records {
		rec, err := record(r)
		if err != nil {
			return err
		}
		in.Records = append(in.Records, rec)
	}
	row, err := a.s.d.store.Append(ctx, in)
	if err != nil {
		return err
	}
	a.publish(row, in)
	return a.x.Send(wire.TypeAck, false, wire.Encode(wire.Ack{Next: m.First + int64(len(m.Records)), Window: wire.Window}))
}

// publish hands what was committed to the job's followers.
func (a *attempt) publish(row store.Job, in store.Append) {
	base := row.Attempts[len(row.Attempts)-1].Base
	for i := range in.Records {
		in.Records[i].Seq, in.Records[i].Attempt = base+in.First+uint64(i), in.Attempt
	}
	a.s.d.tails.appended(a.job.ID, in.Records)
}

// end stores how the attempt ended and lets the agent forget it.
func (a *attempt) end(ctx context.Context, body []byte) error {
	var m wire.End
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	e := event(a.job, store.End)
	e.Stopping, e.RanFor, e.Value = stopping(m.Stopped), time.Duration(max(m.RanFor, 0)), m.Value
	err := e.Value.Validate()
	if err == nil && len(m.Failure) > 0 {
		e.Failure, err = failure(m.Failure)
	}
	if err == nil {
		err = a.apply(ctx, e)
	}
	if err != nil {
		return err
	}
	err = a.x.Send(wire.TypeAck, true, wire.Encode(wire.Ack{Next: m.Records, End: true}))
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, transport.ErrSessionClosed) {
		return nil // the end is stored; the agent hears of it when it asks
	}
	return err
}

// notNow sends the job back to wait: after 1 s, doubled to 30 s, as long as the
// agent says so.
func (a *attempt) notNow(ctx context.Context, body []byte) error {
	var m wire.NotNow
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	e := event(a.job, store.NotNow)
	e.Reason = m.Reason
	e.Wake = e.At.Add(min(time.Second<<min(a.job.Busy, 5), 30*time.Second))
	return a.apply(ctx, e)
}

func stopping(m *wire.Stopping) *store.Stopping {
	if m == nil {
		return nil
	}
	return &store.Stopping{Cause: m.Cause, Since: time.Unix(0, m.Since).UTC(), Limit: time.Duration(m.Limit)}
}

func failure(b []byte) (harp.Failure, error) {
	var f harp.Failure
	err := wire.Decode(b, &f)
	if err == nil {
		err = f.Data.Validate()
	}
	return f, err
}

func record(r wire.Record) (harp.Record, error) {
	kind := harp.RecordKind(r.Kind)
	if kind == "" {
		kind = harp.KindData
	}
	v := harp.Value(r.Value)
	return harp.Record{Time: time.Unix(0, r.Time).UTC(), Kind: kind, Value: v, Truncated: uint64(max(r.Truncated, 0))}, v.Validate()
}
