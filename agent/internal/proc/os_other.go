//go:build !unix

package proc

import (
	"context"
	"errors"
	"time"
)

// LaunchName is the argv[0] of a process that has to call [Launch].
const LaunchName = "harp-launch"

// IsLaunch reports whether this process was started to call [Launch]: never here.
func IsLaunch() bool { return false }

// Launch is never to be called here.
func Launch() {}

// Process is a command that was started: there is none here.
type Process struct{}

// Start starts no command here: the error is an *[ExecError] of errors.ErrUnsupported.
func Start(Spec, Options) (*Process, error) {
	return nil, &ExecError{stageExec, errors.ErrUnsupported}
}

// Identity returns what tells the leader from every other process.
func (*Process) Identity() Identity { return Identity{} }

// Exited returns a channel that is closed when the leader has ended.
func (*Process) Exited() <-chan struct{} { return nil }

// End ends the command.
func (*Process) End(time.Duration) {}

// Leave gives up what runs of the command.
func (*Process) Leave() []Identity { return nil }

// Wait returns how the command ended.
func (*Process) Wait() Status { return Status{} }

// BootID is for Linux only: empty.
func BootID() string { return "" }

// Adopt is for Linux only: the error is errors.ErrUnsupported.
func Adopt() error { return errors.ErrUnsupported }

// EndOrphans does nothing here.
func EndOrphans(context.Context, Identity, string, string, int64, time.Duration) (ended int, err error) {
	return 0, nil
}

// NewCgroup says that there are no cgroups here.
func NewCgroup(string) (dir string, err error) { return "", ErrNoCgroups }

// SweepCgroups does nothing here.
func SweepCgroups(time.Duration) {}

// HasController says that there are no cgroups here.
func HasController(string) error { return ErrNoCgroups }

// EnableController says that there are no cgroups here.
func EnableController(string) error { return ErrNoCgroups }

// ProbePrivateTmp is for Linux only: the error is errors.ErrUnsupported.
func ProbePrivateTmp() error { return errors.ErrUnsupported }

// ProbeCgroups says that there are no cgroups here.
func ProbeCgroups() error { return ErrNoCgroups }
