package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/transport"
)

// remote is a dispatcher elsewhere: a Service whose requests travel over a session.
// All of them can be asked again, and are when a session or an exchange was lost before
// the answer came. Those that would do something else the second time carry an id, so that
// they are done once; a store that has not heard of it would start anew what they start, and is not asked.
type remote struct{ reconnector *reconnector }

var _ harp.Service = (*remote)(nil)

func newRemote(d dialer, first *session) *remote {
	return &remote{reconnector: newReconnector(d, first)}
}

// Close implements harp.Service.
func (r *remote) Close() error {
	r.reconnector.close()
	return nil
}

// request is one message to the dispatcher that has an answer.
type request struct {
	kind  transport.Type
	body  []byte
	waits bool // for something to happen: only its ctx ends it
}

// starts reports whether the request may start something, which it does once in each store.
func (q request) starts() bool {
	switch q.kind {
	case wire.TypeSubmit, wire.TypeTrigger, wire.TypeBackfill:
		return true
	}
	return false
}

// response is what became of a request.
type response struct {
	body     []byte // of the reply
	sent     int    // how often it may have reached the dispatcher
	store    string // of the dispatcher it was sent to last
	answered bool   // the last time it was answered, also by an error
	err      error  // the dispatcher's answer, or why there is none
}

// do sends a request until there is an answer or none can be had any more.
func (r *remote) do(ctx context.Context, q request) response {
	if most := wire.MaxBody(q.kind); len(q.body) > most {
		return response{err: &harp.FieldError{Field: "request", Message: fmt.Sprintf("is %d bytes, at most %d", len(q.body), most)}}
	}
	var out response
	losses := backoff{patience: r.patience(q)}
	for {
		var s *session
		if s, out.err = r.reconnector.awaitSession(ctx, r.patience(q)); out.err != nil {
			return out
		}
		if out.sent > 0 && q.starts() && s.welcome.Store != out.store {
			out.err = r.reconnector.dialer.hostError("read", harp.ErrUnavailable, errOtherStore)
			return out
		}
		s.doOnce(ctx, q, &out)
		switch {
		case out.answered:
			return out
		case r.reconnector.ctx.Err() != nil:
			out.err = harp.ErrClosed
			return out
		case ctx.Err() != nil:
			out.err = context.Cause(ctx)
			return out
		case !isLost(out.err):
			return out
		}
		if err := r.backOff(ctx, &losses, s, out.err); err != nil {
			out.err = err
			return out
		}
	}
}

// errOtherStore is why a request is not sent again: the dispatcher has been restored from a backup, or is another one.
var errOtherStore = errors.New("the dispatcher has another store now, which may not know of the request")

// patience is how long a request waits for a session.
func (r *remote) patience(q request) time.Duration {
	if q.waits {
		return harp.NoLimit
	}
	return r.reconnector.dialer.cfg.RetryFor
}

// maxSubmitting is how many submissions of a session are on their way or being stored:
// as many as a dispatcher puts on disk in one go.
const maxSubmitting = 128

// awaitSubmitTurn waits until one more submission may be sent; those that came before go first.
// Thousands of them sent at once would be in the way of all that is asked and answered
// meanwhile, and that is the results of the first of them. The error is ctx's, or that
// the session was lost.
func (s *session) awaitSubmitTurn(ctx context.Context) error {
	select {
	case s.submitting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Done():
		return transport.ErrSessionClosed
	}
}

// doOnce sends a request once, over this session.
func (s *session) doOnce(ctx context.Context, q request, out *response) {
	if q.kind == wire.TypeSubmit {
		if out.err = s.awaitSubmitTurn(ctx); out.err != nil {
			return
		}
		defer func() { <-s.submitting }()
	}
	x, err := s.Exchange()
	if err != nil {
		out.err = tooManyErr(err)
		return
	}
	defer x.Release()
	defer context.AfterFunc(ctx, x.Release)() // ends a Send that waits
	out.sent++
	out.store = s.welcome.Store
	var f transport.Frame
	if out.err = x.Send(q.kind, true, q.body); out.err == nil {
		f, out.err = x.Receive(ctx)
	}
	if errors.Is(out.err, transport.ErrNoRoom) {
		out.sent-- // nobody has looked at it
	}
	if out.err != nil {
		return
	}
	out.answered = true
	out.body, out.err = replyBody(f)
}

