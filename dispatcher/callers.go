package dispatcher

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// CallerConfig are the settings of [ServeCaller]; a zero field means its default.
type CallerConfig struct {
	Heartbeat time.Duration // told to the caller. Default 10 s
	Logger    *slog.Logger  // default: slog.Default()
	// Warn gets the line of a caller that breaks the protocol, in the place of Logger, with the
	// identity by which such lines may be counted. Default: none.
	Warn func(by, message string, args ...any)
	// Budget bounds what all callers whose sessions share it can make this side hold.
	// Default: one for this session alone.
	Budget *transport.Budget
}

const (
	// greetTime is how long a caller may take to say hello.
	greetTime = 10 * time.Second
	heartbeat = 10 * time.Second
)

// ServeCaller answers the requests of the caller at the other end of conn with s,
// which acts for that caller alone: it is the server's half of client.Dial. It returns
// when ctx has ended, with its error, or when the connection has, with the reason;
// every request has been answered or given up then, and conn and s are closed.
//
// The ctx that s gets with a request ends when the caller gives the request up. Once
// s answers ErrClosed the caller gets no answer and asks again elsewhere or later.
func ServeCaller(ctx context.Context, conn *transport.Conn, s harp.Service, cfg CallerConfig) error {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, heartbeat)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	defer s.Close()
	defer conn.Close()
	opening, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	session, err := conn.Acceptor(opening, transport.Options{Logger: cfg.Logger, MaxFrame: wire.MaxBody, Warn: cfg.Warn, Budget: cfg.Budget})
	cancel()
	if err != nil {
		return fmt.Errorf("serve caller: %w", err)
	}
	defer context.AfterFunc(ctx, func() { session.Close(context.Cause(ctx)) })()
	limited := &limitedService{Service: s, welcomed: make(chan struct{})}
	var greeting sync.WaitGroup
	greeting.Go(func() {
		if err := greetCaller(ctx, session, s, cfg); err != nil {
			session.Close(err)
			return
		}
		close(limited.welcomed)
		session.RefuseControl()
	})
	err = session.Serve(limited.answerRequest)
	greeting.Wait()
	return fmt.Errorf("serve caller: %w", err)
}

// limitedService is the Service as one session's caller gets it. What is being answered to
// followers, and they do not read, is bounded: the more of them ask at a time, the
// less each gets.
type limitedService struct {
	harp.Service
	welcomed chan struct{} // closed when the caller is
	pulls    atomic.Int64  // that are being answered, from the request until the answer is sent
}

// answerRequest answers a request, once the caller is welcome.
func (l *limitedService) answerRequest(x *transport.Exchange, first transport.Frame) {
	select {
	case <-l.welcomed:
	case <-x.Session().Done():
		return
	}
	if first.Type == wire.TypePull || first.Type == wire.TypeBatchPull {
		l.pulls.Add(1)
		defer l.pulls.Add(-1)
	}
	answerRequest(withAnswerOf(x.Context(), x), l, x, first)
}

// Records implements JobService.
func (l *limitedService) Records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	q.MaxBytes, q.MaxRecords = l.pullBytes(), wire.MaxRows
	return l.Service.Records(ctx, id, q)
}

// BatchLog implements BatchService.
func (l *limitedService) BatchLog(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
	q.MaxBytes = l.pullBytes()
	return l.Service.BatchLog(ctx, id, q)
}

// pullBytes is how much one of the followers gets at a time.
func (l *limitedService) pullBytes() int {
	return int(min(max(unreadBytes/l.pulls.Load(), wire.MinWindow), wire.MaxPage))
}

// greetCaller receives the caller's hello and answers it. The error is also why the caller
// is not welcome.
func greetCaller(ctx context.Context, session *transport.Session, s harp.Service, cfg CallerConfig) error {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	control := session.Control()
	f, err := control.Receive(ctx)
	if err != nil {
		return err
	}
	info, err := acceptHello(ctx, f, s)
	if err != nil {
		w := wire.Unwelcome{Failure: wire.NewFailed(err).Failure}
		return errors.Join(err, control.Send(wire.TypeUnwelcome, false, wire.Encode(w)))
	}
	err = control.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{
		Version: wire.Version, Features: info.Features, Software: info.Software, Store: info.Store,
		Heartbeat: int64(cfg.Heartbeat), Time: time.Now().UnixNano(),
	}))
	session.Beat(cfg.Heartbeat)
	return err
}

