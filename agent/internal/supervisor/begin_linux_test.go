package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
)

func beginning(t *testing.T) (place, Spec) {
	t.Helper()
	spec, err := Spec{
		Key: Key{harp.NewID(), 1}, Command: proc.Spec{Argv: []string{"/bin/sh", "-c", "echo begun"}},
		Secrets: []Secret{{Name: "key", Content: []byte("hush")}},
	}.checked()
	if err != nil {
		t.Fatal(err)
	}
	p, err := placeOf(Options{Dir: t.TempDir()}, spec.Key)
	if err != nil {
		t.Fatal(err)
	}
	return p, spec
}

// TestKilledBeforeItBegins checks that a supervisor that is killed before it was told to
// go leaves nothing: the attempt can be started again, and was not lost.
func TestKilledBeforeItBegins(t *testing.T) {
	p, spec := beginning(t)
	conn, child, err := spawn(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(conn, sayHandover, newHandover(p.root, spec, false)); err != nil {
		t.Fatal(err)
	}
	h, err := readHeader(p.spool())
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	drop(conn)
	if err := p.unstarted(child, false, errors.Join(ErrLost, fs.ErrClosed), func() { t.Error("what was not committed is retracted") }); errors.Is(err, ErrLost) {
		t.Errorf("nothing can have been started, the error is %v", err)
	}
	if _, err := os.Stat(h.Secrets); !errors.Is(err, fs.ErrNotExist) || h.Secrets == "" {
		t.Errorf("the secrets in %q: %v", h.Secrets, err)
	}
	again, err := Start(t.Context(), Options{Dir: p.root}, spec)
	if err != nil {
		t.Fatal(err)
	}
	endOf(t, again)
}

// TestSlowToBegin checks that an agent does not wait for ever for a command to be executed:
// that it may have been is said, and what became of it shows later.
func TestSlowToBegin(t *testing.T) {
	was := goTime
	goTime = time.Second // in which go is said, however busy the machine is
	defer func() { goTime = was }()
	p, spec := beginning(t)
	conn, child, err := spawn(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() error {
		if err := child.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_, err := syscall.Wait4(child.Pid, nil, syscall.WUNTRACED, nil) // until it has stopped
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	going, err := instruct(ctx, conn, newHandover(p.root, spec, false), stop)
	drop(conn)
	if err = p.unstarted(child, going, err, func() { t.Error("what may begin is retracted") }); !errors.Is(err, ErrLost) || !going {
		t.Errorf("told to go: %v, the error is %v", going, err)
	}
	if err := child.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h, err := Attach(t.Context(), Options{Dir: p.root}, spec.Key)
	if err != nil {
		t.Fatal(err)
	}
	endOf(t, h)
}

// endOf follows a command that prints that it has begun, and forgets it.
func endOf(t *testing.T, h *Handle) {
	t.Helper()
	var said strings.Builder
	end, err := h.Follow(t.Context(), 0, func(_ int64, r Record) error {
		said.Write(r.Value)
		return nil
	}, func(Stop) {})
	if err != nil || !end.OK || said.String() != "begun" {
		t.Errorf("it said %q and ended with %+v, %v", said.String(), end, err)
	}
	if err := errors.Join(h.Forget(), h.Close()); err != nil {
		t.Error(err)
	}
}

// TestPassedEnvironmentIsNotOnDisk checks that what a command gets of the agent's own
// environment is not in the spool file.
func TestPassedEnvironmentIsNotOnDisk(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.Env = append(spec.Command.Env, "TOKEN=canary")
	var onDisk []byte
	h, err := Start(t.Context(), Options{Dir: p.root, Commit: func() (err error) {
		onDisk, err = os.ReadFile(p.spool())
		return err
	}}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(onDisk); strings.Contains(text, "canary") || strings.Contains(text, "hush") || !strings.Contains(text, spec.Job) {
		t.Errorf("the spool file begins with %.200q", text)
	}
	endOf(t, h)
}

// TestAgentDiesBeforeItSaysGo checks that a supervisor whose agent died before it was told to
// go leaves the proof that its command never began, and nothing else.
func TestAgentDiesBeforeItSaysGo(t *testing.T) {
	for name, kill := range map[string]bool{"alone": false, "with its supervisor": true} {
		t.Run(name, func(t *testing.T) {
			p, spec := beginning(t)
			conn, child, err := spawn(selfPath)
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(conn, sayHandover, newHandover(p.root, spec, false)); err != nil {
				t.Fatal(err)
			}
			h, err := readHeader(p.spool())
			if err != nil {
				t.Fatal(err)
			}
			if kill {
				if err := child.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			drop(conn) // as the agent's death does
			o := Options{Dir: p.root}
			if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || !trace.NeverBegan {
				t.Errorf("its spool file says %+v, %v", trace, err)
			}
			_, _ = child.Wait() // it was killed, or saw that nobody wants it
			if err := Discard(o, spec.Key); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(h.Secrets); !errors.Is(err, fs.ErrNotExist) || h.Secrets == "" {
				t.Errorf("the secrets in %q: %v", h.Secrets, err)
			}
			again, err := Start(t.Context(), o, spec)
			if err != nil {
				t.Fatal(err)
			}
			if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || trace.NeverBegan {
				t.Errorf("of one that began it says %+v, %v", trace, err)
			}
			endOf(t, again)
		})
	}
}

// TestRetract checks that a start that was committed is taken back when the command could not
// be executed, while what proves that is there still.
func TestRetract(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.Argv = []string{"/no/such/program"}
	o := Options{Dir: p.root}
	retracted := 0
	o.Retract = func() {
		retracted++
		if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || !trace.NeverBegan {
			t.Errorf("its spool file says %+v, %v", trace, err)
		}
	}
	var exec *ExecError
	if _, err := Start(t.Context(), o, spec); !errors.As(err, &exec) || retracted != 1 {
		t.Errorf("retracted %d times, the error is %v", retracted, err)
	}
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, o := range []Options{{}, {inside: true}} {
		retracted = 0
		o.Retract = func() { retracted++ }
		if _, err := Start(t.Context(), o, spec); !errors.As(err, &exec) || retracted != 1 {
			t.Errorf("retracted %d times, the error is %v", retracted, err)
		}
	}
}

// TestGoneBeforeAnything checks that nothing is begun for an agent that is gone.
func TestGoneBeforeAnything(t *testing.T) {
	p, spec := beginning(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, o := range map[string]Options{"with a directory": {Dir: p.root}, "tied": {}, "inside": {inside: true}} {
		o.Commit = func() error { t.Error(name + ": it is committed"); return nil }
		if _, err := Start(ctx, o, spec); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
