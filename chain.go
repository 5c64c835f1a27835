package harp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// FitsJob reports whether a job that is in this state now has ended so; what is not set is OnSucceeded.
func (e Ending) FitsJob(state State) bool {
	switch e {
	case "", OnSucceeded:
		return state == StateSucceeded
	case OnFailed:
		return state.Ended() && state != StateSucceeded && state != StateCancelled
	case OnEnded:
		return state.Ended()
	default:
		return false
	}
}

// NeedChain is what the request of a chain needs: an agent that takes from CALL which step it is.
const NeedChain = "chain"

// defaultRebootWait is how long a step waits for its host that boots anew, if nothing is said.
const defaultRebootWait = 30 * time.Minute

// Step is one step of a chain: see [Target.Chain].
type Step struct {
	Procedure string
	Args      any      // as [Host.Call] takes it
	On        Ending   // how the last step that ran has to end; nothing is OnSucceeded, and is all that the first may have
	Options   []Option // SilenceTimeout, MaxExecTime and Retry of this step; what is not given is as the chain has it
}

// ChainStep is how a request has a step of a chain behind the first, of which the request itself is.
type ChainStep struct {
	Procedure      string        `json:"procedure" msgpack:"proc"`
	Args           Value         `json:"args,omitzero" msgpack:"args,omitempty"`
	On             Ending        `json:"on,omitempty" msgpack:"on,omitempty"`
	SilenceTimeout time.Duration `json:"silence_timeout,omitempty" msgpack:"timeout,omitempty"` // 0: the default
	MaxExecTime    time.Duration `json:"max_exec_time,omitempty" msgpack:"maxexec,omitempty"`   // 0: the default
	Retry          RetryPolicy   `json:"retry,omitzero" msgpack:"retry,omitempty"`
}

// RebootWait is how long a step of a chain waits for its host that can come next behind one that ends with a reboot of that
// ([TraitEndsReboot]), as steps between them may be left out: default 30 minutes. Other steps wait for OfflineWait.
func RebootWait(d time.Duration) Option {
	return func(o *CallOptions) { o.Batch.RebootWait, o.set.batch.rebootWait = d, true }
}

// EachStep has maintenance windows keep back each step of a chain, not the first alone: also one whose procedure a window
// refuses waits for its end. While a step waits its host holds no slot.
func EachStep() Option { return func(o *CallOptions) { o.Batch.EachStep = true } }

// Chain submits a batch that calls several procedures on each host that the target selects now, one after the
// other: a step begins in the commit in which the one before it ends, if it ended as On says, and otherwise is left
// out. Where a step is left out, On of the next one is about the last that ran. Steps that are left out, and those
// the chain does not come to, are cancelled(chain) and did not run.
//
// Each host goes through its steps by itself. It has one result: that of its first step that did not succeed, or
// else of the last one; [Batch.Results], counts and [StopAfter] know that alone. Each step is a job of its own,
// [Batch.Job]. A batch that is cancelled begins no step, and neither does a host whose first step is cancelled before its turn.
// Windows keep back the first step only, as a chain that has begun is finished, unless there is EachStep.
//
// The options are those of a batch, and hold for the whole chain; StartBefore is about the first step. At most
// MaxSteps steps, whose arguments are at most MaxArgs together. Errors: as Call, with steps[1] before the fields of
// the second step, and so on; ErrInvalid (steps) for none, or too many.
func (t *Target) Chain(ctx context.Context, steps []Step, opts ...Option) (*Batch, error) {
	first, opts, err := chainOptions(steps, opts)
	if err != nil {
		return nil, WrapCallError(first.Procedure, t.text, err)
	}
	return t.Call(ctx, first.Procedure, first.Args, opts...)
}

// PreviewChain is [Target.Preview] of what [Target.Chain], given the same, would meet. A host is unfit that is so for one
// of the steps. Errors: as Preview, with steps[1] before the fields of the second step.
func (t *Target) PreviewChain(ctx context.Context, steps []Step, opts ...Option) (Preview, error) {
	first, opts, err := chainOptions(steps, opts)
	if err != nil {
		return Preview{}, err
	}
	return t.Preview(ctx, first.Procedure, first.Args, opts...)
}