// acceptHello judges a hello and returns what the welcome says.
func acceptHello(ctx context.Context, f transport.Frame, s harp.Service) (harp.ServerInfo, error) {
	var hello wire.Hello
	if f.Type != wire.TypeHello {
		return harp.ServerInfo{}, &harp.FieldError{Field: "hello", Message: fmt.Sprintf("frame type %d came instead", f.Type)}
	}
	if err := decodeRequest(f.Body, &hello); err != nil {
		return harp.ServerInfo{}, err
	}
	if hello.Version != wire.Version {
		f := failures.New("refused", fmt.Sprintf("this dispatcher speaks version %[2]d of the protocol, not %[1]d", hello.Version, wire.Version))
		return harp.ServerInfo{}, f.Err()
	}
	return s.Ping(ctx)
}

// answerRequest answers one request, unless the caller has given it up.
func answerRequest(ctx context.Context, s harp.Service, x *transport.Exchange, first transport.Frame) {
	reply, err := []byte(nil), reserveAnswer(ctx, priceOf(first.Type))
	if err != nil {
		return // given up, or closed
	}
	if first.Type == wire.TypeBackup {
		reply, err = answerBackup(ctx, s, x)
	} else {
		reply, err = makeReply(ctx, s, first)
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, harp.ErrClosed):
		return
	case err == nil:
		keepReserved(ctx, len(reply))
		_ = x.Send(wire.TypeReply, true, reply) // fails only when the caller is gone
	default:
		_ = x.Send(wire.TypeFailed, true, wire.Encode(wire.NewFailed(err)))
	}
}

// makeReply returns the body of the reply. No request is left without an answer: one
// of an unknown type is refused.
func makeReply(ctx context.Context, s harp.Service, f transport.Frame) ([]byte, error) {
	handle, known := handlers[f.Type]
	if !known {
		return nil, failures.New("refused", fmt.Sprintf("request type %d is unknown here", f.Type)).Err()
	}
	reply, err := handle(ctx, s, f.Body)
	if err != nil {
		return nil, err
	}
	body := wire.Encode(reply)
	if most := wire.MaxBody(wire.TypeReply); len(body) > most {
		return nil, failures.New("refused", fmt.Sprintf("the answer is %d bytes, at most %d", len(body), most)).Err()
	}
	return body, nil
}

// handlers answer the requests of callers, by their frame.
var handlers = map[transport.Type]func(ctx context.Context, s harp.Service, body []byte) (any, error){
	wire.TypePing:               handlePing,
	wire.TypeSubmit:             handled(handleSubmit),
	wire.TypeStatus:             handled(handleStatus),
	wire.TypeResult:             handled(handleResult),
	wire.TypeResults:            handled(handleResults),
	wire.TypePull:               handled(handlePull),
	wire.TypeCancelJob:          handled(handleCancelJob),
	wire.TypeJobs:               handled(handleJobs),
	wire.TypeHosts:              handled(handleHosts),
	wire.TypeHostProcs:          handled(handleHostProcs),
	wire.TypeExplain:            handled(handleExplain),
	wire.TypePreview:            handled(handlePreview),
	wire.TypeRefresh:            handleRefresh,
	wire.TypeRemoveHost:         handled(handleRemoveHost),
	wire.TypePingHosts:          handled(handlePingHosts),
	wire.TypeDrift:              handled(handleDrift),
	wire.TypeForgetDrift:        handled(handleForgetDrift),
	wire.TypeQueues:             handled(handleQueues),
	wire.TypeCancelQueue:        handled(handleCancelQueue),
	wire.TypeGroups:             handled(handleGroups),
	wire.TypePutGroup:           handled(handlePutGroup),
	wire.TypeDeleteGroup:        handled(handleDeleteGroup),
	wire.TypeLabelHosts:         handled(handleLabelHosts),
	wire.TypeRequest:            handled(handleRequest),
	wire.TypeForceLost:          handled(handleForceLost),
	wire.TypeEvents:             handled(handleEvents),
	wire.TypeChangeQueue:        handled(handleChangeQueue),
	wire.TypePrune:              handled(handlePrune),
	wire.TypeBatch:              handled(handleBatch),
	wire.TypeBatches:            handled(handleBatches),
	wire.TypeBatchPull:          handled(handleBatchPull),
	wire.TypeChangeBatch:        handled(handleChangeBatch),
	wire.TypeSchedules:          handled(handleSchedules),
	wire.TypePutSchedule:        handled(handlePutSchedule),
	wire.TypeDeleteSchedule:     handled(handleDeleteSchedule),
	wire.TypeChangeSchedule:     handled(handleChangeSchedule),
	wire.TypeTrigger:            handled(handleTrigger),
	wire.TypeBackfill:           handled(handleBackfill),
	wire.TypeNextTimes:          handled(handleNextTimes),
	wire.TypeLedger:             handled(handleLedger),
	wire.TypeApply:              handled(handleApply),
	wire.TypeRetentionRules:     handled(handleRetentionRules),
	wire.TypeSetRetention:       handled(handleSetRetention),
	wire.TypeDeleteRetention:    handled(handleDeleteRetention),
	wire.TypeWindows:            handled(handleWindows),
	wire.TypePutWindow:          handled(handlePutWindow),
	wire.TypeNotifications:      handled(handleNotifications),
	wire.TypePutNotification:    handled(handlePutNotification),
	wire.TypeDeleteNotification: handled(handleDeleteNotification),
	wire.TypeChangeNotification: handled(handleChangeNotification),
	wire.TypeDeleteWindow:       handled(handleDeleteWindow),
	wire.TypeEndWindow:          handled(handleEndWindow),
	wire.TypeWindowSpans:        handled(handleWindowSpans),
	wire.TypeJudgeStart:         handled(handleJudgeStart),
	wire.TypePauseHosts:         handled(handlePauseHosts),
}

