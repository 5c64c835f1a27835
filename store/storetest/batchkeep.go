package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// batchReads are about what a batch tells, and how long it is kept.
var batchReads = []rule{
	{"batch/log", "the log tells records and ends in the order of their commits, numbered without gaps, from any number on", func(w *world) {
		b, first := w.begun(hostsOf(6), parallel(2))
		w.append(first[1], 0, harp.Record{}, harp.Record{})
		w.append(first[0], 0, harp.Record{})
		w.append(first[1], 2, harp.Record{})
		w.apply(first[1], store.End)
		w.change(b, store.BatchCancel)
		w.advanceAll()
		want := []store.BatchEntry{
			{No: 0, Kind: store.BatchMemberRecords, Index: 1, Host: "h001", Step: 1, First: 0, Count: 2},
			{No: 1, Kind: store.BatchMemberRecords, Index: 0, Host: "h000", Step: 1, First: 0, Count: 1},
			{No: 2, Kind: store.BatchMemberRecords, Index: 1, Host: "h001", Step: 1, First: 2, Count: 1},
			{No: 3, Kind: store.BatchMemberEnded, Index: 1, Host: "h001", Step: 1, Count: 1},
			{No: 4, Kind: store.BatchNotReached, Index: 3, Host: "h003", Step: 1, Count: 3},
		}
		if got := w.entries(b, 0); !slices.Equal(got, want) {
			w.Fatalf("the log is\n%+v, want\n%+v", got, want)
		}
		want[4] = store.BatchEntry{No: 6, Kind: store.BatchNotReached, Index: 5, Host: "h005", Step: 1, Count: 1}
		if got := w.entries(b, 6); !slices.Equal(got, want[4:]) {
			w.Fatalf("from 6 on the log is\n%+v, want\n%+v", got, want[4:])
		}
		for from := range uint64(8) {
			w.entries(b, from)
		}
	}},
	{"batch/events", "a batch tells what becomes of it, and of its members all but that they were submitted", func(w *world) {
		b, first := w.begun(hostsOf(3), parallel(1), waves(1, 3), member(func(j *store.Job) { j.Labels = map[string]string{"k": "v"} }))
		second := w.apply(first[0], store.End).Claimed
		w.change(b, store.BatchPaused)
		w.change(b, store.BatchResumed)
		w.change(b, store.BatchCancel)
		w.advanceAll()
		w.apply(w.job(second[0].ID), store.End)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		w.types(got, "batch.submitted", "job.sent", "job.succeeded", "batch.wave", "job.sent", "batch.paused", "batch.resumed",
			"batch.cancel_requested", "job.cancelling", "job.succeeded", "batch.cancelled")
		last := got[len(got)-1]
		if last.Counts[harp.StateSucceeded] != 2 || last.Labels["k"] != "v" || last.Procedure != "p" {
			w.Fatalf("the last event is %+v", last)
		}
		for _, e := range got {
			if e.Batch != b.ID {
				w.Fatalf("%s is of batch %q", e.Type, e.Batch)
			}
		}
		w.submit()
		f := harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID}
		if of := w.events(f); len(of) != len(got) {
			w.Fatalf("%d events are of the batch, want %d", len(of), len(got))
		}
		f.Types = []string{"batch.*"}
		w.types(w.events(f), "batch.submitted", "batch.wave", "batch.paused", "batch.resumed", "batch.cancel_requested", "batch.cancelled")
		f.Batch = harp.NewID()
		w.types(w.events(f))
	}},
	{"batch/events/counts", "the event of a batch's end counts all its members, also those of hosts that were not reached", func(w *world) {
		counts := func(b *store.Batch, want map[harp.State]int) {
			w.Helper()
			w.advanceAll()
			got := w.events(harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID, Types: []string{"batch.*"}})
			if last := got[len(got)-1]; !maps.Equal(last.Counts, want) {
				w.Fatalf("%s counts %v, want %v", last.Type, last.Counts, want)
			}
		}
		b := w.batch(hostsOf(5), plan(func(p *store.BatchPlan) { p.ApproveFirst = true }))
		w.change(b, store.BatchCancel)
		counts(b, map[harp.State]int{harp.StateCancelled: 5})
		b, first := w.begun(hostsOf(5), parallel(1), stopAfter(1), plan(func(p *store.BatchPlan) { p.StopCancel = true }))
		w.apply(w.members(b)[4], store.CancelReq)
		w.failure(first[0])
		counts(b, map[harp.State]int{harp.StateFailed: 1, harp.StateCancelled: 4})
	}},
	{"batch/list", "batches are listed newest first, in pages", func(w *world) {
		var want []string
		for n := range 5 {
			b := w.batch(hostsOf(1), member(func(j *store.Job) { j.Procedure = fmt.Sprint("p", n%2) }))
			want = append(want, b.ID)
			w.pass(time.Second)
		}
		w.advance()
		slices.Reverse(want)
		for _, f := range []store.BatchFilter{{Limit: 2}, {Limit: 2, Procedure: "p0"}, {Limit: 2, States: []harp.BatchState{harp.BatchSucceeded}}} {
			var got []string
			for cursor := ""; ; {
				page, err := w.st.ListBatches(w.ctx(), f, cursor)
				w.must(err)
				for _, b := range page.Batches {
					got = append(got, b.ID)
				}
				if cursor = page.Cursor; cursor == "" {
					break
				}
			}
			wanted := want
			switch {
			case f.Procedure != "":
				wanted = []string{want[0], want[2], want[4]}
			case f.States != nil:
				wanted = nil
			}
			if !slices.Equal(got, wanted) {
				w.Fatalf("with %+v listed are %v, want %v", f, got, wanted)
			}
		}
		_, err := w.st.ListBatches(w.ctx(), store.BatchFilter{}, "no cursor")
		w.wants(err, harp.ErrInvalid)
	}},
	{"batch/prune", "a batch is deleted whole, after its own end, and answers for its members from then on", func(w *world) {
		hosts := hostsOf(1203)
		b, first := w.begun(hosts, parallel(2000))
		for _, j := range first[1:] {
			w.apply(j, store.End)
		}
		w.pass(time.Hour)
		if did := w.prune(store.Retention{EndedBefore: w.now}); did.Jobs != 0 {
			w.Fatalf("%d jobs were deleted of a batch that has not ended", did.Jobs)
		}
		w.append(first[0], 0, harp.Record{Value: make(harp.Value, 1000)})
		w.apply(first[0], store.End)
		w.is(b, harp.BatchSucceeded, "", len(hosts))
		w.pass(time.Hour)
		did, err := w.st.Prune(w.ctx(), store.Retention{EndedBefore: w.now}, w.now)
		w.must(err)
		if !did.More {
			w.Fatal("all is deleted at once")
		}
		_, err = w.st.Batch(w.ctx(), b.ID)
		w.wants(err, harp.ErrPruned)
		w.prune(store.Retention{EndedBefore: w.now})
		for _, id := range []string{first[0].ID, first[1202].ID} {
			_, err = w.st.Job(w.ctx(), id)
			w.wants(err, harp.ErrPruned)
			_, err = w.st.Read(w.ctx(), id, 0, store.ReadLimit{})
			w.wants(err, harp.ErrPruned)
			_, err = w.st.Value(w.ctx(), id)
			w.wants(err, harp.ErrPruned)
		}
		_, err = w.st.BatchLog(w.ctx(), b.ID, 0, 10)
		w.wants(err, harp.ErrPruned)
		_, err = w.st.SubmitBatch(w.ctx(), w.batchOf(hosts, func(in *store.BatchSubmission) { in.Batch.ID = b.ID }), w.now)
		w.wants(err, harp.ErrPruned)
		page, err := w.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		w.ids(page.Jobs)
		batches, err := w.st.ListBatches(w.ctx(), store.BatchFilter{}, "")
		w.must(err)
		if len(batches.Batches) != 0 {
			w.Fatalf("listed is %+v", batches.Batches)
		}
	}},
	{"batch/clock", "of a wave's pause as much is left as before when the clock is set", func(w *world) {
		_, first := w.begun(hostsOf(2), waves(1, 2), plan(func(p *store.BatchPlan) { p.WavePause = time.Minute }))
		w.apply(first[0], store.End)
		w.setClock(24 * time.Hour)
		w.due(w.now.Add(time.Minute))
		w.pass(59 * time.Second)
		w.onHosts(w.advance().Claimed)
		w.pass(time.Second)
		w.onHosts(w.advance().Claimed, "h001")
	}},
	{"batch/large", "hosts are reached in commits that are not too big, however many there are", func(w *world) {
		hosts := hostsOf(2500)
		w.gate(hosts[:100]...)
		b := w.batch(hosts, parallel(5000))
		if did := w.advance(); len(did.Claimed) != 100 {
			w.Fatalf("%d are started, want 100", len(did.Claimed))
		}
		w.is(b, harp.BatchRunning, "", 2500)
		w.change(b, store.BatchCancel)
		did := w.advanceAll()
		if len(did.Ended) != 2400 || len(did.Asked) != 100 {
			w.Fatalf("%d have ended and %d are asked to stop", len(did.Ended), len(did.Asked))
		}
		w.checkBatch(b)
	}},
}

