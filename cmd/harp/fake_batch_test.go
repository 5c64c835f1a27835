package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// batchFake is the batch that a fake dispatcher has.
type batchFake struct {
	preview harp.Preview
	unseen  error                            // of previews; nil: there is one
	status  func(asked int) harp.BatchStatus // how far it is when it is asked for the n-th time
	log     []harp.HostRecord
	more    chan harp.HostRecord // what comes of its log later; closed at its end
	changes []harp.BatchChange
	changed func() // is called when the batch is changed; nil: nothing happens
	refused error  // of changes
	asked   int
	silent  func(waits bool) bool // the dispatcher does not say how far it is, or how it ended; nil: it does
}

// batchOf is a batch on so many hosts, which all have returned the same but for those that failed.
func batchOf(id string, hosts int, failed ...string) batchFake {
	var b batchFake
	s := harp.BatchStatus{
		ID: id, Target: "demo*", Procedure: "count", State: harp.BatchSucceeded, Hosts: hosts, Reached: hosts, Wave: 1, Waves: 1,
		Counts: map[harp.State]int{}, SubmitTime: noon, EndTime: noon.Add(1500 * 1e6),
	}
	for i := range hosts {
		host := fmt.Sprintf("demo%d", i+1)
		end := harp.Result{State: harp.StateSucceeded, Value: harp.Value{0x03}}
		if slices.Contains(failed, host) {
			s.State, end = harp.BatchFailed, harp.Result{State: harp.StateFailed, Err: &harp.RemoteError{Type: "oops", Message: "no\x1b[2J"}}
		}
		s.Counts[end.State]++
		b.log = append(b.log, harp.HostRecord{Seq: uint64(i), Host: host, Job: harp.MemberID(id, host, 1), End: &end})
	}
	b.status = func(int) harp.BatchStatus { return s }
	return b
}

func (f *fake) BatchStatus(_ context.Context, id string, wait bool) (harp.BatchStatus, error) {
	b := &f.batches
	switch {
	case b.status == nil:
		return harp.BatchStatus{}, failures.NotFound("batch", id)
	case b.silent != nil && b.silent(wait):
		return harp.BatchStatus{}, harp.ErrUnavailable
	}
	b.asked++
	return b.status(b.asked), nil
}

func (f *fake) ListBatches(_ context.Context, filter harp.BatchFilter, _ string) (page harp.Page[harp.BatchStatus], _ error) {
	f.listed()
	if b := &f.batches; b.status != nil {
		if s := b.status(1); len(filter.States) == 0 || slices.Contains(filter.States, s.State) {
			page.Items = append(page.Items, s)
		}
	}
	return page, nil
}

func (f *fake) BatchLog(ctx context.Context, _ string, q harp.BatchQuery) (harp.BatchPage, error) {
	b := &f.batches
	end := uint64(len(b.log))
	if q.Tail {
		q.From = end
	}
	page := harp.BatchPage{Next: end, Ended: b.more == nil}
	for _, e := range b.log[min(q.From, end):] {
		if e.End != nil || q.Records {
			page.Entries = append(page.Entries, e)
		}
	}
	if len(page.Entries) > 0 || page.Ended {
		return page, nil
	}
	select {
	case e, more := <-b.more:
		if !more {
			page.Ended = true
			return page, nil
		}
		b.log = append(b.log, e)
		page.Entries, page.Next = []harp.HostRecord{e}, end+1
		return page, nil
	case <-ctx.Done():
		return harp.BatchPage{}, context.Cause(ctx)
	}
}

func (f *fake) ChangeBatch(_ context.Context, _, _ string, c harp.BatchChange) (int, error) {
	f.batches.changes = append(f.batches.changes, c)
	if f.batches.changed != nil {
		f.batches.changed()
	}
	return 7, f.batches.refused
}
