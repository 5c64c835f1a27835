package supervisor

import "context"

// Start starts a command under a supervisor, or, where none is [Available], inside this
// process. It returns when the command was executed.
//
// The error is a *harp.FieldError for a Spec that cannot be; a *[proc.ExecError] if the
// command was not executed; [ErrExists] if the attempt is there already; ctx's if that is
// done before anything was begun: from then on Start does not heed it; that of
// [Options.Commit]; or one of the machine. Then nothing was started and nothing is left, and
// if Commit had returned nil, [Options.Retract] was called.
// Only after [ErrLost] nobody knows whether it was: the supervisor died, and [Attach] says
// what it left.
func Start(ctx context.Context, o Options, spec Spec) (*Handle, error) {
	spec, err := spec.checked()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.inside || !Available() {
		return startLocal(spec, o)
	}
	return startProcess(ctx, o, spec)
}
