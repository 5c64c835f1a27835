package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/needs"
)

// fewFilesArg is the first argument of a test binary that prepares calls with few files.
const fewFilesArg = "few files"

func init() { mains[fewFilesArg] = prepareWithFewFiles }

// prepareWithFewFiles prepares a call of the procedure in a file, or of the ad-hoc one if there is no file, while there are
// only so many files, from none on until there are enough. It prints what comes of it that is neither what it should be nor said to be for want of files.
func prepareWithFewFiles(args []string) {
	const limit = 40
	c, err := commandOf(args)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	argv, err := harp.NewValue(harp.Args{"argv": []string{"/bin/true"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := Call{Job: "j", Attempt: 1, Args: argv}
	want, err := c.Prepare(call)
	if err != nil {
		fmt.Println(err)
		return
	}
	short := 0
	for n := range limit {
		giveBack := takeFilesBut(n)
		got, err := c.Prepare(call)
		giveBack()
		switch {
		case proc.IsShort(err):
			short++
		case err != nil:
			fmt.Printf("%d files: %v\n", n, err)
		case !reflect.DeepEqual(got, want):
			fmt.Printf("%d files: the environment is %q, not %q\n", n, got.Command.Env, want.Command.Env)
		}
	}
	if short == 0 {
		fmt.Println("it was never short of files")
	}
}

// commandOf is the command in a file.
func commandOf(args []string) (*Command, error) {
	if len(args) == 0 {
		return Exec(ExecPolicy{User: "nobody"})
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	_, list, err := parse(args[0], text)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// takeFilesBut opens as many files as there may be but so many.
func takeFilesBut(n int) (giveBack func()) {
	var open []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		open = append(open, fd)
	}
	for len(open) > 0 && n > 0 {
		_ = syscall.Close(open[0]) // nothing was written to it
		open, n = open[1:], n-1
	}
	return func() {
		for _, fd := range open {
			_ = syscall.Close(fd) // nothing was written to it
		}
	}
}

// TestUserThatFewFilesHide checks that a command which runs as a user that cannot be looked up, as files have run out,
// is neither prepared with the home of another nor refused for its script being that user's.
func TestUserThatFewFilesHide(t *testing.T) {
	needs.Root(t) // to give a script away
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(script, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "p:\n  command: [%s]\n  user: nobody\n", script), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"its script": {fewFilesArg, file}, "a program": {fewFilesArg}} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command("/proc/self/exe", args...).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%v: %.2000s", err, out)
			}
		})
	}
}
