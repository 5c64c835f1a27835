package dispatcher_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// A caller that does not know whether its call arrived asks again. What is stored must
// not be refused then: the caller would take it for not started.
func TestWhatIsStoredIsNotRefusedWhenItIsCalledAgain(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory} {
		t.Run(string(w), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				sys := newSystem(t, w, memory.OpenDisk(disk, nil), dispatcher.Config{})
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				id := harp.NewID()
				host := sys.caller.Host("web01", harp.WhenOffline(harp.FailFast))
				call := func(opts ...harp.Option) {
					t.Helper()
					job, err := host.Call(t.Context(), "work", nil, opts...)
					if err != nil || job.ID() != id {
						t.Errorf("called again it gives %v", err)
					}
				}
				call(harp.JobID(id), harp.IdempotencyKey("k", time.Hour))
				disk.SetSpace(store.SpaceLow)
				call(harp.JobID(id), harp.IdempotencyKey("k", time.Hour))
				call(harp.IdempotencyKey("k", time.Hour))
				disk.SetSpace(store.SpacePlenty)
				agent.tr.Close(nil)
				synctest.Wait()
				call(harp.JobID(id), harp.IdempotencyKey("k", time.Hour))
				call(harp.IdempotencyKey("k", time.Hour))
				if _, err := host.Call(t.Context(), "work", nil); !errors.Is(err, harp.ErrUnreachable) {
					t.Errorf("a new call gives %v", err)
				}
			})
		})
	}
}
