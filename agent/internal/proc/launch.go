//go:build unix

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
)

// LaunchName is the argv[0] of a process that has to call [Launch].
const LaunchName = "harp-launch"

const (
	defaultUmask = 0o022

	// The descriptors of a launcher, after the three of the command.
	instructionFD = 3
	reportFD      = 4

	// ready is what a launcher reports before it becomes the command. If nothing follows,
	// it did, or died at that.
	ready = '!'

	// launcherName is what the kernel calls it from before that. No program has such a name.
	launcherName = "(harp-launch)"
)

// instructions are what a launcher becomes. Arguments and settings are bytes: they need
// not be valid UTF-8.
type instructions struct {
	Path       string      `json:"path"`
	Argv       [][]byte    `json:"argv"`
	Env        [][]byte    `json:"env"`
	Dir        string      `json:"dir"`
	Umask      int         `json:"umask"`
	Rlimits    []Rlimit    `json:"rlimits"`
	Nice       *int        `json:"nice"`
	NoNew      bool        `json:"no_new_privileges"`
	Credential *credential `json:"credential"`
	Tmp        string      `json:"tmp"`
	Kept       string      `json:"kept"`
}

// failure is an [ExecError] on its way from the launcher.
type failure struct {
	Stage string        `json:"stage"`
	Op    string        `json:"op"`
	Path  string        `json:"path"`
	Errno syscall.Errno `json:"errno"` // 0: only Text is known
	Text  string        `json:"text"`
}

func (f failure) err() *ExecError {
	switch {
	case f.Errno == 0:
		return &ExecError{f.Stage, errors.New(f.Text)}
	case f.Path == "":
		return &ExecError{f.Stage, os.NewSyscallError(f.Op, f.Errno)}
	}
	return &ExecError{f.Stage, &fs.PathError{Op: f.Op, Path: f.Path, Err: f.Errno}}
}

func (s Spec) instructions(path string, as *credential) instructions {
	in := instructions{
		Path: path, Argv: toBytes(s.Argv), Env: toBytes(s.Env), Dir: s.dir(),
		Umask: defaultUmask, Rlimits: s.Rlimits, Credential: as,
		Nice: s.Nice, NoNew: s.NoNewPrivileges, Tmp: s.Tmp, Kept: s.Kept,
	}
	if s.Umask != nil {
		in.Umask = *s.Umask
	}
	return in
}

// IsLaunch reports whether this process was started to call [Launch].
func IsLaunch() bool { return len(os.Args) > 0 && os.Args[0] == LaunchName }

// Launch becomes the command that the process which started this one has instructions
// for. It does not return; what is in its way is reported to that process.
func Launch() {
	closeOnExec()
	heedSignals()
	in := os.NewFile(instructionFD, "instructions")
	out := os.NewFile(reportFD, "report")
	var i instructions
	if err := json.NewDecoder(in).Decode(&i); err != nil {
		fail(out, failure{Stage: stageExec, Text: fmt.Sprintf("%s is not for use by hand: %v", LaunchName, err)})
	}
	fail(out, i.become(out))
}

// heedSignals has an exec make the default of the signals that this process was started
// to ignore, as under nohup. The runtime sees to all others.
func heedSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

func fail(out io.Writer, f failure) {
	if err := json.NewEncoder(out).Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, f.err())
	}
	os.Exit(127)
}

// become becomes the command; it returns why not. Limits are raised before the ids take
// away the right to, and hold only at the very end: a process of Go needs more memory than
// many a command may have. The directory comes after the ids, as it must be the user's to
// enter.
func (i instructions) become(out io.Writer) failure {
	runtime.LockOSThread() // what follows is the thread's that executes the command
	argv, env := toStrings(i.Argv), toStrings(i.Env)
	if i.Tmp != "" {
		if err := hideTmp(i.Tmp, i.Kept); err != nil {
			return failed(stageTmp, "private_tmp", "", err)
		}
	}
	syscall.Umask(i.Umask)
	if i.Nice != nil {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, *i.Nice); err != nil {
			return failed(stageLimits, "setpriority", "", err)
		}
	}
	for _, l := range i.Rlimits {
		if err := raiseLimit(l); err != nil {
			return failed(stageLimits, "setrlimit "+l.Name, "", err)
		}
	}
	if c := i.Credential; c != nil {
		if err := c.set(); err != nil {
			return failed(stageUser, "set the user", "", err)
		}
	}
	if i.NoNew {
		if err := refusePrivileges(); err != nil {
			return failed(stageUser, "no_new_privileges", "", err)
		}
	}
	if err := syscall.Chdir(i.Dir); err != nil {
		return failed(stageDir, "chdir", i.Dir, err)
	}
	nameSelf(launcherName)
	if _, err := out.Write([]byte{ready}); err != nil {
		return failed(stageExec, "report", "", err)
	}
	// What exec needs is got, and freed, while there is memory to be had.
	_, _ = syscall.SlicePtrFromStrings(slices.Concat(argv, env))
	runtime.GC()
	for _, l := range i.Rlimits {
		if err := setLimit(l); err != nil {
			return failed(stageLimits, "setrlimit "+l.Name, "", err)
		}
	}
	return failed(stageExec, "exec", i.Path, syscall.Exec(i.Path, argv, env))
}

func (c credential) set() error {
	if err := syscall.Setgroups(c.groups()); err != nil {
		return err
	}
	if err := syscall.Setgid(int(c.GID)); err != nil {
		return err
	}
	return syscall.Setuid(int(c.UID))
}

func failed(stage, op, path string, err error) failure {
	f := failure{Stage: stage, Op: op, Path: path, Text: err.Error()}
	errors.As(err, &f.Errno)
	return f
}

func toBytes(all []string) [][]byte {
	b := make([][]byte, len(all))
	for i, s := range all {
		b[i] = []byte(s)
	}
	return b
}

func toStrings(all [][]byte) []string {
	s := make([]string, len(all))
	for i, b := range all {
		s[i] = string(b)
	}
	return s
}
