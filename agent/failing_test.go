package agent_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// TestDiskFull checks a disk that is full for a while: no calls are taken, what runs
// is told as ever, and journalled later.
func TestDiskFull(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		x := m.peer.call("count", nil).accepted()
		ill.fail(syscall.ENOSPC)
		if reason := m.peer.call("once", nil).notNow(); reason != wire.NotNowNoSpace {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		for next := int64(0); next < 10; {
			r := expect[wire.Records](x, wire.TypeRecords)
			if r.First != next || len(r.Records) == 0 {
				t.Fatalf("%d records from %d, want some from %d", len(r.Records), r.First, next)
			}
			next += int64(len(r.Records))
		}
		close(c.release)
		if end := expect[wire.End](x, wire.TypeEnd); end.Records != 10 {
			t.Errorf("END %+v", end)
		}
		ill.heal()
		time.Sleep(3 * time.Second)
		m.crash()
		m.checkHeld(x, wire.HeldEnded, 10)
		if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
		if c.runs.Load() != 1 {
			t.Errorf("%d runs", c.runs.Load())
		}
	})
}

// TestUnreadForAWhile checks that what cannot be read from the journal for a while, a
// record or how an attempt ended, is told when it can be, to whoever asked before.
func TestUnreadForAWhile(t *testing.T) {
	for _, procedure := range []string{"once", "count"} {
		t.Run(procedure, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c := newCounter()
				close(c.release)
				disk := journal.NewMemory()
				ill := newAiling(disk.Mount())
				m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
				m.start(ill)
				x := m.peer.call(procedure, nil).accepted()
				time.Sleep(time.Second) // it is journalled
				m.lose()                // the journal alone has it
				err := errors.New("input/output error")
				ill.blind.Store(&err)
				y := m.peer.resume(x.id, 0)
				time.Sleep(time.Minute)
				ill.blind.Store(nil)
				end, records := y.ended()
				if end.Gone || end.Failure != nil || int64(len(records)) != end.Records || (len(records) == 10) != (procedure == "count") {
					t.Errorf("END %+v after %d records", end, len(records))
				}
			})
		})
	}
}

// TestStartBeforeSlow checks that a call whose time is over when its start is on disk
// at last is not started, and is not there after a crash.
func TestStartBeforeSlow(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(slow)
		slow.delay.Store(int64(10 * time.Second))
		left := func(d time.Duration) func(*wire.Call, *harp.Request) {
			return func(c *wire.Call, _ *harp.Request) { c.Left = int64(d) }
		}
		x := m.peer.call("once", nil, left(5*time.Second))
		if reason := x.notNow(); reason != wire.NotNowStartBefore {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		y := m.peer.call("once", nil, left(time.Minute)).accepted()
		if end := expect[wire.End](y, wire.TypeEnd); end.RanFor >= int64(time.Second) {
			t.Errorf("ran for %v", time.Duration(end.RanFor))
		}
		slow.delay.Store(0)
		time.Sleep(time.Minute)
		m.crash()
		m.checkHeld(y, wire.HeldEnded, 0)
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestStartBeforeBroken checks that such a call is not started either when it is not
// known whether that is on disk: it would be started once more later.
func TestStartBeforeBroken(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		ill := newAiling(slow)
		ill.anyway = true
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		slow.delay.Store(int64(10 * time.Second))
		x := m.peer.call("once", nil, func(c *wire.Call, _ *harp.Request) { c.Left = int64(5 * time.Second) })
		time.Sleep(7 * time.Second)
		ill.fail(errors.New("input/output error"))
		if f, err := x.x.Receive(t.Context()); err == nil {
			t.Errorf("answered with a frame of type %d", f.Type)
		}
		ill.heal()
		slow.delay.Store(0)
		m.peer = <-m.d.sessions
		m.checkHeld(x, "", 0)
		if n := c.runs.Load(); n != 0 {
			t.Errorf("%d runs of what is not held", n)
		}
	})
}

// TestHeldAliveBeforeItHasBegun checks that what an earlier session was asked to start, and is not known to begin yet, is
// not said to be alive: it may never begin, and a dispatcher that has heard so takes the journal for an older one then.
func TestHeldAliveBeforeItHasBegun(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration
		runs int64
	}{
		"and it does not begin": {left: 5 * time.Second},
		"and it begins":         {left: time.Minute, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				counts, slow := newCounter(), &slowDisk{FS: journal.NewMemory()}
				a := newAgent(t, p, func(c *agent.Config) { c.Journal = slow })
				counts.offer(a)
				l := p.listen(t, agentID)
				run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
				meet := func(epoch int64) *peer {
					d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: "store", Epoch: epoch, Heartbeat: int64(time.Hour)}}
					peer, err := d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
					if err != nil {
						t.Fatal(err)
					}
					return peer
				}
				first := meet(1)
				slow.delay.Store(int64(8 * time.Second))
				first.call("count", nil, func(call *wire.Call, _ *harp.Request) { call.Left = int64(c.left) })
				synctest.Wait()
				second := meet(2)
				defer second.session.Close(nil)
				synctest.Wait() // until the function runs
				if h := second.held; len(h) != int(c.runs) || len(h) > 0 && h[0].State != wire.HeldAlive {
					t.Errorf("held %+v", h)
				}
				if n := counts.runs.Load(); n != c.runs {
					t.Errorf("%d runs", n)
				}
				close(counts.release)
			})
		})
	}
}

