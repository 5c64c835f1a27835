// Package proc runs one command with everything that comes of it, and ends all of
// that again.
//
// A command gets a session and a process group of its own, an environment and
// descriptors that were chosen for it, an identity, a mask and limits. What it leaves
// behind, also what left its group and session, is found: by its cgroup where there is
// cgroup v2 and this process may make one, otherwise as descendants of this process,
// which adopts orphans while it runs a command ([Adopt]). A process is known by its id
// and the time it started, so that it is never mistaken for a stranger.
package proc

import (
	"os"
	"time"
)

// Spec says what to run. It can be stored as JSON.
type Spec struct {
	Argv    []string `json:"argv"`              // the program, by path or to be found in the PATH of Env, and its arguments
	Env     []string `json:"env,omitempty"`     // all of it, as NAME=value
	Dir     string   `json:"dir,omitempty"`     // where it runs; default: /
	User    string   `json:"user,omitempty"`    // name or number; default: that of this process
	Group   string   `json:"group,omitempty"`   // name or number; default: the user's own
	Groups  []string `json:"groups"`            // supplementary ones, all of them: nil are those that the user database says, and an empty list is none
	Umask   *int     `json:"umask,omitempty"`   // default: 022
	Rlimits []Rlimit `json:"rlimits,omitempty"` // default: those of this process
	Nice    *int     `json:"nice,omitempty"`    // default: that of this process

	// NoNewPrivileges keeps what is executed from getting more rights than the command
	// has, as by set-user-ID programs.
	NoNewPrivileges bool `json:"no_new_privileges,omitempty"`

	// Tmp is a directory that is /tmp and /var/tmp for the command; empty: it has those of
	// all. Kept is one that it sees all the same where it is, though that is in one of them.
	Tmp  string `json:"tmp,omitempty"`
	Kept string `json:"kept,omitempty"`

	Limits Limits `json:"limits,omitzero"`
}

// Owner is whom a command runs as.
type Owner struct {
	UID, GID int
	Groups   []int // the supplementary ones, all of them
}

// Limits are those of a command and of all that comes of it together, which its cgroup has.
// Without [Options.Cgroup] they are refused. 0: none.
type Limits struct {
	Memory int64 `json:"memory,omitempty"` // bytes, without swap
	CPU    int64 `json:"cpu,omitempty"`    // microseconds of every 100 ms, on all CPUs together
	PIDs   int64 `json:"pids,omitempty"`   // processes and threads
}

// Rlimit is a limit of the kernel on a process.
type Rlimit struct {
	Name string `json:"name"` // as in setrlimit(2), in lower case and without RLIMIT_: nofile, as, cpu, ...
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Identity is what tells a process from every other one, also after its number was
// given to another.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the boot, as in proc(5); 0: not known
	Boot  string `json:"boot"`  // the kernel's boot id
}

// Options are how a command is run here.
type Options struct {
	Stdin          *os.File // default: /dev/null
	Stdout, Stderr *os.File

	// Launcher is the argv of a program that calls [Launch] and, so that the mask, the
	// limits and the like can be set by the process they are of, becomes the command. It is
	// started by the path Launcher[0], with [LaunchName] in its place and an empty
	// environment. Without one, a Spec that [Spec.NeedsLauncher] is refused.
	Launcher []string

	// Survivors is told which processes of the command were sent KILL for a while and are
	// there still, by their numbers, each time that this changes: in the end of none. It is
	// called by [Process.End]. nil: nobody is.
	Survivors func(pids []int)

	// Cgroup is the directory of a cgroup v2 of the command's own, made and removed by
	// this package: see [NewCgroup]. Empty: none.
	Cgroup string
}

// ExecError says that a command was not started: there is no such file, or it may not
// be executed, or what its Spec wants cannot be had.
type ExecError struct {
	Stage string // lookup, user, dir, limits, cgroup, tmp, exec
	Err   error
}

// Status is how a command ended.
type Status struct {
	Exit    int    // its exit code; -1 if a signal ended it
	Signal  string // that ended it, as SIGTERM; empty: none
	Core    bool   // it left a core dump
	Killed  int    // processes that had to be ended by KILL
	RanFor  time.Duration
	Strays  int // processes that had left the group, and were ended
	CPUTime time.Duration
	MaxRSS  int64 // bytes

	OutOfMemory bool `json:",omitempty"` // processes were killed as all of them took more than Limits.Memory
}
