package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

const (
	gatheredBytes = 1 << 20   // of those received and not committed, from when on no more go into a commit of one attempt
	recordSize    = 32        // bytes that a store counts of a record beside its value, about
	firstWindow   = 256 << 10 // of an attempt that may not send any records
	spaceWait     = time.Second
)

// window is how many bytes of records an agent may send ahead of acknowledgement.
func (d *Dispatcher) window() int64 {
	return min(max(receivedBytes/max(d.streams.Load(), 1), wire.MinWindow), wire.Window)
}

// retryStore writes what came of the agent, as often as the store refuses it for want of
// space: until it is stored it is not acknowledged, and the agent keeps it.
func (s *session) retryStore(ctx context.Context, write func() error) error {
	for {
		err := write()
		if !errors.Is(err, harp.ErrNoSpace) {
			return err
		}
		select {
		case <-time.After(spaceWait):
		case <-s.tr.Done():
			return transport.ErrSessionClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handleFrame handles one frame of the attempt and says whether it was the last.
func (a *attempt) handleFrame(ctx context.Context, f transport.Frame) (over bool, err error) {
	switch f.Type {
	case wire.TypeAccepted:
		var m wire.Accepted
		err := wire.DecodeBody(f.Body, &m)
		if m.Started != nil {
			a.noteStart(m.Started.Ran)
		}
		return false, err
	case wire.TypeStarted:
		var m wire.Started
		err := wire.DecodeBody(f.Body, &m)
		a.noteStart(m.Ran)
		return false, err
	case wire.TypeRecords:
		a.begun = true
		return false, a.handleRecords(ctx, f.Body)
	case wire.TypeStopping:
		var m wire.Stopping
		if err := wire.DecodeBody(f.Body, &m); err != nil {
			return false, err
		}
		e := a.s.d.newEvent(a.job, store.Stop)
		if m.Cause != "" { // else it lists processes that are left, or no more
			var err error
			if e.Stopping, err = decodeStopping(&m); err != nil {
				return false, err
			}
		}
		for _, pid := range m.Left[:min(len(m.Left), wire.MaxLeft)] {
			e.Left = append(e.Left, int(pid))
		}
		a.begun = a.begun || m.Cause != "" || len(e.Left) > 0
		a.progress.noteStopping(m.Cause != "", len(e.Left) > 0)
		return false, a.applyEvent(ctx, e)
	case wire.TypeEnd:
		a.ended.Store(true)
		hadBegun := a.begun
		a.begun = true
		err := a.handleEnd(ctx, f.Body)
		if err != nil && hadBegun { // which was left to the end to say
			a.ended.Store(false)
			a.noteStart(0)
		}
		return true, err
	case wire.TypeRefused:
		var m wire.Refused
		if err := wire.DecodeBody(f.Body, &m); err != nil {
			return true, err
		}
		e := a.s.d.newEvent(a.job, store.Refused)
		if e.Failure = harp.FailureOf(m.Failure); e.Failure.IsZero() {
			return true, fmt.Errorf("refused without an error: %w", transport.ErrProtocol)
		}
		return true, a.storeNotStarted(ctx, e)
	case wire.TypeNotNow:
		return true, a.handleNotNow(ctx, f.Body)
	}
	return false, fmt.Errorf("frame %d in an attempt: %w", f.Type, transport.ErrProtocol)
}

// applyEvent moves the job; what has ended meanwhile is not an error of the attempt.
func (a *attempt) applyEvent(ctx context.Context, e store.Event) error {
	clock := a.s.d.clock
	ahead, at, wake := clock.ahead.Load(), e.At, e.Wake
	return a.s.retryStore(ctx, func() error {
		e.At, e.Wake = clock.moved(ahead, at), clock.moved(ahead, wake) // it may be set while there is no space
		changes, err := a.s.d.applyTransitions(ctx, store.Transition{ID: a.job.ID, Event: e})
		if err != nil {
			return err
		}
		if err := changes[0].Err; err != nil && !errors.Is(err, store.ErrIllegal) && !isGone(err) {
			return err
		}
		return nil
	})
}

// isGone reports whether a job was deleted since its agent was asked for the rest of it,
// which that may forget.
func isGone(err error) bool {
	return errors.Is(err, harp.ErrPruned) || errors.Is(err, harp.ErrNotFound)
}

// storeNotStarted is apply for the agent's word that it did not start the attempt, which
// must not be one that has begun: that one's end would never come.
func (a *attempt) storeNotStarted(ctx context.Context, e store.Event) error {
	if a.begun { // which may not be stored yet
		return fmt.Errorf("%s after the start: %w", e.Kind, transport.ErrProtocol)
	}
	if err := a.applyEvent(ctx, e); err != nil {
		return err
	}
	row, err := a.s.d.store.Job(ctx, a.job.ID)
	switch {
	case isGone(err):
		return nil
	case err == nil && holds(row, a.job):
		err = fmt.Errorf("%s after the start: %w", e.Kind, transport.ErrProtocol)
	}
	return err
}

// receive returns the next frame.
func (a *attempt) receive(ctx context.Context) (transport.Frame, error) {
	if f := a.nextFrame; f != nil {
		a.nextFrame = nil
		return *f, nil
	}
	return a.x.Receive(ctx)
}

// handleRecords stores what came, with the records that came behind it meanwhile, and
// acknowledges it: an ack means committed.
func (a *attempt) handleRecords(ctx context.Context, body []byte) error {
	m, err := decodeRecords(body)
	if err != nil {
		return err
	}
	for size := len(body) + recordSize*len(m.Records); size < gatheredBytes; {
		f, ok, _ := a.x.TryReceive()
		if !ok {
			break
		}
		more, follows, err := followingRecords(m, f)
		if err != nil {
			return err
		}
		if !follows {
			a.nextFrame = &f
			break
		}
		m.Records = append(m.Records, more...)
		size += len(f.Body) + recordSize*len(more)
	}
	if err := a.storeMissing(ctx); err != nil {
		return err
	}
	return a.storeRecords(ctx, m)
}

// storeMissing stores that records are missing, before what follows them.
func (a *attempt) storeMissing(ctx context.Context) error {
	if a.missing == 0 {
		return nil
	}
	last, err := a.s.d.store.Job(ctx, a.job.ID)
	if isGone(err) {
		return nil // nor is what follows asked for by anybody
	}
	if err != nil {
		return err
	}
	first := last.Attempts[len(last.Attempts)-1].Next
	in := store.Append{
		ID: a.job.ID, Attempt: a.job.Attempt, Fence: a.job.Fence,
		First: first, Missing: uint64(a.missing) - min(first, uint64(a.missing)), Arrived: a.s.d.now(), //nolint:gosec // not negative
	}
	err = a.s.retryStore(ctx, func() error {
		_, err := a.s.d.store.Append(ctx, in)
		return err
	})
	if err == nil {
		a.missing = 0
		a.notifyStored()
	}
	return err
}

// followingRecords are the records of a frame, if those are the next behind m.
func followingRecords(m wire.Records, f transport.Frame) (records []wire.Record, follows bool, err error) {
	if f.Type != wire.TypeRecords {
		return nil, false, nil
	}
	more, err := decodeRecords(f.Body)
	return more.Records, err == nil && more.First == m.First+int64(len(m.Records)), err
}

func decodeRecords(body []byte) (wire.Records, error) {
	var m wire.Records
	err := wire.DecodeBody(body, &m)
	if err == nil && (m.First < 0 || len(m.Records) == 0) {
		err = fmt.Errorf("records from %d, %d of them: %w", m.First, len(m.Records), transport.ErrProtocol)
	}
	return m, err
}

// storeRecords stores records and wakes those that follow.
func (a *attempt) storeRecords(ctx context.Context, m wire.Records) error {
	if !a.streams {
		a.streams = true
		a.s.d.streams.Add(1)
	}
	in := store.Append{
		ID: a.job.ID, Attempt: a.job.Attempt, Fence: a.job.Fence, First: uint64(m.First), Arrived: a.s.d.now(),
		Records: make([]harp.Record, len(m.Records)),
	}
	for i, r := range m.Records {
		if n := len(r.Value); n > wire.MaxMessage { // no agent may send so much
			r.Value, r.Truncated = nil, r.Truncated+int64(n)
		}
		var err error
		if in.Records[i], err = r.Numbered(0, 0); err != nil {
			return err
		}
	}
	var row *store.Job
	err := a.s.retryStore(ctx, func() (err error) {
		if row, err = a.s.d.store.Append(ctx, in); err != nil {
			a.notifyStored() // the first of them may be
		}
		return err
	})
	if isGone(err) {
		return a.ackRecords(m)
	}
	if err != nil {
		return err
	}
	a.s.d.principals.countBytes(a.job.Principal, recordsSize(m))
	a.publishRecords(row, in)
	return a.ackRecords(m)
}

// recordsSize is about how many bytes records take in a store.
func recordsSize(m wire.Records) int {
	size := recordSize * len(m.Records)
	for i := range m.Records {
		size += len(m.Records[i].Value)
	}
	return size
}

// ackRecords lets the agent forget records, and send more.
func (a *attempt) ackRecords(m wire.Records) error {
	return wire.Send(a.x, wire.TypeAck, false, &wire.Ack{Next: m.First + int64(len(m.Records)), Window: a.s.d.window()})
}

// notifyStored wakes those that follow the job, or its batch: they read from the store what there is.
func (a *attempt) notifyStored() {
	a.s.d.watchers.notifyCounted(a.job.ID)
	a.s.d.watchers.notifyChanged(a.job.Batch)
}

// publishRecords hands what was committed to the job's followers. Of a job that is full not
// all was stored.
func (a *attempt) publishRecords(row *store.Job, in store.Append) {
	if row.Full {
		a.notifyStored()
		return
	}
	base := row.Attempts[len(row.Attempts)-1].Base
	for i := range in.Records {
		in.Records[i].Seq, in.Records[i].Attempt = base+in.First+uint64(i), in.Attempt
	}
	a.s.d.watchers.notifyAppended(a.job.ID, in.Records)
	a.s.d.watchers.notifyChanged(a.job.Batch)
}

// handleEnd stores how the attempt ended and lets the agent forget it.
func (a *attempt) handleEnd(ctx context.Context, body []byte) error {
	var m wire.End
	if err := wire.DecodeBody(body, &m); err != nil {
		return err
	}
	taken := uint64(max(m.Taken, 0)) //nolint:gosec // not negative
	a.s.noteTaken(taken)
	if err := a.storeMissing(ctx); err != nil {
		return err
	}
	if reason := lossOf(m); reason != "" {
		if err := a.storeGone(ctx, reason, taken); err != nil {
			return err
		}
		return a.ackEnd(m.Records)
	}
	e := a.s.d.newEvent(a.job, store.End)
	e.RanFor, e.Value, e.Dropped, e.Failure = time.Duration(max(m.RanFor, 0)), m.Value, m.Dropped, harp.FailureOf(m.Failure)
	e.Taken = taken
	if len(e.Value) > wire.MaxMessage { // no agent may return so much
		e.Value, e.Dropped = nil, true
	}
	var err error
	if e.Stopping, err = decodeStopping(m.Stopped); err == nil {
		err = a.applyEvent(ctx, e)
	}
	if err != nil {
		return err
	}
	a.s.d.principals.countBytes(a.job.Principal, len(body))
	return a.ackEnd(m.Records)
}

// lossOf is why an attempt that is over is lost; "" if it came to its end, or a limit or cancel
// ended it.
func lossOf(m wire.End) string {
	switch {
	case m.Gone:
		return harp.LostAgentRestarted
	case m.Stopped == nil && errors.Is(m.Failure, harp.ErrLost):
		return harp.LostAgentStopped
	}
	return ""
}

// storeGone is for an attempt that ended with its process, or its agent, and not by itself.
func (a *attempt) storeGone(ctx context.Context, reason string, taken uint64) error {
	e := a.s.d.newEvent(a.job, store.Lose)
	e.Reason, e.Taken = reason, taken
	if a.job.State == harp.StateQueued { // it was given up before
		e.Kind = store.Gone
	}
	return a.applyEvent(ctx, e)
}

// ackEnd lets the agent forget the attempt.
func (a *attempt) ackEnd(records int64) error {
	err := wire.Send(a.x, wire.TypeAck, true, &wire.Ack{Next: records, End: true})
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, transport.ErrSessionClosed) {
		return nil // the end is stored; the agent learns of it when it asks
	}
	return err
}

// handleNotNow sends the job back to wait: after 1 s, doubled to 30 s, as long as the
// agent says so, or until it is ready, which it may have said already.
func (a *attempt) handleNotNow(ctx context.Context, body []byte) error {
	var m wire.NotNow
	if err := wire.DecodeBody(body, &m); err != nil {
		return err
	}
	return a.storeNotNow(ctx, m.Reason)
}

// holdMargin is how long before a window or a pause begins an agent may say that it is too late to start: its clock may run faster.
const holdMargin = 10 * time.Second

// storeNotNow stores that the agent takes no call now, for a reason.
func (a *attempt) storeNotNow(ctx context.Context, reason string) error {
	e := a.s.d.newEvent(a.job, store.NotNow)
	e.Reason = reason
	e.Wake = e.At.Add(min(time.Second<<min(a.job.Busy, 5), 30*time.Second))
	hasExpired := !a.job.Expires.IsZero() && !e.At.Before(a.job.Expires)
	switch isHeld := !a.heldFrom.IsZero() && !hasExpired; {
	case reason == harp.ReasonWindow:
		e.Wake = e.At.Add(withdrawWait)
	case reason == wire.NotNowStartBefore && isHeld && e.At.Before(a.heldFrom.Add(-holdMargin)): // it is too early to be too late
		e.Reason = wire.NotNowBusy
	case reason == wire.NotNowStartBefore && isHeld:
		e.Reason, e.Wake = harp.ReasonWindow, a.heldFrom
	}
	err := a.storeNotStarted(ctx, e)
	if err == nil && a.s.readies.Load() != a.readies {
		err = a.s.claimJobs(ctx)
	}
	return err
}

// decodeStopping is why an attempt is stopped, nil if it is not. Errors: transport.ErrProtocol
// when that is not said.
func decodeStopping(m *wire.Stopping) (*store.Stopping, error) {
	switch {
	case m == nil:
		return nil, nil
	case m.Cause == "":
		return nil, fmt.Errorf("stopped without a cause: %w", transport.ErrProtocol)
	}
	return &store.Stopping{Cause: m.Cause, Since: time.Unix(0, m.Since).UTC(), Limit: time.Duration(m.Limit)}, nil
}
