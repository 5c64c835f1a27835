package agent_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

func TestCall(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		d, _, _ := connect(t, p, a)
		end := d.call("greet", harp.Args{"name": "Ada"}).accepted().end()
		if got := value[greeting](t, end); got.Text != "hello Ada" {
			t.Errorf("got %q", got.Text)
		}
		if end.Records != 0 || end.Stopped != nil || end.RanFor < 0 {
			t.Errorf("END %+v", end)
		}
		for range 20 {
			if got := value[greeting](t, d.call("greet", harp.Pos("Bob", true)).accepted().end()); got.Text != "HELLO BOB" {
				t.Fatalf("got %q", got.Text)
			}
		}
	})
}

func TestArguments(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		agent.Handle(a, harp.NewProc[string, string]("scalar"), func(_ context.Context, in string) (string, error) { return "s:" + in, nil })
		agent.Handle(a, harp.NewProc[[]int, int]("sum"), func(_ context.Context, in []int) (int, error) {
			sum := 0
			for _, n := range in {
				sum += n
			}
			return sum, nil
		})
		agent.Handle(a, harp.NewProc[map[string]int, []string]("keys"), func(_ context.Context, in map[string]int) ([]string, error) {
			return slices.Sorted(maps.Keys(in)), nil
		})
		agent.Handle(a, harp.NewProc[any, any]("echo"), func(_ context.Context, in any) (any, error) { return in, nil })
		agent.Handle(a, harp.NewProc[harp.Value, harp.Value]("raw"), func(_ context.Context, in harp.Value) (harp.Value, error) { return in, nil })
		agent.Handle(a, harp.NewProc[*greetArgs, string]("pointer"), func(_ context.Context, in *greetArgs) (string, error) { return in.Name, nil })
		type typed struct {
			Data []byte        `json:"data"`
			At   time.Time     `json:"at"`
			For  time.Duration `json:"for"`
		}
		agent.Handle(a, harp.NewProc[typed, typed]("typed"), func(_ context.Context, in typed) (typed, error) { return in, nil })
		d, _, _ := connect(t, p, a)

		at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
		same := map[string]any{"data": []byte{1, 2}, "at": at, "for": int64(time.Minute)}
		for _, c := range []struct {
			name      string
			procedure string
			args      any
			want      any
		}{
			{"optional left out", "greet", harp.Args{"name": "x"}, map[string]any{"text": "hello x"}},
			{"scalar by position", "scalar", harp.Pos("x"), "s:x"},
			{"scalar by name", "scalar", harp.Args{"value": "x"}, "s:x"},
			{"list", "sum", harp.Pos(1, 2, 39), int64(42)},
			{"no list", "sum", nil, int64(0)},
			{"any names", "keys", harp.Args{"b": 1, "a": 2}, []any{"a", "b"}},
			{"no names", "keys", nil, nil},
			{"anything named", "echo", harp.Args{"n": 5}, map[string]any{"n": int64(5)}},
			{"anything by position", "echo", harp.Pos(5, "x"), []any{int64(5), "x"}},
			{"nothing", "echo", nil, nil},
			{"raw", "raw", harp.Args{"n": 5}, map[string]any{"n": int64(5)}},
			{"pointer", "pointer", harp.Pos("x"), "x"},
			{"bytes, time and duration", "typed", harp.Args{"data": []byte{1, 2}, "at": at, "for": time.Minute}, same},
			{"the same as JSON has them", "typed", harp.Args{"data": "AQI=", "at": "2026-03-04T05:06:07.000000008Z", "for": 6e10}, same},
		} {
			end := d.call(c.procedure, c.args).accepted().end()
			if got := value[any](t, end); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: got %#v, want %#v", c.name, got, c.want)
			}
		}
	})
}

// ofBatch makes a call one of the member of a batch on a host.
func ofBatch(c *wire.Call, r *harp.Request, host string) {
	r.Host, r.Target, r.Needs = "", "web*", []string{harp.NeedBatch}
	c.Job, c.Host = harp.MemberID(r.ID, host, 1), host
}

