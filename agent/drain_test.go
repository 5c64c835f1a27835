package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// An agent that drains takes no more calls, in any session, and is idle when what runs has
// ended and that is taken or journalled.
func TestDrain(t *testing.T) {
	for name, away := range map[string]bool{"taken": false, "journalled": true} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c := newCounter()
				m := newMachine(t, p, c.offer, agent.Limits{})
				x := m.peer.call("count", nil).accepted()
				over, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := m.agent.Drain(over); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Drain while something runs: %v", err)
				}
				idle := make(chan error, 1)
				go func() { idle <- m.agent.Drain(t.Context()) }()
				for range 2 {
					if reason := m.peer.call("once", nil).notNow(); reason != wire.NotNowDraining {
						t.Errorf("NOT_NOW(%s)", reason)
					}
					if end := m.peer.call("count", nil, again(x)).accepted(); end == nil { // which is here
						t.Error("what runs is not told of")
					}
					m.lose()
				}
				if away {
					m.away(true)
					close(c.release)
				} else {
					y := m.peer.resume(x.id, 0)
					synctest.Wait()
					close(c.release)
					synctest.Wait()
					select {
					case err := <-idle:
						t.Fatalf("idle while nobody has taken the end: %v", err)
					default:
					}
					y.ended()
				}
				if err := <-idle; err != nil {
					t.Error(err)
				}
				m.run.stop()
				m.run.wait()
				m.d.set(func(d *dispatcher) { d.refuse = nil })
				m.boot() // the next one takes calls
				m.peer.call("once", nil).accepted()
			})
		})
	}
}

// What ended with an agent that was killed is in the journal as gone when the next one is idle, with its records and why it
// was to stop.
func TestDrainAfterACrash(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, func(a *agent.Agent) {
			c.offer(a)
			offer(a, "stays", func(context.Context) (int64, error) { <-c.release; return 0, nil })
		}, agent.Limits{})
		x, y := m.peer.call("count", nil).accepted(), m.peer.call("stays", nil).accepted()
		y.cancel()
		said := y.stopping()
		time.Sleep(time.Second)
		close(c.release)
		m.disk.Crash()
		m.away(true)
		m.run.stop()
		m.run.wait()
		ended := func() (n int) {
			j, err := journal.Open(m.disk.Mount(), journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			for _, h := range j.Held() {
				if h.State == journal.Ended {
					n++
				}
			}
			return n
		}
		if n := ended(); n > 0 {
			t.Fatalf("%d have ended", n)
		}
		m.agent = newAgent(t, p, func(c *agent.Config) { c.Journal = m.disk.Mount() })
		m.run = run(t, func(ctx context.Context) error { return m.agent.Connect(ctx, m.d.addr) })
		if err := m.agent.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.run.stop()
		m.run.wait()
		if n := ended(); n != 2 {
			t.Errorf("%d have ended", n)
		}
		m.d.set(func(d *dispatcher) { d.refuse = nil })
		m.boot()
		if end, records := m.peer.resume(x.id, 0).ended(); !end.Gone || end.Stopped != nil || len(records) != 10 {
			t.Errorf("one: %+v, %d records", end, len(records))
		}
		z := m.peer.resume(y.id, 0)
		z.stopping()
		if end := z.end(); !end.Gone || end.Stopped == nil || !reflect.DeepEqual(*end.Stopped, said) {
			t.Errorf("one that was to stop: %+v, %+v was said", end, said)
		}
	})
}

// The process that has an agent's directory is found, and nobody where there is none.
func TestFindProcess(t *testing.T) {
	dir := t.TempDir()
	nobody := func() {
		t.Helper()
		if pid, err := agent.FindProcess(dir); !errors.Is(err, harp.ErrNotFound) || !strings.Contains(err.Error(), dir) {
			t.Errorf("there is %d, %v", pid, err)
		}
	}
	nobody()
	p := loopback{}
	d := listen(t, p)
	a := newAgent(t, p, func(c *agent.Config) { c.Dir = dir })
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
	<-d.sessions
	if pid, err := agent.FindProcess(dir); err != nil || pid != os.Getpid() {
		t.Errorf("there is %d, %v", pid, err)
	}
	// In a container a process has another id.
	lock := filepath.Join(dir, "lock")
	if err := os.WriteFile(lock, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := agent.FindProcess(dir); runtime.GOOS == "linux" && (err == nil || errors.Is(err, harp.ErrNotFound)) {
		t.Errorf("there is %d, %v", pid, err)
	}
	r.stop()
	r.wait()
	nobody()
	// One that was killed has left its id.
	if err := os.WriteFile(lock, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nobody()
}

// The directory of a process that has just ended is waited for, as a child that this was about to
// start may have it for a moment; one that is in use is not waited for beyond that, nor when
// nobody waits any more.
func TestDirInUseForAMoment(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		lock := func(ctx context.Context) (unlock func(), after time.Duration, err error) {
			began := time.Now()
			unlock, err = agent.LockDir(ctx, dir)
			return unlock, time.Since(began), err
		}
		first, _, err := lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, first)
		second, after, err := lock(t.Context())
		if err != nil || after < time.Second {
			t.Fatalf("after %v: %v", after, err)
		}
		defer second()
		var used *agent.DirInUseError
		if _, after, err := lock(t.Context()); !errors.As(err, &used) || after < time.Second {
			t.Errorf("one that stays was waited for %v: %v", after, err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, after, err := lock(over); !errors.As(err, &used) || after > 0 {
			t.Errorf("without anybody who waits it was waited for %v: %v", after, err)
		}
	})
}

// An agent whose journal is in memory is not idle before its dispatcher has taken how what
// ran ended: it would be lost with the process.
func TestDrainWithoutDir(t *testing.T) {
	for name, take := range map[string]func(*peer, *exchange){
		"asked for": func(c *peer, x *exchange) { c.resume(x.id, 0).ended() },
		"forgotten": func(c *peer, _ *exchange) { c.forget(c.held...) },
	} {
		t.Run(name, func(t *testing.T) { testDrainWithoutDir(t, take) })
	}
}

func testDrainWithoutDir(t *testing.T, take func(*peer, *exchange)) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		d := listen(t, p)
		a := newAgent(t, p)
		c.offer(a)
		r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		peer := <-d.sessions
		x := peer.call("count", nil).accepted()
		d.set(func(d *dispatcher) { d.refuse = &harp.Failure{Code: "unavailable"} })
		peer.session.Close(nil)
		close(c.release)
		time.Sleep(time.Minute)
		for range 2 { // it may have ended before as well
			over, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := a.Drain(over); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Drain before the end was taken: %v", err)
			}
			cancel()
		}
		d.set(func(d *dispatcher) { d.refuse = nil })
		peer = <-d.sessions
		idle := make(chan error, 1)
		go func() { idle <- a.Drain(t.Context()) }()
		synctest.Wait()
		take(peer, x)
		if err := <-idle; err != nil {
			t.Error(err)
		}
		r.stop()
		r.wait()
	})
}
