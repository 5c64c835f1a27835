//go:build linux && !race

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// spy is a journal's directory that remembers what of it was synced.
type spy struct {
	journal.FS
	mu    sync.Mutex // guards files
	files []*spied
}

// spied is a file of a spy. Its fields are guarded by the spy's mutex.
type spied struct {
	journal.File
	spy    *spy
	data   []byte // since it was opened
	synced int    // of data
}

func (s *spy) Open(name string) (journal.File, error)   { return s.watch(s.FS.Open(name)) }
func (s *spy) Create(name string) (journal.File, error) { return s.watch(s.FS.Create(name)) }

func (s *spy) watch(f journal.File, err error) (journal.File, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &spied{File: f, spy: s}
	s.files = append(s.files, x)
	return x, nil
}

func (x *spied) Write(p []byte) (int, error) {
	n, err := x.File.Write(p)
	x.spy.mu.Lock()
	defer x.spy.mu.Unlock()
	x.data = append(x.data, p[:n]...)
	return n, err
}

func (x *spied) Sync() error {
	x.spy.mu.Lock()
	written := len(x.data)
	x.spy.mu.Unlock()
	err := x.File.Sync()
	x.spy.mu.Lock()
	defer x.spy.mu.Unlock()
	if err == nil {
		x.synced = max(x.synced, written)
	}
	return err
}

// isSynced reports whether something is on disk that tells of a job.
func (s *spy) isSynced(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.files {
		if bytes.Contains(x.data[:x.synced], []byte(job)) {
			return true
		}
	}
	return false
}

// oneProcess is a dispatcher and an agent, with a journal in fs, in this process.
// begins gets the job of each procedure that begins.
func oneProcess(t *testing.T, fs journal.FS, begins func(job string)) *harp.Caller {
	t.Helper()
	ca, err := devca.Open("", actor.Fleet)
	must(t, err)
	quiet := slog.New(slog.DiscardHandler)
	d, err := dispatcher.Open(t.Context(), memory.Open(nil), dispatcher.Config{Logger: quiet})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	a := agent.New(agent.Config{
		Name: "host00", Journal: fs, Logger: quiet, TLS: identity(t, ca, transport.RoleAgent, "host00"),
		Facts:  func(context.Context) (map[string]any, error) { return nil, nil },
		Limits: agent.Limits{Grace: time.Millisecond},
	})
	agent.HandleStream(a, harp.NewStreamProc[actor.Args, int, string](actor.Work), func(ctx context.Context, in actor.Args, emit func(int) error) (string, error) {
		call, _ := agent.FromContext(ctx)
		begins(call.JobID)
		for n := range in.Records {
			if err := emit(n); err != nil {
				return "", err
			}
		}
		return call.JobID, nil
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	tc := identity(t, ca, transport.RoleDispatcher, "dispatcher")
	running.Go(func() {
		if err := d.Serve(ctx, l, tc); err != nil && !errors.Is(err, harp.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	running.Go(func() { connect(ctx, a, l.Addr().String()) })
	t.Cleanup(func() {
		cancel()
		must(t, d.Shutdown(context.WithoutCancel(t.Context())))
		running.Wait()
	})
	return d.Caller()
}

// identity is the certificate of somebody.
func identity(t *testing.T, ca *devca.CA, role transport.Role, name string) *tls.Config {
	t.Helper()
	tc, err := ca.TLS(transport.Identity{Role: role, Name: name})
	must(t, err)
	return tc
}

// connect keeps an agent connected as its service manager would: one that gives up
// is started again.
func connect(ctx context.Context, a *agent.Agent, addr string) {
	for ctx.Err() == nil {
		if a.Connect(ctx, addr) != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// A procedure does not begin before it is on the agent's disk that it has.
func TestSpyOnJournal(t *testing.T) {
	s := &spy{FS: journal.Disk(filepath.Join(t.TempDir(), "journal"))}
	var early atomic.Int64
	caller := oneProcess(t, s, func(job string) {
		if !s.isSynced(job) {
			early.Add(1)
		}
	})
	waitOnline(t, caller, "host00")
	n := pick(200, 5000)
	var calling sync.WaitGroup
	for range 8 {
		calling.Go(func() {
			for range n / 8 {
				job, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{Records: 1})
				if err == nil {
					_, err = job.Get(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	calling.Wait()
	if early.Load() > 0 {
		t.Errorf("%d of %d procedures began before their start was synced", early.Load(), n)
	}
}

// The journal of an agent without fsync, which no kill shows.
func TestMutantJournalNoSync(t *testing.T) {
	t.Parallel()
	m := mutant{{"agent/journal/writer.go", "writeSync(j.file, g.buf)", "writeOnly(j.file, g.buf)"}, {
		"agent/journal/writer.go", "func (j *Journal) writeLoop() {", `func writeOnly(f File, p []byte) error {
			_, err := f.Write(p)
			return err
		}

		func (j *Journal) writeLoop() {`,
	}}
	caught(t, testsFail(t, m, "./internal/faults", "-run", "TestSpyOnJournal"))
}

// T8: one call of the journal's files fails, whichever.
func TestJournalErrors(t *testing.T) {
	t.Parallel()
	whole := journal.FailAt(journal.NewMemory(), 0, nil)
	withErrors(t, whole)
	n := whole.Calls()
	report.Note(t.Name(), "file calls", n)
	step := pick(max(1, n/6), 1)
	for i := 1 + int(report.Seed%uint64(step)); i <= n; i += step {
		for _, e := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("%d %v", i, e), func(t *testing.T) {
				t.Parallel()
				fs := journal.FailAt(journal.NewMemory(), i, e)
				fs.Anyway = i%2 == 0
				withErrors(t, fs)
			})
		}
	}
}

// withErrors makes calls of an agent whose journal's files may fail. Each must begin
// once at most and come to an end that is so.
func withErrors(t *testing.T, fs journal.FS) {
	t.Helper()
	var mu sync.Mutex
	begins := map[string]int{}
	caller := oneProcess(t, fs, func(job string) {
		mu.Lock()
		defer mu.Unlock()
		begins[job]++
	})
	waitOnline(t, caller, "host00")
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	for range 5 {
		job, err := caller.Host("host00", harp.OfflineWait(harp.NoLimit)).Call(ctx, actor.Work, actor.Args{Records: 3})
		must(t, err)
		res, err := job.Wait(ctx)
		must(t, err)
		mu.Lock()
		n := begins[job.ID()]
		mu.Unlock()
		ran := harp.RanOf(res.Err)
		switch {
		case n > 1:
			t.Errorf("job %s began %d times", job.ID(), n)
		case n == 0 && (res.State == harp.StateSucceeded || ran == harp.DidRun):
			t.Errorf("job %s is %s and never began", job.ID(), res.State)
		case n == 1 && res.State != harp.StateSucceeded && res.State != harp.StateLost:
			t.Errorf("job %s began and is %s: %v", job.ID(), res.State, res.Err)
		}
	}
}