// A member of a batch is called by the batch's request, and is the job that CALL names: called again it is
// the same one.
func TestMemberOfABatch(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		var ran atomic.Int64
		agent.Handle(a, harp.NewProc[struct{}, string]("who"), func(ctx context.Context, _ struct{}) (string, error) {
			ran.Add(1)
			info, _ := agent.FromContext(ctx)
			return info.JobID + " on " + info.Host, nil
		})
		d, _, _ := connect(t, p, a)
		id := harp.NewID()
		want := harp.MemberID(id, agentID.Name, 1) + " on " + agentID.Name
		member := func(c *wire.Call, r *harp.Request) { r.ID = id; ofBatch(c, r, agentID.Name) }
		if got := value[string](t, d.call("who", nil, member).accepted().end()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if f := d.call("who", nil, member).receive(); f.Type != wire.TypeAccepted || ran.Load() != 1 {
			t.Errorf("called again it answers frame %d, and ran %d times", f.Type, ran.Load())
		}
	})
}

func TestRefusals(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		d, _, _ := connect(t, p, a)
		good := harp.Args{"name": "x"}
		for _, c := range []struct {
			name      string
			procedure string
			args      any
			change    func(*wire.Call, *harp.Request)
			code      string
			typ       string
			field     string
		}{
			{name: "no such procedure", procedure: "great", code: "rejected_not_found", typ: "procedure"},
			{
				name: "another host", procedure: "greet", args: good, code: "rejected", typ: "wrong_host",
				change: func(_ *wire.Call, r *harp.Request) { r.Host = "web02" },
			},
			{
				name: "needs of the call", procedure: "greet", args: good, code: "rejected", typ: "needs",
				change: func(c *wire.Call, _ *harp.Request) { c.Needs = []string{"teleport"} },
			},
			{
				name: "needs of the request", procedure: "greet", args: good, code: "rejected", typ: "needs",
				change: func(_ *wire.Call, r *harp.Request) { r.Needs = []string{"teleport"} },
			},
			{
				name: "another host of a batch", procedure: "greet", args: good, code: "rejected", typ: "wrong_host",
				change: func(c *wire.Call, r *harp.Request) { ofBatch(c, r, "web02") },
			},
			{
				name: "no host of a batch", procedure: "greet", args: good, code: "rejected", typ: "wrong_host",
				change: func(c *wire.Call, r *harp.Request) { ofBatch(c, r, agentID.Name); c.Host = "" },
			},
			{
				name: "another member of a batch", procedure: "greet", args: good, code: "rejected_invalid", field: "job",
				change: func(c *wire.Call, r *harp.Request) { ofBatch(c, r, agentID.Name); c.Job = harp.NewID() },
			},
			{name: "missing argument", procedure: "greet", code: "rejected_invalid", field: "args.name"},
			{name: "unknown argument", procedure: "greet", args: harp.Args{"name": "x", "nme": 1}, code: "rejected_invalid", field: "args.nme"},
			{name: "wrong type", procedure: "greet", args: harp.Pos(5), code: "rejected_invalid", field: "args.name"},
			{name: "too many", procedure: "greet", args: harp.Pos("a", true, 3), code: "rejected_invalid", field: "args"},
			{
				name: "attempt", procedure: "greet", args: good, code: "rejected_invalid", field: "attempt",
				change: func(c *wire.Call, _ *harp.Request) { c.Attempt = 0 },
			},
			{
				name: "limit", procedure: "greet", args: good, code: "rejected_invalid", field: "silence_timeout",
				change: func(c *wire.Call, _ *harp.Request) { c.MaxExecTime = -1 },
			},
		} {
			change := c.change
			if change == nil {
				change = func(*wire.Call, *harp.Request) {}
			}
			f := d.call(c.procedure, c.args, change).refused()
			if f.Code != c.code || f.Type != c.typ || f.Field != c.field || f.Ran != harp.DidNotRun || f.Message == "" {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		x := d.begin(wire.TypeCall, wire.Encode(wire.Call{Submission: harp.Submission{Request: []byte{0xc1}}, Attempt: 1}))
		if f := x.refused(); f.Code != "rejected_invalid" || f.Field != "request" {
			t.Errorf("a request that is none: %+v", f)
		}
		late := func(c *wire.Call, _ *harp.Request) { c.Left = -1 }
		if reason := d.call("greet", good, late).notNow(); reason != wire.NotNowStartBefore {
			t.Errorf("too late: NOT_NOW(%s)", reason)
		}
	})
}