// TestStopWhileTheJournalStandsStill checks that a cancel and a limit reach the procedure while the
// journal's disk stands still, and that its end is told.
func TestStopWhileTheJournalStandsStill(t *testing.T) {
	for cause, limit := range map[string]time.Duration{wire.CauseCancel: harp.NoLimit, wire.CauseMaxExecTime: time.Minute} {
		t.Run(cause, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				disk := journal.NewMemory()
				slow := &slowDisk{FS: disk.Mount()}
				m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) { offerHang(a) }}
				m.start(slow)
				x := m.peer.call("hang", nil, limits(harp.NoLimit, limit)).accepted()
				slow.delay.Store(int64(time.Hour))
				asked := time.Now()
				if cause == wire.CauseCancel {
					x.cancel()
				}
				if s := x.stopping(); s.Cause != cause {
					t.Errorf("STOPPING %+v", s)
				}
				if end := expect[wire.End](x, wire.TypeEnd); end.Stopped == nil || end.Stopped.Cause != cause {
					t.Errorf("END %+v", end)
				}
				if took := time.Since(asked); took > 2*time.Minute {
					t.Errorf("it ended after %v", took)
				}
				slow.delay.Store(0)
				time.Sleep(2 * time.Hour)
				m.crash()
				m.checkHeld(x, wire.HeldEnded, 0)
			})
		})
	}
}

// TestHeardWhileTheJournalStandsStill: what is said of an attempt is heard whatever was said of
// others before, of each in the goroutine that reads the session.
func TestHeardWhileTheJournalStandsStill(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) {
			offerHang(a)
			offerStream(a, "count", func(ctx context.Context, emit func(int) error) error {
				for n := range 100 {
					if err := emit(n); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return nil
			})
		}}
		m.start(slow)
		hangs := m.peer.call("hang", nil).accepted()
		counts := m.peer.call("count", nil).accepted()
		ended := m.peer.call("hang", nil).accepted()
		ended.cancel()
		ended.stopping()
		end := ended.restOf()
		slow.delay.Store(int64(time.Hour))
		asked := time.Now()
		m.peer.call("hang", nil) // waits for the journal
		synctest.Wait()
		counts.ack(50)
		counts.cancel()
		ended.ackEnd(end)
		counts.ack(100)
		hangs.cancel()
		if s := hangs.stopping(); s.Cause != wire.CauseCancel {
			t.Errorf("STOPPING %+v", s)
		}
		if took := time.Since(asked); took > 2*time.Minute {
			t.Errorf("it was heard after %v", took)
		}
		slow.delay.Store(0)
		time.Sleep(2 * time.Hour)
		m.crash()
	})
}

// TestBroken checks an agent that does not know what is on its disk: it answers
// nothing and has no session until its journal works again; what runs goes on, and
// what is not known to have been started is not called so.
func TestBroken(t *testing.T) {
	t.Run("nothing was written", func(t *testing.T) {
		inMemory(t, func(t *testing.T, p place) { testBroken(t, p, false) })
	})
	t.Run("all was written", func(t *testing.T) {
		inMemory(t, func(t *testing.T, p place) { testBroken(t, p, true) })
	})
}

func testBroken(t *testing.T, p place, anyway bool) {
	c := newCounter()
	disk := journal.NewMemory()
	ill := newAiling(disk.Mount())
	ill.anyway = anyway
	m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
	m.start(ill)
	x := m.peer.call("count", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	synctest.Wait() // all are numbered
	ill.fail(errors.New("input/output error"))
	y := m.peer.call("once", nil)
	if f, err := y.x.Receive(t.Context()); err == nil {
		t.Errorf("answered with a frame of type %d", f.Type)
	}
	<-m.peer.session.Done()
	time.Sleep(5 * time.Minute)
	select {
	case <-m.d.sessions:
		t.Error("a session without a journal")
	default:
	}
	close(c.release)
	time.Sleep(5 * time.Minute)
	ill.heal()
	before, taken := m.peer.hello, m.peer.taken
	m.peer = <-m.d.sessions
	if h := m.peer.hello; h.Journal != before.Journal || m.peer.taken < taken {
		t.Errorf("journal %q with %d taken, then %q with %d", before.Journal, taken, h.Journal, m.peer.taken)
	}
	if anyway { // the start is on disk, but nothing was started
		if end := m.peer.resume(y.id, 0).end(); !end.Gone {
			t.Errorf("END %+v", end)
		}
	} else {
		m.peer.call("once", nil, again(y)).accepted().end()
	}
	time.Sleep(3 * time.Second)
	m.crash() // all was journalled after all
	m.checkHeld(x, wire.HeldEnded, 10)
	if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
		t.Errorf("END %+v after %d records", end, len(records))
	}
	if n := c.runs.Load(); n != 2 && !anyway || n != 1 && anyway {
		t.Errorf("%d runs", n)
	}
}

