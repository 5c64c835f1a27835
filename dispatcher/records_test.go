package dispatcher_test

import (
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store/memory"
)

// Records that are almost nothing but their number are stored together as far as a commit
// takes them, however many come ahead of their acknowledgement.
func TestTinyRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames, each = 300, 800
		sys := newSystem(t, embedded, memory.Open(nil), dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		go agent.answerProbes()
		asked := agent.exchanges(t)
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		records := make([]wire.Record, each)
		for i := range records {
			records[i].Value = []byte{0xc0}
		}
		go func() {
			for n := range frames {
				if m.x.Send(wire.TypeRecords, false, wire.Encode(wire.Records{First: int64(n * each), Records: records})) != nil {
					return
				}
			}
		}()
		for next := int64(0); next < frames*each; {
			f, err := m.x.Receive(t.Context())
			if err != nil {
				t.Fatalf("after %d records: %v", next, err)
			}
			var ack wire.Ack
			if err := wire.Decode(f.Body, &ack); err != nil {
				t.Fatal(err)
			}
			next = ack.Next
		}
		if st := must[harp.JobStatus](t)(job.Status(t.Context())); st.Records != frames*each {
			t.Errorf("%d records", st.Records)
		}
		agent.tr.Close(nil)
	})
}