// NewChainRequest returns the request of a chain, as [NewBatchRequest] does that of a batch. Errors: ErrInvalid,
// naming the field.
func NewChainRequest(expr string, steps []Step, opts ...Option) (Request, error) {
	first, opts, err := chainOptions(steps, opts)
	if err != nil {
		return Request{}, err
	}
	return NewBatchRequest(expr, first.Procedure, first.Args, opts...)
}

// chainOptions returns the first step of a chain, and the options with which a call of it is the chain.
func chainOptions(steps []Step, opts []Option) (first Step, all []Option, err error) {
	if len(steps) == 0 || len(steps) > MaxSteps {
		return first, nil, &FieldError{Field: "steps", Message: fmt.Sprintf("must be from 1 to %d, not %d", MaxSteps, len(steps))}
	}
	first = steps[0]
	if first.On != "" && first.On != OnSucceeded {
		return first, nil, &FieldError{Field: "steps[0].on", Message: "is of a step behind another"}
	}
	then := make([]ChainStep, 0, len(steps)-1)
	for n, s := range steps {
		o := optionsOf(s.Options)
		if err := o.checkOfStep(); err != nil {
			return first, nil, InStep(n+1, err)
		}
		if n == 0 {
			continue
		}
		made := ChainStep{Procedure: s.Procedure, On: s.On, SilenceTimeout: o.SilenceTimeout, MaxExecTime: o.MaxExecTime, Retry: o.Retry}
		if made.Args, err = encodeValue(s.Args); err != nil {
			return first, nil, InStep(n+1, inField("args", err))
		}
		then = append(then, made)
	}
	chain := func(o *CallOptions) {
		o.Batch.Then = then
		for n := range then {
			s := &then[n]
			setIf(&s.SilenceTimeout, o.SilenceTimeout, s.SilenceTimeout == 0)
			setIf(&s.MaxExecTime, o.MaxExecTime, s.MaxExecTime == 0)
			setIf(&s.Retry, o.Retry, s.Retry.IsZero())
		}
	}
	return first, slices.Concat(opts, []Option{chain}, first.Options), nil
}

// limitSteps gives each step of the chain that is made again what was given for all of it: SilenceTimeout, MaxExecTime and Retry.
func (r *Request) limitSteps(o *CallOptions) {
	o.Batch.Then = slices.Clone(o.Batch.Then)
	for n := range o.Batch.Then {
		s := &o.Batch.Then[n]
		setIf(&s.SilenceTimeout, o.SilenceTimeout, o.set.timeout || o.SilenceTimeout != r.SilenceTimeout)
		setIf(&s.MaxExecTime, o.MaxExecTime, o.set.maxExec || o.MaxExecTime != r.MaxExecTime)
		setIf(&s.Retry, o.Retry, o.set.retry || !o.Retry.equal(r.Retry))
	}
}

// checkOfStep refuses options that are not those of a step of a chain.
func (o *CallOptions) checkOfStep() error {
	if err := o.checkGiven(); err != nil {
		return err
	}
	rest := *o
	rest.SilenceTimeout, rest.MaxExecTime, rest.Retry, rest.set = 0, 0, RetryPolicy{}, settings{}
	if r, err := rest.request("any", nil); err != nil || !isPlain(r) || rest.batchOption() != "" || rest.JobID != "" {
		return &FieldError{Field: "options", Message: "of a step are silence_timeout, max_exec_time and retry; others are of the chain"}
	}
	return nil
}

// isPlain reports whether a request has nothing that an option sets.
func isPlain(r Request) bool {
	r.ID, r.Procedure, r.Args = "", "", nil
	return string(r.Encode()) == string(Request{}.Encode())
}

// InStep puts the place of a step of a chain before the field of an error about it: of the first, which is 1, steps[0].
// It is for those who implement a [Service].
func InStep(n int, err error) error {
	if e, ok := err.(*FieldError); ok { //nolint:errorlint // never wrapped here
		return &FieldError{Field: fmt.Sprintf("steps[%d].%s", n-1, e.Field), Message: e.Message}
	}
	return err
}

