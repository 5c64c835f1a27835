package agent_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// machine is where an agent with a journal runs, and may crash.
type machine struct {
	t      *testing.T
	p      place
	d      *dispatcher
	disk   *journal.Memory
	limits agent.Limits
	offers func(*agent.Agent)
	agent  *agent.Agent
	run    *running
	peer   *peer
}

// newMachine is a machine whose agents offer what offers says.
func newMachine(t *testing.T, p place, offers func(*agent.Agent), limits agent.Limits) *machine {
	m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), limits: limits, offers: offers}
	m.boot()
	return m
}

// boot starts another agent process.
func (m *machine) boot() *peer { m.t.Helper(); return m.start(m.disk.Mount()) }

// start starts one with a journal that may fail.
func (m *machine) start(fs journal.FS) *peer {
	m.t.Helper()
	m.agent = newAgent(m.t, m.p, func(c *agent.Config) { c.Journal, c.Limits = fs, m.limits })
	m.offers(m.agent)
	m.run = run(m.t, func(ctx context.Context) error { return m.agent.Connect(ctx, m.d.addr) })
	m.peer = <-m.d.sessions
	return m.peer
}

// crash ends the process at once, and what was not synced is lost.
func (m *machine) crash() {
	m.t.Helper()
	m.disk.Crash()
	m.peer.session.Close(nil)
	m.run.stop()
	m.run.wait()
	m.boot()
}

// lose loses the session.
func (m *machine) lose() {
	m.t.Helper()
	m.peer.session.Close(nil)
	m.peer = <-m.d.sessions
}

// again asks for the same attempt.
func again(x *exchange) func(*wire.Call, *harp.Request) {
	return func(_ *wire.Call, r *harp.Request) { r.ID = x.id }
}

// checkHeld checks that one attempt, or none, is listed.
func (m *machine) checkHeld(x *exchange, state string, records int64) {
	m.t.Helper()
	switch h := m.peer.held; {
	case state == "" && len(h) == 0:
	case state == "" || len(h) != 1 || h[0].Job != x.id || h[0].Attempt != 1 || h[0].State != state || h[0].Records != records:
		m.t.Errorf("held %+v, want %q with %d records", h, state, records)
	}
}

// counter offers procedures that count their runs.
type counter struct {
	runs    atomic.Int64
	release chan struct{}
}

func newCounter() *counter { return &counter{release: make(chan struct{})} }

