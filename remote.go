package harp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// remote is a dispatcher elsewhere: a Service whose requests travel over a session.
// All of them can be asked again, and are when a session or a lane was lost before
// the answer came. Those that would do something else the second time carry an id, so that
// they are done once.
type remote struct{ link *link }

var _ Service = (*remote)(nil)

func newRemote(d door, first *session) *remote { return &remote{link: newLink(d, first)} }

// Close implements Service.
func (r *remote) Close() error {
	r.link.close()
	return nil
}

// question is a request on its way.
type question struct {
	kind  transport.Type
	body  []byte
	waits bool // for something to happen: only its ctx ends it
}

// outcome is what became of a question.
type outcome struct {
	body     []byte // of the reply
	sent     int    // how often it may have reached the dispatcher
	answered bool   // the last time it was answered, also by an error
	err      error  // the dispatcher's answer, or why there is none
}

// ask asks until there is an answer or none can be had any more.
func (r *remote) ask(ctx context.Context, q question) outcome {
	if most := wire.MaxBody(q.kind); len(q.body) > most {
		return outcome{err: tooLong("request", len(q.body), most)}
	}
	var out outcome
	losses := laneLosses{patience: r.patience(q)}
	for {
		var s *session
		if s, out.err = r.link.get(ctx, r.patience(q)); out.err != nil {
			return out
		}
		s.ask(ctx, q, &out)
		switch {
		case out.answered:
			return out
		case r.link.ctx.Err() != nil:
			out.err = ErrClosed
			return out
		case ctx.Err() != nil:
			out.err = context.Cause(ctx)
			return out
		case !isLost(out.err):
			return out
		}
		if err := r.bear(ctx, &losses, s, out.err); err != nil {
			out.err = err
			return out
		}
	}
}

// patience is how long a question waits for a session.
func (r *remote) patience(q question) time.Duration {
	if q.waits {
		return NoLimit
	}
	return r.link.door.cfg.RetryFor
}

// maxSubmitting is how many submissions of a session are on their way or being stored:
// as many as a dispatcher puts on disk in one go.
const maxSubmitting = 128

// turn waits until one more submission may be sent; those that came before go first.
// Thousands of them sent at once would be in the way of all that is asked and answered
// meanwhile, and that is the results of the first of them. The error is ctx's, or that
// the session was lost.
func (s *session) turn(ctx context.Context) error {
	select {
	case s.submitting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Done():
		return transport.ErrSessionClosed
	}
}

// turnOf is the key of the session, in a ctx, of which a submission has its turn.
type turnOf struct{}

// turn implements farAway: it waits before all the work that a submission is. Thousands at
// once keep the processors from hearing the answers. done ends it. Without a session
// there is no turn: it is waited for again when there is one.
func (r *remote) turn(ctx context.Context) (inTurn context.Context, done func()) {
	s, _ := r.link.current()
	if s == nil || s.turn(ctx) != nil {
		return ctx, func() {}
	}
	return context.WithValue(ctx, turnOf{}, s), func() { <-s.submitting }
}

// ask asks once.
func (s *session) ask(ctx context.Context, q question, out *outcome) {
	if q.kind == wire.TypeSubmit && ctx.Value(turnOf{}) != s {
		if out.err = s.turn(ctx); out.err != nil {
			return
		}
		defer func() { <-s.submitting }()
	}
	x, err := s.Exchange(ctx)
	if err != nil {
		out.err = tooMany(err)
		return
	}
	defer x.Release()
	defer context.AfterFunc(ctx, x.Release)() // ends a Send that waits
	out.sent++
	if out.err = x.Send(q.kind, true, q.body); out.err != nil {
		return
	}
	f, err := x.Receive(ctx)
	if err != nil {
		out.err = err
		return
	}
	out.answered = true
	out.body, out.err = answerIn(f)
}

func tooMany(err error) error {
	if !errors.Is(err, transport.ErrTooManyLanes) {
		return err
	}
	f := NewFailure("refused", "too many requests wait for an answer on this connection")
	f.Fault = FaultCaller
	return f.Err()
}

