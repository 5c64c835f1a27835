package harp

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// failureIn reads the answer to a request that failed.
func failureIn(t testing.TB, f transport.Frame) Failure {
	t.Helper()
	if f.Type != wire.TypeFailed {
		t.Fatalf("frame type %d instead of a failure", f.Type)
	}
	var w wire.Failed
	if err := wire.Decode(f.Body, &w); err != nil {
		t.Fatal(err)
	}
	failure, err := decodeFailure(w.Failure)
	if err != nil {
		t.Fatal(err)
	}
	return failure
}

// TestWelcome: the dispatcher says who it is and how often to say something.
func TestWelcome(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		for _, beat := range []time.Duration{0, time.Minute} {
			f.beat = beat
			r := rawCaller(t, f)
			want := wire.Welcome{Version: wire.Version, Software: "fake/1", Store: "s", Heartbeat: int64(max(beat, heartbeat)), Time: r.welcome.Time}
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
		{"version", transport.Frame{Type: wire.TypeHello, Body: wire.Encode(wire.Hello{Version: 2})}, nil, "refused", "", "version 2"},
		{"not hello", transport.Frame{Type: wire.TypeReady}, nil, "invalid", "hello", "39"},
		{"no body", transport.Frame{Type: wire.TypeHello}, nil, "invalid", "request", ""},
		{"wrong body", transport.Frame{Type: wire.TypeHello, Body: wire.Encode([]int{1})}, nil, "invalid", "request", ""},
		{"denied", transport.Frame{Type: wire.TypeHello, Body: wire.Encode(wire.Hello{Version: 1})}, NewFailure("denied", "not you").Err(), "denied", "", "not you"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.desk.failing("Ping", c.ping)
				r := rawSession(t, f, transport.ProtocolCall, transport.RoleDispatcher)
				if err := r.control.Send(c.frame); err != nil {
					t.Fatal(err)
				}
				got, err := r.control.Receive(t.Context())
				if err != nil || got.Type != wire.TypeUnwelcome {
					t.Fatal(got.Type, err)
				}
				got.Type = wire.TypeFailed // the same shape
				failure := failureIn(t, got)
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
		if took := time.Since(start); took != greetTime {
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
	id := NewID()
	bad, negative := []byte{0xc1}, int64(-1)
	r := rawCaller(t, f)
	defer r.session.Close(nil)
	for _, c := range []struct {
		name    string
		typ     transport.Type
		message any
		field   string
	}{
		{"submit nothing", wire.TypeSubmit, nil, "request"},
		{"submit a number", wire.TypeSubmit, 5, "request"},
		{"submit no request", wire.TypeSubmit, wire.Signed{}, "request"},
		{"submit bad bytes", wire.TypeSubmit, wire.Signed{Request: bad}, "request"},
		{"submit a bad id", wire.TypeSubmit, wire.Signed{Request: Request{ID: "x", Host: "h", Procedure: "p"}.Encode()}, "id"},
		{"submit no host", wire.TypeSubmit, wire.Signed{Request: Request{ID: id, Procedure: "p"}.Encode()}, "host"},
		{"status of nothing", wire.TypeStatus, nil, "request"},
		{"status of no id", wire.TypeStatus, wire.JobRef{}, "id"},
		{"status of a bad id", wire.TypeStatus, wire.JobRef{ID: "x"}, "id"},
		{"status of a number", wire.TypeStatus, map[string]any{"id": 5}, "request"},
		{"result of a bad id", wire.TypeResult, wire.ResultOf{ID: "x", Wait: true}, "id"},
		{"pull of a bad id", wire.TypePull, wire.Pull{ID: "x"}, "id"},
		{"pull from below", wire.TypePull, wire.Pull{ID: id, From: -1}, "from"},
		{"pull recent below", wire.TypePull, wire.Pull{ID: id, Recent: -1}, "recent"},
		{"cancel of a bad id", wire.TypeCancelJob, wire.JobRef{ID: "x"}, "id"},
		{"jobs in a bad queue", wire.TypeJobs, wire.JobsQuery{Queue: bad}, "queue"},
		{"jobs in a queue that is a list", wire.TypeJobs, wire.JobsQuery{Queue: []byte{0x90}}, "queue"},
		{"jobs in a queue that is nil", wire.TypeJobs, wire.JobsQuery{Queue: []byte{0xc0}}, "queue"},
		{"jobs with a bad limit", wire.TypeJobs, wire.JobsQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"hosts with a bad limit", wire.TypeHosts, wire.HostsQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"queues with a bad name", wire.TypeQueues, wire.QueuesQuery{Name: bad}, "queue"},
		{"cancel no queue", wire.TypeCancelQueue, wire.QueueRef{}, "queue"},
		{"cancel a bad queue", wire.TypeCancelQueue, wire.QueueRef{Name: []byte{5}}, "queue"},
		{"request of a bad id", wire.TypeRequest, wire.JobRef{ID: "x"}, "id"},
		{"cancel a queue under a bad id", wire.TypeCancelQueue, wire.QueueRef{Name: []byte{0x80}, Request: "x"}, "id"},
		{"change a queue under no id", wire.TypeChangeQueue, wire.QueueChange{Name: []byte{0x80}, Paused: new(bool)}, "id"},
		{"give up a bad id", wire.TypeForceLost, wire.ForceLost{ID: "x", Why: "w"}, "id"},
		{"give up for no reason", wire.TypeForceLost, wire.ForceLost{ID: id}, "why"},
		{"give up for a long reason", wire.TypeForceLost, wire.ForceLost{ID: id, Why: strings.Repeat("x", wire.MaxWhy+1)}, "why"},
		{"events of too many types", wire.TypeEvents, wire.EventsQuery{Types: make([]string, wire.MaxEventTypes+1)}, "types"},
		{"events after nothing known", wire.TypeEvents, wire.EventsQuery{After: "x"}, "after"},
		{"change no queue", wire.TypeChangeQueue, wire.QueueChange{}, "queue"},
		{"change a queue to fewer than nothing", wire.TypeChangeQueue, wire.QueueChange{Request: id, Name: []byte{0x80}, Concurrency: &negative}, "concurrency"},
		{"submit a bad retry", wire.TypeSubmit, wire.Signed{Request: wire.Encode(wire.Request{Version: 1, ID: id, Host: "h", Procedure: "p", Retry: &wire.Retry{On: []string{"queued"}}})}, "retry.on"},
	} {
		var body []byte
		if c.message != nil {
			body = wire.Encode(c.message)
		}
		failure := failureIn(t, r.ask(c.typ, body))
		if failure.Code != "invalid" || failure.Field != c.field || failure.Ran != DidNotRun || failure.Fault != FaultCaller {
			t.Errorf("%s: got %+v", c.name, failure)
		}
	}
	for typ := range transport.Type(127) {
		if _, known := handlers[typ]; !known && typ != wire.TypeBackup {
			if failure := failureIn(t, r.ask(typ, nil)); failure.Code != "refused" {
				t.Errorf("type %d: got %+v", typ, failure)
			}
		}
	}
	for _, typ := range []transport.Type{wire.TypeStatus, wire.TypeResult, wire.TypePull, wire.TypeCancelJob, wire.TypeRequest} {
		if failure := failureIn(t, r.ask(typ, wire.Encode(wire.JobRef{ID: NewID()}))); failure.Code != "not_found" {
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
			jobs, err := rowsFromWire(w.Jobs, jobFromWire)
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

// huge is a Service whose jobs are longer than any answer.
type huge struct{ *fake }

func (h huge) JobStatus(context.Context, string) (JobStatus, error) {
	big := Value(wire.Encode(make([]byte, 5<<20)))
	return JobStatus{Args: big}, nil
}

// TestAnswerTooLong: an answer that no frame carries is a failure, not the end of the
// session.
func TestAnswerTooLong(t *testing.T) {
	_, err := answerTo(t.Context(), huge{newFake()}, transport.Frame{Type: wire.TypeStatus, Body: wire.Encode(wire.JobRef{ID: NewID()})})
	if !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// TestServeEnds: ServeCaller returns when the caller has gone or ctx has ended, says
// why, and has given up what waited and closed the Service.
func TestServeEnds(t *testing.T) {
	wait := func(t *testing.T, f *front) *raw {
		r := rawCaller(t, f)
		x, err := r.session.Exchange(t.Context())
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
			if err := ServeCaller(t.Context(), conn, s, ServeConfig{}); !errors.Is(err, transport.ErrSessionClosed) {
				t.Error(err)
			}
			if s.done.Err() == nil {
				t.Error("the Service was not closed")
			}
		})
	})
}

// TestClosingService: a Service that is closing answers nobody: its caller asks again
// and the job's end is not invented.
func TestClosingService(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		f.desk.failing("JobResult", ErrClosed)
		r := rawCaller(t, f)
		defer r.session.Close(nil)
		x, err := r.session.Exchange(t.Context())
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

// FuzzAnswer: no request makes the server panic or leaves its caller without an
// answer that fits.
func FuzzAnswer(f *testing.F) {
	id := NewID()
	for typ, m := range map[transport.Type]any{
		wire.TypeSubmit: wire.Signed{Request: Request{ID: id, Host: "h", Procedure: "p"}.Encode()},
		wire.TypeStatus: wire.JobRef{ID: id}, wire.TypeResult: wire.ResultOf{ID: id}, wire.TypePull: wire.Pull{ID: id, From: 1},
		wire.TypeJobs:  wire.JobsQuery{Queue: []byte{0x80}, States: []string{"queued"}, Page: wire.Page{Cursor: mark{Key: "k"}.cursor(), Limit: 1}},
		wire.TypeHosts: wire.HostsQuery{Name: "h"}, wire.TypeHostProcs: wire.HostRef{Name: "h"}, wire.TypeQueues: wire.QueuesQuery{Name: []byte{0x80}},
		wire.TypeCancelQueue: wire.QueueRef{Name: []byte{0x80}, Request: id}, wire.TypeCancelJob: wire.JobRef{ID: id}, 5: nil,
		wire.TypeRequest: wire.JobRef{ID: id}, wire.TypeForceLost: wire.ForceLost{ID: id, Why: "w"}, wire.TypePrune: wire.Prune{EndedBefore: 1},
		wire.TypeEvents: wire.EventsQuery{After: "start", Types: []string{"job.*"}}, wire.TypeChangeQueue: wire.QueueChange{Request: id, Name: []byte{0x80}, Paused: new(bool)},
	} {
		f.Add(uint8(typ), wire.Encode(m))
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		d := newDesk()
		d.hosts = []HostStatus{{Name: "h"}}
		d.addLocked(Request{ID: id, Host: "h", Procedure: "p"})
		s := d.service()
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if transport.Type(typ) == wire.TypeResult || transport.Type(typ) == wire.TypePull {
			d.end(id, succeeded) // nothing to wait for
		}
		if transport.Type(typ) == wire.TypeEvents {
			cancel()
		}
		got, err := answerTo(ctx, s, transport.Frame{Type: transport.Type(typ), Body: body})
		if err != nil {
			got = wire.Encode(failedRequest(err))
			if len(got) > wire.MaxBody(wire.TypeFailed) {
				t.Fatal("a failure that does not fit")
			}
		}
		if err := msgpack.Validate(got, msgpack.ProtocolLimits); err != nil {
			t.Fatalf("the answer would end the session: %v", err)
		}
	})
}

// pageSpy notes how much its caller could take.
type pageSpy struct {
	Service
	most, records int
}

func (s *pageSpy) Records(_ context.Context, _ string, q RecordQuery) (RecordPage, error) {
	s.most, s.records = q.MaxBytes, q.MaxRecords
	return RecordPage{}, nil
}

// TestManyFollowersGetLittleEach: what is on its way to followers that do not read is
// bounded, however many they are.
func TestManyFollowersGetLittleEach(t *testing.T) {
	for pulls, want := range map[int64]int{1: 1 << 20, 8: 1 << 20, 32: 256 << 10, 4096: 64 << 10} {
		spy := &pageSpy{}
		g := &guest{Service: spy}
		g.pulls.Store(pulls)
		if _, err := g.Records(t.Context(), "", RecordQuery{}); err != nil || spy.most != want {
			t.Errorf("with %d followers a page has %d bytes, want %d: %v", pulls, spy.most, want, err)
		}
		if spy.records != wire.MaxRows {
			t.Errorf("%d records are asked for, an answer holds %d", spy.records, wire.MaxRows)
		}
	}
}
