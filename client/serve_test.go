package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// failureIn reads the answer to a request that failed.
func failureIn(t testing.TB, f transport.Frame) harp.Failure {
	t.Helper()
	if f.Type != wire.TypeFailed {
		t.Fatalf("frame type %d instead of a failure", f.Type)
	}
	var w wire.Failed
	if err := wire.Decode(f.Body, &w); err != nil {
		t.Fatal(err)
	}
	return harp.FailureOf(w.Failure)
}

// TestWelcome: the dispatcher says who it is and how often to say something.
func TestWelcome(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		for _, beat := range []time.Duration{0, time.Minute} {
			f.beat = beat
			r := rawCaller(t, f)
			want := wire.Welcome{Version: wire.Version, Software: "fake/1", Store: "s", Heartbeat: int64(max(beat, 10*time.Second)), Time: r.welcome.Time}
			if got := r.welcome; got.Version != want.Version || got.Software != want.Software || got.Store != want.Store || got.Heartbeat != want.Heartbeat || got.Time == 0 {
				t.Errorf("got %+v", got)
			}
			r.session.Close(nil)
		}
	})
}

// TestUnwelcome: a caller that is not welcome is told why, and the session ends.
func TestUnwelcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		frame   transport.Frame
		ping    error
		code    string
		field   string
		mention string
	}{
		{"version", transport.Frame{Type: wire.TypeHello, Body: wire.Encode(wire.Hello{Version: 1})}, nil, "refused", "", "not 1"},
		{"not hello", transport.Frame{Type: wire.TypeReady}, nil, "invalid", "hello", "39"},
		{"no body", transport.Frame{Type: wire.TypeHello}, nil, "invalid", "request", ""},
		{"wrong body", transport.Frame{Type: wire.TypeHello, Body: wire.Encode([]int{1})}, nil, "invalid", "request", ""},
		{"denied", transport.Frame{Type: wire.TypeHello, Body: wire.Encode(wire.Hello{Version: wire.Version})}, failures.New("denied", "not you").Err(), "denied", "", "not you"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.desk.failing("Ping", c.ping)
				r := rawSession(t, f, transport.ProtocolCall, transport.RoleDispatcher)
				if err := r.control.Send(c.frame.Type, false, c.frame.Body); err != nil {
					t.Fatal(err)
				}
				got, err := r.control.Receive(t.Context())
				if err != nil || got.Type != wire.TypeUnwelcome {
					t.Fatal(got.Type, err)
				}
				var w wire.Unwelcome
				if err := wire.Decode(got.Body, &w); err != nil {
					t.Fatal(err)
				}
				failure := harp.FailureOf(w.Failure)
				if failure.Code != c.code || failure.Field != c.field || !strings.Contains(failure.Message, c.mention) {
					t.Errorf("got %+v", failure)
				}
				<-r.session.Done()
				r.session.Close(nil)
			})
		})
	}
}

// TestHelloTimeout: who says nothing does not stay.
func TestHelloTimeout(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		r := rawSession(t, f, transport.ProtocolCall, transport.RoleDispatcher)
		start := time.Now()
		<-r.session.Done()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		if len(f.ends) != 1 || !errors.Is(f.ends[0], context.DeadlineExceeded) {
			t.Error(f.ends)
		}
	})
}

// TestBadRequests: whatever comes is answered, with the field that is wrong, and the
// session goes on. In harp's ancestor bad requests and unknown ids got no reply at all.
func TestBadRequests(t *testing.T) {
	t.Run("memory", func(t *testing.T) { inMemory(t, testBadRequests) })
	t.Run("tls", func(t *testing.T) {
		f := tlsFront(t, newDesk())
		defer f.stop()
		testBadRequests(t, f)
	})
}

