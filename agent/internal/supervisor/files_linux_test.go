package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// crowdArg is the first argument of a test binary that is an agent with few files.
const crowdArg = "crowd"

func init() { mains[crowdArg] = crowdMain }

// crowdMain attaches to an attempt again and again, while all files but one are open and
// that one comes and goes. It prints what it took for the end of the supervisor.
func crowdMain(args []string) int {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		fmt.Println(err)
		return 1
	}
	attach := func(ctx context.Context) error {
		h, err := supervisor.Attach(ctx, supervisor.Options{Dir: args[0]}, supervisor.Key{Job: args[1], Attempt: 1})
		if err != nil {
			return err
		}
		return h.Close()
	}
	if err := attach(context.Background()); err != nil { // so that all is open that stays open
		fmt.Println(err)
		return 1
	}
	last := 0
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		last = fd
	}
	stop := make(chan struct{})
	var hog sync.WaitGroup
	hog.Go(func() {
		for err := error(nil); ; {
			select {
			case <-stop:
				return
			default:
			}
			if err == nil {
				_ = syscall.Close(last) // it was opened here
			}
			last, err = syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		}
	})
	over, cancel := context.WithCancel(context.Background())
	cancel() // what cannot be had at once is not waited for, and no answer is
	for range 20_000 {
		err := attach(over)
		ending := err == context.Canceled //nolint:errorlint // alone, it says what was interrupted: the ending of what is left
		if ending || errors.Is(err, supervisor.ErrNotFound) || errors.Is(err, supervisor.ErrGone) {
			fmt.Println("with one file the supervisor is taken for dead:", err)
			break
		}
	}
	close(stop)
	hog.Wait()
	return 0
}

// TestFewFilesAreNoDeath checks that an agent whose files run out does not take a living
// supervisor for a dead one, whose command it would end.
func TestFewFilesAreNoDeath(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(`read x <"$1"; echo done`, g.path)
	start(t, o, spec)
	out, err := exec.Command("/proc/self/exe", crowdArg, o.Dir, spec.Job).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
	h := attach(t, o, spec.Key)
	g.openIfThere(t)
	if l := follow(t, h, 0); l.end.Gone || l.text("stdout") != "done\n" {
		t.Errorf("it printed %q, the end is %+v", l.text("stdout"), l.end)
	}
}

// openIfThere is open for a command that may have ended.
func (g *gate) openIfThere(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(g.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return // nobody reads
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("go\n"); err != nil {
		t.Error(err)
	}
}

// fewForResultArg is the first argument of a test binary that looks at a result with few files.
const fewForResultArg = "few for result"

func init() { mains[fewForResultArg] = fewForResultMain }

// fewForResultMain notes the file with a result while there is no file left to look up its user with, and reads a new one
// while there is none for a moment. It prints what went wrong.
func fewForResultMain(args []string) int {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		fmt.Println(err)
		return 1
	}
	id := strconv.Itoa(os.Geteuid())
	spec := supervisor.Spec{
		Command: proc.Spec{User: id, Group: id, Groups: []string{}},
		Result:  supervisor.Result{From: "file", Path: args[0], Max: 80},
	}
	note, read := supervisor.NoteAndRead(spec)
	giveBack := takeFiles()
	err := note()
	giveBack()
	if value, why := read(); err == nil && why != "old_file" {
		fmt.Printf("the result of the run before is taken for one: %q, %q\n", value, why)
	}
	if err := os.WriteFile(args[0], []byte("new"), 0o600); err != nil {
		fmt.Println(err)
	}
	giveBack = takeFiles()
	time.AfterFunc(300*time.Millisecond, giveBack)
	if value, why := read(); string(value) != "new" {
		fmt.Printf("the result is %q, %q\n", value, why)
	}
	return 0
}

// takeFiles opens as many files as there may be.
func takeFiles() (giveBack func()) {
	if r, w, err := os.Pipe(); err == nil { // so that the runtime has what it needs
		_, _ = r.Close(), w.Close()
	}
	var open []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if err != nil {
			return func() {
				for _, fd := range open {
					_ = syscall.Close(fd) // nothing was written to it
				}
			}
		}
		open = append(open, fd)
	}
}

// TestFewFilesForAResult checks that, when files have run out for a moment, a file from before the run is not taken for
// the result of a command, nor a file that it has written for none.
func TestFewFilesForAResult(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/proc/self/exe", fewForResultArg, file).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

// fewForCgroupArg is the first argument of a test binary that makes a cgroup with no files.
const fewForCgroupArg = "few for cgroup"

func init() { mains[fewForCgroupArg] = fewForCgroupMain }

// fewForCgroupMain makes a cgroup while there is no file left. It prints what is wrong.
func fewForCgroupMain([]string) int {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		fmt.Println(err)
		return 1
	}
	giveBack := takeFiles()
	dir, err := supervisor.NewCgroup(supervisor.Spec{Key: supervisor.Key{Job: "few", Attempt: 1}})
	giveBack()
	if err == nil {
		fmt.Printf("that none can be had just now is not told: %q\n", dir)
	}
	return 0
}

// TestFewFilesForACgroup checks that a command does not go without a cgroup, which refuses one with limits for good, as
// files have run out for a moment.
func TestFewFilesForACgroup(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", fewForCgroupArg).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}
