// Package harpotel traces calls with OpenTelemetry, from the program that makes them to the
// procedure that they run.
//
//	caller, err := client.Dial(ctx, addr, client.Config{Use: []harp.Interceptor{harpotel.Interceptor(harpotel.Config{})}})
//	a := agent.New(agent.Config{Use: []func(agent.Handler) agent.Handler{harpotel.Handler(harpotel.Config{})}})
//
// The interceptor makes a span of each call, which ends when the call is accepted, and writes
// it into the call as its W3C traceparent. That stays with the job, however long it waits and
// however often it is tried. The handler makes a span of each attempt below it. The names of
// attributes begin with harp.
package harpotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// Config is where spans go. Its zero value works.
type Config struct {
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider
}

func (c Config) tracer() trace.Tracer {
	p := c.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer("github.com/harpcaller/harp/otel", trace.WithInstrumentationVersion(harp.Version()))
}

// traceContext writes and reads W3C traceparents, which is what a job has room for.
var traceContext propagation.TraceContext

const traceParent = "traceparent"

// Interceptor returns what is to be in client.Config.Use, or in dispatcher.Config.Use of a program
// that has its dispatcher inside itself. A call that has a traceparent already, or is signed,
// is left as it is and has no span here.
func Interceptor(cfg Config) harp.Interceptor {
	tracer := cfg.tracer()
	return harp.Interceptor{Submit: func(next harp.SubmitFunc) harp.SubmitFunc {
		return func(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
			traced := make([]harp.Submission, len(calls))
			spans := make([]trace.Span, len(calls))
			for i, call := range calls {
				traced[i], spans[i] = inject(ctx, tracer, call)
			}
			done, err := next(ctx, traced)
			for i, span := range spans {
				if err == nil && i < len(done) {
					endSpan(span, done[i].Err)
				} else {
					endSpan(span, err)
				}
			}
			return done, err
		}
	}}
}

// inject begins the span of a call and writes it into the call.
func inject(ctx context.Context, tracer trace.Tracer, call harp.Submission) (harp.Submission, trace.Span) {
	req, err := harp.DecodeRequest(call.Request)
	if err != nil || call.Signature != nil || req.TraceParent != "" {
		return call, trace.SpanFromContext(context.Background())
	}
	ctx, span := tracer.Start(ctx, "call "+req.Procedure, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("harp.job", req.ID), attribute.String("harp.host", req.Host), attribute.String("harp.procedure", req.Procedure)))
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	req.TraceParent = carrier.Get(traceParent)
	call.Request = req.Encode()
	return call, span
}

// Handler returns what is to be in agent.Config.Use: each attempt is a span below that of its call.
func Handler(cfg Config) func(agent.Handler) agent.Handler {
	tracer := cfg.tracer()
	return func(next agent.Handler) agent.Handler {
		return func(ctx context.Context, args harp.Value) (any, error) {
			info, _ := agent.FromContext(ctx)
			ctx = traceContext.Extract(ctx, propagation.MapCarrier{traceParent: info.TraceParent})
			ctx, span := tracer.Start(ctx, "run "+info.Procedure, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
				attribute.String("harp.job", info.JobID), attribute.Int("harp.attempt", info.Attempt),
				attribute.String("harp.host", info.Host), attribute.String("harp.procedure", info.Procedure)))
			defer span.End() // also when the procedure panics
			result, err := next(ctx, args)
			setError(span, err)
			return result, err
		}
	}
}

func endSpan(span trace.Span, err error) {
	setError(span, err)
	span.End()
}

func setError(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(attribute.String("harp.fault", string(harp.FaultOf(err))), attribute.String("harp.ran", string(harp.RanOf(err))))
}