func testBadRequests(t *testing.T, f *front) {
	id := harp.NewID()
	bad := []byte{0xc1}
	r := rawCaller(t, f)
	defer r.session.Close(nil)
	for _, c := range slices.Concat(badSchedules(), badWindows(), badRetention(), badDocuments(), badDrift(), []badRequest{
		{"submit nothing", wire.TypeSubmit, nil, "request"},
		{"submit a number", wire.TypeSubmit, 5, "request"},
		{"submit no request", wire.TypeSubmit, harp.Submission{}, "request"},
		{"submit bad bytes", wire.TypeSubmit, harp.Submission{Request: bad}, "request"},
		{"submit a bad id", wire.TypeSubmit, harp.Submission{Request: harp.Request{ID: "x", Host: "h", Procedure: "p"}.Encode()}, "id"},
		{"submit no host", wire.TypeSubmit, harp.Submission{Request: harp.Request{ID: id, Procedure: "p"}.Encode()}, "host"},
		{"status of nothing", wire.TypeStatus, nil, "request"},
		{"status of no id", wire.TypeStatus, wire.JobRef{}, "id"},
		{"status of a bad id", wire.TypeStatus, wire.JobRef{ID: "x"}, "id"},
		{"status of a number", wire.TypeStatus, map[string]any{"id": 5}, "id"},
		{"result of a bad id", wire.TypeResult, wire.ResultOf{ID: "x", Wait: true}, "id"},
		{"pull of a bad id", wire.TypePull, wire.Pull{ID: "x"}, "id"},
		{"pull from below", wire.TypePull, map[string]any{"id": id, "from": -1}, "from"},
		{"pull recent below", wire.TypePull, map[string]any{"id": id, "recent": -1}, "recent"},
		{"cancel of a bad id", wire.TypeCancelJob, wire.JobRef{ID: "x"}, "id"},
		{"batch of a bad id", wire.TypeBatch, wire.BatchRef{ID: "x", Wait: true}, "id"},
		{"log of a bad id", wire.TypeBatchPull, wire.BatchPull{ID: "x"}, "id"},
		{"log from below", wire.TypeBatchPull, map[string]any{"id": id, "from": -1}, "from"},
		{"batches with a bad limit", wire.TypeBatches, wire.BatchesQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"change a bad batch", wire.TypeChangeBatch, wire.ChangeBatch{Request: id, Batch: "x", BatchChange: harp.BatchChange{Kind: harp.PauseOfBatch}}, "id"},
		{"change a batch under a bad id", wire.TypeChangeBatch, wire.ChangeBatch{Request: "x", Batch: id, BatchChange: harp.BatchChange{Kind: harp.PauseOfBatch}}, "id"},
		{"approve no wave", wire.TypeChangeBatch, wire.ChangeBatch{Request: id, Batch: id, BatchChange: harp.BatchChange{Kind: harp.ResumeOfBatch, Wave: -1}}, "wave"},
		{"pause a wave", wire.TypeChangeBatch, wire.ChangeBatch{Request: id, Batch: id, BatchChange: harp.BatchChange{Kind: harp.PauseOfBatch, Wave: 1}}, "wave"},
		{"change a batch to nothing", wire.TypeChangeBatch, wire.ChangeBatch{Request: id, Batch: id}, "kind"},
		{"jobs in a bad queue", wire.TypeJobs, wire.JobsQuery{Queue: bad}, "queue"},
		{"jobs in a queue that is a list", wire.TypeJobs, wire.JobsQuery{Queue: []byte{0x90}}, "queue"},
		{"jobs in a queue that is nil", wire.TypeJobs, wire.JobsQuery{Queue: []byte{0xc0}}, "queue"},
		{"jobs with a bad limit", wire.TypeJobs, wire.JobsQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"hosts with a bad limit", wire.TypeHosts, wire.HostsQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"queues with a bad name", wire.TypeQueues, wire.QueuesQuery{Name: bad}, "name"},
		{"remove a host under a bad id", wire.TypeRemoveHost, wire.RemoveHost{Name: "h", Request: "x"}, "id"},
		{"remove no host", wire.TypeRemoveHost, wire.RemoveHost{Request: harp.NewID()}, "host"},
		{"cancel no queue", wire.TypeCancelQueue, wire.QueueRef{}, "queue"},
		{"cancel a bad queue", wire.TypeCancelQueue, wire.QueueRef{Name: []byte{5}}, "queue"},
		{"request of a bad id", wire.TypeRequest, wire.JobRef{ID: "x"}, "id"},
		{"cancel a queue under a bad id", wire.TypeCancelQueue, wire.QueueRef{Name: []byte{0x80}, Request: "x"}, "id"},
		{"change a queue under no id", wire.TypeChangeQueue, wire.QueueChange{Name: []byte{0x80}, QueueChange: harp.QueueChange{Paused: new(bool)}}, "id"},
		{"give up a bad id", wire.TypeForceLost, wire.ForceLost{ID: "x", Why: "w"}, "id"},
		{"give up for no reason", wire.TypeForceLost, wire.ForceLost{ID: id}, "why"},
		{"give up for a long reason", wire.TypeForceLost, wire.ForceLost{ID: id, Why: strings.Repeat("x", harp.MaxWhy+1)}, "why"},
		{"events of too many types", wire.TypeEvents, wire.EventsQuery{EventFilter: harp.EventFilter{Types: make([]string, harp.MaxEventTypes+1)}}, "types"},
		{"events after nothing known", wire.TypeEvents, wire.EventsQuery{EventFilter: harp.EventFilter{After: "x"}}, "after"},
		{"change no queue", wire.TypeChangeQueue, wire.QueueChange{}, "queue"},
		{"pause a queue for a long reason", wire.TypeChangeQueue, wire.QueueChange{Request: id, Name: []byte{0x80}, QueueChange: harp.QueueChange{Paused: new(true), Reason: strings.Repeat("x", harp.MaxWhy+1)}}, "reason"},
		{"change a queue to fewer than nothing", wire.TypeChangeQueue, wire.QueueChange{Request: id, Name: []byte{0x80}, QueueChange: harp.QueueChange{Concurrency: new(-1)}}, "concurrency"},
		{"submit a bad retry", wire.TypeSubmit, harp.Submission{Request: harp.Request{ID: id, Host: "h", Procedure: "p", Retry: harp.RetryPolicy{On: []harp.State{"queued"}}}.Encode()}, "retry.on"},
	}) {
		var body []byte
		if c.message != nil {
			body = wire.Encode(c.message)
		}
		failure := failureIn(t, r.ask(c.typ, body))
		if failure.Code != "invalid" || failure.Field != c.field || failure.Ran != harp.DidNotRun || failure.Fault != harp.FaultCaller {
			t.Errorf("%s: got %+v", c.name, failure)
		}
	}
	for typ := range transport.Type(126) {
		known := typ >= wire.TypePing && typ <= wire.TypeLedger && typ != wire.TypeChunk || typ >= wire.TypeRetentionRules && typ <= wire.TypeDeleteRetention || typ >= wire.TypeDrift && typ <= wire.TypeForgetDrift || typ >= wire.TypeWindows && typ <= wire.TypeChangeNotification
		if !known {
			if failure := failureIn(t, r.ask(typ, nil)); failure.Code != "refused" {
				t.Errorf("type %d: got %+v", typ, failure)
			}
		}
	}
	for _, typ := range []transport.Type{wire.TypeStatus, wire.TypeResult, wire.TypePull, wire.TypeCancelJob, wire.TypeRequest} {
		if failure := failureIn(t, r.ask(typ, wire.Encode(wire.JobRef{ID: harp.NewID()}))); failure.Code != "not_found" {
			t.Errorf("type %d for an unknown id: got %+v", typ, failure)
		}
	}
	if got := r.ask(wire.TypePing, nil); got.Type != wire.TypeReply {
		t.Error("the session did not go on:", got.Type)
	}
}