// Steps is how many steps the request has; 1 if it is no chain.
func (r *Request) Steps() int { return 1 + len(r.Batch.Then) }

// AtStep returns the request as one step of its chain has it, from 1: with its procedure, arguments and limits.
// Errors: ErrInvalid (step) if it has no such step.
func (r Request) AtStep(n int) (Request, error) {
	switch {
	case n < 1 || n > r.Steps():
		return Request{}, &FieldError{Field: "step", Message: fmt.Sprintf("must be from 1 to %d", r.Steps())}
	case n == 1:
		return r, nil
	}
	s := r.Batch.Then[n-2]
	r.Procedure, r.Args, r.SilenceTimeout, r.MaxExecTime, r.Retry = s.Procedure, s.Args, s.SilenceTimeout, s.MaxExecTime, s.Retry
	return r, nil
}

// RebootTime is how long steps wait for a host that boots anew.
func (o *BatchOptions) RebootTime() time.Duration {
	if o.RebootWait == 0 {
		return defaultRebootWait
	}
	return o.RebootWait
}

// checkSteps refuses steps that cannot be.
func (r *Request) checkSteps() error {
	steps := r.Batch.Then
	switch {
	case r.Batch.RebootWait < 0:
		return &FieldError{Field: "reboot_wait", Message: "must be more than zero"}
	case len(steps) == 0 && r.Batch.RebootWait != 0:
		return &FieldError{Field: "reboot_wait", Message: "only applies to chains"}
	case len(steps) == 0 && r.Batch.EachStep:
		return &FieldError{Field: "each_step", Message: "only applies to chains"}
	case len(steps) == 0:
		return nil
	case r.Batch.Drift != "":
		return &FieldError{Field: "drift", Message: "is of a batch that is no chain"}
	case r.Steps() > MaxSteps:
		return &FieldError{Field: "steps", Message: fmt.Sprintf("must be from 1 to %d, not %d", MaxSteps, r.Steps())}
	case !slices.Contains(r.Needs, NeedChain):
		return &FieldError{Field: "needs", Message: fmt.Sprintf("must have %q where there are steps", NeedChain)}
	}
	size := len(r.Args)
	for n := range steps {
		s := &steps[n]
		if err := s.check(); err != nil {
			return InStep(n+2, err)
		}
		size += len(s.Args)
	}
	if size > MaxArgs {
		return &FieldError{Field: "steps", Message: fmt.Sprintf("have %d bytes of arguments together, at most %d", size, MaxArgs)}
	}
	return nil
}

func (s *ChainStep) check() error {
	if err := checkEnding("on", s.On); err != nil {
		return err
	}
	call := Request{SilenceTimeout: s.SilenceTimeout, MaxExecTime: s.MaxExecTime, Args: s.Args}
	for _, check := range []func() error{
		func() error { return checkName("procedure", s.Procedure, MaxProcedureName) },
		call.checkValues, call.checkTimes, s.Retry.check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// chainStepJSON is how a ChainStep is written as JSON.
type (
	chainStepFields ChainStep
	chainStepJSON   struct {
		chainStepFields
		SilenceTimeout durationJSON `json:"silence_timeout,omitzero"`
		MaxExecTime    durationJSON `json:"max_exec_time,omitzero"`
		Retry          retryJSON    `json:"retry,omitzero"`
	}
)

// MarshalJSON writes the fields that are not zero, durations as "1m30s".
func (s ChainStep) MarshalJSON() ([]byte, error) {
	return plainJSON(chainStepJSON{chainStepFields(s), durationJSON(s.SilenceTimeout), durationJSON(s.MaxExecTime), newRetryJSON(s.Retry)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a duration that is
// none.
func (s *ChainStep) UnmarshalJSON(text []byte) error {
	var read chainStepJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = ChainStep(read.chainStepFields)
	s.SilenceTimeout, s.MaxExecTime, s.Retry = time.Duration(read.SilenceTimeout), time.Duration(read.MaxExecTime), read.Retry.policy()
	return nil
}
