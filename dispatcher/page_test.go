package dispatcher

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// TestPagesOfOneRecord reads a job whose records are so long that each fills a page.
func TestPagesOfOneRecord(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	st := memory.Open(nil)
	st.SetGate("h", store.Gate{Open: true, Most: 1})
	out, err := st.Submit(ctx, []store.Submission{{Job: store.Job{ID: harp.NewID(), Host: "h", Procedure: "p", OfflineWait: harp.NoLimit}}}, now)
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out[0].Err)
	}
	j := out[0].Job
	records := []harp.Record{{Value: harp.Value{1}}, {Value: harp.Value{2}}, {Value: harp.Value{3}}}
	if _, err := st.Append(ctx, store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, Records: records, Arrived: now}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Apply(ctx, store.Transition{ID: j.ID, Event: store.Event{Kind: store.End, At: now, Attempt: j.Attempt, Fence: j.Fence}}); err != nil {
		t.Fatal(err)
	}
	d, err := Open(ctx, st, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Shutdown(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	var got harp.Value
	q := harp.RecordQuery{MaxRecords: 1}
	for range records {
		page, err := d.readPage(ctx, j.ID, q)
		if err != nil || len(page.Records) != 1 || page.Ended != (len(got) == len(records)-1) {
			t.Fatalf("behind %v comes %+v, %v", got, page, err)
		}
		got, q.From = append(got, page.Records[0].Value...), page.Next
	}
	if !slices.Equal(got, harp.Value{1, 2, 3}) || q.From != 3 {
		t.Errorf("it has %v, and goes on at %d", got, q.From)
	}
}
