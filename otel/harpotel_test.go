package harpotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	harpotel "github.com/harpcaller/harp/otel"
)

var hello = harp.NewProc[person, string]("hello", "Greet somebody")

type person struct {
	Name string `json:"name"`
}

// system is one whose caller, dispatcher and agents trace with a provider.
func system(t *testing.T, embedded bool) (caller *harp.Caller, spans *tracetest.SpanRecorder) {
	t.Helper()
	spans = tracetest.NewSpanRecorder()
	cfg := harpotel.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
	use := []harp.Interceptor{harpotel.Interceptor(cfg)}
	o := harptest.Options{
		Agents: []string{"web01"},
		Agent:  func(c *agent.Config) { c.Use = []func(agent.Handler) agent.Handler{harpotel.Handler(cfg)} },
		Register: func(a *agent.Agent) {
			agent.Handle(a, hello, func(ctx context.Context, p person) (string, error) {
				if p.Name == "" {
					return "", errors.New("nobody")
				}
				return trace.SpanContextFromContext(ctx).TraceID().String(), nil
			})
		},
	}
	if embedded {
		o.Dispatcher = dispatcher.Config{Use: use}
	} else {
		o.Caller = client.Config{Use: use}
	}
	sys := harptest.New(t, o)
	if embedded {
		return sys.Embedded(), spans
	}
	return sys.Caller(), spans
}

// A job's attempt is a span below that of its call, whichever side the call is traced at.
func TestACallIsOneTrace(t *testing.T) {
	for name, embedded := range map[string]bool{"client": false, "dispatcher": true} {
		t.Run(name, func(t *testing.T) {
			caller, spans := system(t, embedded)
			job, err := hello.Call(t.Context(), caller.Host("web01"), person{"Ada"})
			if err != nil {
				t.Fatal(err)
			}
			traced, err := hello.Get(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			call, run := only(t, spans, "call hello"), only(t, spans, "run hello")
			if run.Parent().SpanID() != call.SpanContext().SpanID() || run.SpanContext().TraceID().String() != traced ||
				call.SpanContext().TraceID() != run.SpanContext().TraceID() {
				t.Errorf("the call is %v, its attempt %v below %v", call.SpanContext(), run.SpanContext(), run.Parent())
			}
		})
	}
}

// What fails is marked so, with whose fault it is.
func TestFailures(t *testing.T) {
	caller, spans := system(t, false)
	if _, err := hello.Call(t.Context(), caller.Host("nope"), person{"Ada"}); !errors.Is(err, harp.ErrNotFound) {
		t.Fatal(err)
	}
	job, err := hello.Call(t.Context(), caller.Host("web01"), person{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Get(t.Context()); err == nil {
		t.Fatal("the job succeeded")
	}
	calls, run := named(spans, "call hello"), only(t, spans, "run hello")
	if len(calls) != 2 || calls[0].Status().Code != codes.Error || calls[1].Status().Code != codes.Unset || run.Status().Code != codes.Error {
		t.Errorf("there are %d spans of calls, the attempt's status is %v", len(calls), run.Status())
	}
	if got := attributes(calls[0]); got["harp.fault"] != "caller" || got["harp.ran"] != "no" {
		t.Errorf("the refused call has the attributes %v", got)
	}
	if got := attributes(run); got["harp.job"] != job.ID() || got["harp.host"] != "web01" || got["harp.procedure"] != "hello" || got["harp.attempt"] != "1" {
		t.Errorf("the attempt has the attributes %v", got)
	}
}

// named returns the ended spans of a name, in the order in which they ended.
func named(spans *tracetest.SpanRecorder, name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

// only returns the one ended span of a name.
func only(t *testing.T, spans *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	got := named(spans, name)
	if len(got) != 1 {
		t.Fatalf("%d spans %q have ended", len(got), name)
	}
	return got[0]
}

func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	texts := make(map[string]string)
	for _, a := range s.Attributes() {
		texts[string(a.Key)] = a.Value.String()
	}
	return texts
}

// A call that is part of a trace already is left as it is.
func TestATraceThatIsThereStays(t *testing.T) {
	caller, spans := system(t, false)
	const given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	job, err := hello.Call(t.Context(), caller.Host("web01"), person{"Ada"}, harp.TraceParent(given))
	if err != nil {
		t.Fatal(err)
	}
	traced, err := hello.Get(t.Context(), job)
	if got := named(spans, "call hello"); err != nil || traced != "4bf92f3577b34da6a3ce929d0e0e4736" || len(got) != 0 {
		t.Errorf("the trace is %s, %v; the spans are %v", traced, err, got)
	}
}

// Hosts that travel beside the request of a batch stay there.
func TestAListOfHostsStays(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	cfg := harpotel.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
	hosts, err := harp.EncodeHosts([]string{"web01", "web02"})
	if err != nil {
		t.Fatal(err)
	}
	req := harp.Request{ID: harp.NewID(), Procedure: "hello", Needs: []string{harp.NeedBatch}, List: &harp.HostList{Count: 2, Digest: strings.Repeat("0", 64)}}
	var sent harp.Submission
	submit := harpotel.Interceptor(cfg).Submit(func(_ context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
		sent = calls[0]
		return make([]harp.Submitted, 1), nil
	})
	if _, err := submit(t.Context(), []harp.Submission{{Request: req.Encode(), Hosts: hosts}}); err != nil {
		t.Fatal(err)
	}
	got, err := harp.DecodeRequest(sent.Request)
	if err != nil || got.TraceParent == "" || string(sent.Hosts) != string(hosts) {
		t.Errorf("sent are %+v, %v, beside %q", got, err, sent.Hosts)
	}
}