func (c *counter) offer(a *agent.Agent) {
	offer(a, "once", func(context.Context) (int64, error) { return c.runs.Add(1), nil })
	offerStream(a, "count", func(ctx context.Context, emit func(int) error) error {
		c.runs.Add(1)
		for i := range 10 {
			if err := emit(i); err != nil {
				return err
			}
		}
		select {
		case <-c.release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// pausing offers a procedure that emits five records, the others when it may, and a last one
// when it may return.
type pausing struct{ emit, emitted, release chan struct{} }

func newPausing() pausing {
	return pausing{make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

// offer offers it, with so many records beside the last.
func (p pausing) offer(others int) func(*agent.Agent) {
	return func(a *agent.Agent) {
		offerStream(a, "count", func(_ context.Context, put func(int) error) error {
			for i := range others {
				if i == 5 {
					<-p.emit
				}
				if err := put(i); err != nil {
					return err
				}
			}
			close(p.emitted)
			<-p.release
			return put(others)
		})
	}
}

// pauses calls it, and acknowledges its first record while it waits.
func (m *machine) pauses(change ...func(*wire.Call, *harp.Request)) *exchange {
	m.t.Helper()
	x := m.peer.call("count", nil, change...).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	x.ack(1)
	synctest.Wait()
	return x
}

// TestCrashRunning checks that what ran when its process ended is listed as gone,
// with the records that were written, until that is taken, and never started again.
func TestCrashRunning(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		time.Sleep(time.Second) // the records are synced
		m.crash()
		m.checkHeld(x, wire.HeldGone, 10)
		y := m.peer.call("count", nil, again(x)).accepted() // CALL is answered by what there is
		if m := expect[wire.Records](y, wire.TypeRecords); m.First != 0 || len(m.Records) != 10 {
			t.Errorf("%d records from %d", len(m.Records), m.First)
		}
		y.ack(7)
		if end := expect[wire.End](y, wire.TypeEnd); !end.Gone || end.Records != 10 {
			t.Errorf("END %+v", end)
		}
		synctest.Wait()
		m.crash()
		m.checkHeld(x, wire.HeldGone, 10)
		z := m.peer.resume(x.id, 8)
		if m := expect[wire.Records](z, wire.TypeRecords); m.First != 8 || len(m.Records) != 2 {
			t.Errorf("%d records from %d", len(m.Records), m.First)
		}
		if end := z.end(); !end.Gone || end.Records != 10 {
			t.Errorf("END %+v", end)
		}
		time.Sleep(time.Second) // the tombstone is synced
		m.crash()
		m.checkHeld(x, "", 0)
		m.peer.call("count", nil, again(x)).tombstone()
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// tombstone receives what is said of an attempt of which nothing is left.
func (x *exchange) tombstone() {
	x.t.Helper()
	if m := expect[wire.Accepted](x, wire.TypeAccepted); m.Started != nil {
		x.t.Errorf("ACCEPTED %+v", m)
	}
	if m := expect[wire.End](x, wire.TypeEnd); !m.Gone {
		x.t.Errorf("END %+v", m)
	}
	x.x.Release()
}

// TestEndTellsHowManyCallsWereTaken checks that END says how many calls of the store the journal has taken, this one among
// them, and that they are as many after a crash: a dispatcher takes a journal with fewer for one that was rolled back.
func TestEndTellsHowManyCallsWereTaken(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		before := m.peer.hello
		m.peer.call("once", nil).accepted().end()
		told := m.peer.call("once", nil).accepted().end().Taken
		m.crash()
		if h := m.peer.hello; told != 2 || m.peer.taken != told || h.Journal != before.Journal {
			t.Errorf("END says %d, then HELD %d", told, m.peer.taken)
		}
	})
}

// TestEndTellsAnotherDispatcherOfItsOwnCalls checks that a dispatcher which asks for what another one has called is told how many calls
// it has made itself: it compares them with what is said of these later.
func TestEndTellsAnotherDispatcherOfItsOwnCalls(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		m.peer.call("once", nil).accepted().end()
		x := m.peer.call("once", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		m.belongsTo("other")
		told := []int64{m.peer.taken, m.peer.resume(x.id, 0).end().Taken, m.peer.call("once", nil).accepted().end().Taken}
		m.belongsTo("store")
		if told = append(told, m.peer.taken); !slices.Equal(told, []int64{0, 0, 1, 2}) {
			t.Errorf("HELD, END and END tell another dispatcher, and HELD its own, of %d calls", told)
		}
	})
}

// TestCrashBeforeSync checks that records which were told and not written when the
// process ended do no harm, whether the dispatcher has them or not.
func TestCrashBeforeSync(t *testing.T) {
	for name, from := range map[string]int64{"it has them": 10, "it has some": 3, "it has none": 0} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				m := newMachine(t, p, newCounter().offer, agent.Limits{})
				x := m.peer.call("count", nil).accepted()
				expect[wire.Records](x, wire.TypeRecords)
				m.crash()
				m.checkHeld(x, wire.HeldGone, 0)
				if end := m.peer.resume(x.id, from).end(); !end.Gone || end.Records != from {
					t.Errorf("END %+v", end)
				}
			})
		})
	}
}

