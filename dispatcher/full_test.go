package dispatcher_test

import (
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store/memory"
)

// A follower that keeps up sees of a job that has too many records what any other
// sees later: those that were stored.
func TestAFollowerOfAFullJobSeesWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, memory.Open(&memory.Options{MaxStored: 200}), dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		var followed []harp.Record
		var following sync.WaitGroup
		following.Go(func() {
			for r, err := range job.Follow(t.Context(), harp.Since(0)) {
				if err != nil {
					t.Error(err)
				}
				followed = append(followed, r)
			}
		})
		for n := range int64(20) {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: n, Records: []wire.Record{{Time: n + 1, Value: []byte{byte(n)}}}})
			synctest.Wait()
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Records: 20})
		m.expectAck(t)
		following.Wait()
		var stored []harp.Record
		for r, err := range job.Stream(t.Context(), harp.Since(0)) {
			if err != nil {
				t.Error(err)
			}
			stored = append(stored, r)
		}
		if len(stored) < 3 || len(stored) > 19 || !reflect.DeepEqual(followed, stored) {
			t.Errorf("followed are %d records, stored %d:\n%v\n%v", len(followed), len(stored), followed, stored)
		}
	})
}