func tooManyErr(err error) error {
	if !errors.Is(err, transport.ErrTooManyExchanges) {
		return err
	}
	f := failures.New("refused", "too many unanswered requests on this connection")
	f.Fault = harp.FaultCaller
	return f.Err()
}

// replyBody returns the body of a reply, or the failure that was the answer.
func replyBody(f transport.Frame) ([]byte, error) {
	switch f.Type {
	case wire.TypeReply:
		return f.Body, nil
	case wire.TypeFailed:
		var w wire.Failed
		if err := wire.Decode(f.Body, &w); err != nil {
			return nil, unreadable(err)
		}
		if w.Failure == nil {
			return nil, unreadable(errors.New("a failure without an error"))
		}
		return nil, w.Failure
	}
	return nil, unreadable(fmt.Errorf("frame type %d", f.Type))
}

// unreadable is an answer that makes no sense. It is none of the sentinels: what is
// wrong with it is not wrong with the request.
func unreadable(err error) error {
	return failures.New("internal", "the dispatcher's answer cannot be read: "+err.Error()).Err()
}

// isLost reports whether err means that the exchange or the session was lost.
func isLost(err error) bool {
	for _, lost := range []error{transport.ErrSessionClosed, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// backoff is the pause before a request is sent again when the dispatcher resets
// exchanges in a session that stays open. The pauses become longer, and the request ends
// as one does that waits for a session in vain.
type backoff struct {
	patience time.Duration
	session  *session
	since    time.Time
	pause    time.Duration
}

// backOff waits before a request is sent again after a loss. Its error is why it is not.
func (r *remote) backOff(ctx context.Context, l *backoff, s *session, lost error) error {
	if s.Err() != nil {
		return nil // the next session is waited for
	}
	if l.session != s {
		*l = backoff{patience: l.patience, session: s, since: time.Now(), pause: firstPause / 8}
	}
	if time.Since(l.since) >= l.patience {
		return r.reconnector.dialer.hostError("read", harp.ErrUnavailable, lost)
	}
	l.pause = min(2*l.pause, lastPause)
	return r.reconnector.sleep(ctx, rand.N(l.pause))
}

// requestReply sends a request and decodes its reply.
func requestReply[W any](ctx context.Context, r *remote, kind transport.Type, message any, waits bool) (W, error) {
	q := request{kind: kind, waits: waits}
	if message != nil {
		q.body = wire.Encode(message)
	}
	var w W
	out := r.do(ctx, q)
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

// errStays is a page that does not go on: what comes next would be asked for again and again.
var errStays = unreadable(errors.New("the next page is the same one"))

// pageAfter makes a page of the rows of a reply to a request for what comes after a cursor.
func pageAfter[T any](asked string, rows wire.Rows, cursor string, err error) (harp.Page[T], error) {
	if err == nil && cursor != "" && cursor == asked {
		err = errStays
	}
	return page[T](rows, cursor, err)
}

// page makes a page of the rows of a reply.
func page[T any](rows wire.Rows, cursor string, err error) (harp.Page[T], error) {
	if err != nil {
		return harp.Page[T]{}, err
	}
	items, err := wire.DecodeRows[T](rows)
	if err != nil {
		return harp.Page[T]{}, unreadable(err)
	}
	return harp.Page[T]{Items: items, Cursor: cursor}, nil
}

// Ping implements harp.Service.
func (r *remote) Ping(ctx context.Context) (harp.ServerInfo, error) {
	return requestReply[harp.ServerInfo](ctx, r, wire.TypePing, nil, false)
}

// Submit implements harp.JobService.
func (r *remote) Submit(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	q := request{kind: wire.TypeSubmit, body: wire.Encode(wire.NewSubmit(calls))}
	return r.submitJobs(ctx, q, len(calls), func(i int) string { return requestID(calls[i].Request) })
}

// submitJobs sends a request that makes so many jobs. Whatever happens after one that may have
// arrived and was not answered, what became of it is not known: an error is then a
// *CallError, but for an ErrConflict that says that the id is not this request's.
func (r *remote) submitJobs(ctx context.Context, q request, calls int, id func(call int) string) ([]harp.Submitted, error) {
	out := r.do(ctx, q)
	unanswered := out.sent
	if out.answered {
		unanswered--
	}
	var done []harp.Submitted
	if out.err == nil {
		if done, out.err = submitReply(out.body, calls); out.err != nil {
			unanswered++
		}
	}
	switch {
	case unanswered == 0 && !out.answered && ctx.Err() != nil:
		return nil, r.reconnector.dialer.hostError("dial", harp.ErrUnavailable, out.err)
	case unanswered == 0 || isOtherRequest(out.err):
		return done, out.err
	case out.err != nil:
		done = make([]harp.Submitted, calls)
	}
	for i := range done {
		if err := cmp.Or(done[i].Err, out.err); err != nil && !isOtherRequest(err) {
			done[i] = harp.Submitted{Err: &harp.CallError{JobID: id(i), Err: err}}
		}
	}
	return done, nil
}

// isOtherRequest reports whether an error says that the id of a request, or its key, is another's: an ErrConflict that has
// no type, or that of keys. Any other is about what the request wants, and was perhaps not so when it was sent before.
func isOtherRequest(err error) bool {
	if !errors.Is(err, harp.ErrConflict) {
		return false
	}
	kind := harp.FailureOf(err).Type
	return kind == "" || kind == harp.ConflictOfKey
}

// submitReply decodes the answer to so many calls.
func submitReply(body []byte, calls int) ([]harp.Submitted, error) {
	var w wire.Submitted
	if err := decodeReply(body, &w); err != nil {
		return nil, err
	}
	done, err := w.Outcomes()
	if err == nil && len(done) != calls {
		err = fmt.Errorf("%d calls have %d outcomes", calls, len(done))
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return done, nil
}

// requestID reads the id of a request, empty if it cannot.
func requestID(request []byte) string {
	var m wire.JobRef
	if wire.Decode(request, &m) != nil {
		return ""
	}
	return m.ID
}

// JobStatus implements harp.JobService.
func (r *remote) JobStatus(ctx context.Context, id string) (harp.JobStatus, error) {
	return requestReply[harp.JobStatus](ctx, r, wire.TypeStatus, wire.JobRef{ID: id}, false)
}

// JobResult implements harp.JobService.
func (r *remote) JobResult(ctx context.Context, id string, wait bool) (harp.Result, error) {
	return requestReply[harp.Result](ctx, r, wire.TypeResult, wire.ResultOf{ID: id, Wait: wait}, wait)
}

// JobResults implements harp.JobService.
func (r *remote) JobResults(ctx context.Context, ids []string) ([]harp.JobResult, error) {
	m, err := requestReply[wire.Results](ctx, r, wire.TypeResults, wire.ResultsOf{IDs: ids}, true)
	if err != nil {
		return nil, err
	}
	results, err := m.JobResults()
	if err != nil {
		return nil, unreadable(err)
	}
	return results, nil
}

// Records implements harp.JobService.
func (r *remote) Records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	m, err := requestReply[wire.Pulled](ctx, r, wire.TypePull, wire.Pull{ID: id, RecordQuery: q}, q.Wait)
	if err != nil {
		return harp.RecordPage{}, err
	}
	if more := q.Wait || m.Next < m.End; more && m.Next <= q.From && !q.Tail && !m.Ended {
		return harp.RecordPage{}, errStays
	}
	page, err := m.Page()
	if err != nil {
		return harp.RecordPage{}, unreadable(err)
	}
	return page, nil
}

// CancelJob implements harp.JobService.
func (r *remote) CancelJob(ctx context.Context, id string, now bool) (bool, error) {
	w, err := requestReply[wire.Done](ctx, r, wire.TypeCancelJob, wire.CancelJob{ID: id, Now: now}, false)
	return w.Live, err
}

// ListJobs implements harp.JobService.
func (r *remote) ListJobs(ctx context.Context, f harp.JobFilter, cursor string) (harp.Page[harp.JobStatus], error) {
	queue, err := harp.QueueName(f.Queue)
	if err != nil {
		return harp.Page[harp.JobStatus]{}, err
	}
	q := wire.JobsQuery{Page: wire.Page{Cursor: cursor, Limit: max(f.Limit, 0)}, Queue: queue, JobFilter: f}
	m, err := requestReply[wire.Jobs](ctx, r, wire.TypeJobs, q, false)
	return pageAfter[harp.JobStatus](cursor, m.Jobs, m.Cursor, err)
}

// ListHosts implements harp.HostService.
func (r *remote) ListHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostStatus], error) {
	if err := checkTarget(wire.TypeHosts, text, 0); err != nil {
		return harp.Page[harp.HostStatus]{}, err
	}
	q := wire.HostsQuery{Target: text, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Hosts](ctx, r, wire.TypeHosts, q, false)
	return pageAfter[harp.HostStatus](cursor, m.Hosts, m.Cursor, err)
}

// ExplainTarget implements harp.HostService.
func (r *remote) ExplainTarget(ctx context.Context, text, host string) (target.Node, error) {
	if err := checkTarget(wire.TypeExplain, text, 0); err != nil {
		return target.Node{}, err
	}
	m, err := requestReply[wire.Explained](ctx, r, wire.TypeExplain, wire.Explain{Target: text, Host: host}, false)
	if err != nil {
		return target.Node{}, err
	}
	explained, err := m.Node()
	if err != nil {
		return target.Node{}, unreadable(err)
	}
	return explained, nil
}

// PreviewBatch implements harp.HostService.
func (r *remote) PreviewBatch(ctx context.Context, call harp.Submission) (harp.Preview, error) {
	m, err := requestReply[wire.Previewed](ctx, r, wire.TypePreview, wire.Preview{Submission: call}, false)
	if err != nil {
		return harp.Preview{}, err
	}
	unfit, err := wire.DecodeRows[harp.UnfitHost](m.UnfitHosts)
	if err != nil {
		return harp.Preview{}, unreadable(err)
	}
	m.Preview.UnfitHosts = unfit
	return m.Preview, nil
}

// LabelHosts implements harp.HostService.
func (r *remote) LabelHosts(ctx context.Context, id, text string, set map[string]string, unset []string) (int, error) {
	if err := checkTarget(wire.TypeLabelHosts, text, 0); err != nil {
		return 0, err
	}
	m, err := requestReply[wire.Done](ctx, r, wire.TypeLabelHosts, wire.LabelHosts{Request: id, Target: text, Set: set, Unset: unset}, false)
	return m.Count, err
}

// checkTarget refuses a target that does not fit into a request of a type, beside so many bytes.
func checkTarget(kind transport.Type, text string, beside int) error {
	most := wire.MaxBody(kind) - 4<<10 - beside
	if len(text) > most {
		return &harp.FieldError{Field: "target", Message: fmt.Sprintf("has %d bytes, at most %d", len(text), most)}
	}
	return nil
}

// HostProcedures implements harp.HostService.
func (r *remote) HostProcedures(ctx context.Context, host, cursor string) (harp.Page[harp.ProcedureDoc], error) {
	q := wire.HostRef{Name: host, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.HostProcs](ctx, r, wire.TypeHostProcs, q, false)
	return pageAfter[harp.ProcedureDoc](cursor, m.Procedures, m.Cursor, err)
}

// RemoveHost implements harp.HostService.
func (r *remote) RemoveHost(ctx context.Context, id, name string) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypeRemoveHost, wire.RemoveHost{Name: name, Request: id}, false)
	return m.Count, err
}