var reopeningBatches = []rule{
	{"batch/reopen", "a batch goes on where it was", func(w *world) {
		hosts := hostsOf(6)
		b, first := w.begun(hosts, parallel(2), waves(3, 6), plan(func(p *store.BatchPlan) { p.WavePause = time.Minute }))
		w.apply(first[0], store.End)
		w.checkBatch(b)
		w.reopen()
		w.checkBatch(b)
		w.onHosts(w.advance().Claimed)
		w.gate(hosts...)
		w.onHosts(w.claim(10, hosts...))
		w.checkBatch(b)
		for _, j := range w.members(b)[1:3] {
			w.apply(j, store.End)
		}
		w.is(b, harp.BatchRunning, "", 3)
		w.reopen()
		w.gate(hosts...)
		w.due(time.Unix(0, 1))
		w.onHosts(w.advance().Claimed)
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed, "h003", "h004")
		w.checkBatch(b)
	}},
	{"batch/reopen/new", "a batch that was stored and not begun is begun", func(w *world) {
		hosts := hostsOf(3)
		b := w.batch(hosts)
		w.reopen()
		w.gate(hosts...)
		w.onHosts(w.advance().Claimed, hosts...)
		w.checkBatch(b)
	}},
	{"batch/reopen/cancel", "a cancel that had not come to all members comes to the others", func(w *world) {
		hosts := hostsOf(4)
		b, _ := w.begun(hosts, parallel(2))
		w.change(b, store.BatchCancel)
		w.reopen()
		w.gate(hosts...)
		did := w.advanceAll()
		w.onHosts(did.Claimed)
		w.onHosts(did.Asked, "h000", "h001")
		w.checkBatch(b)
		w.reopen()
		w.onHosts(w.advanceAll().Asked)
		w.checkBatch(b)
	}},
	{"batch/reopen/pause", "a batch that is paused stays so", func(w *world) {
		hosts := hostsOf(3)
		w.gate("h000")
		b := w.batch(hosts, parallel(2))
		w.advance()
		w.change(b, store.BatchPaused)
		w.reopen()
		w.gate(hosts...)
		w.onHosts(w.claim(10, hosts...))
		w.onHosts(w.advance().Claimed)
		w.checkBatch(b)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h001")
		w.checkBatch(b)
	}},
	{"batch/reopen/ended", "a batch that has ended is read as it was", func(w *world) {
		b, first := w.begun(hostsOf(2))
		for _, j := range first {
			w.apply(j, store.End)
		}
		w.reopen()
		w.is(b, harp.BatchSucceeded, "", 2)
		w.checkBatch(b)
		w.onHosts(w.advance().Claimed)
	}},
}
