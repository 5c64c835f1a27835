package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const day = 24 * time.Hour

var retaining = []rule{
	{"retention/first", "the first rule that fits holds, by order and then by name; what none fits is kept as without rules", func(w *world) {
		w.keepBy(
			harp.RetentionRule{Name: "all", Order: 9, Procedure: "*", Keep: 2 * day},
			harp.RetentionRule{Name: "b", Order: 1, Labels: map[string]string{"env": "prod"}, Keep: 10 * day},
			harp.RetentionRule{Name: "a", Order: 1, Labels: map[string]string{"env": "prod"}, States: []harp.State{harp.StateFailed, harp.StateCancelled}, Keep: 20 * day},
			harp.RetentionRule{Name: "nightly", Schedule: "night*", Keep: harp.NoLimit},
		)
		for _, c := range []struct {
			of   store.Ending
			want string
		}{
			{store.Ending{State: harp.StateSucceeded, Procedure: "p", Labels: map[string]string{"env": "prod"}}, "b"},
			{store.Ending{State: harp.StateCancelled, Procedure: "p", Labels: map[string]string{"env": "prod", "x": "y"}}, "a"},
			{store.Ending{State: harp.StateCancelled, Procedure: "p", Labels: map[string]string{"env": "test"}}, "all"},
			{store.Ending{State: harp.StateCancelled, Procedure: "p", Schedule: "nightly", Labels: map[string]string{"env": "prod"}}, "nightly"},
		} {
			j := w.endedAs(c.of)
			if got := w.classOf(j); got != c.want {
				w.Fatalf("%+v is kept by rule %q, want %q", c.of, got, c.want)
			}
		}
		w.dropRule("all")
		if j := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"}); j.Class != 0 {
			w.Fatalf("what no rule fits is of class %d", j.Class)
		}
	}},
	{"retention/keep", "what a rule keeps goes when that says so, however long other jobs are kept", func(w *world) {
		w.keepBy(
			harp.RetentionRule{Name: "short", Procedure: "short", Keep: time.Hour},
			harp.RetentionRule{Name: "long", Procedure: "long", Keep: 30 * day},
			harp.RetentionRule{Name: "ever", Procedure: "ever", Keep: harp.NoLimit},
			harp.RetentionRule{Name: "size", Procedure: "size", MaxBytes: 1 << 30},
		)
		jobs := map[string]*store.Job{}
		for _, procedure := range []string{"short", "long", "ever", "size", "other"} {
			jobs[procedure] = w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: procedure})
		}
		keep := func(what string, r store.Retention, procedures ...string) {
			w.prune(r)
			for procedure, j := range jobs {
				_, err := w.st.Job(w.ctx(), j.ID)
				if is := slices.Contains(procedures, procedure); is != (err == nil) {
					w.Fatalf("%s: of %s it is said %v", what, procedure, err)
				}
			}
		}
		w.pass(time.Hour)
		keep("at its last moment", store.Retention{EndedBefore: w.now.Add(-day), RulesAt: w.now}, "short", "long", "ever", "size", "other")
		w.pass(1)
		keep("when nothing is said of rules", store.Retention{EndedBefore: w.now.Add(-day)}, "short", "long", "ever", "size", "other")
		keep("after an hour", store.Retention{EndedBefore: w.now.Add(-day), RulesAt: w.now}, "long", "ever", "size", "other")
		w.pass(2 * day)
		keep("when all others go", store.Retention{EndedBefore: w.now, RulesAt: w.now}, "long", "ever")
		w.pass(30 * day)
		keep("after a month", store.Retention{EndedBefore: w.now, RulesAt: w.now}, "ever")
		w.pass(10 * 365 * day)
		keep("after ten years", store.Retention{EndedBefore: w.now, RulesAt: w.now}, "ever")
		keep("for want of room", store.Retention{MaxBytes: 1})
	}},
	{"retention/changed", "a rule that is changed, or deleted, holds as it is for what ends from then on", func(w *world) {
		rule := harp.RetentionRule{Name: "r", Procedure: "p", Keep: day}
		w.keepBy(rule)
		first := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
		rule.Keep = 10 * day
		w.keepBy(rule)
		second := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
		w.dropRule("r")
		third := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
		w.pass(2 * day)
		w.prune(store.Retention{EndedBefore: w.now.Add(-5 * day), RulesAt: w.now})
		w.gone(first)
		w.job(second.ID)
		w.job(third.ID)
		w.pass(4 * day)
		w.prune(store.Retention{EndedBefore: w.now.Add(-5 * day), RulesAt: w.now})
		w.job(second.ID)
		w.gone(third)
		w.pass(5 * day)
		w.prune(store.Retention{RulesAt: w.now})
		w.gone(second)
		w.keepBy(harp.RetentionRule{Name: "r", Procedure: "p", Keep: 10 * day})
		if j := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"}); j.Class == first.Class {
			w.Fatal("the number of a class is given again to another")
		}
	}},
	{"retention/classes", "a class goes when nothing is of it and no rule is as it", func(w *world) {
		rule := harp.RetentionRule{Name: "r", Procedure: "p", Keep: day}
		for keep := range 5 {
			rule.Keep = time.Duration(keep+1) * day
			w.keepBy(rule)
			w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
			w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
		}
		if n := len(w.st.RetentionClasses()); n != 5 {
			w.Fatalf("there are %d classes, want 5", n)
		}
		w.pass(3*day + 1)
		w.prune(store.Retention{RulesAt: w.now})
		w.prune(store.Retention{RulesAt: w.now})
		for _, c := range w.st.RetentionClasses() {
			if c.Keep < 4*day || c.Rule != "r" {
				w.Fatalf("there is still the class %+v", c)
			}
		}
		if n := len(w.st.RetentionClasses()); n != 2 {
			w.Fatalf("there are %d classes, want 2", n)
		}
	}},
	{"retention/size", "when what a rule keeps stores more than that says, those of it that ended first are deleted, and nothing else", func(w *world) {
		const size = 100_000
		w.keepBy(harp.RetentionRule{Name: "r", States: []harp.State{harp.StateSucceeded}, MaxBytes: 3*size + 50_000})
		other := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"})
		var jobs []*store.Job
		for range 5 {
			w.pass(time.Second)
			jobs = append(jobs, w.ended(1, emits(size)))
		}
		if got := w.st.RetentionClasses()[0].Bytes; got < 5*size || got > 5*size+25_000 {
			w.Fatalf("the class stores %d bytes", got)
		}
		if did := w.prune(store.Retention{}); did.Jobs != 2 {
			w.Fatalf("%d jobs were deleted, want 2", did.Jobs)
		}
		w.gone(jobs[0])
		w.gone(jobs[1])
		w.job(jobs[2].ID)
		w.job(other.ID)
		if did := w.prune(store.Retention{MaxBytes: 1}); did.Jobs != 4 {
			w.Fatalf("%d jobs were deleted, want 4", did.Jobs)
		}
		if got := w.st.RetentionClasses()[0].Bytes; got != 0 {
			w.Fatalf("nothing of the class stores %d bytes", got)
		}
	}},
	{"retention/late", "what comes late of a job counts in its class", func(w *world) {
		w.keepBy(harp.RetentionRule{Name: "r", States: []harp.State{harp.StateLost}, MaxBytes: 1 << 20})
		j := w.running()
		c := w.try(j, store.Event{Kind: store.Lose, At: w.now, Reason: harp.LostForced})
		w.must(c.Err)
		had := w.st.RetentionClasses()[0].Bytes
		w.append(j, 0, harp.Record{Time: w.now, Value: append(harp.Value{0xc5, 0xea, 0x60}, make([]byte, 60_000)...)})
		if got := w.st.RetentionClasses()[0].Bytes; got < had+60_000 || got > had+61_000 {
			w.Fatalf("the class stores %d bytes after %d and 60,000 more", got, had)
		}
		w.prune(store.Retention{MaxBytes: 1})
		if got := w.st.RetentionClasses()[0].Bytes; got != 0 {
			w.Fatalf("nothing of the class stores %d bytes", got)
		}
	}},
	{"retention/latemember", "what comes late of a member counts in the class of its batch, whether that has ended or not", func(w *world) {
		w.keepBy(harp.RetentionRule{Name: "r", MaxBytes: 1 << 20})
		emits := func(j *store.Job, first uint64) {
			w.append(j, first, harp.Record{Time: w.now, Value: append(harp.Value{0xc5, 0xea, 0x60}, make([]byte, 60_000)...)})
		}
		b, jobs := w.begun(hostsOf(2), parallel(2), plan(func(p *store.BatchPlan) { p.StopAfter = 0 }))
		for n, j := range jobs {
			w.must(w.try(j, store.Event{Kind: store.Lose, At: w.now, Reason: harp.LostForced}).Err)
			if n == 0 {
				emits(j, 0)
			}
		}
		if got := w.readBatch(b); !got.State.Ended() || got.Counted < 60_000 || got.Counted > 64_000 {
			w.Fatalf("it is %s and stores %d bytes, want 60,000 and what two members take", got.State, got.Counted)
		}
		had := w.st.RetentionClasses()[0].Bytes
		emits(jobs[1], 0)
		emits(jobs[0], 1)
		if got := w.st.RetentionClasses()[0].Bytes; got < had+120_000 || got > had+122_000 {
			w.Fatalf("the class stores %d bytes after %d and 120,000 more", got, had)
		}
		late := w.event(jobs[1], store.End)
		late.Value = append(harp.Value{0xc5, 0x9c, 0x40}, make([]byte, 40_000)...)
		w.must(w.try(jobs[1], late).Err)
		if got := w.st.RetentionClasses()[0].Bytes; got < had+160_000 || got > had+163_000 {
			w.Fatalf("the class stores %d bytes after %d, 120,000 and 40,000 more", got, had)
		}
		w.prune(store.Retention{MaxBytes: 1})
		if got := w.st.RetentionClasses()[0].Bytes; got != 0 {
			w.Fatalf("nothing of the class stores %d bytes", got)
		}
	}},
	{"retention/total", "when all jobs store more than they may, those that ended first are deleted, whatever rules say", func(w *world) {
		const size, jobs = 50_000, 8
		w.keepBy(
			harp.RetentionRule{Name: "even", Labels: map[string]string{"n": "even"}, Keep: harp.NoLimit},
			harp.RetentionRule{Name: "third", Labels: map[string]string{"n": "third"}, Keep: day},
		)
		var all []*store.Job
		for n := range jobs {
			w.pass(time.Second)
			j := w.running(label("n", []string{"even", "odd", "third"}[n%3]))
			w.append(j, 0, harp.Record{Time: w.now, Value: append(harp.Value{0xc5, 0xc3, 0x50}, make([]byte, size)...)})
			all = append(all, w.apply(j, store.End).Job)
		}
		for left := jobs - 1; left >= 0; left-- {
			w.prune(store.Retention{MaxBytes: int64(left*size + size/2)})
			for n, j := range all {
				if n < jobs-left {
					w.gone(j)
				} else {
					w.job(j.ID)
				}
			}
		}
	}},
	{"retention/batch", "a batch is kept whole, by its own state and what it is of; its members have no class, until it has ended nothing goes of it", func(w *world) {
		w.keepBy(
			harp.RetentionRule{Name: "long", Procedure: "p", States: []harp.State{harp.StateFailed}, Keep: 30 * day},
			harp.RetentionRule{Name: "short", States: []harp.State{harp.StateSucceeded}, Keep: time.Hour, MaxBytes: 1},
		)
		b, first := w.begun(hostsOf(3), parallel(3), plan(func(p *store.BatchPlan) { p.StopAfter = 0 }))
		for _, j := range first[:2] {
			if ended := w.apply(j, store.End).Job; ended.Class != 0 {
				w.Fatalf("a member is of class %d", ended.Class)
			}
		}
		w.pass(2 * time.Hour)
		if did := w.prune(store.Retention{EndedBefore: w.now, RulesAt: w.now}); did.Jobs != 0 {
			w.Fatalf("%d members were deleted of a batch that has not ended", did.Jobs)
		}
		e := w.event(first[2], store.End)
		e.Failure = harp.Failure{Code: "remote", Message: "it failed"}
		w.must(w.try(first[2], e).Err)
		got, err := w.st.Batch(w.ctx(), b.ID)
		w.must(err)
		if got.State != harp.BatchFailed || w.ruleOf(got.Class) != "long" {
			w.Fatalf("it is %s, kept by %q", got.State, w.ruleOf(got.Class))
		}
		other, second := w.begun(hostsOf(2), parallel(2))
		for _, j := range second {
			w.apply(j, store.End)
		}
		for _, c := range w.st.RetentionClasses() {
			if c.Rule == "short" && c.Bytes < 500 {
				w.Fatalf("a batch of two hosts stores %d bytes", c.Bytes)
			}
		}
		if did := w.prune(store.Retention{}); did.Jobs != 2 {
			w.Fatalf("%d members were deleted of a batch that takes too much, want 2", did.Jobs)
		}
		_, err = w.st.Batch(w.ctx(), other.ID)
		w.wants(err, harp.ErrPruned)
		w.pass(29 * day)
		w.prune(store.Retention{EndedBefore: w.now, RulesAt: w.now})
		_, err = w.st.Batch(w.ctx(), b.ID)
		w.must(err)
		w.job(first[0].ID)
		w.pass(2 * day)
		if did := w.prune(store.Retention{RulesAt: w.now}); did.Jobs != 3 {
			w.Fatalf("%d members were deleted, want 3", did.Jobs)
		}
		_, err = w.st.Batch(w.ctx(), b.ID)
		w.wants(err, harp.ErrPruned)
		for _, c := range w.st.RetentionClasses() {
			if c.Bytes != 0 {
				w.Fatalf("nothing of the class stores %d bytes: %+v", c.Bytes, c)
			}
		}
	}},
	{"retention/many", "a Prune of many classes does a bounded part and says that there is more", func(w *world) {
		const each = 400
		var rules []harp.RetentionRule
		for n := range 3 {
			rules = append(rules, harp.RetentionRule{Name: fmt.Sprint(n), Procedure: fmt.Sprint("p", n), Keep: day})
		}
		w.keepBy(rules...)
		for n := range 3 {
			for range each / 100 {
				batch := make([]store.Submission, 100)
				for i := range batch {
					batch[i] = w.submission()
					batch[i].Job.Procedure = fmt.Sprint("p", n)
				}
				out, err := w.st.Submit(w.ctx(), batch, w.now)
				w.must(err)
				var ts []store.Transition
				for _, o := range out {
					ts = append(ts, store.Transition{ID: o.Job.ID, Event: w.event(o.Job, store.CancelReq)})
				}
				_, err = w.st.Apply(w.ctx(), ts...)
				w.must(err)
			}
		}
		w.pass(day + 1)
		first, err := w.st.Prune(w.ctx(), store.Retention{RulesAt: w.now}, w.now)
		w.must(err)
		if !first.More || first.Jobs == 0 || first.Jobs > 500 {
			w.Fatalf("the first call did %+v", first)
		}
		if rest := w.prune(store.Retention{RulesAt: w.now}); first.Jobs+rest.Jobs != 3*each {
			w.Fatalf("%d and %d jobs were deleted, want %d", first.Jobs, rest.Jobs, 3*each)
		}
	}},
	{"retention/bad", "what is the document of no rule is refused, and the rule that is there holds", func(w *world) {
		w.keepBy(harp.RetentionRule{Name: "r", Keep: day})
		for _, content := range [][]byte{{}, {0xc1}, []byte("no rule")} {
			w.wants(w.st.PutDocument(w.ctx(), store.RetentionKind, "r", content), harp.ErrInvalid)
			_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: store.RetentionKind, Name: "s", New: content}}})
			w.wants(err, harp.ErrInvalid)
		}
		if j := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "p"}); w.classOf(j) != "r" {
			w.Fatalf("it is kept by %q", w.classOf(j))
		}
	}},
}

