package dispatcher_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// heldStore is a store that takes no stop and wakes no job while it is held.
type heldStore struct {
	store.Store
	isHeld  atomic.Bool
	proceed chan struct{} // closed when it goes on
}

func (s *heldStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind == store.Stop && s.isHeld.Load() {
		<-s.proceed
	}
	return s.Store.Apply(ctx, ts...)
}

func (s *heldStore) Wake(ctx context.Context, host string, now time.Time) error {
	if s.isHeld.Load() {
		<-s.proceed
	}
	return s.Store.Wake(ctx, host, now)
}

// A host whose session ends while more waits to be heard than there is room for comes back:
// what was not heard is asked for again.
func TestAHostComesBackWhoseSessionEndsBehindFullInboxes(t *testing.T) {
	for name, c := range map[string]struct {
		stops, readies int // that come before the end of the session
		value          int // bytes of the job's end
	}{
		"many frames of a job":     {stops: 17},
		"a long end of a job":      {stops: 2, value: 512 << 10},
		"many of the session":      {readies: 30},
		"no more than is received": {stops: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var held *heldStore
			hold := func(st store.Store) store.Store {
				held = &heldStore{Store: st, proceed: make(chan struct{})}
				return held
			}
			onStore(t, hold, func(t *testing.T, sys *system) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				job, m := sys.callRunning(t, asked)
				held.isHeld.Store(true)
				end := wire.End{Value: wire.Encode(bytes.Repeat([]byte{'x'}, c.value))}
				go func() { // until the session ends
					for n := range c.stops {
						_ = m.x.Send(wire.TypeStopping, false, wire.Encode(wire.Stopping{Cause: wire.CauseTimeout, Left: []int64{int64(n + 2)}}))
					}
					_ = m.x.Send(wire.TypeEnd, true, wire.Encode(end))
				}()
				go func() {
					for range c.readies {
						_ = agent.control.Send(wire.TypeReady, false, wire.Encode(wire.Ready{}))
					}
				}()
				synctest.Wait()
				agent.tr.Close(nil)
				synctest.Wait()
				held.isHeld.Store(false)
				close(held.proceed)
				agent = must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"},
					wire.HeldAttempt{Job: job.ID(), Attempt: 1, State: wire.HeldEnded, Fence: 1}))
				asked = agent.exchanges(t)
				synctest.Wait()
				select {
				case m = <-asked:
					m.sendFrame(t, wire.TypeEnd, true, end)
					m.expectAck(t)
				default: // its end was heard
				}
				if s := (interrupted{job: job}).status(t); s.State != harp.StateSucceeded {
					t.Errorf("the job is %s", s.State)
				}
				must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				if m := <-asked; m.call == nil {
					t.Errorf("the agent hears %+v, want a call", m)
				}
			})
		})
	}
}
