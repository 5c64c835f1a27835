//go:build unix

package supervisor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// wirings runs a test with a supervisor, with one that ends with this process, and inside this
// process.
func wirings(t *testing.T, test func(t *testing.T, o supervisor.Options)) {
	t.Helper()
	t.Parallel()
	t.Run("inside", func(t *testing.T) {
		t.Parallel()
		test(t, supervisor.Inside())
	})
	t.Run("tied", func(t *testing.T) {
		t.Parallel()
		supervised(t)
		test(t, supervisor.Options{})
	})
	t.Run("supervised", func(t *testing.T) {
		t.Parallel()
		test(t, supervised(t))
	})
}

// supervised are the options of a supervisor of its own.
func supervised(t *testing.T) supervisor.Options {
	t.Helper()
	if runtime.GOOS != "linux" {
		needs.Missing(t, "there are no supervisors here")
	}
	return supervisor.Options{Dir: t.TempDir()}
}

// shell is a command of the shell, with usual limits, for a job of its own.
func shell(script string, args ...string) supervisor.Spec {
	return supervisor.Spec{
		Key: supervisor.Key{Job: rand.Text(), Attempt: 1},
		Command: proc.Spec{
			Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...),
			Env:  []string{"PATH=/usr/bin:/bin"},
		},
		Grace: 5 * time.Second, Records: supervisor.SplitLines, MaxRecord: 4096, MaxSpool: 1 << 20,
		Result: supervisor.Result{From: "exit-code", Max: 4096},
	}
}

// start starts what is to be forgotten at the end of the test.
func start(t *testing.T, o supervisor.Options, spec supervisor.Spec) *supervisor.Handle {
	t.Helper()
	h, err := supervisor.Start(t.Context(), o, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(t, o, h) })
	return h
}

// release ends what runs, however the test left it, and removes what there is.
func release(t *testing.T, o supervisor.Options, h *supervisor.Handle) {
	defer h.Close()
	if o.Dir == "" {
		return
	}
	ctx := context.Background()
	o.Hold = false
	err := supervisor.ErrLost
	for errors.Is(err, supervisor.ErrLost) { // while it is about to end
		err = remove(ctx, o, h.Key())
	}
	if err != nil && !errors.Is(err, supervisor.ErrNotFound) {
		t.Error(err)
	}
}

// remove ends and forgets an attempt.
func remove(ctx context.Context, o supervisor.Options, k supervisor.Key) error {
	h, err := supervisor.Attach(ctx, o, k)
	if err != nil {
		return err
	}
	defer h.Close()
	h.Stop("cancel")
	if _, err := h.Follow(ctx, 1<<40, func(int64, supervisor.Record) error { return nil }, ignore); err != nil {
		return err
	}
	return h.Forget()
}

func ignore(supervisor.Stop) {}

// log is what a follower was told.
type log struct {
	records []supervisor.Record
	first   int64
	stops   []supervisor.Stop
	end     supervisor.End
}

// text is the output of one kind.
func (l *log) text(kind string) string {
	var b strings.Builder
	for _, r := range l.records {
		if r.Kind == kind {
			b.Write(r.Value)
			if !r.Partial {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// follow follows to the end.
func follow(t *testing.T, h *supervisor.Handle, from int64) *log {
	t.Helper()
	l := &log{first: from}
	end, err := h.Follow(t.Context(), from, func(n int64, r supervisor.Record) error {
		if want := from + int64(len(l.records)); n != want {
			return fmt.Errorf("record %d is numbered %d", want, n)
		}
		l.records = append(l.records, r)
		return nil
	}, func(s supervisor.Stop) { l.stops = append(l.stops, s) })
	if err != nil {
		t.Fatal(err)
	}
	l.end = end
	return l
}

// gate is a file that holds a command up until it is opened.
type gate struct {
	path string
	once sync.Once
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{path: t.TempDir() + "/gate"}
	mkfifo(t, g.path)
	return g
}

// open lets a command go on that reads from the gate.
func (g *gate) open(t *testing.T) {
	t.Helper()
	g.once.Do(func() {
		if err := os.WriteFile(g.path, []byte("go\n"), 0o600); err != nil {
			t.Error(err)
		}
	})
}
