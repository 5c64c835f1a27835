package dispatcher_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// expectCall is the next exchange, which is a CALL of a first attempt and comes now.
func expectCall(t *testing.T, asked <-chan agentExchange) agentExchange {
	t.Helper()
	synctest.Wait()
	select {
	case m := <-asked:
		if m.call == nil || m.call.Attempt != 1 {
			t.Fatalf("it is asked %+v", m)
		}
		return m
	default:
		t.Fatal("it is asked for nothing")
		return agentExchange{}
	}
}

// notNow is an agent's answer that it is busy.
func (m agentExchange) notNow(t *testing.T) {
	t.Helper()
	m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowBusy})
	close(m.over)
}

func expectNothing(t *testing.T, asked <-chan agentExchange) {
	t.Helper()
	synctest.Wait()
	select {
	case m := <-asked:
		t.Fatalf("it is asked %+v", m)
	default:
	}
}

// What an agent was too busy for is sent again as soon as it says that it is not.
func TestReadyEndsTheWaitForABusyAgent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked).notNow(t)
		expectNothing(t, asked)
		agent.sendFrame(t, wire.TypeReady, wire.Ready{})

		// READY may also be heard before NOT_NOW, which it followed.
		m := expectCall(t, asked)
		agent.sendFrame(t, wire.TypeReady, wire.Ready{})
		synctest.Wait()
		m.notNow(t)
		expectCall(t, asked).notNow(t)

		// And where it never comes, time does it: the third pause is 4 s.
		expectNothing(t, asked)
		time.Sleep(4*time.Second - time.Millisecond)
		expectNothing(t, asked)
		time.Sleep(2 * time.Millisecond)
		expectCall(t, asked)
	})
}

// An agent that says that it is ready while the dispatcher's disk is full keeps its
// session, and gets what waits when there is room.
func TestReadyOnAFullDiskIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked).notNow(t)
		synctest.Wait()
		disk.SetSpace(store.SpaceCritical)
		for range 3 {
			agent.sendFrame(t, wire.TypeReady, wire.Ready{})
		}
		expectNothing(t, asked)
		time.Sleep(5 * time.Second)
		if err := agent.tr.Err(); err != nil {
			t.Fatalf("the session ended: %v", err)
		}
		disk.SetSpace(store.SpacePlenty)
		time.Sleep(time.Second + time.Millisecond)
		expectCall(t, asked)
	})
}

// An agent that offers other procedures, or tells other facts, while the dispatcher's disk
// is full keeps its session, in which cancels are heard. What it said holds at once and is
// stored when there is room.
func TestNewsOnAFullDiskKeepTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := expectCall(t, asked)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		disk.SetSpace(store.SpaceCritical)
		agent.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "other"}, {Name: "work"}}, Last: true})
		agent.sendFrame(t, wire.TypeFacts, wire.Facts{Facts: wire.Encode(map[string]int64{"cores": 2})})
		time.Sleep(5 * time.Second)
		if err := agent.tr.Err(); err != nil {
			t.Fatalf("the session ended: %v", err)
		}
		must[bool](t)(job.Cancel(t.Context()))
		synctest.Wait()
		if f, ok, _ := m.x.TryReceive(); !ok || f.Type != wire.TypeCancel {
			t.Errorf("it hears %t, frame %d, want a cancel", ok, f.Type)
		}
		if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); !slices.Equal(h.Procedures, []string{"other", "work"}) {
			t.Errorf("it offers %v", h.Procedures)
		}
		disk.SetSpace(store.SpacePlenty)
		time.Sleep(2 * time.Second)
		agent.tr.Close(nil)
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := memory.OpenDisk(disk, nil)
		defer st.Close()
		row := must[store.Host](t)(st.Host(t.Context(), "web01"))
		if len(row.Procedures) != 2 || len(row.Facts) == 0 {
			t.Errorf("stored are %d procedures and %d bytes of facts", len(row.Procedures), len(row.Facts))
		}
	})
}

// scarceStore is a store in which there is no space for the claims that a test says.
type scarceStore struct {
	store.Store
	claimed func(jobs []*store.Job, err error) ([]*store.Job, error) // nil: as they are
}

func (s *scarceStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*store.Job, error) {
	jobs, err := s.Store.Claim(ctx, hosts, n, now)
	if s.claimed != nil {
		return s.claimed(jobs, err)
	}
	return jobs, err
}

// What was claimed before the space was at its end is sent, and the rest claimed when
// there is space.
func TestClaimsThatEndForWantOfSpace(t *testing.T) {
	scarce := new(scarceStore)
	wrap := func(st store.Store) store.Store { scarce.Store = st; return scarce }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked).notNow(t)
		synctest.Wait()
		claims := 0
		scarce.claimed = func(jobs []*store.Job, err error) ([]*store.Job, error) {
			if claims++; claims == 1 {
				err = harp.ErrNoSpace
			}
			return jobs, err
		}
		agent.sendFrame(t, wire.TypeReady, wire.Ready{})
		expectCall(t, asked)
		time.Sleep(time.Minute)
		if claims != 2 {
			t.Errorf("it was claimed %d times", claims)
		}
	})
}

// An agent that says that it is ready, for which there is no space while what was owed to
// it is claimed, gets what waits when there is.
func TestReadyWhileWhatIsOwedIsClaimed(t *testing.T) {
	scarce := new(scarceStore)
	wrap := func(st store.Store) store.Store { scarce.Store = st; return scarce }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		var claims atomic.Int32
		proceed := make(chan struct{})
		scarce.claimed = func(jobs []*store.Job, err error) ([]*store.Job, error) {
			switch claims.Add(1) {
			case 1, 3:
				return nil, harp.ErrNoSpace
			case 2:
				<-proceed // what is owed is claimed; the third is asked for meanwhile
			}
			return jobs, err
		}
		agent.sendFrame(t, wire.TypeReady, wire.Ready{})
		time.Sleep(2 * time.Second)
		agent.sendFrame(t, wire.TypeReady, wire.Ready{})
		synctest.Wait()
		close(proceed)
		time.Sleep(time.Minute)
		if n := claims.Load(); n != 4 {
			t.Errorf("there were %d claims, want one more for the one that found no space", n)
		}
	})
}

// However often an agent says that it is ready while there is no space, what it is owed is tried
// once a second.
func TestWhatIsOwedIsTriedOnceASecond(t *testing.T) {
	scarce := new(scarceStore)
	wrap := func(st store.Store) store.Store { scarce.Store = st; return scarce }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		var claims atomic.Int32
		scarce.claimed = func([]*store.Job, error) ([]*store.Job, error) { claims.Add(1); return nil, harp.ErrNoSpace }
		const readies = 5
		for range readies {
			agent.sendFrame(t, wire.TypeReady, wire.Ready{})
			synctest.Wait()
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if n := claims.Load(); n < readies+10 || n > readies+11 {
			t.Errorf("for %d there were %d claims in 10 s", readies, n)
		}
	})
}
