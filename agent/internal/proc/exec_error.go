package proc

import (
	"errors"
	"fmt"
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
