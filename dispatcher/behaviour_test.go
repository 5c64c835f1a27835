package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

type helloArgs struct {
	Name string `json:"name"`
}

type helloResult struct {
	Msg string `json:"msg"`
}

type countArgs struct {
	To int `json:"to"`
}

var (
	helloProc = harp.NewProc[helloArgs, helloResult]("hello", "Say hello")
	countProc = harp.NewStreamProc[countArgs, int, int]("count", "Count")
)

// greeter offers hello and count.
func greeter(a *agent.Agent) {
	agent.Handle(a, helloProc, func(_ context.Context, in helloArgs) (helloResult, error) {
		return helloResult{"hello " + in.Name}, nil
	})
	agent.HandleStream(a, countProc, func(_ context.Context, in countArgs, emit func(int) error) (int, error) {
		for i := range in.To {
			if err := emit(i); err != nil {
				return i, err
			}
		}
		return in.To, nil
	})
}

// gate is a procedure that runs until it is let go or stopped.
type gate struct {
	entered chan string   // the argument of each run as it begins
	release chan struct{} // one value lets one run end
}

func newGate() gate {
	return gate{entered: make(chan string, 1000), release: make(chan struct{}, 1000)}
}

func (g gate) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[helloArgs, string]("gate"), func(ctx context.Context, in helloArgs) (string, error) {
		g.entered <- in.Name
		select {
		case <-g.release:
			return "released", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestCallReturnsItsResult(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		host := sys.caller.Host("web01")
		job := must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"}, harp.Info(map[string]int{"ticket": 812}), harp.Label("team", "db")))
		v := must[harp.Value](t)(job.Get(t.Context()))
		if got := v.String(); got != `{"msg":"hello Ada"}` {
			t.Errorf("value is %s", got)
		}
		s := must[harp.JobStatus](t)(sys.caller.Job(job.ID()).Status(t.Context()))
		if s.State != harp.StateSucceeded || s.Host != "web01" || s.Procedure != "hello" || s.Started != harp.DidRun {
			t.Errorf("status is %+v", s)
		}
		if s.Args.String() != `{"name":"Ada"}` || s.Info.String() != `{"ticket":812}` || s.Labels["team"] != "db" || s.Queue != nil {
			t.Errorf("what the caller gave came back as args %s, info %s, labels %v, queue %s", s.Args, s.Info, s.Labels, s.Queue)
		}
		if s.SubmitTime.IsZero() || s.StartTime.Before(s.SubmitTime) || s.EndTime.Before(s.StartTime) {
			t.Errorf("times are %v, %v, %v", s.SubmitTime, s.StartTime, s.EndTime)
		}
		if len(s.Attempts) != 1 || s.Attempt != 1 || s.Err != nil {
			t.Errorf("attempts are %+v, error %v", s.Attempts, s.Err)
		}
	})
}

func TestTypedAndPositionalArguments(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		host := sys.caller.Host("web01")
		job := must[*harp.Job](t)(helloProc.Call(t.Context(), host, helloArgs{"Grace"}))
		if got := must[helloResult](t)(helloProc.Get(t.Context(), job)); got.Msg != "hello Grace" {
			t.Errorf("typed result is %+v", got)
		}
		job = must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Pos("Edsger")))
		if got := must[helloResult](t)(harp.Get[helloResult](t.Context(), job)); got.Msg != "hello Edsger" {
			t.Errorf("result of positional arguments is %+v", got)
		}
		if _, err := countProc.Get(t.Context(), job); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("another procedure's job gives %v", err)
		}
	})
}

