// Package supervisor runs commands so that they outlive the agent that started them.
//
// A supervisor is a process of its own, made of the same binary, that owns one attempt:
// its command, the limits of that, and one spool file with the numbered records of what
// was printed and, last, how it ended. The agent follows it over a socket beside that
// file, in the attempt's directory; another agent, after a restart or an upgrade, finds it
// there by job and attempt and goes on where the last one was. What the supervisor wrote
// before it died is read from the file.
//
// Without a directory a supervisor ends with its agent: when that is gone, however it went,
// it ends the command, and what is left of the secrets. A program whose main did not begin
// with [Main] cannot be a supervisor: then the same runs inside the agent, and what an agent
// that is killed leaves is left.
package supervisor

import (
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// Key names an attempt.
type Key struct {
	Job     string `json:"job"`
	Attempt int64  `json:"attempt"`
}

// Spec says what to supervise. All of it but Stdin and Secrets is in the spool file.
type Spec struct {
	Key
	Procedure string `json:"procedure"`
	Info      []byte `json:"info,omitempty"` // the agent's own, for one that has lost its journal
	Command   proc.Spec
	Stdin     []byte   `json:"-"` // what the command reads; empty: nothing
	Secrets   []Secret `json:"-"`

	SilenceTimeout time.Duration `json:"timeout,omitempty"`       // longest silence; 0: any. It does not run while harp holds the command back
	MaxExecTime    time.Duration `json:"max_exec_time,omitempty"` // longest run; 0: any
	Grace          time.Duration `json:"grace"`                   // from TERM to KILL

	Private bool `json:"private,omitempty"` // it has a directory of its own, which is gone with it; HARP_RESULT names a file there

	PrivateTmp bool `json:"private_tmp,omitempty"` // it has an empty /tmp of its own, which is /var/tmp too, and gone with it

	Records   Splitting `json:"records"`
	MaxRecord int       `json:"max_record"` // bytes of a record's value
	MaxSpool  int64     `json:"max_spool"`  // bytes of records that nobody has taken yet

	Result  Result `json:"result"`
	Success []int  `json:"success,omitempty"` // exit codes that are; default: 0
	Leave   bool   `json:"leave,omitempty"`   // what the command leaves running when it ends by itself is left alone, not ended
}

// Secret is the content of a file that only the command's user can read, and that is
// gone when the command is. [SecretPath] stands for its path in Argv, Env and Stdin.
type Secret struct {
	Name    string
	Content []byte
}

// SecretPath is what a supervisor replaces by the path of a secret's file. It holds a
// byte that no argument can have otherwise.
func SecretPath(name string) string { return "\x00secret:" + name + "\x00" }

// PrivateDir as the directory of a command that is Private is one of its own.
const PrivateDir = "\x00private\x00"

// Splitting is how the output becomes records.
type Splitting string

// The ways to split.
const (
	SplitLines Splitting = "lines" // a record a line
	SplitJSON  Splitting = "json"  // the same, and lines of stdout that are JSON are data
	SplitRaw   Splitting = "raw"   // a record for what one read returned
)

// Result is where a command's result is from.
type Result struct {
	From string `json:"from"`           // exit-code, stdout, stdout-last-json, file
	Path string `json:"path,omitempty"` // of the file; relative to the command's directory. Default: what HARP_RESULT names
	Max  int    `json:"max"`            // bytes
}

// Record is a part of what a command printed. The records of an attempt are numbered
// from 0.
type Record struct {
	Time      int64  // nanoseconds, UTC, when it was read
	Kind      string // stdout, stderr, or data: a line of stdout that is JSON
	Value     []byte // a line has neither its line feed
	Partial   bool   // nor, where it was split or ended otherwise (a carriage return, the end), one that is left out
	Truncated int64  // bytes that were dropped before it, for want of room
}

// Stop is why a command is stopped before it ended by itself, and what of it will not go.
type Stop struct {
	Cause string        // cancel, timeout or max_exec_time; empty: it has ended by itself, and left something
	Since int64         // nanoseconds, UTC
	Limit time.Duration // that was exceeded
	Left  []int         `json:",omitempty"` // processes that outlive KILL
}

// End is how an attempt ended.
type End struct {
	proc.Status
	Time       int64  // nanoseconds, UTC
	Records    int64  // how many there are
	Truncated  int64  // bytes that were dropped after the last of them
	OK         bool   // the exit code is one of success, and nothing stopped it
	Stopped    *Stop  // what asked it to stop before it had ended
	OutputOpen bool   // somebody who could not be found or ended had its output still open
	Result     []byte // as Spec.Result says; JSON for stdout-last-json, else bytes
	From       string // Spec.Result.From
	ResultErr  string // why there is no result: none, too_large, not_json, no_file, old_file
	LastError  string // the last line of stderr, at most 1 KiB
	Gone       bool   // the supervisor died with it: all else but Records is unknown
}

// ExecError says that a command was not started: see [proc.ExecError].
type ExecError = proc.ExecError

// Options are where and how attempts are supervised.
type Options struct {
	// Dir has a directory for each attempt. Empty: they end with this process.
	Dir string

	// Hold is what a full spool does from the beginning, or from Attach on, until
	// [Handle.Hold] says otherwise.
	Hold bool

	// Commit is called by Start when all is prepared, right before the command is
	// executed. Its error, which Start returns, keeps it from that. nil: nothing.
	Commit func() error

	// Retract is called by Start when the command was not executed after Commit had returned
	// nil, and never will be: before what there is of the attempt is removed, which would
	// prove that to another agent. nil: nothing.
	Retract func()

	// NoGrace lets Attach end at once what is left of the command of a supervisor that is
	// dead.
	NoGrace bool

	inside bool // they run inside this process, also where supervisors can be had
}

func (o Options) retract() {
	if o.Retract != nil {
		o.Retract()
	}
}

func (o Options) commit() error {
	if o.Commit == nil {
		return nil
	}
	return o.Commit()
}
