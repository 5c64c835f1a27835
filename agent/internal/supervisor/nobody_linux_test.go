package supervisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// The first arguments of a test binary that is an agent of nobody's, and of one that shuts
// such an agent in where /proc hides the processes of others.
const (
	nobodyArg = "nobody"
	hiddenArg = "hidden"
)

const nobody = 65534

func init() { mains[nobodyArg], mains[hiddenArg] = nobodyMain, hiddenMain }

// nobodyMain is an agent that runs a script, or without one a program, stops it when it has said its first word, and
// says what it hears of it: "begun WORD", "stopping" and "end".
func nobodyMain(args []string) int {
	spec := shell(args[1], args[2:]...)
	spec.Grace = 10 * time.Millisecond
	if args[1] == "" {
		spec.Command.Argv = args[2:]
	}
	h, err := supervisor.Start(context.Background(), supervisor.Options{Dir: args[0]}, spec)
	if err != nil {
		fmt.Println("not started:", err)
		return 0
	}
	end, err := h.Follow(context.Background(), 0, func(_ int64, r supervisor.Record) error {
		fmt.Println("begun", string(r.Value))
		h.Stop("cancel")
		return nil
	}, func(supervisor.Stop) { fmt.Println("stopping") })
	if err == nil {
		err = h.Forget()
	}
	_ = h.Close() // all of it was said
	fmt.Println("end", end.Signal, end.OutputOpen, err)
	return 0
}

// hiddenMain runs an agent of nobody's where /proc hides the processes of others, and says
// what is left when it has ended. It is the first process of its namespace.
func hiddenMain(args []string) int {
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("proc", "/proc", "proc", 0, "hidepid=2")
	}
	if err == nil {
		cmd := asNobody(append([]string{nobodyArg}, args...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
	}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		if b, _ := os.ReadFile(path); strings.Contains(string(b), "(tail)") && !strings.Contains(string(b), ") Z ") {
			fmt.Println("left", path)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// asNobody is this program run as nobody.
func asNobody(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Env = []string{"TMPDIR=/tmp"}
	return cmd
}

// nobodysDir is a directory of nobody's.
func nobodysDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "harp-nobody-") //nolint:usetesting // nobody cannot enter those of tests
	if err == nil {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// asRoot is a copy of a program that becomes root, whoever runs it.
func asRoot(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dir, err := os.MkdirTemp("", "harp-root-") //nolint:usetesting // nobody cannot enter those of tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	to, err := os.Create(filepath.Join(dir, program))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	}
	if err == nil {
		err = os.Chmod(to.Name(), os.ModeSetuid|0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// TestWhatOutlivesKillKeepsTheAttemptOpen checks that an attempt has not ended while a
// process of it lives, though it became another user's that the agent may not kill.
func TestWhatOutlivesKillKeepsTheAttemptOpen(t *testing.T) {
	needs.Root(t)
	needs.Programs(t, "setpriv")
	t.Parallel()
	setpriv := asRoot(t, "setpriv")
	const script = `"$1" --reuid=0 --regid=0 --clear-groups sh -c 'trap "" TERM; echo $$; exec sleep 1000' & wait`
	for name, dir := range map[string]string{"inside": "", "supervised": nobodysDir(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := asNobody(nobodyArg, dir, script, setpriv)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			next := func(want string) string {
				t.Helper()
				if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
					t.Errorf("the agent says %q, want %s", lines.Text(), want)
				}
				return lines.Text()
			}
			pid, err := strconv.Atoi(strings.TrimPrefix(next("begun "), "begun "))
			if err != nil {
				t.Fatal(err)
			}
			next("stopping")
			next("stopping") // and that something outlives it
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("it does not outlive it: %v", err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			for !strings.HasPrefix(lines.Text(), "end") && lines.Scan() {
			}
			if got := lines.Text(); !strings.HasSuffix(got, " false <nil>") {
				t.Errorf("the agent says %q", got)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHiddenProcesses checks that a command which /proc does not show is started, and
// ended, with all that it has started.
func TestHiddenProcesses(t *testing.T) {
	needs.Root(t)
	t.Parallel()
	tail, said := asRoot(t, "tail"), filepath.Join(nobodysDir(t), "said")
	if err := os.WriteFile(said, []byte("up\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"the command":         {"", tail, "-f", said},
		"what it has started": {`"$1" -f "$2" & wait`, tail, said},
		"what has left it":    {`setsid "$1" -f "$2" & wait`, tail, said},
	} {
		for how, dir := range map[string]string{"inside": "", "supervised": nobodysDir(t)} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command("/proc/self/exe", append([]string{hiddenArg, dir}, args...)...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
				out, err := cmd.CombinedOutput()
				got := strings.Replace(string(out), "SIGKILL", "SIGTERM", 1) // whichever comes first
				if want := "begun up\nstopping\nend SIGTERM false <nil>\n"; err != nil || got != want {
					t.Errorf("%v, the agent says %q, want %q", err, got, want)
				}
			})
		}
	}
}

// TestStrangersAreNotServed checks that a supervisor does not speak with a process of another user, be that
// root's.
func TestStrangersAreNotServed(t *testing.T) {
	needs.Root(t)
	dir := nobodysDir(t)
	over := filepath.Join(dir, "over")
	cmd := asNobody(nobodyArg, dir, `until [ -e "$1" ]; do sleep 0.01; done`, over)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(os.WriteFile(over, nil, 0o600), cmd.Wait()); err != nil {
			t.Error(err)
		}
	}()
	var sockets []string
	until(t, "the supervisor is there", func() bool {
		sockets, _ = filepath.Glob(filepath.Join(dir, "[^.]*", "socket")) // not yet renamed ones begin with a dot; the pattern is good
		return len(sockets) == 1
	})
	conn, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil { // a hello has longer
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // it is returned bare
		t.Errorf("%d bytes came, %v", n, err)
	}
}