// TestCrashEnded checks that END is told until it is acknowledged, across crashes,
// to whoever asks.
func TestCrashEnded(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		x := m.peer.call("once", nil)
		x.accepted()
		expect[wire.End](x, wire.TypeEnd)
		synctest.Wait()
		for range 2 {
			m.crash()
			m.checkHeld(x, wire.HeldEnded, 0)
			y := m.peer.call("once", nil, again(x)).accepted()
			if end := expect[wire.End](y, wire.TypeEnd); value[int64](t, end) != 1 || end.Gone {
				t.Errorf("END %+v", end)
			}
			m.lose()
			m.checkHeld(x, wire.HeldEnded, 0)
		}
		if end := m.peer.resume(x.id, 0).end(); value[int64](t, end) != 1 {
			t.Errorf("END %+v", end)
		}
		synctest.Wait()
		m.lose()
		m.checkHeld(x, "", 0)
		m.peer.call("once", nil, again(x)).tombstone()
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestCrashAccepted checks that what was accepted and not started when the process
// ended is withdrawn before the rest is listed: it may be called again.
func TestCrashAccepted(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), offers: c.offer}
		x := &exchange{t: t, id: harp.NewID()}
		j, err := journal.Open(m.disk, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Accept(journal.Key{Job: x.id, Attempt: 1}, journal.Accept{}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		m.boot()
		m.checkHeld(x, "", 0)
		if m.agent.Holds(x.id) {
			t.Error("held, and not listed")
		}
		value[int64](t, m.peer.call("once", nil, again(x)).accepted().end())
	})
}

// TestCrashStopping checks that a limit or cancel is journalled before it is told.
func TestCrashStopping(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release := make(chan struct{})
		defer close(release)
		m := newMachine(t, p, func(a *agent.Agent) {
			offer(a, "deaf", func(context.Context) (int, error) { <-release; return 0, nil })
		}, agent.Limits{})
		x := m.peer.call("deaf", nil).accepted()
		x.cancel()
		said := x.stopping()
		old := m.run
		m.disk.Crash()
		m.peer.session.Close(nil)
		old.stop() // it cannot return, as its function does not
		m.boot()
		m.checkHeld(x, wire.HeldGone, 0)
		y := m.peer.resume(x.id, 0)
		if s := y.stopping(); !reflect.DeepEqual(s, said) {
			t.Errorf("STOPPING %+v, was %+v", s, said)
		}
		if end := y.end(); !end.Gone || end.Stopped == nil || !reflect.DeepEqual(*end.Stopped, said) {
			t.Errorf("END %+v", end)
		}
	})
}

// TestAway checks a stream whose dispatcher is away for a while: what the journal
// takes is told later, what it does not is dropped, never waits and is said, and the
// numbers have no gaps.
func TestAway(t *testing.T) {
	const size = 10 << 10
	inMemory(t, func(t *testing.T, p place) {
		emitted, release := make(chan struct{}), make(chan struct{})
		m := newMachine(t, p, func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, string, int]("flood"), func(_ context.Context, _ none, emit func(string) error) (int, error) {
				for i := range 4_000 {
					if i == 10 {
						<-release
					}
					if err := emit(strings.Repeat("x", size-3)); err != nil {
						return i, err
					}
				}
				emitted <- struct{}{}
				<-release
				return 4_000, emit(strings.Repeat("x", size-3))
			})
		}, agent.Limits{MaxJobSpool: 16 << 20})
		x := m.peer.call("flood", nil).accepted()
		synctest.Wait()
		m.away(true)
		release <- struct{}{}
		<-emitted
		if n := m.agent.HeldBytes(); n > 1<<20 {
			t.Errorf("%d bytes in memory", n)
		}
		m.away(false)
		if h := m.peer.held; len(h) != 1 || h[0].State != wire.HeldAlive || h[0].Records < 1000 || h[0].Records > 2000 {
			t.Fatalf("held %+v", h)
		}
		y := m.peer.resume(x.id, 0)
		close(release)
		end, records := y.ended()
		if value[int](t, end) != 4_000 || end.Records != int64(len(records)) {
			t.Errorf("END %+v after %d records", end, len(records))
		}
		var bytes int64
		for i, r := range records {
			bytes += int64(len(r.Value)) + r.Truncated
			if r.Truncated > 0 && i != len(records)-1 {
				t.Errorf("record %d of %d says %d bytes were dropped", i, len(records), r.Truncated)
			}
		}
		if bytes != 4_001*size {
			t.Errorf("%d bytes told or dropped, of %d", bytes, 4_001*size)
		}
	})
}

