//go:build linux

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/internal/faults/actor"
)

// Process is one of harp's processes under test.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ready chan struct{} // closed when it said so
	done  chan struct{} // closed when it is dead and its output was read

	held chan Held  // its answers
	asks sync.Mutex // held while it is asked

	mu    sync.Mutex // guards what follows
	lines []string   // of its standard output
	err   error      // of Wait
}

// Held is what a process holds, without what is garbage.
type Held struct {
	Goroutines, Files int
	Heap              int64 // bytes
}

// Start starts a program as what cfg says, in a process group of its own, with its
// log in a file.
func Start(program string, cfg actor.Config, log string) (*Process, error) {
	arg, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{cmd: exec.Command(program, string(arg)), ready: make(chan struct{}), done: make(chan struct{}), held: make(chan Held, 1)}
	p.cmd.Stderr = out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.readOutput(stdout)
	return p, nil
}

// readOutput reads what the process says until it is dead.
func (p *Process) readOutput(stdout io.Reader) {
	defer close(p.done)
	ready := sync.OnceFunc(func() { close(p.ready) })
	for in := bufio.NewScanner(stdout); in.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, in.Text())
		p.mu.Unlock()
		if rest, is := strings.CutPrefix(in.Text(), actor.Held+" "); is {
			p.noteHeld(rest)
		}
		if in.Text() == actor.Ready {
			ready()
		}
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// noteHeld takes in an answer.
func (p *Process) noteHeld(text string) {
	var h Held
	if _, err := fmt.Sscan(text, &h.Goroutines, &h.Files, &h.Heap); err == nil {
		select {
		case p.held <- h:
		default: // nobody waits for it any more
		}
	}
}

// AskHeld asks the process what it holds. It fails if it dies.
func (p *Process) AskHeld(ctx context.Context) (Held, error) {
	p.asks.Lock()
	defer p.asks.Unlock()
	select {
	case <-p.held: // an answer that came too late
	default:
	}
	if _, err := io.WriteString(p.stdin, actor.Ask+"\n"); err != nil {
		return Held{}, fmt.Errorf("process %d: %w", p.PID(), err)
	}
	select {
	case h := <-p.held:
		return h, nil
	case <-p.done:
		return Held{}, fmt.Errorf("process %d died: %w", p.PID(), p.exit())
	case <-ctx.Done():
		return Held{}, fmt.Errorf("process %d does not say what it holds: %w", p.PID(), context.Cause(ctx))
	}
}

// Profile tells the process to write how its memory is used to files whose names begin with path.
func (p *Process) Profile(path string) error {
	p.asks.Lock()
	defer p.asks.Unlock()
	_, err := io.WriteString(p.stdin, actor.Profile+path+"\n")
	return err
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process is dead.
func (p *Process) Done() <-chan struct{} { return p.done }

// WaitReady waits until the process says that it is ready. It fails if it dies.
func (p *Process) WaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("process %d died before it was ready: %w", p.PID(), p.exit())
	case <-ctx.Done():
		return fmt.Errorf("process %d is not ready: %w", p.PID(), context.Cause(ctx))
	}
}

func (p *Process) exit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Kill kills the process and all that it started, and waits until it is dead.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.done
	_ = p.stdin.Close()
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return syscall.Kill(p.PID(), s) }

// Stop tells the process to stop and waits until it has. It fails if the process
// says that it could not, leaves something behind (I8), or does not stop.
func (p *Process) Stop(within time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.Signal(syscall.SIGQUIT) // its log will tell where it hangs
		<-p.done
		return fmt.Errorf("I8: process %d did not stop within %v", p.PID(), within)
	}
	_ = p.stdin.Close()
	if err := p.exit(); err != nil {
		return fmt.Errorf("process %d stopped: %w", p.PID(), err)
	}
	return p.checkLeft()
}

func (p *Process) checkLeft() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		rest, is := strings.CutPrefix(line, actor.Left+" ")
		if !is {
			continue
		}
		if rest != "0 0" {
			return fmt.Errorf("I8: process %d leaves goroutines and files behind: %s", p.PID(), rest)
		}
		return nil
	}
	return fmt.Errorf("process %d did not say what it leaves behind", p.PID())
}

// Memory is how many bytes of memory the process has of its own. The files of the
// store that it has mapped are not counted: they are the kernel's, which takes the
// room when it is needed.
func (p *Process) Memory() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", p.PID())
}
