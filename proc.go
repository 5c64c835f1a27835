package harp

import (
	"context"
	"iter"
)

// Proc names a procedure with the types of its arguments and result, declared once
// and shared by those who call it and the agent that offers it.
type Proc[A, R any] struct {
	Name string
	Doc  string // the first line is the summary
}

// NewProc declares a procedure.
func NewProc[A, R any](name string, doc ...string) Proc[A, R] {
	p := Proc[A, R]{Name: name}
	for i, line := range doc {
		if i > 0 {
			p.Doc += "\n"
		}
		p.Doc += line
	}
	return p
}

// Call is Host.Call with typed arguments. Errors: as Host.Call.
func (p Proc[A, R]) Call(ctx context.Context, h *Host, args A, opts ...Option) (*Job, error) {
	return h.Call(ctx, p.Name, args, opts...)
}

// Run is Target.Call with typed arguments. Errors: as Target.Call.
func (p Proc[A, R]) Run(ctx context.Context, t *Target, args A, opts ...Option) (*Batch, error) {
	return t.Call(ctx, p.Name, args, opts...)
}

// Get is Job.Get with a typed result. Errors: as Job.Get; ErrInvalid when the job
// is of another procedure or its value is no R.
func (p Proc[A, R]) Get(ctx context.Context, j *Job) (R, error) {
	var none R
	res, err := j.Wait(ctx)
	if err != nil {
		return none, err
	}
	if err := p.check(j, res); err != nil {
		return none, err
	}
	return resultAs[R](j, res)
}

// StreamProc is a Proc that also yields records, of type M.
type StreamProc[A, M, R any] struct{ Proc[A, R] }

// NewStreamProc declares a procedure with records.
func NewStreamProc[A, M, R any](name string, doc ...string) StreamProc[A, M, R] {
	return StreamProc[A, M, R]{NewProc[A, R](name, doc...)}
}

// Follow is Job.Follow with typed records; those of other kinds than data are
// passed over. Errors: as Job.Follow, and ErrInvalid for a value that is no M.
func (p StreamProc[A, M, R]) Follow(ctx context.Context, j *Job, opts ...StreamOption) iter.Seq2[M, error] {
	return Decode[M](j.Follow(ctx, opts...))
}