// handled decodes the request for a handler.
func handled[W any](handle func(context.Context, harp.Service, W) (any, error)) func(context.Context, harp.Service, []byte) (any, error) {
	return func(ctx context.Context, s harp.Service, body []byte) (any, error) {
		var w W
		if err := decodeRequest(body, &w); err != nil {
			return nil, err
		}
		return handle(ctx, s, w)
	}
}

// queueNamed returns the canonical name of a queue. Errors: harp.ErrInvalid.
func queueNamed(name harp.Value) (harp.Value, error) {
	canonical, err := harp.QueueName(name)
	if err == nil && canonical == nil {
		err = &harp.FieldError{Field: "queue", Message: "a name is a map with string keys"}
	}
	return canonical, err
}

func decodeRequest(body []byte, w any) error {
	if err := wire.Decode(body, w); err != nil {
		field := "request"
		if e := (*msgpack.DecodeError)(nil); errors.As(err, &e) && e.Path != "" {
			field, err = strings.TrimPrefix(e.Path, "."), e.Err
		}
		return &harp.FieldError{Field: field, Message: err.Error()}
	}
	return nil
}

func handlePing(ctx context.Context, s harp.Service, _ []byte) (any, error) {
	return s.Ping(ctx)
}

func handleSubmit(ctx context.Context, s harp.Service, m wire.Submit) (any, error) {
	calls := m.Calls()
	if len(calls) > harp.MaxCalls {
		return nil, &harp.FieldError{Field: "calls", Message: fmt.Sprintf("%d, at most %d", len(calls), harp.MaxCalls)}
	}
	done, err := s.Submit(ctx, calls)
	switch {
	case err != nil:
		return nil, err
	case len(done) != len(calls):
		return nil, failures.New("internal", fmt.Sprintf("%d calls have %d outcomes", len(calls), len(done))).Err()
	case len(done) == 1 && done[0].Err != nil:
		return nil, done[0].Err
	}
	return wire.NewSubmitted(done), nil
}

func handleStatus(ctx context.Context, s harp.Service, w wire.JobRef) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	return s.JobStatus(ctx, w.ID)
}

func handleResult(ctx context.Context, s harp.Service, w wire.ResultOf) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	return s.JobResult(ctx, w.ID, w.Wait)
}

func handleResults(ctx context.Context, s harp.Service, w wire.ResultsOf) (any, error) {
	got, err := s.JobResults(ctx, w.IDs)
	return wire.NewResults(got), err
}

func handlePull(ctx context.Context, s harp.Service, w wire.Pull) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	page, err := s.Records(ctx, w.ID, w.RecordQuery)
	return wire.NewPulled(page), err
}

