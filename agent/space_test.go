package agent_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// TestNoSpace checks an agent whose journal is full: it takes no calls, says so, and
// says when it does again; what ended meanwhile is said without its value.
func TestNoSpace(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release := make(chan struct{})
		m := newMachine(t, p, func(a *agent.Agent) {
			offer(a, "large", func(context.Context) (string, error) { <-release; return strings.Repeat("x", 9000), nil })
		}, agent.Limits{MaxJournal: 6000})
		calls := m.fill("large")
		m.lose()
		if reason := m.peer.call("large", nil).notNow(); reason != wire.NotNowNoSpace {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		m.away(true)
		close(release)
		synctest.Wait()
		m.away(false)
		more := m.fill("large")
		for _, x := range calls {
			if end := m.peer.resume(x.id, 0).end(); !end.Dropped || len(end.Value) > 0 || end.Started == nil {
				t.Errorf("END %+v", end)
			}
		}
		if err := m.peer.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
			t.Fatal(err)
		}
		for _, x := range append(more, m.peer.call("large", nil).accepted()) {
			if end := x.end(); len(value[string](t, end)) != 9000 || end.Dropped { // memory has it yet
				t.Errorf("END %+v", end)
			}
		}
	})
}

// holdsGone reports whether an attempt is listed as gone.
func (m *machine) holdsGone(x *exchange) bool {
	return slices.ContainsFunc(m.peer.held, func(h wire.HeldAttempt) bool { return h.Job == x.id && h.State == wire.HeldGone })
}

// gone receives END of an attempt of which it is known that it was started, and nothing else.
func (x *exchange) gone() {
	x.t.Helper()
	if m := expect[wire.End](x, wire.TypeEnd); !m.Gone || m.Started == nil || len(m.Value) > 0 {
		x.t.Errorf("END %+v", m)
	}
	x.x.Release()
}

// fill makes calls until there is no space for more.
func (m *machine) fill(procedure string) (calls []*exchange) {
	m.t.Helper()
	for len(calls) < 10 {
		x := m.peer.call(procedure, nil)
		f := x.receive()
		if f.Type == wire.TypeNotNow {
			break
		}
		x.early = &f
		calls = append(calls, x)
	}
	if len(calls) == 0 || len(calls) == 10 {
		m.t.Fatalf("%d calls", len(calls))
	}
	return calls
}

// away loses the dispatcher, or brings it back.
func (m *machine) away(away bool) {
	m.t.Helper()
	if !away {
		m.d.set(func(d *dispatcher) { d.refuse = nil })
		m.peer = <-m.d.sessions
		return
	}
	m.d.set(func(d *dispatcher) { f := harp.FailureOf(harp.ErrUnavailable); d.refuse = &f })
	m.peer.session.Close(nil)
	synctest.Wait()
}

// TestUnknownStore checks that a dispatcher that knows nothing of an attempt does not
// make the agent forget how it ended: another one may ask.
func TestUnknownStore(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{MaxJournal: 6000})
		x := m.peer.call("once", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		running := m.peer.call("count", nil).accepted()
		synctest.Wait()
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		m.lose()
		if len(m.peer.held) != 2 {
			t.Fatalf("held %+v", m.peer.held)
		}
		m.peer.forget(m.peer.held...)
		close(c.release) // what runs goes on, and is kept as well
		synctest.Wait()
		m.lose()
		if h := m.peer.held; len(h) != 2 || h[0].State != wire.HeldEnded || h[1].State != wire.HeldEnded {
			t.Errorf("held %+v", h)
		}
		m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
		m.lose()
		if end, records := m.peer.resume(running.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
		time.Sleep(time.Second)
		m.lose()
		m.checkHeld(x, wire.HeldEnded, 0)
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		m.lose()
		m.peer.forget(m.peer.held...)
		if !m.agent.Holds(x.id) {
			t.Error("dropped before the space is needed")
		}
		calls := m.fill("count")
		time.Sleep(time.Second)
		m.lose()
		if len(m.peer.held) != len(calls) {
			t.Errorf("held %+v", m.peer.held)
		}
		m.peer.call("once", nil, again(x)).gone()
		m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
		m.lose()
		if !m.holdsGone(x) {
			t.Errorf("its own dispatcher is told of %+v", m.peer.held)
		}
	})
}

