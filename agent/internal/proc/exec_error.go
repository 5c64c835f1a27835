package proc

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// The stages of an [ExecError].
const (
	stageLookup = "lookup"
	stageUser   = "user"
	stageDir    = "dir"
	stageLimits = "limits"
	stageCgroup = "cgroup"
	stageTmp    = "tmp"
	stageExec   = "exec"
)

// Error says at which stage it went wrong, and why.
func (e *ExecError) Error() string { return fmt.Sprintf("cannot start (%s): %v", e.Stage, e.Err) }

// Unwrap returns what went wrong, so that errors.Is finds fs.ErrNotExist and
// fs.ErrPermission.
func (e *ExecError) Unwrap() error { return e.Err }

// shortages are what the system says when it has too little for now, or a program is just being written.
var shortages = []error{syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ETXTBSY}

// IsShort reports whether an error says that the machine, or this process, has too few files, processes or too
// little memory for now, or that a program is being written and cannot be executed meanwhile, and nothing of what was
// to be done.
func IsShort(err error) bool {
	return slices.ContainsFunc(shortages, func(short error) bool { return errors.Is(err, short) })
}

// LeftError says that processes of a command were still there after they had been sent
// KILL, again and again.
type LeftError struct{ Left []Identity }

// PIDs returns the numbers of the processes.
func (e *LeftError) PIDs() []int {
	pids := make([]int, len(e.Left))
	for i, id := range e.Left {
		pids[i] = id.PID
	}
	return pids
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%d processes of the command cannot be ended, the first is %d", len(e.Left), e.Left[0].PID)
}

// ErrNoCgroups says why commands get no cgroup here; what wraps it says more.
var ErrNoCgroups = errors.New("no cgroup v2 for commands")