// PingHosts implements harp.HostService.
func (r *remote) PingHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostPing], error) {
	if err := checkTarget(wire.TypePingHosts, text, 0); err != nil {
		return harp.Page[harp.HostPing]{}, err
	}
	q := wire.PingHosts{Target: text, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Pinged](ctx, r, wire.TypePingHosts, q, false)
	return pageAfter[harp.HostPing](cursor, m.Hosts, m.Cursor, err)
}

// RefreshHosts implements harp.HostService.
func (r *remote) RefreshHosts(ctx context.Context) (int, error) {
	m, err := requestReply[wire.Refreshed](ctx, r, wire.TypeRefresh, nil, false)
	return m.Hosts, err
}

// ListQueues implements harp.QueueService.
func (r *remote) ListQueues(ctx context.Context, name harp.Value, cursor string) (harp.Page[harp.QueueStatus], error) {
	q := wire.QueuesQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Queues](ctx, r, wire.TypeQueues, q, false)
	return pageAfter[harp.QueueStatus](cursor, m.Queues, m.Cursor, err)
}

// CancelQueue implements harp.QueueService.
func (r *remote) CancelQueue(ctx context.Context, id string, name harp.Value) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypeCancelQueue, wire.QueueRef{Name: name, Request: id}, false)
	return m.Count, err
}