func TestRecordsAreStreamedAndFollowed(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		job := must[*harp.Job](t)(countProc.Call(t.Context(), sys.caller.Host("web01"), countArgs{100}))
		n := 0
		for m, err := range countProc.Follow(t.Context(), job, harp.Since(0)) {
			if err != nil || m != n {
				t.Fatalf("record %d is %+v, %v", n, m, err)
			}
			n++
		}
		if n != 100 {
			t.Errorf("followed %d records of 100", n)
		}
		var seqs []uint64
		for r, err := range job.Stream(t.Context(), harp.Since(95)) {
			if err != nil || r.Attempt != 1 || r.Kind != harp.KindData || r.Time.IsZero() {
				t.Fatalf("record %+v, %v", r, err)
			}
			seqs = append(seqs, r.Seq)
		}
		if !slices.Equal(seqs, []uint64{95, 96, 97, 98, 99}) {
			t.Errorf("since 95 are %v", seqs)
		}
		seqs = nil
		for r, err := range job.Follow(t.Context(), harp.Recent(2)) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, r.Seq)
		}
		if !slices.Equal(seqs, []uint64{98, 99}) {
			t.Errorf("the recent 2 of an ended job are %v", seqs)
		}
		for r, err := range job.Follow(t.Context()) {
			t.Errorf("an ended job has a new record %+v, %v", r, err)
		}
	})
}

// failing are procedures that fail, and what their callers must see.
func failing(a *agent.Agent) {
	nothing := func(err error) func(context.Context, struct{}) (any, error) {
		return func(context.Context, struct{}) (any, error) { return nil, err }
	}
	agent.Handle(a, harp.NewProc[struct{}, any]("oops"), nothing(agent.Errorf("oops", map[string]int{"n": 7}, "it broke: %d", 7)))
	agent.Handle(a, harp.NewProc[struct{}, any]("plain"), nothing(errors.New("plain trouble")))
	agent.Handle(a, harp.NewProc[struct{}, any]("panic"), func(context.Context, struct{}) (any, error) { panic("boom") })
	agent.Handle(a, harp.NewProc[struct{}, any]("huge"), func(context.Context, struct{}) (any, error) {
		return strings.Repeat("x", 2<<20), nil
	})
}

func TestFailuresOfProceduresKeepTheirIdentity(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", failing)
		for _, c := range []struct{ proc, typ, message, data string }{
			{"oops", "oops", "it broke: 7", `{"n":7}`},
			{"plain", "error", "plain trouble", "null"},
			{"panic", "panic", "boom", "null"},
			{"huge", "result_too_large", "", "null"},
		} {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), c.proc, nil))
			_, err := job.Get(t.Context())
			var remote *harp.RemoteError
			if !errors.As(err, &remote) {
				t.Errorf("%s: error is %v", c.proc, err)
				continue
			}
			if remote.Type != c.typ || !strings.Contains(remote.Message, c.message) || remote.Data.String() != c.data {
				t.Errorf("%s: remote error is %q %q %s", c.proc, remote.Type, remote.Message, remote.Data)
			}
			if harp.RanOf(err) != harp.DidRun || harp.FaultOf(err) != harp.FaultProcedure {
				t.Errorf("%s: ran %s, fault %s", c.proc, harp.RanOf(err), harp.FaultOf(err))
			}
			res := must[harp.Result](t)(job.Result(t.Context()))
			if res.State != harp.StateFailed || !errors.As(res.Err, &remote) {
				t.Errorf("%s: result is %+v", c.proc, res)
			}
		}
	})
}

func TestBadCallsAreRefusedBeforeAnythingIsStored(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		for _, c := range []struct {
			name       string
			host, proc string
			args       any
			opts       []harp.Option
			want       error
			field      string
		}{
			{"unknown host", "nowhere", "hello", nil, nil, harp.ErrNotFound, ""},
			{"unknown procedure", "web01", "nothing", nil, nil, harp.ErrNotFound, ""},
			{"missing argument", "web01", "hello", harp.Args{}, nil, harp.ErrInvalid, "args.name"},
			{"unknown argument", "web01", "hello", harp.Args{"name": "A", "nam": "B"}, nil, harp.ErrInvalid, "args.nam"},
			{"wrong type", "web01", "hello", harp.Args{"name": 7}, nil, harp.ErrInvalid, "args.name"},
			{"too many positional", "web01", "hello", harp.Pos("a", "b"), nil, harp.ErrInvalid, "args"},
			{"scalar arguments", "web01", "hello", 7, nil, harp.ErrInvalid, "args"},
			{"zero limit", "web01", "hello", nil, []harp.Option{harp.SilenceTimeout(0)}, harp.ErrInvalid, "silence_timeout"},
			{"priority", "web01", "hello", nil, []harp.Option{harp.Priority(101)}, harp.ErrInvalid, "priority"},
			{"queue", "web01", "hello", nil, []harp.Option{harp.Queue("q")}, harp.ErrInvalid, "queue"},
			{"id", "web01", "hello", nil, []harp.Option{harp.JobID("x")}, harp.ErrInvalid, "id"},
			{"old id", "web01", "hello", harp.Args{"name": "A"}, []harp.Option{harp.JobID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")}, harp.ErrPruned, ""},
		} {
			_, err := sys.caller.Host(c.host).Call(t.Context(), c.proc, c.args, c.opts...)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: error is %v, want %v", c.name, err, c.want)
			}
			var field *harp.FieldError
			if c.field != "" && (!errors.As(err, &field) || field.Field != c.field) {
				t.Errorf("%s: error %v names no field %s", c.name, err, c.field)
			}
			ran := harp.DidNotRun
			if c.want == harp.ErrPruned { //nolint:errorlint // a sentinel of the table
				ran = harp.MayHaveRun // long ago
			}
			if harp.RanOf(err) != ran {
				t.Errorf("%s: ran %s, want %s", c.name, harp.RanOf(err), ran)
			}
		}
		for s, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{}) {
			t.Errorf("a job was stored: %+v, %v", s, err)
		}
	})
}