// TestValueNeedsTheSpaceOfAnotherStore checks that what is kept for another dispatcher gives way to the
// value of an end.
func TestValueNeedsTheSpaceOfAnotherStore(t *testing.T) {
	const size = 2500
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, func(a *agent.Agent) {
			offer(a, "large", func(context.Context) ([]byte, error) { return make([]byte, size), nil })
		}, agent.Limits{MaxJournal: 9000})
		for range 2 {
			expect[wire.End](m.peer.call("large", nil).accepted(), wire.TypeEnd)
		}
		synctest.Wait()
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		m.lose()
		m.peer.forget(m.peer.held...)
		x := m.peer.call("large", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		synctest.Wait()
		m.lose()
		if len(m.peer.held) != 2 {
			t.Errorf("held %+v", m.peer.held)
		}
		if end := m.peer.resume(x.id, 0).end(); end.Dropped || len(value[[]byte](t, end)) != size {
			t.Errorf("END without its value: %v, %d bytes", end.Dropped, len(end.Value))
		}
	})
}

// TestKnownStoreAgain checks that what was kept for a dispatcher is no longer what
// makes room once that dispatcher is there.
func TestKnownStoreAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{MaxJournal: 6000})
		x := m.peer.call("once", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		synctest.Wait()
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		m.lose()
		m.peer.forget(m.peer.held...)
		m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
		m.lose()
		m.fill("count")
		if end := m.peer.resume(x.id, 0).end(); value[int64](t, end) != 1 {
			t.Errorf("END %+v", end)
		}
	})
}

// TestForgottenRunning checks that a dispatcher that has forgotten an attempt may ask for
// it again while it runs: what was dropped is said.
func TestForgottenRunning(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		pausing := newPausing()
		m := newMachine(t, p, pausing.offer(10), agent.Limits{})
		x := m.pauses()
		m.peer.forget(wire.HeldAttempt{Job: x.id, Attempt: 1})
		close(pausing.emit)
		<-pausing.emitted
		m.lose()
		y := m.peer.resume(x.id, 0)
		synctest.Wait()
		close(pausing.release)
		end, records := y.ended()
		if value[int](t, end) != 0 || len(records) != 6 {
			t.Fatalf("END %+v after %d records", end, len(records))
		}
		for i, r := range records {
			if last := i == 5; r.Truncated == 0 || last != (len(r.Value) > 0) || last && r.Truncated != 5 {
				t.Errorf("record %d: %+v", i, r)
			}
		}
	})
}

// TestUnknownStoreLater checks that it is kept for seven days after its end, and after another
// dispatcher has said first that it does not know it.
func TestUnknownStoreLater(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		expect[wire.End](m.peer.call("once", nil).accepted(), wire.TypeEnd)
		long := m.peer.call("count", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
		time.Sleep(24 * time.Hour)
		close(c.release)
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		time.Sleep(5 * 24 * time.Hour)
		m.lose()
		m.peer.forget(m.peer.held...)
		m.lose()
		if len(m.peer.held) != 2 {
			t.Errorf("held %+v", m.peer.held)
		}
		time.Sleep(6 * 24 * time.Hour)
		m.peer.forget(m.peer.held...)
		m.lose()
		if len(m.peer.held) != 2 {
			t.Errorf("held %+v", m.peer.held)
		}
		time.Sleep(25 * time.Hour)
		m.peer.forget(m.peer.held...)
		m.lose()
		m.checkHeld(long, "", 0)
	})
}

// TestForgottenForAnotherStoreIsNotStartedAgain checks that what was forgotten while its own
// dispatcher was away, which may not know that it was started, is not started again however long
// that was.
func TestForgottenForAnotherStoreIsNotStartedAgain(t *testing.T) {
	for name, restarted := range map[string]bool{"by the same agent": false, "by the next": true} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c := newCounter()
				m := newMachine(t, p, c.offer, agent.Limits{})
				x := m.peer.call("once", nil).accepted()
				expect[wire.End](x, wire.TypeEnd)
				m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
				m.lose()
				m.peer.forget(m.peer.held...)
				time.Sleep(8 * 24 * time.Hour)
				m.lose()
				m.peer.forget(m.peer.held...)
				m.lose()
				m.checkHeld(x, "", 0)
				for range 30 {
					time.Sleep(24 * time.Hour)
					m.peer.call("once", nil).accepted().end()
				}
				m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
				if m.lose(); restarted {
					m.crash()
				}
				if !m.holdsGone(x) {
					t.Errorf("it would be taken for proven not started: held %+v", m.peer.held)
				}
				runs := c.runs.Load()
				m.peer.call("once", nil, again(x)).gone()
				if c.runs.Load() != runs {
					t.Error("it is started a second time")
				}
			})
		})
	}
}

