package agent_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// belongsTo makes the dispatcher that of a store, in a new session.
func (m *machine) belongsTo(store string) {
	m.t.Helper()
	m.d.set(func(d *dispatcher) { d.welcome.Store = store })
	m.lose()
}

// reduces lets another dispatcher forget what the agent holds, after which nothing is left but that it was started.
func (m *machine) reduces() {
	m.t.Helper()
	m.belongsTo("other")
	m.peer.forget(m.peer.held...)
	time.Sleep(8 * 24 * time.Hour)
	m.lose()
	m.peer.forget(m.peer.held...)
	synctest.Wait()
}

// TestReducedForItsOwnDispatcher checks what becomes of an attempt of which nothing is left but that it was started:
// its own dispatcher, which may not know that, is told that it has gone, and can forget it; another one is told nothing
// of it, and cannot.
func TestReducedForItsOwnDispatcher(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		x := m.peer.call("once", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		m.reduces()
		m.lose()
		m.checkHeld(x, "", 0)
		m.peer.forget(wire.HeldAttempt{Job: x.id, Attempt: 1})
		time.Sleep(time.Second)
		m.belongsTo("store")
		m.checkHeld(x, wire.HeldGone, 0)
		m.peer.resume(x.id, 5).gone() // which had been told of five records
		m.crash()
		m.checkHeld(x, wire.HeldGone, 0)
		m.peer.forget(m.peer.held...)
		synctest.Wait()
		if m.agent.Holds(x.id) {
			t.Error("its own dispatcher has forgotten it, and it is kept")
		}
	})
}

// TestReducedInPart checks that it is told of where the machine went down before its END was written, of a command that
// ends with a reboot, too.
func TestReducedInPart(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		m.run.stop()
		m.run.wait()
		j, err := journal.Open(m.disk.Mount(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		info := wire.Encode(map[string]any{"store": "store", "proc": "count", "red": true})
		x := &exchange{t: t, id: harp.NewID()}
		if err := j.AcceptStart(journal.Key{Job: x.id, Attempt: 1}, journal.Accept{Info: info}, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		m.boot()
		m.checkHeld(x, wire.HeldGone, 0)
		m.peer.resume(x.id, 0).gone()
		m.belongsTo("other")
		m.checkHeld(x, "", 0)
	})
}

// TestReducedAttemptsWereForgottenForSpace checks that what is left of attempts of other dispatchers makes no room for calls: their own
// would take what is not listed for never started.
func TestReducedAttemptsWereForgottenForSpace(t *testing.T) {
	const size, attempts = 40_000, 25
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{MaxJournal: size})
		for range attempts {
			expect[wire.End](m.peer.call("once", nil).accepted(), wire.TypeEnd)
		}
		m.reduces()
		for reason := ""; reason == ""; {
			x := m.peer.call("count", nil)
			if f := x.receive(); f.Type == wire.TypeNotNow {
				reason = wire.NotNowNoSpace
			}
		}
		close(c.release)
		time.Sleep(time.Second)
		m.belongsTo("store")
		gone := 0
		for _, h := range m.peer.held {
			if h.State == wire.HeldGone {
				gone++
			}
		}
		if gone != attempts {
			t.Errorf("%d of %d are left", gone, attempts)
		}
	})
}

// TestReducedKeepsNobodyFromEnding checks that an agent whose journal is in memory is idle though something is left in it
// for a dispatcher that may never come.
func TestReducedKeepsNobodyFromEnding(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := &machine{t: t, p: p, d: listen(t, p)}
		m.agent = newAgent(t, p)
		newCounter().offer(m.agent)
		r := run(t, func(ctx context.Context) error { return m.agent.Connect(ctx, m.d.addr) })
		m.peer = <-m.d.sessions
		expect[wire.End](m.peer.call("once", nil).accepted(), wire.TypeEnd)
		idle := make(chan error, 1)
		go func() { idle <- m.agent.Drain(t.Context()) }()
		m.reduces()
		select {
		case err := <-idle:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it is not idle")
		}
		r.stop()
		r.wait()
	})
}

// TestReducedThoughTheJournalHadNoRoomForAllOfIt checks that an attempt of which a part is in memory only, as its journal was full, is
// reduced as a whole when the space is needed: its own dispatcher is told that it has gone, and does not wait for its records.
func TestReducedThoughTheJournalHadNoRoomForAllOfIt(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, func(a *agent.Agent) {
			newCounter().offer(a)
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				for range 300 {
					if err := emit(make([]byte, 1000)); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		}, agent.Limits{MaxJournal: 200_000})
		x := m.peer.call("flood", nil).accepted()
		time.Sleep(time.Minute)
		m.belongsTo("other")
		m.checkHeld(x, wire.HeldEnded, 300)
		m.peer.forget(m.peer.held...)
		calls := []*exchange{m.peer.call("count", nil)}
		for !calls[len(calls)-1].isNotNow() {
			calls = append(calls, m.peer.call("count", nil))
		}
		time.Sleep(time.Second)
		m.belongsTo("store")
		if !m.holdsGone(x) || m.agent.Counted() > 1<<16 {
			t.Errorf("%d attempts are held, %d bytes are in memory", len(m.peer.held), m.agent.Counted())
		}
		m.peer.resume(x.id, 10).gone()
		m.peer.forget(wire.HeldAttempt{Job: x.id, Attempt: 1})
		synctest.Wait()
		if m.agent.Holds(x.id) {
			t.Error("its own dispatcher has forgotten it, and it is kept")
		}
	})
}

// TestReducedOfWhatEndedWithItsAgent checks that what an attempt has left that ended with its agent makes room for another dispatcher's
// calls when the space is needed, as that of one which came to its end.
func TestReducedOfWhatEndedWithItsAgent(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, func(a *agent.Agent) {
			c.offer(a)
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(ctx context.Context, _ none, emit func([]byte) error) (int, error) {
				for range 30 {
					if err := emit(make([]byte, 1000)); err != nil {
						return 0, err
					}
				}
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
		}, agent.Limits{MaxJournal: 40_000})
		x := m.peer.call("flood", nil).accepted()
		time.Sleep(time.Second)
		m.crash()
		m.checkHeld(x, wire.HeldGone, 30)
		m.belongsTo("other")
		m.peer.forget(m.peer.held...)
		for range 20 {
			if m.peer.call("count", nil).isNotNow() {
				t.Fatal("a call is not taken")
			}
		}
		time.Sleep(time.Second)
		m.belongsTo("store")
		if !m.holdsGone(x) {
			t.Errorf("held %+v", m.peer.held)
		}
		m.peer.resume(x.id, 30).gone()
	})
}

// TestReducedOnAFullDisk checks that what gives way to calls makes room for them though the disk was full when it was to be written.
func TestReducedOnAFullDisk(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		offers := func(a *agent.Agent) {
			c.offer(a)
			offer(a, "large", func(context.Context) ([]byte, error) { return make([]byte, 3000), nil })
		}
		m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), limits: agent.Limits{MaxJournal: 30_000}, offers: offers}
		disk := newAiling(m.disk.Mount())
		m.start(disk)
		for range 5 {
			expect[wire.End](m.peer.call("large", nil).accepted(), wire.TypeEnd)
		}
		m.belongsTo("other")
		of := m.peer.held
		for !m.peer.call("count", nil).isNotNow() {
		}
		m.peer.forget(of...)
		synctest.Wait()
		disk.fail(syscall.ENOSPC)
		for range 10 {
			m.peer.call("count", nil).notNow()
		}
		disk.heal()
		time.Sleep(time.Minute)
		m.peer.call("count", nil).accepted()
	})
}
