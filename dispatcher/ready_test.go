package dispatcher_test

import (
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
func expectCall(t *testing.T, asked <-chan told) told {
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
		return told{}
	}
}

// notNow is an agent's answer that it is busy.
func (m told) notNow(t *testing.T) {
	t.Helper()
	m.say(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowBusy})
	close(m.over)
}

func expectNothing(t *testing.T, asked <-chan told) {
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
		agent.say(t, wire.TypeReady, wire.Ready{})

		// READY may also be heard before NOT_NOW, which it followed.
		m := expectCall(t, asked)
		agent.say(t, wire.TypeReady, wire.Ready{})
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
			agent.say(t, wire.TypeReady, wire.Ready{})
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
