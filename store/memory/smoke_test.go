package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

func TestSmoke(t *testing.T) {
	st := memory.Open(nil)
	defer st.Close()
	ctx := context.Background()
	now := time.Now()
	q, _ := harp.QueueName(map[string]string{"a": "b"})
	mk := func() store.Submission {
		return store.Submission{Job: store.Job{ID: harp.NewID(), Host: "h", Procedure: "p", Queue: q, Concurrency: 1, OfflineWait: time.Minute, Labels: map[string]string{"k": "v"}}, Request: harp.Submission{Request: []byte("x")}}
	}
	a, b := mk(), mk()
	out, err := st.Submit(ctx, []store.Submission{a, b, a}, now)
	t.Logf("%+v %v", out, err)
	t.Log(st.NextDue().Sub(now))
	st.SetGate("h", store.Gate{Open: true, Most: 10})
	jobs, err := st.Claim(ctx, []string{"h"}, 10, now)
	t.Logf("%+v %v", jobs, err)
	j := jobs[0]
	j, err = st.Append(ctx, store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Records: []harp.Record{{Kind: "data", Value: harp.Value{1}}}, Arrived: now})
	t.Logf("%+v %v", j, err)
	recs, err := st.Read(ctx, j.ID, 0, 1000)
	t.Logf("%+v %v", recs, err)
	ch, err := st.Apply(ctx, store.Transition{ID: j.ID, Event: store.Event{Kind: store.End, At: now, Attempt: 1, Fence: j.Fence, Value: harp.Value{2}}})
	t.Logf("%+v %v", ch, err)
	v, err := st.Value(ctx, j.ID)
	t.Log(v, err)
	page, err := st.List(ctx, store.Filter{Host: "h", Labels: map[string]string{"k": "v"}, States: []harp.State{harp.StateSucceeded}}, "")
	t.Logf("%+v %v", page, err)
	t.Log(st.Queue(ctx, q))
	t.Log(st.Active(ctx, "h"))
	qc, err := st.CancelQueue(ctx, q, harp.CancelRequest{Time: now})
	t.Logf("%+v %v", qc, err)
}
