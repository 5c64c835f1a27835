package dispatcher_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// stuckAppends is a store that stores no records before it is let go on.
type stuckAppends struct {
	store.Store
	goOn chan struct{}
}

func (s stuckAppends) Append(ctx context.Context, in store.Append) (*store.Job, error) {
	select {
	case <-s.goOn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Store.Append(ctx, in)
}

// sendUntaken sends frames that nobody takes until it cannot.
func sendUntaken(x *transport.Exchange, typ transport.Type, message any) {
	for body := wire.Encode(message); x.Send(typ, false, body) == nil; {
	}
}

// A dispatcher ends a session of which it holds more than it may. That says nothing of the calls on it: one
// that its agent had, and has not answered, may run.
func TestASessionThatEndsOverBudgetProvesNothingOfItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := stuckAppends{memory.Open(nil), make(chan struct{})}
		sys := newSystem(t, embedded, st, dispatcher.Config{})
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := a.exchanges(t)
		alive(a)
		call := func() (interrupted, agentExchange) {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, unlimited...))
			return interrupted{job: job}, <-asked
		}
		_, m := call()
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		unanswered, _ := call()
		synctest.Wait()
		for range 8 { // other connections of the host, which say too much
			addr, tc, dial := sys.net.dial("dispatcher", "web01", transport.RoleAgent)
			conn := must[*transport.Conn](t)(transport.Client(t.Context(), must[net.Conn](t)(dial(t.Context(), addr)), tc, transport.ProtocolAgent, transport.RoleDispatcher))
			other := converse(t, conn, nil)
			go func() {
				_ = other.control.Send(wire.TypeHello, false, wire.Encode(wire.Hello{Version: wire.Version, Instance: "other"}))
				sendUntaken(other.control, wire.TypeReady, wire.Facts{Facts: make([]byte, 8<<10)})
			}()
		}
		synctest.Wait()
		value := must[harp.Value](t)(harp.NewValue(make([]byte, 8<<10)))
		go sendUntaken(m.x, wire.TypeRecords, wire.Records{Records: []wire.Record{{Time: 1, Value: value}}})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if a.tr.Err() == nil {
			t.Fatal("the session goes on")
		}
		close(st.goOn)
		if s := unanswered.status(t); s.State != harp.StateSent {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}

// An agent that has no room to be asked is asked again: for a call as for one that it has not taken, and for an
// attempt of an earlier session in the same one.
func TestAnAgentWithoutRoomIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		i := interrupt(t, sys, saidStart, false, unlimited...)
		sys.agents = transport.NewBudget() // one for both
		full := must[*rawAgent](t)(sys.greetAs(t.Context(), "web02", wire.Hello{Version: wire.Version, Instance: "full", Journal: "full"}, wire.Held{}))
		full.serve(func(x *transport.Exchange, _ transport.Frame) { <-x.Context().Done() })
		call := func(host string, args harp.Args) *harp.Job {
			t.Helper()
			return must[*harp.Job](t)(sys.caller.Host(host).Call(t.Context(), "work", args, unlimited...))
		}
		for range 62 {
			call("web02", harp.Args{"a": make([]byte, 1<<20-100)})
		}
		synctest.Wait() // else short ones could have the room of a long one, and leave some
		for range 200 { // until one is not taken
			call("web02", nil)
		}
		synctest.Wait()
		a, asked := i.again(t, sys, "j", wire.HeldAlive)
		alive(a)
		waits := interrupted{job: call("web01", nil)}
		time.Sleep(10 * time.Second)
		expectNothing(t, asked)
		if s := waits.status(t); s.State != harp.StateQueued || s.Reason != harp.ReasonAgentBusy {
			t.Errorf("the call is %s (%s)", s.State, s.Reason)
		}
		full.tr.Close(nil)
		time.Sleep(time.Minute)
		resumed, called := 0, 0
		for range 2 {
			switch m := <-asked; {
			case m.resume != nil:
				resumed++
			case m.call != nil:
				called++
			}
		}
		if resumed != 1 || called != 1 || a.tr.Err() != nil {
			t.Errorf("it is asked for %d attempts and %d calls, and its session ended with %v", resumed, called, a.tr.Err())
		}
	})
}