func TestUnknownAndBadIdsAreAnswered(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		for id, want := range map[string]error{harp.NewID(): harp.ErrNotFound, "nonsense": harp.ErrInvalid, "": harp.ErrInvalid} {
			job := sys.caller.Job(id)
			_, status := job.Status(ctx)
			_, result := job.Result(ctx)
			_, wait := job.Wait(ctx)
			_, get := job.Get(ctx)
			_, cancel := job.Cancel(ctx)
			errs := []error{status, result, wait, get, cancel}
			for _, err := range job.Stream(ctx) {
				errs = append(errs, err)
			}
			for _, err := range job.Follow(ctx) {
				errs = append(errs, err)
			}
			if len(errs) != 7 {
				t.Errorf("%q: %d answers", id, len(errs))
			}
			for i, err := range errs {
				if !errors.Is(err, want) {
					t.Errorf("%q: answer %d is %v, want %v", id, i, err, want)
				}
			}
		}
	})
}

func TestSameIdIsTheSameJob(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		id, key := harp.NewID(), harp.IdempotencyKey("once", time.Hour)
		host := sys.caller.Host("web01")
		for range 3 {
			job := must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"}, harp.JobID(id), key))
			if job.ID() != id {
				t.Errorf("id is %s, want %s", job.ID(), id)
			}
			must[harp.Value](t)(job.Get(t.Context()))
		}
		_, err := host.Call(t.Context(), "hello", harp.Args{"name": "Eve"}, harp.JobID(id))
		if !errors.Is(err, harp.ErrConflict) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("another request under the id gives %v", err)
		}
		other := harp.NewID()
		_, err = host.Call(t.Context(), "hello", harp.Args{"name": "Eve"}, harp.JobID(other), key)
		if !errors.Is(err, harp.ErrConflict) || harp.RanOf(err) != harp.DidNotRun || !strings.Contains(err.Error(), "job "+id) || strings.Contains(err.Error(), other) {
			t.Errorf("another request under the key gives %v", err)
		}
		n := 0
		for _, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("%d jobs are stored", n)
		}
	})
}

func TestCancel(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		host := sys.caller.Host("web01", harp.Queue(harp.Args{"q": 1}))
		running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
		queued := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "queued"}))
		<-g.entered
		for _, c := range []struct {
			job *harp.Job
			ran harp.Ran
		}{{queued, harp.DidNotRun}, {running, harp.DidRun}} {
			if live := must[bool](t)(c.job.Cancel(t.Context())); !live {
				t.Errorf("cancel says the job had ended")
			}
			_, err := c.job.Get(t.Context())
			if !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != c.ran {
				t.Errorf("a cancelled job gives %v, ran %s, want %s", err, harp.RanOf(err), c.ran)
			}
			if live := must[bool](t)(c.job.Cancel(t.Context())); live {
				t.Errorf("cancel of an ended job says it was live")
			}
		}
		s := must[harp.JobStatus](t)(running.Status(t.Context()))
		if s.CancelRequested == nil || s.CancelRequested.By.Kind == "" {
			t.Errorf("nobody asked for the cancel: %+v", s.CancelRequested)
		}
		if len(g.entered) > 0 {
			t.Errorf("a job cancelled in the queue was started: %s", <-g.entered)
		}
	})
}

