//go:build unix

package proc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

var errNoLauncher = errors.New("a mask, limits and the like need a launcher")

// NeedsLauncher reports whether the command cannot be started without [Options.Launcher].
func (s Spec) NeedsLauncher() bool {
	return s.Umask != nil || len(s.Rlimits) > 0 || s.Nice != nil || s.NoNewPrivileges || s.Tmp != ""
}

// Start starts a command, as the leader of a session and a process group of its own. It
// returns when the program was executed. The error is a *[ExecError]: then it was not, and
// nothing is left of it. [fs.ErrNotExist] and [fs.ErrPermission] are found in it.
//
// The files of o are made blocking, as programs expect them; they can be closed when Start
// has returned. Without a launcher the mask is that of this process, what signals it was
// started to ignore are ignored, and what descriptors it was started with stay open.
func Start(s Spec, o Options) (*Process, error) {
	p, err := start(s, o)
	if err == nil {
		return p, nil
	}
	_ = cgroup(o.Cgroup).remove() // nothing was in it, or it stays
	var exec *ExecError
	if !errors.As(err, &exec) {
		err = &ExecError{stageExec, err}
	}
	return nil, err
}

func start(s Spec, o Options) (*Process, error) {
	path, err := s.lookup()
	if err != nil {
		return nil, err
	}
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	if err := s.checkLimits(o); err != nil {
		return nil, err
	}
	as, err := s.credential()
	if err != nil {
		return nil, err
	}
	files, closeFiles, err := o.files()
	if err != nil {
		return nil, err
	}
	defer closeFiles()
	attr := &os.ProcAttr{Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if err := s.limit(cgroup(o.Cgroup)); err != nil {
		return nil, &ExecError{stageCgroup, err}
	}
	closeCgroup, err := cgroup(o.Cgroup).attach(attr.Sys)
	if err != nil {
		return nil, &ExecError{stageCgroup, err}
	}
	defer closeCgroup()

	began := time.Now()
	child, err := s.execute(path, as, o, attr)
	if o.Cgroup != "" && refused(err) {
		if s.Limits != (Limits{}) {
			return nil, &ExecError{stageCgroup, err}
		}
		leaveOut(attr.Sys) // as where there are no cgroups: a sandbox may refuse clone3
		began = time.Now()
		child, err = s.execute(path, as, o, attr)
	}
	if err != nil {
		return nil, err
	}
	return newProcess(child, s, o, began), nil
}

// execute starts the command, by way of a launcher if there is one.
func (s Spec) execute(path string, as *credential, o Options, attr *os.ProcAttr) (*os.Process, error) {
	own := *attr // what is set in it
	if len(o.Launcher) == 0 {
		return direct(path, s, as, &own)
	}
	own.Env = s.cookie()
	return launch(o.Launcher, s.instructions(path, as), &own)
}

// direct starts the command from here.
func direct(path string, s Spec, as *credential, attr *os.ProcAttr) (*os.Process, error) {
	attr.Dir = s.dir()
	attr.Env = append([]string{}, s.Env...) // nil would be the environment of this process
	if as != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}
	}
	return commands.start(func() (*os.Process, error) {
		return os.StartProcess(path, s.Argv, attr)
	})
}

// launch starts the command by way of a launcher. That has next to no environment: what is
// in the command's is not for it, but for what the command's processes are known by, as this
// process may die before it becomes the command.
func launch(launcher []string, in instructions, attr *os.ProcAttr) (*os.Process, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	instructionsR, instructionsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer instructionsW.Close()
	defer instructionsR.Close()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reportR.Close()
	defer reportW.Close()

	attr.Dir = "/"
	attr.Env = append(attr.Env, "GOMAXPROCS=1") // its threads count for the command's limits
	attr.Files = append(slices.Clone(attr.Files), instructionsR, reportW)
	argv := append([]string{LaunchName}, launcher[1:]...)
	child, err := commands.start(func() (*os.Process, error) {
		return os.StartProcess(launcher[0], argv, attr)
	})
	if err != nil {
		return nil, fmt.Errorf("the launcher: %w", err)
	}
	_ = reportW.Close()       // else its end would not be seen
	_ = instructionsR.Close() // else writing would go on when the launcher is dead
	_, _ = instructionsW.Write(text)
	_ = instructionsW.Close() // a launcher that missed any of it says so
	err = launched(reportR)
	if err == nil && diedAs(child.Pid, launcherName) {
		err = errLauncherDied
	}
	if err != nil {
		_ = child.Kill()
		state, _ := child.Wait()
		commands.remove(child.Pid)
		return nil, launchError(err, state)
	}
	return child, nil
}

var errLauncherDied = errors.New("the launcher died")

// launched reads what a launcher reports, until it has become the command or gave up.
func launched(report io.Reader) error {
	b, err := io.ReadAll(report)
	if err != nil {
		return err
	}
	rest, isReady := bytes.CutPrefix(b, []byte{ready})
	if isReady && len(rest) == 0 {
		return nil
	}
	var f failure
	if err := json.Unmarshal(rest, &f); err != nil {
		return errLauncherDied
	}
	return f.err()
}

func launchError(err error, state *os.ProcessState) error {
	if errors.Is(err, errLauncherDied) && state != nil {
		return fmt.Errorf("%w: %v", err, state)
	}
	return err
}

// files returns the command's three descriptors, and what closes those that are not the
// caller's.
func (o Options) files() ([]*os.File, func(), error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	files := []*os.File{o.Stdin, o.Stdout, o.Stderr}
	for i, f := range files {
		if f == nil {
			files[i] = null
			continue
		}
		if err := syscall.SetNonblock(int(f.Fd()), false); err != nil {
			_ = null.Close() // nothing was written to it
			return nil, nil, os.NewSyscallError("fcntl", err)
		}
	}
	return files, func() { _ = null.Close() }, nil // nothing was written to it
}

// limit sets the limits of the command's cgroup.
func (s Spec) limit(c cgroup) error {
	if s.Limits == (Limits{}) {
		return nil
	}
	if c == "" {
		return cmp.Or(ProbeCgroups(), ErrNoCgroups)
	}
	return c.limit(s.Limits)
}

// checkLimits refuses what cannot be set, before anything was started.
func (s Spec) checkLimits(o Options) error {
	if len(o.Launcher) == 0 && s.NeedsLauncher() {
		return &ExecError{stageLimits, errNoLauncher}
	}
	if s.Umask != nil && (*s.Umask < 0 || *s.Umask > 0o777) {
		return &ExecError{stageLimits, fmt.Errorf("umask %#o: %w", *s.Umask, syscall.EINVAL)}
	}
	for _, l := range s.Rlimits {
		if err := checkLimit(l); err != nil {
			return &ExecError{stageLimits, err}
		}
	}
	return nil
}
