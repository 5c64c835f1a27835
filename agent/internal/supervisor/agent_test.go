//go:build unix

package supervisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// agentArg is the first argument of a test binary that is an agent.
const agentArg = "agent"

// secretArg is an argument that stands for the path of the agent's secret.
const secretArg = "SECRET"

// insideArg is in the place of the directory of an agent that runs the command inside itself.
const insideArg = "inside"

// agentMain is an agent that starts a command, prints each record that it gets, and
// never ends by itself.
func agentMain(args []string) int {
	for i, arg := range args {
		if arg == secretArg {
			args[i] = supervisor.SecretPath("key")
		}
	}
	spec := shell(args[2], args[3:]...)
	spec.Job = args[1]
	spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("x")}}
	ctx := context.Background()
	o := supervisor.Options{Dir: args[0]}
	if o.Dir == insideArg {
		o = supervisor.Inside()
	}
	h, err := supervisor.Start(ctx, o, spec)
	if err == nil {
		_, err = h.Follow(ctx, 0, func(n int64, r supervisor.Record) error {
			_, err := fmt.Printf("%d %s\n", n, r.Value)
			return err
		}, ignore)
	}
	fmt.Fprintln(os.Stderr, err)
	select {}
}

// agent is such an agent.
type agent struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func startAgent(t *testing.T, o supervisor.Options, k supervisor.Key, script string, args ...string) *agent {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{agentArg, o.Dir, k.Job, script}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{cmd: cmd, out: bufio.NewReader(out)}
	t.Cleanup(func() { a.kill(t) })
	return a
}

// next is the number of the next record that the agent got.
func (a *agent) next(t *testing.T) (n int64) {
	t.Helper()
	line, err := a.out.ReadString('\n')
	number, _, _ := strings.Cut(line, " ")
	if err == nil {
		n, err = strconv.ParseInt(number, 10, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kill kills the agent, and returns what it had still printed.
func (a *agent) kill(t *testing.T) (rest string) {
	t.Helper()
	if a.cmd.ProcessState != nil {
		return ""
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	b, err := io.ReadAll(a.out)
	if err != nil {
		t.Error(err)
	}
	_ = a.cmd.Wait() // it was killed
	return string(b)
}

// attach attaches to what an agent had started, to be forgotten at the end of the test.
func attach(t *testing.T, o supervisor.Options, k supervisor.Key) *supervisor.Handle {
	t.Helper()
	h, err := supervisor.Attach(t.Context(), o, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(t, o, h) })
	return h
}

// counting counts to 2000.
const counting = `i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done`

func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	o := supervised(t)
	for range 10 {
		k := shell("").Key
		a := startAgent(t, o, k, counting)
		last := int64(0)
		for range 5 {
			last = a.next(t)
		}
		for line := range strings.Lines(a.kill(t)) {
			if strings.HasSuffix(line, "\n") {
				last++
			}
		}
		h := attach(t, o, k)
		l := follow(t, h, last+1)
		for i, r := range l.records {
			if want := strconv.FormatInt(last+1+int64(i), 10); string(r.Value) != want {
				t.Fatalf("after record %d came %q, want %s", last+int64(i), r.Value, want)
			}
		}
		if !l.end.OK || l.end.Records != 2000 || last+1+int64(len(l.records)) != 2000 {
			t.Errorf("the end is %+v, %d records were read", l.end, len(l.records))
		}
		if err := h.Forget(); err != nil {
			t.Error(err)
		}
	}
}

func TestSignalsToTheAgent(t *testing.T) {
	t.Parallel()
	o, k, g := supervised(t), shell("").Key, newGate(t)
	a := startAgent(t, o, k, `echo ready; read x <"$1"; echo done`, g.path)
	a.next(t)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(-a.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	_ = a.cmd.Wait() // a signal ended it
	h := attach(t, o, k)
	g.open(t)
	if l := follow(t, h, 0); l.text("stdout") != "ready\ndone\n" || !l.end.OK {
		t.Errorf("it printed %q, the end is %+v", l.text("stdout"), l.end)
	}
}

// supervisorOf is the process that supervises an attempt: the parent of its command, which
// printed its own number.
func supervisorOf(t *testing.T, pid string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

func TestSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	o := supervised(t)
	spec := shell(`setsid sleep 1000 >/dev/null 2>&1 & echo $$; echo $!; echo "$1"; exec sleep 1000`, supervisor.SecretPath("key"))
	spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("x")}}
	h := start(t, o, spec)
	var printed []string
	_, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
		printed = append(printed, string(r.Value))
		if len(printed) == 3 {
			return syscall.Kill(supervisorOf(t, printed[0]), syscall.SIGKILL)
		}
		return nil
	}, ignore)
	if !errors.Is(err, supervisor.ErrLost) {
		t.Fatalf("following returned %v", err)
	}
	for range 2 {
		left, err := supervisor.Attach(t.Context(), o, spec.Key)
		if err != nil {
			t.Fatal(err)
		}
		l := follow(t, left, 0)
		if !l.end.Gone || l.end.Records != 3 || l.text("stdout") != strings.Join(printed, "\n")+"\n" {
			t.Errorf("it printed %q, the end is %+v", l.text("stdout"), l.end)
		}
		if !left.Started().Equal(h.Started()) {
			t.Errorf("started %v, was %v", left.Started(), h.Started())
		}
		_ = left.Close() // nothing was written
	}
	for _, pid := range printed[:2] {
		if b, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("it still runs: %s", b)
		}
	}
	if _, err := os.Stat(filepath.Dir(printed[2])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secret is still there: %v", err)
	}
	if err := h.Forget(); !errors.Is(err, supervisor.ErrLost) {
		t.Errorf("forgetting by the lost handle returned %v", err)
	}
	left := attach(t, o, spec.Key)
	if err := left.Forget(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestSupervisorIsKilledAfterTheEnd(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(`echo $$; read x <"$1"; exit 3`, g.path)
	h := start(t, o, spec)
	parent := 0
	end, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
		parent = supervisorOf(t, string(r.Value))
		g.open(t)
		return nil
	}, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l := follow(t, attach(t, o, spec.Key), 0)
	if l.end.Gone || l.end.Exit != 3 || l.end.Time != end.Time || len(l.records) != 1 {
		t.Errorf("the end is %+v, was %+v", l.end, end)
	}
}

