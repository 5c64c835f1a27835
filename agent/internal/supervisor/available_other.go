//go:build !linux

package supervisor

import "context"

// Main returns: there are no supervisors here.
func Main() {}

// Available reports whether commands can outlive this process: not here.
func Available() bool { return false }

// selfLauncher is nil: there is no launcher here.
var selfLauncher []string

func startProcess(context.Context, Options, Spec) (*Handle, error) { return nil, ErrNotFound }

// Attach finds nothing here, as nothing outlives its agent. The error is [ErrNotFound].
func Attach(context.Context, Options, Key) (*Handle, error) { return nil, ErrNotFound }

// Inspect finds nothing here. The error is [ErrNotFound].
func Inspect(context.Context, Options, Key) (Trace, error) { return Trace{}, ErrNotFound }

// Discard has nothing to remove here.
func Discard(Options, Key) error { return nil }