func handleCancelJob(ctx context.Context, s harp.Service, w wire.CancelJob) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	live, err := s.CancelJob(ctx, w.ID, w.Now)
	return wire.Done{Live: live}, err
}

func handleJobs(ctx context.Context, s harp.Service, w wire.JobsQuery) (any, error) {
	f := w.JobFilter
	if len(w.Queue) > 0 {
		queue, err := queueNamed(w.Queue)
		if err != nil {
			return nil, err
		}
		f.Queue = queue
	}
	if markIn(w.Cursor).Key == "" { // else the page is read again from its beginning
		f.Limit = w.Page.Limit
	}
	rows, cursor, err := listing[harp.JobStatus]{
		fetch:  func(cursor string) (harp.Page[harp.JobStatus], error) { return s.ListJobs(ctx, f, cursor) },
		mark:   func(s harp.JobStatus) mark { return mark{Key: s.ID, Time: s.SubmitTime} },
		before: func(a, b mark) bool { return a.Time.After(b.Time) }, // newest first
	}.page(w.Page)
	return wire.Jobs{Jobs: rows, Cursor: cursor}, err
}

func handleBatch(ctx context.Context, s harp.Service, w wire.BatchRef) (any, error) {
	if err := harp.CheckID(w.ID); err != nil {
		return nil, err
	}
	return s.BatchStatus(ctx, w.ID, w.Wait)
}

func handleBatches(ctx context.Context, s harp.Service, w wire.BatchesQuery) (any, error) {
	f := w.BatchFilter
	if markIn(w.Cursor).Key == "" { // else the page is read again from its beginning
		f.Limit = w.Page.Limit
	}
	rows, cursor, err := listing[harp.BatchStatus]{
		fetch:  func(cursor string) (harp.Page[harp.BatchStatus], error) { return s.ListBatches(ctx, f, cursor) },
		mark:   func(b harp.BatchStatus) mark { return mark{Key: b.ID, Time: b.SubmitTime} },
		before: func(a, b mark) bool { return a.Time.After(b.Time) }, // newest first
	}.page(w.Page)
	return wire.Batches{Batches: rows, Cursor: cursor}, err
}

func handleBatchPull(ctx context.Context, s harp.Service, w wire.BatchPull) (any, error) {
	if err := harp.CheckID(w.ID); err != nil {
		return nil, err
	}
	page, err := s.BatchLog(ctx, w.ID, w.BatchQuery)
	return wire.NewBatchPulled(page), err
}

func handleChangeBatch(ctx context.Context, s harp.Service, w wire.ChangeBatch) (any, error) {
	if err := harp.CheckID(w.Batch); err != nil {
		return nil, err
	}
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	n, err := s.ChangeBatch(ctx, w.Request, w.Batch, w.BatchChange)
	return wire.Done{Count: n}, err
}

