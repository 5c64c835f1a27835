package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"sync"
	"time"
)

// Role is what another process of this program does: it says what others must know
// of it by calling ready once, and works until ctx ends.
type Role func(ctx context.Context, l *Lab, arg json.RawMessage, ready func(any) error) error

// childArg is the first argument of such a process.
const childArg = "child"

// orders is what it is told.
type orders struct {
	Role  string          `json:"role"`
	Dir   string          `json:"dir"`
	Quick bool            `json:"quick"`
	Arg   json.RawMessage `json:"arg"`

	Profile string `json:"profile,omitempty"`
}

// IsChild reports whether this process was started by Start.
func IsChild() bool { return len(os.Args) == 3 && os.Args[1] == childArg }

// RunChild does what Start was asked for. It ends when the process that started it
// closes its standard input, or is gone.
func RunChild(roles map[string]Role) error {
	var o orders
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		return err
	}
	role := roles[o.Role]
	if role == nil {
		return fmt.Errorf("no role %q", o.Role)
	}
	l, err := Open(o.Dir)
	if err != nil {
		return err
	}
	l.Quick = o.Quick
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	stop, err := profile(o)
	if err != nil {
		return err
	}
	err = role(ctx, l, o.Arg, func(v any) error { return json.NewEncoder(os.Stdout).Encode(v) })
	return errors.Join(err, stop())
}

// profile writes where the process spends its time, if it is to.
func profile(o orders) (stop func() error, err error) {
	if o.Profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(fmt.Sprintf("%s.%s.%d", o.Profile, o.Role, os.Getpid()))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// Child is a process that Start started.
type Child struct {
	role  string
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it is dead
	err   error         // of Wait, once done is closed
	kill  sync.Once
}

// Start starts another process of this program and waits until it is ready; what it
// says then is decoded into said.
func (l *Lab) Start(ctx context.Context, role string, arg, said any) (*Child, error) {
	raw, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(orders{Role: role, Dir: l.Dir, Quick: l.Quick, Arg: raw, Profile: l.Profile})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{role: role, cmd: exec.Command(self, childArg, string(told)), done: make(chan struct{})}
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line := make(chan []byte, 1)
	go c.watch(out, line)
	return c, c.begin(ctx, line, said)
}

// watch reads the first line of a process and waits for its end.
func (c *Child) watch(out io.Reader, line chan<- []byte) {
	defer close(c.done)
	in := bufio.NewReader(out)
	if first, err := in.ReadBytes('\n'); err == nil {
		line <- first
	}
	_, _ = io.Copy(io.Discard, in)
	c.err = c.cmd.Wait()
}

func (c *Child) begin(ctx context.Context, line <-chan []byte, said any) error {
	select {
	case first := <-line:
		if said == nil {
			return nil
		}
		return json.Unmarshal(first, said)
	case <-c.done:
		return fmt.Errorf("%s ended before it was ready: %w", c.role, c.err)
	case <-ctx.Done():
		c.Kill()
		return fmt.Errorf("%s: %w", c.role, context.Cause(ctx))
	}
}

// PID is the process's id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill kills the process and waits until it is dead.
func (c *Child) Kill() {
	c.kill.Do(func() { _ = c.cmd.Process.Kill() })
	<-c.done
}

// stopWithin is how long a process may take to stop.
const stopWithin = 30 * time.Second

// Close tells the process to stop and waits until it has.
func (c *Child) Close() error {
	_ = c.stdin.Close()
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
		c.Kill()
		return errors.New(c.role + " did not stop and was killed")
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w", c.role, c.err)
	}
	return nil
}