func TestFailures(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerFaults(a)
		d, _, _ := connect(t, p, a)
		for _, c := range []struct{ procedure, typ, message string }{
			{"plain", "error", "no luck"},
			{"typed", "disk_full", "the disk is full"},
			{"errorf", "unit_not_found", "unit x"},
			{"untyped", "error", "as it is"},
			{"torn", "error", "no value [data left out: it is malformed]"},
			{"fits", "full", "all of it"},
			{"bulky", "full", "too much [data left out: 1048577 bytes, at most 1048576]"},
			{"exit", "exit", "no"},
			{"nested", "error", "no such host: web02"},
			{"badtext", "error", "a\uFFFDb"},
			{"long", "error", "é"},
			{"panic", "panic", "out of cheese"},
			{"nilerr", "panic", "nil pointer"},
			{"goexit", "panic", "Goexit"},
			{"large", "result_too_large", "at most 1048576"},
			{"odd", "bad_result", "chan int"},
			{"binary", "bad_result", "UTF-8"},
		} {
			f := failure(t, d.call(c.procedure, nil).accepted().end())
			if f.Code != "remote" || f.Type != c.typ || !strings.Contains(f.Message, c.message) || f.Ran != harp.DidRun || f.Fault != harp.FaultProcedure {
				t.Errorf("%s: %+v", c.procedure, f)
			}
			if c.procedure == "errorf" && f.Data.String() != `{"unit":"x"}` {
				t.Errorf("data %s", f.Data)
			}
			if (len(f.Data) > 0) != (c.procedure == "errorf" || c.procedure == "fits") {
				t.Errorf("%s has %d bytes of data", c.procedure, len(f.Data))
			}
			if (f.ExitCode != nil) != (c.procedure == "exit") || f.ExitCode != nil && *f.ExitCode != 3 {
				t.Errorf("%s has an exit code: %+v", c.procedure, f)
			}
			if c.procedure == "long" && (len(f.Message) > 64<<10 || len(f.Message) < 64<<10-8 || !strings.HasSuffix(f.Message, "é [cut]")) {
				t.Errorf("of a long message there are %d bytes", len(f.Message))
			}
		}
		if got := value[[]byte](t, d.call("whole", nil).accepted().end()); len(got) != 1<<20-5 {
			t.Errorf("a result of %d bytes", len(got))
		}
	})
}

func TestCallInfo(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offer(a, "info", func(ctx context.Context) (agent.CallInfo, error) {
			info, ok := agent.FromContext(ctx)
			if !ok {
				t.Error("no CallInfo")
			}
			return info, nil
		}, agent.SilenceTimeout(time.Minute))
		d, _, _ := connect(t, p, a)
		x := d.call("info", nil, func(c *wire.Call, r *harp.Request) {
			c.Attempt, c.MaxExecTime = 3, int64(harp.NoLimit)
			c.Schedule, c.Fire = "nightly", time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC)
			r.Info, _ = harp.NewValue(map[string]any{"ticket": 812})
			r.Labels = map[string]string{"team": "web"}
			r.TraceParent = "00-4bf9-01"
		})
		got := value[agent.CallInfo](t, x.accepted().end())
		want := agent.CallInfo{
			JobID: x.id, Attempt: 3, Host: "web01", Procedure: "info",
			Principal: harp.Principal{Kind: "caller", Name: "ops", Auth: "certificate"},
			Address:   d.hostAddr(), Info: got.Info, Labels: map[string]string{"team": "web"},
			TraceParent: "00-4bf9-01", SilenceTimeout: time.Minute,
			Schedule: "nightly", FireTime: time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
		}
		if !reflect.DeepEqual(got, want) || got.Info.String() != `{"ticket":812}` {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if _, ok := agent.FromContext(t.Context()); ok {
			t.Error("CallInfo out of nothing")
		}
	})
}

func (p *peer) hostAddr() string { return dispatcherID.Name + ":1" }

func TestProcedures(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Labels = map[string]string{"role": "web"} })
		offerGreet(a)
		offerStream(a, "count", func(context.Context, func(int) error) error { return nil }, agent.Idempotent(), agent.MaxExecTime(time.Hour))
		for i := range 200 { // more than a page
			offer(a, "many."+string(rune('a'+i/26))+string(rune('a'+i%26)), func(context.Context) (int, error) { return 0, nil })
		}
		d, _, _ := connect(t, p, a)
		if len(d.procedures) != 202 || d.hello.Labels["role"] != "web" || d.facts.String() != `{"os":"test","supervised":false}` {
			t.Errorf("%d procedures, labels %v, facts %s", len(d.procedures), d.hello.Labels, d.facts)
		}
		docs := a.Procedures()
		count, g := docs[0], docs[1]
		if count.Name != "count" || !count.Streams || !count.Idempotent || count.MaxExecTime != time.Hour || len(count.Record) == 0 {
			t.Errorf("%+v", count)
		}
		if g.Summary != "Greet somebody" || g.Doc != "by name" || !slices.Equal(g.Params, []string{"name", "loud"}) || g.Streams {
			t.Errorf("%+v", g)
		}
		if !strings.Contains(string(g.Args), "whom to greet") || !strings.Contains(string(g.Args), `"required":["name"]`) {
			t.Errorf("args %s", g.Args)
		}
		was := g.Params[0]
		g.Params[0], g.Args[0] = "other", 'x' // the caller's own
		if again := a.Procedures()[1]; again.Params[0] != was || again.Args[0] != '{' {
			t.Errorf("who was told of it has changed it: %+v", again)
		}
		g.Params[0], g.Args[0] = was, '{'
		if m := d.procedures[1]; m.Name != "greet" || string(m.Args) != string(g.Args) {
			t.Errorf("told %+v", m)
		}
	})
}