var reopeningRetention = []rule{
	{"retention", "rules, and what has ended under them, are as they were", func(w *world) {
		w.keepBy(
			harp.RetentionRule{Name: "r", Procedure: "r", Keep: day, MaxBytes: 1 << 40},
			harp.RetentionRule{Name: "gone", Procedure: "gone", Keep: 10 * day},
		)
		first := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "r"})
		old := w.endedAs(store.Ending{State: harp.StateCancelled, Procedure: "gone"})
		waits := w.submission()
		waits.Job.Procedure = "r"
		out, err := w.st.Submit(w.ctx(), []store.Submission{waits}, w.now)
		w.must(err)
		w.dropRule("gone")
		had := w.st.RetentionClasses()
		w.reopen()
		if got := w.st.RetentionClasses(); fmt.Sprint(got) != fmt.Sprint(had) || len(got) != 2 || got[0].Bytes == 0 {
			w.Fatalf("the classes are %+v after %+v", got, had)
		}
		w.pass(day)
		second := w.apply(out[0].Job, store.CancelReq).Job
		if second.Class != first.Class {
			w.Fatalf("it is of class %d after %d", second.Class, first.Class)
		}
		w.pass(1)
		w.prune(store.Retention{RulesAt: w.now})
		w.gone(first)
		w.job(second.ID)
		w.job(old.ID)
		w.pass(9 * day)
		w.reopen()
		w.prune(store.Retention{RulesAt: w.now})
		w.gone(second)
		w.gone(old)
		w.reopen()
		for _, c := range w.st.RetentionClasses() {
			if c.Bytes != 0 {
				w.Fatalf("nothing of the class stores %d bytes: %+v", c.Bytes, c)
			}
		}
	}},
}