func TestHostsProceduresAndQueuesAreListed(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", func(a *agent.Agent) { greeter(a); g.register(a) })
		sys.agent("web02", greeter)
		var names []string
		for h, err := range sys.caller.Hosts().List(t.Context(), "") {
			if err != nil || !h.Online || h.LastHeard.IsZero() || h.Facts.IsNil() {
				t.Errorf("host %+v, %v", h, err)
			}
			names = append(names, fmt.Sprint(h.Name, h.Procedures))
		}
		if want := []string{"web01[count gate hello]", "web02[count hello]"}; !slices.Equal(names, want) {
			t.Errorf("hosts are %v, want %v", names, want)
		}
		docs := must[[]harp.ProcedureDoc](t)(sys.caller.Hosts().Procedures(t.Context(), "web01"))
		if len(docs) != 3 || docs[0].Name != "count" || docs[0].Summary != "Count" || !docs[0].Streams || len(docs[0].Args) == 0 {
			t.Errorf("procedures are %+v", docs)
		}
		name := harp.Args{"b": 1, "a": 2}
		for range 3 {
			must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gate", harp.Args{"name": "x"}, harp.Queue(name), harp.Concurrency(2)))
		}
		<-g.entered
		<-g.entered
		before := harp.Args{"a": 1}
		if err := sys.caller.Queues().Pause(t.Context(), before, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		var queues []string
		for q, err := range sys.caller.Queues().List(t.Context()) {
			queues = append(queues, fmt.Sprint(q.Name, q.Paused, err))
		}
		if want := []string{`{"a":1} true <nil>`, `{"a":2,"b":1} false <nil>`}; !slices.Equal(queues, want) {
			t.Errorf("queues are %q", queues)
		}
		q := must[harp.QueueStatus](t)(sys.caller.Queues().Get(t.Context(), map[string]float64{"a": 2, "b": 1}))
		if q.Running != 2 || q.Waiting != 1 || q.Concurrency != 2 || q.Name.String() != `{"a":2,"b":1}` {
			t.Errorf("queue is %+v", q)
		}
		if n := must[int](t)(sys.caller.Queues().Cancel(t.Context(), name)); n != 3 {
			t.Errorf("cancelled %d of 3", n)
		}
		for s, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{Queue: name}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sys.caller.Job(s.ID).Get(t.Context()); !errors.Is(err, harp.ErrCancelled) {
				t.Errorf("a job of the cancelled queue gives %v", err)
			}
		}
		if _, err := sys.caller.Queues().Get(t.Context(), name); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("an empty queue gives %v", err)
		}
	})
}

func TestClosedCallersAndDispatchersSaySo(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		c := sys.newCaller()
		job := must[*harp.Job](t)(c.Host("web01").Call(t.Context(), "gate", harp.Args{"name": "x"}))
		<-g.entered
		waited := make(chan error)
		go func() { _, err := job.Get(context.WithoutCancel(t.Context())); waited <- err }()
		must[harp.JobStatus](t)(job.Status(t.Context()))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; !errors.Is(err, harp.ErrClosed) {
			t.Errorf("a wait ends with %v", err)
		}
		if _, err := job.Status(t.Context()); !errors.Is(err, harp.ErrClosed) {
			t.Errorf("status after close gives %v", err)
		}
		if h := sys.d.Health(t.Context()); !h.Ready {
			t.Errorf("health is %+v", h)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(sys.caller.Job(job.ID()).Get(t.Context()))
		if sys.wiring == embedded {
			if err := sys.d.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := sys.caller.Job(job.ID()).Status(t.Context()); !errors.Is(err, harp.ErrClosed) {
				t.Errorf("status after shutdown gives %v", err)
			}
			if h := sys.d.Health(t.Context()); h.Ready {
				t.Errorf("health after shutdown is %+v", h)
			}
		}
	})
}