// TestLimit: a caller may ask for less than a page.
func TestLimit(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		for range 5 {
			f.desk.add()
		}
		r := rawCaller(t, f)
		defer r.session.Close(nil)
		var ids []string
		for cursor := ""; ; {
			got := r.ask(wire.TypeJobs, wire.Encode(wire.JobsQuery{Page: wire.Page{Cursor: cursor, Limit: 2}}))
			var w wire.Jobs
			if err := wire.Decode(got.Body, &w); err != nil {
				t.Fatal(err)
			}
			if len(w.Jobs) > 2 {
				t.Fatal(len(w.Jobs))
			}
			jobs, err := wire.DecodeRows[harp.JobStatus](w.Jobs)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			if cursor = w.Cursor; cursor == "" {
				break
			}
		}
		for i, id := range f.desk.order {
			if len(ids) != 5 || ids[i] != id {
				t.Fatalf("got %v, want %v", ids, f.desk.order)
			}
		}
	})
}

// TestServeEnds: ServeCaller returns when the caller has gone or ctx has ended, says
// why, and has given up what waited and closed the Service.
func TestServeEnds(t *testing.T) {
	wait := func(t *testing.T, f *front) *raw {
		r := rawCaller(t, f)
		x, err := r.session.Exchange()
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Send(wire.TypeResult, true, wire.Encode(wire.ResultOf{ID: f.desk.add(), Wait: true})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := f.desk.waits(); n != 1 {
			t.Fatalf("%d wait", n)
		}
		return r
	}
	t.Run("caller gone", func(t *testing.T) {
		inMemory(t, func(t *testing.T, f *front) {
			wait(t, f).session.Close(nil)
			synctest.Wait()
			if len(f.ends) != 1 || !errors.Is(f.ends[0], transport.ErrSessionClosed) || f.desk.waits() != 0 {
				t.Error(f.ends, f.desk.waits())
			}
		})
	})
	t.Run("ctx", func(t *testing.T) {
		inMemory(t, func(t *testing.T, f *front) {
			r := wait(t, f)
			f.stop()
			if len(f.ends) != 1 || !errors.Is(f.ends[0], context.Canceled) || f.desk.waits() != 0 {
				t.Error(f.ends, f.desk.waits())
			}
			<-r.session.Done()
			r.session.Close(nil)
		})
	})
	t.Run("closed conn", func(t *testing.T) {
		inMemory(t, func(t *testing.T, f *front) {
			nc, err := f.config.Dial(t.Context(), "dispatcher:7440")
			if err != nil {
				t.Fatal(err)
			}
			conn, err := transport.Client(t.Context(), nc, nil, transport.ProtocolCall, transport.RoleDispatcher)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			s := newFake()
			if err := dispatcher.ServeCaller(t.Context(), conn, s, dispatcher.CallerConfig{}); !errors.Is(err, transport.ErrSessionClosed) {
				t.Error(err)
			}
			if s.done.Err() == nil {
				t.Error("the Service was not closed")
			}
		})
	})
}

// TestAskedBeforeHello: a caller that does not say who it is gets no answer and is left, and
// nothing that it asked for is done.
func TestAskedBeforeHello(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		nc, err := f.config.Dial(t.Context(), "dispatcher:7440")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.Client(t.Context(), nc, nil, transport.ProtocolCall, transport.RoleDispatcher)
		if err != nil {
			t.Fatal(err)
		}
		session, err := conn.Opener(t.Context(), transport.Options{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var served sync.WaitGroup
		served.Go(func() { _ = session.Serve(nil) })
		x, err := session.Exchange()
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		id := f.desk.add()
		if err := x.Send(wire.TypeCancelJob, true, wire.Encode(wire.CancelJob{ID: id})); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Receive(t.Context()); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("got %d, %v", got.Type, err)
		}
		served.Wait()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it was left after %v", took)
		}
		if f.desk.count("CancelJob") != 0 {
			t.Error("it was answered")
		}
	})
}

// TestClosingService: a Service that is closing answers nobody: its caller asks again
// and the job's end is not invented.
func TestClosingService(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		f.desk.failing("JobResult", harp.ErrClosed)
		r := rawCaller(t, f)
		defer r.session.Close(nil)
		x, err := r.session.Exchange()
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		if err := x.Send(wire.TypeResult, true, wire.Encode(wire.ResultOf{ID: f.desk.add(), Wait: true})); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %d, %v", got.Type, err)
		}
	})
}
