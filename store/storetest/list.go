package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var listing = []rule{
	{"list/order", "jobs are listed newest first", func(w *world) {
		var want []*store.Job
		for range 5 {
			want = append([]*store.Job{w.submit()}, want...)
			w.pass(time.Second)
		}
		w.listed(store.Filter{}, 100, want...)
		w.listed(store.Filter{}, 2, want...)
		w.listed(store.Filter{}, 1, want...)
	}},
	{"list/filter", "each field of a filter selects, all of them together", testListFilter},
	{"list/since", "Since is included, Until is not", func(w *world) {
		var all []*store.Job
		at := w.now
		for range 5 {
			all = append(all, w.submit())
			w.pass(time.Second)
		}
		w.listed(store.Filter{Since: at.Add(time.Second), Until: at.Add(3 * time.Second)}, 100, all[2], all[1])
		w.listed(store.Filter{Since: at.Add(time.Second), Host: "h"}, 1, all[4], all[3], all[2], all[1])
		w.listed(store.Filter{Until: at}, 100)
		w.listed(store.Filter{Until: at.Add(1), Procedure: "p"}, 100, all[0])
	}},
	{"list/states", "a job is found in the state it is in and in no other", func(w *world) {
		w.gate("h")
		states := []harp.State{harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown, harp.StateSucceeded}
		check := func(j *store.Job, is harp.State) {
			w.Helper()
			for _, s := range states {
				var want []*store.Job
				if s == is {
					want = []*store.Job{j}
				}
				w.listed(store.Filter{States: []harp.State{s}}, 10, want...)
			}
			w.listed(store.Filter{States: states}, 10, j)
		}
		j := w.submit(notBefore(w.now.Add(time.Hour)))
		check(j, harp.StateQueued)
		w.pass(time.Hour)
		j = w.advance().Claimed[0]
		check(j, harp.StateSent)
		for _, step := range []struct {
			kind store.Kind
			want harp.State
		}{
			{store.Started, harp.StateRunning},
			{store.Silent, harp.StateUnknown},
			{store.CancelReq, harp.StateUnknown},
			{store.Alive, harp.StateCancelling},
			{store.End, harp.StateSucceeded},
		} {
			w.apply(j, step.kind)
			check(j, step.want)
		}
	}},
	{"list/reason", "a listed job that waits says for what, as Job does", func(w *world) {
		w.submit()
		w.st.SetGate("h", store.Gate{Reason: "window"})
		page, err := w.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		if page.Jobs[0].Reason != "window" {
			w.Fatalf("reason is %q", page.Jobs[0].Reason)
		}
	}},
	{"list/cursor", "a cursor that the listing did not give, or gave for another filter, is ErrInvalid", func(w *world) {
		for range 3 {
			w.submit()
		}
		page, err := w.st.List(w.ctx(), store.Filter{Limit: 1}, "")
		w.must(err)
		if page.Cursor == "" {
			w.Fatal("there is more, and no cursor")
		}
		_, err = w.st.List(w.ctx(), store.Filter{Limit: 2}, page.Cursor)
		w.must(err)
		_, err = w.st.List(w.ctx(), store.Filter{Host: "h", Limit: 1}, page.Cursor)
		w.wants(err, harp.ErrInvalid)
		for _, bad := range []string{"x", "AAAA", page.Cursor + "A", page.Cursor[1:], "\x00"} {
			_, err = w.st.List(w.ctx(), store.Filter{}, bad)
			w.wants(err, harp.ErrInvalid)
		}
	}},
	{"list/new", "what is submitted while paging does not disturb the pages", func(w *world) {
		var all []*store.Job
		for range 4 {
			all = append(all, w.submit())
		}
		page, err := w.st.List(w.ctx(), store.Filter{Limit: 2}, "")
		w.must(err)
		w.ids(page.Jobs, all[3], all[2])
		w.submit()
		page, err = w.st.List(w.ctx(), store.Filter{Limit: 2}, page.Cursor)
		w.must(err)
		w.ids(page.Jobs, all[1], all[0])
	}},
	{"list/limit", "a page holds as many as asked for, and no more", func(w *world) {
		for range 7 {
			w.submit()
		}
		for _, n := range []int{1, 3, 7} {
			page, err := w.st.List(w.ctx(), store.Filter{Limit: n}, "")
			w.must(err)
			if len(page.Jobs) != n || page.Examined > store.MaxExamined {
				w.Fatalf("%d jobs of %d examined, want %d", len(page.Jobs), page.Examined, n)
			}
		}
	}},
}

// listed checks what a filter selects, paging to the end.
func (w *world) listed(f store.Filter, limit int, want ...*store.Job) {
	w.Helper()
	f.Limit = limit
	var got []*store.Job
	cursor := ""
	for range 1000 {
		page, err := w.st.List(w.ctx(), f, cursor)
		w.must(err)
		if len(page.Jobs) > limit || page.Examined > store.MaxExamined {
			w.Fatalf("a page of %d jobs, %d examined", len(page.Jobs), page.Examined)
		}
		got = append(got, page.Jobs...)
		if cursor = page.Cursor; cursor == "" {
			w.ids(got, want...)
			return
		}
	}
	w.Fatal("the pages do not end")
}

// testListFilter compares what each combination of fields selects with what a look
// at every job says.
func testListFilter(w *world) {
	w.gate("h0")
	var all []*store.Job
	for i := range 60 {
		settings := []setting{on(fmt.Sprint("h", i%3)), of(fmt.Sprint("p", i%4)), label("l", fmt.Sprint(i%2))}
		if i%5 > 0 {
			settings = append(settings, in(queue(fmt.Sprint(i%5))), slots(2))
		}
		all = append(all, w.submit(settings...))
		w.pass(time.Millisecond)
	}
	for mask := range 1 << 5 {
		var f store.Filter
		if mask&1 > 0 {
			f.Host = "h0"
		}
		if mask&2 > 0 {
			f.Procedure = "p1"
		}
		if mask&4 > 0 {
			f.Queue = queue("2")
		}
		if mask&8 > 0 {
			f.Labels = map[string]string{"l": "1"}
		}
		if mask&16 > 0 {
			f.States = []harp.State{harp.StateSent, harp.StateFailed}
		}
		var want []*store.Job
		for _, j := range slices.Backward(all) {
			if selects(f, j) {
				want = append(want, j)
			}
		}
		w.listed(f, 1+mask, want...)
	}
}

func selects(f store.Filter, j *store.Job) bool {
	for k, v := range f.Labels {
		if got, ok := j.Labels[k]; !ok || got != v {
			return false
		}
	}
	return (f.Host == "" || f.Host == j.Host) &&
		(f.Procedure == "" || f.Procedure == j.Procedure) &&
		(f.Queue == nil || string(f.Queue) == string(j.Queue)) &&
		(f.States == nil || slices.Contains(f.States, j.State))
}
