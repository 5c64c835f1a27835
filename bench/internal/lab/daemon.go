package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Daemon is a server of another maker, kept by a Role.
type Daemon struct {
	Name    string   // of the program
	Folders []string // where it may be besides the path
	Install string   // how to get it
	Args    []string
	User    string                      // runs it if this process is root's; "": root does
	Ready   func(context.Context) error // asks it whether it is
}

// Find returns the path of a program, or says how to install it.
func (d Daemon) Find() (string, error) {
	if path, err := exec.LookPath(d.Name); err == nil {
		return path, nil
	}
	for _, dir := range d.Folders {
		if path, err := exec.LookPath(dir + "/" + d.Name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: %s", d.Name, d.Install)
}

// As lets another command run as the user who runs the server.
func (d Daemon) As(cmd *exec.Cmd) error { return as(cmd, d.User) }

const (
	daemonWithin = 30 * time.Second
	daemonStops  = 20 * time.Second
)

// Run runs the server until ctx ends; it calls up once it answers.
func (d Daemon) Run(ctx context.Context, up func() error) error {
	path, err := d.Find()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, d.Args...)
	cmd.Cancel = func() error { return stop(cmd.Process) }
	cmd.WaitDelay = daemonStops
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := as(cmd, d.User); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	dead := make(chan error, 1)
	go func() { dead <- cmd.Wait() }()
	if err := d.wait(ctx, dead, &out, up); err != nil {
		return err
	}
	if err := <-dead; err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w: %s", d.Name, err, out.Bytes())
	}
	return nil
}

// wait waits until the server answers, and then until ctx ends.
func (d Daemon) wait(ctx context.Context, dead chan error, out *bytes.Buffer, up func() error) error {
	until := time.Now().Add(daemonWithin)
	for d.Ready(ctx) != nil {
		select {
		case err := <-dead:
			return fmt.Errorf("%s: %w: %s", d.Name, err, out.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(until) {
			return errors.New(d.Name + " does not answer")
		}
	}
	if err := up(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// FreePort finds a port on loopback for a server that cannot say which it took.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Answers says whether a port of loopback takes connections.
func Answers(ctx context.Context, port int) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return c.Close()
}