// TestDroppedLast checks that what was dropped last is said by a record of its own.
func TestDroppedLast(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release := make(chan struct{})
		m := newMachine(t, p, func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				<-release
				for range 100 {
					if err := emit(make([]byte, 1000)); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		}, agent.Limits{MaxJobSpool: 50_000})
		x := m.peer.call("flood", nil).accepted()
		m.away(true)
		close(release)
		synctest.Wait()
		m.away(false)
		_, records := m.peer.resume(x.id, 0).ended()
		last := records[len(records)-1]
		if len(last.Value) != 0 || last.Truncated != int64(100-len(records)+1)*int64(len(records[0].Value)) {
			t.Errorf("%d records, the last %+v", len(records), last)
		}
	})
}

// TestSlowDispatcher checks that a dispatcher that acknowledges nothing holds the
// procedure back, and memory bounded.
func TestSlowDispatcher(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		var emitted atomic.Int64
		m := newMachine(t, p, func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				for range 100_000 {
					if err := emit(make([]byte, 10<<10)); err != nil {
						return 0, err
					}
					emitted.Add(1)
				}
				return 0, nil
			})
		}, agent.Limits{})
		x := m.peer.call("flood", nil).accepted()
		const most = wire.Window / (10<<10 + 36)
		for got := 0; got < most; {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
		}
		time.Sleep(5 * time.Minute)
		if n := m.agent.HeldBytes(); n > wire.Window || emitted.Load() != most {
			t.Errorf("%d bytes in memory, %d records, want %d", n, emitted.Load(), most)
		}
		x.cancel()
		x.untilStopping(func(int64) {})
	})
}

// TestResumeWindow checks that what is told from the journal stays within the window
// too.
func TestResumeWindow(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		time.Sleep(time.Second)
		m.crash()
		y := m.peer.resume(x.id, 0, func(r *wire.Resume) { r.Window = 4 * 33 })
		for from := int64(0); from < 8; from += 4 {
			got := int64(0)
			for got < 4 {
				r := expect[wire.Records](y, wire.TypeRecords)
				if r.First != from+got {
					t.Fatalf("records from %d, want %d", r.First, from+got)
				}
				got += int64(len(r.Records))
			}
			time.Sleep(time.Minute)
			if got != 4 {
				t.Errorf("%d records in a window for 4", got)
			}
			y.ack(from + got)
		}
		if r := expect[wire.Records](y, wire.TypeRecords); r.First != 8 || len(r.Records) != 2 {
			t.Errorf("%d records from %d", len(r.Records), r.First)
		}
		y.end()
	})
}

// TestNarrowWindow checks that a record for which the window has no room waits until those before
// it are acknowledged, be it in memory or in the journal.
func TestNarrowWindow(t *testing.T) {
	for name, crashed := range map[string]bool{"in memory": false, "in the journal": true} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				m := newMachine(t, p, func(a *agent.Agent) {
					agent.HandleStream(a, harp.NewStreamProc[none, string, int]("fill"), func(ctx context.Context, _ none, emit func(string) error) (int, error) {
						for range 5 {
							if err := emit(strings.Repeat("x", 565)); err != nil { // 568 bytes and 32 beside
								return 0, err
							}
						}
						<-ctx.Done()
						return 0, context.Cause(ctx)
					})
				}, agent.Limits{})
				x := m.peer.call("fill", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
				time.Sleep(time.Second)
				x.x.Release()
				if crashed {
					m.crash()
				}
				for from := range int64(5) {
					y := m.peer.resume(x.id, from, func(r *wire.Resume) { r.Window = 1000 })
					if r := expect[wire.Records](y, wire.TypeRecords); r.First != from || len(r.Records) != 1 {
						t.Errorf("%d records from %d, want one from %d", len(r.Records), r.First, from)
					}
					over, cancel := context.WithTimeout(t.Context(), time.Minute)
					if f, err := y.x.Receive(over); from < 4 && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("beside record %d comes a frame of type %d, %v", from, f.Type, err)
					}
					cancel()
					y.x.Release()
				}
			})
		})
	}
}