// Descriptions that are too long for one message together are told in several.
func TestLongDescriptions(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		doc := strings.Repeat("x", 25<<10)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			agent.Handle(a, harp.NewProc[none, int](name, doc), func(context.Context, none) (int, error) { return 0, nil })
		}
		d, _, _ := connect(t, p, a)
		names := ""
		for _, m := range d.procedures {
			names += m.Name
		}
		if names != "abcde" {
			t.Errorf("it is told of %q", names)
		}
	})
}

// Facts that cannot be had, or told, do not keep an agent from its dispatcher for long.
func TestFactsThatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		facts func(context.Context) (map[string]any, error)
		told  string
		after time.Duration
	}{
		"none":     {func(context.Context) (map[string]any, error) { return nil, nil }, `{"supervised":false}`, 0},
		"an error": {func(context.Context) (map[string]any, error) { return map[string]any{"a": 1}, errors.New("no") }, "", 0},
		"no value": {func(context.Context) (map[string]any, error) { return map[string]any{"a": func() {}}, nil }, "", 0},
		"too large": {func(context.Context) (map[string]any, error) {
			return map[string]any{"a": strings.Repeat("x", 64<<10)}, nil
		}, "", 0},
		"too late": {func(ctx context.Context) (map[string]any, error) { <-ctx.Done(); return nil, ctx.Err() }, "", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				began := time.Now()
				d, _, _ := connect(t, p, newAgent(t, p, func(cfg *agent.Config) { cfg.Facts = c.facts }))
				told := ""
				if len(d.facts) > 0 {
					told = d.facts.String()
				}
				if after := time.Since(began); told != c.told || after != c.after {
					t.Errorf("%q are told after %v", told, after)
				}
			})
		})
	}
}

// TestFactsThatHang checks that finding facts that does not heed its context keeps no session from beginning, which is
// told so; that it is not done twice at a time; and that Connect waits for it.
func TestFactsThatHang(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release, finding := make(chan struct{}), new(atomic.Int64)
		a := newAgent(t, p, func(cfg *agent.Config) {
			cfg.Facts = func(context.Context) (map[string]any, error) {
				n := finding.Add(1)
				<-release
				return map[string]any{"n": n}, nil
			}
		})
		d := listen(t, p)
		r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		for range 3 {
			s := <-d.sessions
			if len(s.facts) > 0 || len(s.problems) != 1 || s.problems[0].Code != harp.ProblemFacts || !strings.Contains(s.problems[0].Text, "longer than 10s") {
				t.Errorf("it is told %v and %+v", s.facts, s.problems)
			}
			s.session.Close(nil)
		}
		r.stop()
		time.Sleep(time.Minute)
		if n := finding.Load(); len(r.joined) > 0 || n != 1 {
			t.Errorf("Connect has returned: %t; facts are found %d times", len(r.joined) > 0, n)
		}
		close(release)
		r.wait()
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		if s := <-d.sessions; len(s.problems) > 0 || s.facts.String() != `{"n":2,"supervised":false}` {
			t.Errorf("then it is told %v and %+v", s.facts, s.problems)
		}
	})
}

// TestShortCallIsOneFrame: what an attempt has that ends at once is said by its END, and one
// that runs on is said to.
func TestShortCallIsOneFrame(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		offerHang(a)
		s, _, _ := connect(t, p, a)
		if m := expect[wire.End](s.call("greet", harp.Pos("Ada")), wire.TypeEnd); m.Started == nil || m.Started.Time == 0 {
			t.Errorf("END %+v", m)
		}
		x := s.call("hang", nil)
		if m := expect[wire.Accepted](x, wire.TypeAccepted); m.Started == nil || m.Started.Time == 0 {
			t.Errorf("ACCEPTED %+v", m)
		}
		x.cancel()
		x.ended()
	})
}