// TestSupervisorIsTerminated checks that a supervisor told to end does so with its
// command, and leaves what there is.
func TestSupervisorIsTerminated(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(`echo $$; read x <"$1"; echo last`, g.path)
	h := start(t, o, spec)
	_, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
		if string(r.Value) != "last" {
			defer g.open(t)
			return syscall.Kill(supervisorOf(t, string(r.Value)), syscall.SIGTERM)
		}
		return nil
	}, ignore)
	if err != nil && !errors.Is(err, supervisor.ErrLost) {
		t.Fatal(err)
	}
	for err = supervisor.ErrLost; errors.Is(err, supervisor.ErrLost); {
		var end supervisor.End
		end, err = attach(t, o, spec.Key).Follow(t.Context(), 0, func(int64, supervisor.Record) error { return nil }, ignore)
		if err == nil && (!end.OK || end.Gone || end.Records != 2) {
			t.Errorf("the end is %+v", end)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAnotherAgentTakesOver checks that a supervisor serves the agent that came last.
func TestAnotherAgentTakesOver(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(`echo 0; read x <"$1"; echo 1`, g.path)
	older := start(t, o, spec)
	reached := make(chan struct{})
	lost := make(chan error, 1)
	go func() {
		_, err := older.Follow(t.Context(), 0, func(int64, supervisor.Record) error { close(reached); return nil }, ignore)
		lost <- err
	}()
	<-reached
	newer := attach(t, o, spec.Key)
	if err := <-lost; !errors.Is(err, supervisor.ErrLost) {
		t.Errorf("the older agent got %v", err)
	}
	g.open(t)
	if l := follow(t, newer, 0); len(l.records) != 2 {
		t.Errorf("the newer agent got %+v", l.records)
	}
}

func TestClosedHandle(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(`echo 0; read x <"$1"`, g.path)
	h := start(t, o, spec)
	_, err := h.Follow(t.Context(), 0, func(int64, supervisor.Record) error {
		go func() { h.Close() }()
		return nil
	}, ignore)
	if !errors.Is(err, supervisor.ErrClosed) {
		t.Errorf("following returned %v", err)
	}
	g.open(t)
	if l := follow(t, attach(t, o, spec.Key), 0); !l.end.OK {
		t.Errorf("the end is %+v", l.end)
	}
}

// TestCloseEndsWhatRunsInside checks that nothing outlives an agent without supervisors.
func TestCloseEndsWhatRunsInside(t *testing.T) {
	t.Parallel()
	h := start(t, supervisor.Inside(), shell("exec sleep 1000"))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if l := follow(t, h, 0); l.end.Signal != "SIGTERM" || l.end.Stopped == nil {
		t.Errorf("the end is %+v", l.end)
	}
}

// endProcess ends a process that a command left.
func endProcess(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}