// TestFullAway checks records that a full disk did not take while the dispatcher was
// away: those that have a number are told all the same.
func TestFullAway(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release := make(chan struct{})
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				<-release
				for range 300 {
					if err := emit(make([]byte, 1000)); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		}}
		m.start(ill)
		x := m.peer.call("flood", nil).accepted()
		m.away(true)
		ill.fail(syscall.ENOSPC)
		close(release)
		time.Sleep(time.Minute)
		ill.heal()
		m.away(false)
		_, records := m.peer.resume(x.id, 0).ended()
		var missed int64
		for _, r := range records {
			missed += r.Truncated
		}
		each := int64(len(records[0].Value))
		if n := len(records); n < 60 || n > 299 || int64(n-1)*each+missed != 300*each {
			t.Errorf("%d records, %d bytes missed", n, missed)
		}
	})
}

// TestDir checks that a journal on disk outlives its process, and that one process
// only has it.
func TestDir(t *testing.T) {
	t.Parallel() // it waits two seconds for the directory
	p, dir := loopback{}, t.TempDir()
	c := newCounter()
	begin := func(d *dispatcher) (*peer, *running) {
		a := newAgent(t, p, func(c *agent.Config) { c.Dir, c.Limits.Grace = dir, time.Millisecond })
		c.offer(a)
		r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		return <-d.sessions, r
	}
	d := listen(t, p)
	s, r := begin(d)
	x := s.call("once", nil).accepted()
	expect[wire.End](x, wire.TypeEnd)
	other := newAgent(t, p, func(c *agent.Config) { c.Dir = dir })
	var used *agent.DirInUseError
	if err := other.Connect(t.Context(), d.addr); !errors.As(err, &used) || used.Dir != dir || !errors.Is(err, harp.ErrConflict) {
		t.Errorf("Connect returned %v", err)
	}
	r.stop()
	r.wait()
	next, r := begin(d)
	if next.hello.Journal != s.hello.Journal || next.taken != 1 || next.hello.Instance == s.hello.Instance {
		t.Errorf("HELLO %+v, then %+v with %d taken", s.hello, next.hello, next.taken)
	}
	if h := next.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldEnded {
		t.Errorf("held %+v", h)
	}
	if end := next.resume(x.id, 0).end(); value[int64](t, end) != 1 {
		t.Errorf("END %+v", end)
	}
	r.stop()
	r.wait()
}

// TestStopAway checks that an agent that stops without a session journals the ends
// of what it interrupts.
func TestStopAway(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		m.away(true)
		m.run.stop()
		m.run.wait()
		m.d.set(func(d *dispatcher) { d.refuse = nil })
		m.boot()
		m.checkHeld(x, wire.HeldEnded, 10)
		end, records := m.peer.resume(x.id, 0).ended()
		if f := failure(t, end); f.Type != "agent_stopped" || len(records) != 10 {
			t.Errorf("END %+v after %d records", f, len(records))
		}
	})
}

// severed is a place from which nobody can be dialled while it is cut off.
type severed struct {
	place
	cut *atomic.Bool
}

func (s severed) dialer(id transport.Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	dial := s.place.dialer(id)
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if s.cut.Load() {
			return nil, syscall.ECONNREFUSED
		}
		return dial(ctx, addr)
	}
}

// TestEndIsLostThoughTheDiskIsWellAgain checks that a journal that broke takes the end of an attempt
// once the disk works again, also while the agent is cut off from its dispatcher, and is stopped
// before it is back.
func TestEndIsLostThoughTheDiskIsWellAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c, cut, disk := newCounter(), new(atomic.Bool), journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: severed{p, cut}, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		x := m.peer.call("count", nil).accepted()
		synctest.Wait() // all are numbered
		cut.Store(true)
		m.peer.session.Close(nil)
		ill.fail(errors.New("input/output error"))
		close(c.release)
		time.Sleep(time.Minute)
		ill.heal()
		time.Sleep(time.Minute)
		m.run.stop()
		m.run.wait()
		cut.Store(false)
		m.boot()
		m.checkHeld(x, wire.HeldEnded, 10)
		if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
	})
}
