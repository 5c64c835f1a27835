package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// CallInfo is what a procedure can know of the call it runs for.
type CallInfo struct {
	JobID          string
	Attempt        int // from 1
	Host           string
	Procedure      string
	Principal      harp.Principal    // who asked: as the dispatcher says, in a direct call as the certificate does
	Direct         bool              // called without a dispatcher: nothing is stored
	Address        string            // of the dispatcher's or direct caller's end of the connection
	Info           harp.Value        // the caller's own data
	Labels         map[string]string // the job's
	TraceParent    string            // W3C trace context
	DryRun         bool              // say what would be done, and do nothing
	SilenceTimeout time.Duration     // the longest silence between records; 0: any
	MaxExecTime    time.Duration     // the longest run; 0: any
	Schedule       string            // the name of the schedule that it is a run of; empty: of none
	FireTime       time.Time         // the nominal time that it is the run of, UTC; zero: of none, as when somebody triggered the schedule
}

type callInfoKey struct{}

// FromContext returns the call that a procedure's context belongs to, as a copy;
// false for any other context.
func FromContext(ctx context.Context) (CallInfo, bool) {
	info, ok := ctx.Value(callInfoKey{}).(*CallInfo)
	if !ok {
		return CallInfo{}, false
	}
	c := *info
	c.Info, c.Labels = slices.Clone(c.Info), maps.Clone(c.Labels)
	return c, true
}

func withCallInfo(ctx context.Context, info *CallInfo) context.Context {
	return context.WithValue(ctx, callInfoKey{}, info)
}

// withAttempt is the context of an attempt's function.
func withAttempt(ctx context.Context, at *attempt) context.Context {
	return &attemptContext{ctx, at}
}

// attemptContext has an attempt and its call.
type attemptContext struct {
	context.Context
	at *attempt
}

// Value implements context.Context.
func (c *attemptContext) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return c.at
	case callInfoKey:
		return c.at.info
	}
	return c.Context.Value(key)
}