// answerIn returns the body of a reply, or the failure that was the answer.
func answerIn(f transport.Frame) ([]byte, error) {
	switch f.Type {
	case wire.TypeReply:
		return f.Body, nil
	case wire.TypeFailed:
		var w wire.Failed
		if err := wire.Decode(f.Body, &w); err != nil {
			return nil, unreadable(err)
		}
		failure, err := decodeFailure(w.Failure)
		if err != nil {
			return nil, unreadable(err)
		}
		return nil, failure.Err()
	}
	return nil, unreadable(fmt.Errorf("frame type %d", f.Type))
}

// unreadable is an answer that makes no sense. It is none of the sentinels: what is
// wrong with it is not wrong with the request.
func unreadable(err error) error {
	return fmt.Errorf("the dispatcher's answer cannot be read: %v", err) //nolint:errorlint // on purpose, see above
}

// isLost reports whether err means that the lane or the session was lost.
func isLost(err error) bool {
	for _, lost := range []error{transport.ErrSessionClosed, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// laneLosses bounds what is done about a dispatcher that closes lanes in a session
// that stays open: asking again pauses ever longer and ends like waiting for a
// session does.
type laneLosses struct {
	patience time.Duration
	session  *session
	since    time.Time
	pause    time.Duration
}

// bear returns nil when it is time to ask again after a loss.
func (r *remote) bear(ctx context.Context, l *laneLosses, s *session, lost error) error {
	if s.Err() != nil {
		return nil // the next session is waited for
	}
	if l.session != s {
		*l = laneLosses{patience: l.patience, session: s, since: time.Now(), pause: firstPause / 8}
	}
	if time.Since(l.since) >= l.patience {
		return r.link.door.failed("read", ErrUnavailable, lost)
	}
	l.pause = min(2*l.pause, lastPause)
	return r.link.pause(ctx, rand.N(l.pause))
}

// asked asks and decodes the reply.
func asked[W any](ctx context.Context, r *remote, kind transport.Type, message any, waits bool) (W, error) {
	q := question{kind: kind, waits: waits}
	if message != nil {
		q.body = wire.Encode(message)
	}
	var w W
	out := r.ask(ctx, q)
	if out.err == nil {
		out.err = decodeReply(out.body, &w)
	}
	return w, out.err
}

func decodeReply(body []byte, w any) error {
	if err := wire.DecodeBody(body, w); err != nil {
		return unreadable(err)
	}
	return nil
}

// noun makes a noun of a reply.
func noun[W, T any](w W, err error, from func(W) (T, error)) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	t, err := from(w)
	if err != nil {
		return none, unreadable(err)
	}
	return t, nil
}

// page makes a page of the rows of a reply.
func page[W, T any](rows wire.Rows, cursor string, err error, from func(W) (T, error)) (Page[T], error) {
	items, err := noun(rows, err, func(rows wire.Rows) ([]T, error) { return rowsFromWire(rows, from) })
	return Page[T]{Items: items, Cursor: cursor}, err
}

// Ping implements Service.
func (r *remote) Ping(ctx context.Context) (ServerInfo, error) {
	w, err := asked[wire.Server](ctx, r, wire.TypePing, nil, false)
	return noun(w, err, serverFromWire)
}

// Submit implements JobService. Whatever happens after a submission that may have
// arrived and was not answered, what became of it is not known: an error is then a
// *CallError, but for ErrConflict, which says that the id is not this request's.
func (r *remote) Submit(ctx context.Context, s Submission) (string, error) {
	signed := wire.Signed{Request: s.Request, Signature: s.Signature, KeyID: s.KeyID}
	out := r.ask(ctx, question{kind: wire.TypeSubmit, body: wire.Encode(signed)})
	unanswered := out.sent
	if out.answered {
		unanswered--
	}
	var w wire.Submitted
	if out.err == nil {
		if out.err = decodeReply(out.body, &w); out.err == nil {
			return w.ID, nil
		}
		unanswered++
	}
	switch {
	case unanswered > 0 && !errors.Is(out.err, ErrConflict):
		return "", &CallError{JobID: requestID(s.Request), Err: out.err}
	case !out.answered && ctx.Err() != nil:
		return "", r.link.door.failed("dial", ErrUnavailable, out.err)
	}
	return "", out.err
}

// requestID reads the id of a request, empty if it cannot.
func requestID(request []byte) string {
	var w wire.Request
	if wire.Decode(request, &w) != nil {
		return ""
	}
	return w.ID
}

// JobStatus implements JobService.
func (r *remote) JobStatus(ctx context.Context, id string) (JobStatus, error) {
	w, err := asked[wire.Job](ctx, r, wire.TypeStatus, wire.JobRef{ID: id}, false)
	return noun(w, err, jobFromWire)
}

// JobResult implements JobService.
func (r *remote) JobResult(ctx context.Context, id string, wait bool) (Result, error) {
	w, err := asked[wire.Result](ctx, r, wire.TypeResult, wire.ResultOf{ID: id, Wait: wait}, wait)
	return noun(w, err, resultFromWire)
}

// Records implements JobService.
func (r *remote) Records(ctx context.Context, id string, q RecordQuery) (RecordPage, error) {
	w, err := r.pulled(ctx, id, q)
	return noun(w, err, recordsFromWire)
}

func (r *remote) pulled(ctx context.Context, id string, q RecordQuery) (wire.Pulled, error) {
	return asked[wire.Pulled](ctx, r, wire.TypePull, queryToWire(id, q), q.Wait)
}

// pull implements farAway.
func (r *remote) pull(ctx context.Context, id string, q RecordQuery) (pageInHand, error) {
	w, err := r.pulled(ctx, id, q)
	page, err := noun(w, err, pageFromWire)
	return pageInHand{page, recordsIn(w.Records)}, err
}

// CancelJob implements JobService.
func (r *remote) CancelJob(ctx context.Context, id string, now bool) (bool, error) {
	w, err := asked[wire.Done](ctx, r, wire.TypeCancelJob, wire.CancelJob{ID: id, Now: now}, false)
	return w.Live, err
}

// ListJobs implements JobService.
func (r *remote) ListJobs(ctx context.Context, f JobFilter, cursor string) (Page[JobStatus], error) {
	q, err := filterToWire(f, cursor)
	if err != nil {
		return Page[JobStatus]{}, err
	}
	w, err := asked[wire.Jobs](ctx, r, wire.TypeJobs, q, false)
	return page(w.Jobs, w.Cursor, err, jobFromWire)
}

// ListHosts implements HostService.
func (r *remote) ListHosts(ctx context.Context, name, cursor string) (Page[HostStatus], error) {
	q := wire.HostsQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	w, err := asked[wire.Hosts](ctx, r, wire.TypeHosts, q, false)
	return page(w.Hosts, w.Cursor, err, hostFromWire)
}

// HostProcedures implements HostService.
func (r *remote) HostProcedures(ctx context.Context, host, cursor string) (Page[ProcedureDoc], error) {
	q := wire.HostRef{Name: host, Page: wire.Page{Cursor: cursor}}
	w, err := asked[wire.HostProcs](ctx, r, wire.TypeHostProcs, q, false)
	return page(w.Procedures, w.Cursor, err, procedureFromWire)
}

// RefreshHosts implements HostService.
func (r *remote) RefreshHosts(ctx context.Context) (int, error) {
	w, err := asked[wire.Refreshed](ctx, r, wire.TypeRefresh, nil, false)
	return noun(w, err, func(w wire.Refreshed) (int, error) {
		var in reader
		return in.number("hosts", w.Hosts), in.err
	})
}

// ListQueues implements QueueService.
func (r *remote) ListQueues(ctx context.Context, name Value, cursor string) (Page[QueueStatus], error) {
	q := wire.QueuesQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	w, err := asked[wire.Queues](ctx, r, wire.TypeQueues, q, false)
	return page(w.Queues, w.Cursor, err, queueFromWire)
}

// CancelQueue implements QueueService.
func (r *remote) CancelQueue(ctx context.Context, id string, name Value) (int, error) {
	w, err := asked[wire.Done](ctx, r, wire.TypeCancelQueue, wire.QueueRef{Name: name, Request: id}, false)
	return noun(w, err, func(w wire.Done) (int, error) {
		var in reader
		return in.number("count", w.Count), in.err
	})
}