// TestForgottenWhileTheDiskIsFull checks that an attempt whose end is taken while the disk is full takes no room any more
// when the disk is not: in the same session nobody says again that it can be forgotten.
func TestForgottenWhileTheDiskIsFull(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), offers: c.offer}
		ill := newAiling(m.disk.Mount())
		m.start(ill)
		x := m.peer.call("once", nil).accepted()
		end := expect[wire.End](x, wire.TypeEnd)
		time.Sleep(time.Second) // it is on the disk
		ill.fail(syscall.ENOSPC)
		x.ackEnd(end)
		time.Sleep(time.Minute)
		ill.heal()
		time.Sleep(10 * time.Second)
		if m.agent.Holds(x.id) {
			t.Error("the journal has it still")
		}
		m.crash()
		m.checkHeld(x, "", 0)
	})
}

// TestRoomOfWhatWasAcknowledgedOnAFullDisk checks that records which the dispatcher has taken while the disk was full make room
// for those that come while it is away, when the disk is not full any more.
func TestRoomOfWhatWasAcknowledgedOnAFullDisk(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		more, emitted := make(chan struct{}), make(chan struct{})
		m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), limits: agent.Limits{MaxJobSpool: 10_000}}
		m.offers = func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, string, int]("halves"), func(_ context.Context, _ none, emit func(string) error) (int, error) {
				for n := range 12 {
					if n == 6 {
						<-more
					}
					if err := emit(strings.Repeat("x", 1000)); err != nil {
						return 0, err
					}
				}
				close(emitted)
				<-more
				return 0, nil
			})
		}
		ill := newAiling(m.disk.Mount())
		m.start(ill)
		x := m.peer.call("halves", nil).accepted()
		x.hearRecords(6)
		time.Sleep(time.Second) // they are on the disk
		ill.fail(syscall.ENOSPC)
		x.ack(6)
		time.Sleep(time.Minute)
		ill.heal()
		time.Sleep(10 * time.Second)
		m.away(true)
		more <- struct{}{}
		<-emitted
		m.away(false)
		y := m.peer.resume(x.id, 6)
		close(more)
		end, records := y.endedFrom(6)
		if end.Failure != nil || len(records) != 6 {
			t.Fatalf("END %+v after %d records", end, len(records))
		}
		for i, r := range records {
			if r.Truncated > 0 {
				t.Errorf("before record %d %d bytes were dropped", i, r.Truncated)
			}
		}
	})
}

// TestAcknowledgementsAreLostWithAFullDisk checks that an attempt whose acknowledgements were not synced, since the disk
// was full, is tried again now and then, not all the time, and hands over its records before its end once there is room:
// what the dispatcher has makes room for them.
func TestAcknowledgementsAreLostWithAFullDisk(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		more, end := make(chan struct{}), make(chan struct{})
		m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), limits: agent.Limits{MaxJobSpool: 10_000}}
		m.offers = func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, string, int]("fill"), func(_ context.Context, _ none, emit func(string) error) (int, error) {
				for _, goOn := range []chan struct{}{more, end} {
					for range 8 {
						if err := emit(strings.Repeat("x", 1000)); err != nil {
							return 0, err
						}
					}
					<-goOn
				}
				return 0, nil
			})
		}
		ill := newAiling(m.disk.Mount())
		ill.anyway = true
		disk := &countingDisk{FS: ill, heal: ill.heal}
		m.start(disk)
		x := m.peer.call("fill", nil).accepted()
		x.hearRecords(8)
		time.Sleep(time.Second) // they are on the disk
		ill.fail(syscall.ENOSPC)
		x.ack(8)
		synctest.Wait()
		close(more)
		x.hearRecords(16)
		close(end)
		before := disk.writes.Load()
		time.Sleep(10 * time.Second)
		if n := disk.writes.Load() - before; n < 2 || n > 30 {
			t.Errorf("written %d times in 10 s", n)
		}
		ill.heal()
		time.Sleep(10 * time.Second)
		m.crash()
		if end, records := m.peer.resume(x.id, 8).endedFrom(8); end.Failure != nil || len(records) != 8 || records[0].Truncated > 0 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
	})
}

// hearRecords hears of the records before one, and acknowledges none.
func (x *exchange) hearRecords(before int64) {
	x.t.Helper()
	for next := int64(0); next < before; {
		r := expect[wire.Records](x, wire.TypeRecords)
		next = r.First + int64(len(r.Records))
	}
}

// countingDisk counts what is written, and heals when that is far too much.
type countingDisk struct {
	journal.FS
	writes atomic.Int64
	heal   func()
}

func (d *countingDisk) Create(name string) (journal.File, error) {
	f, err := d.FS.Create(name)
	return countingFile{f, d}, err
}

type countingFile struct {
	journal.File
	of *countingDisk
}

func (f countingFile) Write(p []byte) (int, error) {
	if f.of.writes.Add(1) > 10_000 {
		f.of.heal()
	}
	return f.File.Write(p)
}