// keepBy makes rules of retention.
func (w *world) keepBy(rules ...harp.RetentionRule) {
	w.Helper()
	for _, r := range rules {
		doc := store.RetentionDocument{Rule: r}
		w.must(w.st.PutDocument(w.ctx(), store.RetentionKind, r.Name, doc.Encode()))
	}
}

// dropRule deletes a rule.
func (w *world) dropRule(name string) {
	w.Helper()
	is, err := w.st.Document(w.ctx(), store.RetentionKind, name)
	w.must(err)
	_, err = w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: store.RetentionKind, Name: name, Old: is}}})
	w.must(err)
}

// endedAs is a job that has ended so: as succeeded, or else as cancelled.
func (w *world) endedAs(e store.Ending) *store.Job {
	w.Helper()
	if e.State == harp.StateSucceeded {
		w.gate("h")
	}
	in := w.submission(on("away"))
	if e.State == harp.StateSucceeded {
		in = w.submission(on("h"))
	}
	in.Job.Procedure, in.Job.Schedule, in.Job.Labels = e.Procedure, e.Schedule, e.Labels
	out, err := w.st.Submit(w.ctx(), []store.Submission{in}, w.now)
	w.must(err)
	w.must(out[0].Err)
	if e.State == harp.StateSucceeded {
		return w.apply(out[0].Job, store.End).Job
	}
	return w.apply(out[0].Job, store.CancelReq).Job
}

// classOf is the name of the rule by which a job is kept.
func (w *world) classOf(j *store.Job) string {
	w.Helper()
	return w.ruleOf(w.job(j.ID).Class)
}

func (w *world) ruleOf(class uint32) string {
	for _, c := range w.st.RetentionClasses() {
		if c.No == class {
			return c.Rule
		}
	}
	return ""
}
