package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// dispatcherProcess is a dispatcher in a process of its own.
type dispatcherProcess struct {
	cmd  *exec.Cmd
	addr string
	said bytes.Buffer
	read chan struct{} // closed when all that it said is read
}

// startDispatcher starts the program with a configuration and waits until it is ready.
func startDispatcher(t *testing.T, file string) *dispatcherProcess {
	t.Helper()
	program, err := plainProgram()
	if err != nil {
		t.Fatal(err)
	}
	p := &dispatcherProcess{cmd: exec.Command(filepath.Join(program, "harp"), "dispatcher", "--config", file), read: make(chan struct{})}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.read })
	ready := make(chan string, 1)
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said.WriteString(lines.Text() + "\n")
			if _, rest, ok := strings.Cut(lines.Text(), `msg="dispatcher is ready" addr=`); ok {
				ready <- strings.Fields(rest)[0]
			}
		}
	}()
	select {
	case p.addr = <-ready:
	case <-p.read:
		t.Fatalf("it ended: %v\n%s", p.cmd.Wait(), &p.said)
	}
	return p
}

// end waits until the dispatcher has ended and returns its exit code.
func (p *dispatcherProcess) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.read:
	case <-time.After(startsWithin):
		t.Fatal("it goes on")
	}
	_ = p.cmd.Wait() // its exit code says it
	return p.cmd.ProcessState.ExitCode()
}

// A dispatcher whose store cannot be written any more ends, and says why, so that what
// supervises it starts it anew. The next one has all that was acknowledged.
func TestTheDispatcherEndsWhenACommitFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := devca.Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.WriteFiles(dir, "main", transport.Identity{Fleet: "test", Role: transport.RoleDispatcher, Name: "main"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "dispatcher.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\ndata: %[1]s/data\ntls: {cert: %[1]s/main.crt, key: %[1]s/main.key, ca: %[1]s/ca.crt}\nhosts: [{name: web01}]\noffline_wait: 1h\n", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tc, err := ca.TLS(transport.Identity{Fleet: "test", Role: transport.RoleCaller, Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	first := startDispatcher(t, file)
	caller, err := client.Dial(t.Context(), first.addr, client.Config{TLS: tc, RetryFor: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()

	// From here on it can make no file of the length of those that the store needs.
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Prlimit(first.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	args := harp.Args{"text": strings.Repeat("x", 1000<<10)}
	for {
		job, err := caller.Host("web01").Call(t.Context(), "p", args)
		if err != nil {
			if !errors.Is(err, harp.ErrUnavailable) {
				t.Errorf("the caller is told %v", err)
			}
			break
		}
		if acknowledged = append(acknowledged, job.ID()); len(acknowledged) == 500 {
			t.Fatal("500 MB of calls fit into files of 1 MiB")
		}
	}
	if code := first.end(t); code != exitHarp || !strings.Contains(first.said.String(), unix.EFBIG.Error()) {
		t.Errorf("its exit code is %d, and it says\n%s", code, &first.said)
	}

	second := startDispatcher(t, file)
	if caller, err = client.Dial(t.Context(), second.addr, client.Config{TLS: tc}); err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	for _, id := range acknowledged {
		if _, err := caller.Job(id).Status(t.Context()); err != nil {
			t.Errorf("of %d acknowledged calls one is missing: %v", len(acknowledged), err)
		}
	}
}