func handleHosts(ctx context.Context, s harp.Service, w wire.HostsQuery) (any, error) {
	rows, cursor, err := listing[harp.HostStatus]{
		fetch:  func(cursor string) (harp.Page[harp.HostStatus], error) { return s.ListHosts(ctx, w.Target, cursor) },
		mark:   func(h harp.HostStatus) mark { return mark{Key: h.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Hosts{Hosts: rows, Cursor: cursor}, err
}

func handleExplain(ctx context.Context, s harp.Service, w wire.Explain) (any, error) {
	explained, err := s.ExplainTarget(ctx, w.Target, w.Host)
	if err != nil {
		return nil, err
	}
	return wire.NewExplained(explained)
}

func handlePreview(ctx context.Context, s harp.Service, w wire.Preview) (any, error) {
	p, err := s.PreviewBatch(ctx, w.Submission)
	return wire.Previewed{Preview: p, UnfitHosts: wire.NewRows(p.UnfitHosts, wire.MaxRows)}, err
}

func handleHostProcs(ctx context.Context, s harp.Service, w wire.HostRef) (any, error) {
	rows, cursor, err := listing[harp.ProcedureDoc]{
		fetch: func(cursor string) (harp.Page[harp.ProcedureDoc], error) {
			return s.HostProcedures(ctx, w.Name, cursor)
		},
		mark:   func(p harp.ProcedureDoc) mark { return mark{Key: p.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.HostProcs{Procedures: rows, Cursor: cursor}, err
}

func handleRefresh(ctx context.Context, s harp.Service, _ []byte) (any, error) {
	n, err := s.RefreshHosts(ctx)
	return wire.Refreshed{Hosts: n}, err
}

func handleRemoveHost(ctx context.Context, s harp.Service, w wire.RemoveHost) (any, error) {
	if w.Name == "" {
		return nil, &harp.FieldError{Field: "host", Message: "must not be empty"}
	}
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	n, err := s.RemoveHost(ctx, w.Request, w.Name)
	return wire.Done{Count: n}, err
}

func handlePingHosts(ctx context.Context, s harp.Service, w wire.PingHosts) (any, error) {
	rows, cursor, err := listing[harp.HostPing]{
		fetch:  func(cursor string) (harp.Page[harp.HostPing], error) { return s.PingHosts(ctx, w.Target, cursor) },
		mark:   func(h harp.HostPing) mark { return mark{Key: h.Host} },
		before: byKey,
	}.page(w.Page)
	return wire.Pinged{Hosts: rows, Cursor: cursor}, err
}

func handleQueues(ctx context.Context, s harp.Service, w wire.QueuesQuery) (any, error) {
	name, err := harp.QueueName(w.Name)
	if err != nil {
		return nil, err
	}
	rows, cursor, err := listing[harp.QueueStatus]{
		fetch:  func(cursor string) (harp.Page[harp.QueueStatus], error) { return s.ListQueues(ctx, name, cursor) },
		mark:   func(q harp.QueueStatus) mark { return mark{Key: hex.EncodeToString(q.Name)} },
		before: byKey,
	}.page(w.Page)
	return wire.Queues{Queues: rows, Cursor: cursor}, err
}

func handleCancelQueue(ctx context.Context, s harp.Service, w wire.QueueRef) (any, error) {
	name, err := queueNamed(w.Name)
	if err != nil {
		return nil, err
	}
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	n, err := s.CancelQueue(ctx, w.Request, name)
	return wire.Done{Count: n}, err
}

func handleGroups(ctx context.Context, s harp.Service, w wire.GroupsQuery) (any, error) {
	rows, cursor, err := listing[harp.Group]{
		fetch:  func(cursor string) (harp.Page[harp.Group], error) { return s.ListGroups(ctx, w.Name, cursor) },
		mark:   func(g harp.Group) mark { return mark{Key: g.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Groups{Groups: rows, Cursor: cursor}, err
}

func handlePutGroup(ctx context.Context, s harp.Service, w wire.PutGroup) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.PutGroup(ctx, w.Request, w.Name, w.Target)
}

func handleDeleteGroup(ctx context.Context, s harp.Service, w wire.DeleteGroup) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.DeleteGroup(ctx, w.Request, w.Name)
}

func handleLabelHosts(ctx context.Context, s harp.Service, w wire.LabelHosts) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	n, err := s.LabelHosts(ctx, w.Request, w.Target, w.Set, w.Unset)
	return wire.Done{Count: n}, err
}

func handleRequest(ctx context.Context, s harp.Service, w wire.JobRef) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	return s.JobRequest(ctx, w.ID)
}

func handleForceLost(ctx context.Context, s harp.Service, w wire.ForceLost) (any, error) {
	if err := harp.CheckJobID(w.ID); err != nil {
		return nil, err
	}
	if err := harp.CheckWhy(w.Why); err != nil {
		return nil, err
	}
	return wire.Done{}, s.ForceLost(ctx, w.ID, w.Why)
}

func handleEvents(ctx context.Context, s harp.Service, w wire.EventsQuery) (any, error) {
	if len(w.Types) > harp.MaxEventTypes {
		return nil, &harp.FieldError{Field: "types", Message: fmt.Sprintf("at most %d", harp.MaxEventTypes)}
	}
	page, err := s.Events(ctx, w.EventFilter, w.Wait)
	return wire.NewEvents(page), err
}

func handleChangeQueue(ctx context.Context, s harp.Service, w wire.QueueChange) (any, error) {
	name, err := queueNamed(w.Name)
	if err != nil {
		return nil, err
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.ChangeQueue(ctx, w.Request, name, w.QueueChange)
}

func handlePrune(ctx context.Context, s harp.Service, w wire.Prune) (any, error) {
	n, err := s.Prune(ctx, w.EndedBefore)
	return wire.Done{Count: n}, err
}
