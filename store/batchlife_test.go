package store_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// plans are small batches of all shapes that differ in their lives.
func plans() []store.BatchPlan {
	var out []store.BatchPlan
	for _, waves := range [][]int{{1}, {2}, {1, 2}} {
		for _, stop := range []int{0, 1, 2} {
			for _, n := range []int{0, 1, 2, 4, 8, 15, 16, 31} {
				p := store.BatchPlan{Waves: waves, Parallel: 2, StopAfter: stop, MaxPause: time.Hour}
				p.Approve, p.StopCancel, p.ApproveFirst = n&1 > 0, n&2 > 0, n&16 > 0
				if n&4 > 0 {
					p.WavePause = time.Minute
				}
				if n&8 > 0 {
					p.Rate, p.RatePer, p.StartAfter = 1, time.Minute, begin.Add(time.Minute)
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// moves are what the members of a batch may come through.
var moves = []store.BatchEvent{
	{From: harp.StateQueued, To: harp.StateSent},
	{From: harp.StateQueued, To: harp.StateExpired},
	{From: harp.StateQueued, To: harp.StateCancelled},
	{From: harp.StateQueued, To: harp.StateCancelled, Marked: true},
	{From: harp.StateSent, To: harp.StateQueued},
	{From: harp.StateSent, To: harp.StateSucceeded},
	{From: harp.StateSent, To: harp.StateFailed},
}

// batchEvents are all events that are tried in each state.
var batchEvents = func() []store.BatchEvent {
	events := []store.BatchEvent{
		{Kind: store.MemberReached, To: harp.StateQueued},
		{Kind: store.MemberReached, To: harp.StateSent},
		{Kind: store.MemberSkipped, Reason: harp.ReasonOffline},
		{Kind: store.MemberCancelled},
		{Kind: store.MemberPassed},
		{Kind: store.MemberMarked, From: harp.StateQueued},
		{Kind: store.BatchSettled},
		{Kind: store.BatchPaused, By: ada, Reason: "lunch"},
		{Kind: store.BatchResumed, By: ada},
		{Kind: store.BatchResumed, By: ada, Wave: 2},
		{Kind: store.BatchCancel, By: ada},
	}
	for _, m := range moves {
		m.Kind = store.MemberMoved
		events = append(events, m)
	}
	return events
}()

var ada = harp.Principal{Kind: "caller", Name: "ada"}

// TestBatchLifeExplored takes small batches through all lives that are possible, time being now,
// a minute later or when all patience is over.
func TestBatchLifeExplored(t *testing.T) {
	for _, p := range plans() {
		x := explorer{t: t, plan: p, seen: map[batchPoint]bool{}}
		x.explore(store.BeginBatch(&p, begin), begin)
		if x.ends == 0 {
			t.Fatalf("no life of %+v ends", p)
		}
	}
}

type explorer struct {
	t    *testing.T
	plan store.BatchPlan
	seen map[batchPoint]bool
	ends int
}

// batchPoint is all of a life on which anything depends that may follow.
type batchPoint struct {
	state                                   harp.BatchState
	reason, stopped                         string
	wave, reached, skipped, failures, rated int
	counts                                  store.MemberCounts
	early                                   int
	marked                                  store.MemberCounts
	isCancelled                             bool
	wake, ratedAt, until, now               int64
}

func pointOf(l store.BatchLife, now time.Time) batchPoint {
	var until time.Time
	if l.Pause != nil {
		until = l.Pause.Until
	}
	return batchPoint{
		state: l.State, reason: l.Reason, stopped: l.Stopped,
		wave: l.Wave, reached: l.Reached, skipped: l.Skipped[harp.ReasonOffline], failures: l.Failures, rated: l.Rated,
		counts: l.Counts, early: l.Early, marked: l.Marked, isCancelled: l.Cancel != nil,
		wake: l.WakeAt.UnixNano(), ratedAt: l.RatedAt.UnixNano(), until: until.UnixNano(), now: now.UnixNano(),
	}
}

func (x *explorer) explore(l store.BatchLife, now time.Time) {
	point := pointOf(l, now)
	if x.seen[point] {
		return
	}
	x.seen[point] = true
	for _, e := range batchEvents {
		e.At = now
		next, err := l.Next(&x.plan, e)
		checkBatchStep(x.t, &x.plan, l, next, e, err)
		if err == nil {
			x.explore(next, now)
		}
	}
	if l.State.Ended() {
		x.ends++
		return
	}
	for _, later := range []time.Duration{time.Minute, 2 * time.Hour} {
		if at := begin.Add(later); at.After(now) {
			x.explore(l, at)
		}
	}
}

// checkBatchStep checks what has to be so of every event.
func checkBatchStep(t *testing.T, p *store.BatchPlan, l, next store.BatchLife, e store.BatchEvent, err error) {
	t.Helper()
	fail := func(rule string) {
		t.Helper()
		t.Fatalf("%s: %+v of\n%+v\nmakes\n%+v, %v", rule, e, l, next, err)
	}
	hosts := p.Waves[len(p.Waves)-1]
	skipped := 0
	for _, n := range next.Skipped {
		skipped += n
	}
	switch {
	case err != nil && !errors.Is(err, store.ErrIllegal):
		fail("what cannot follow is ErrIllegal")
	case err != nil && !reflect.DeepEqual(next, l):
		fail("an event that is refused changes nothing")
	case err != nil:
		return
	case next.Counts.All()+skipped != next.Reached+next.Early:
		fail("each host that was reached, or whose member was cancelled before, is counted once")
	case next.Reached+next.Early > hosts:
		fail("there are no more members than hosts")
	case next.Marked.Queued > next.Counts.Queued || next.Marked.Sent > next.Counts.Sent || next.Shown().Counts.All() != next.Counts.All():
		fail("what is marked is counted")
	case next.Reached > p.Waves[next.Wave-1]:
		fail("no host of a later wave is reached")
	case next.Wave < l.Wave || next.Wave > l.Wave+1:
		fail("waves come one after the other")
	case next.Wave > l.Wave && (l.Counts.Unended() > 0 || l.Reached < p.Waves[l.Wave-1]):
		fail("a wave is over when all its members have ended")
	case next.Reached > l.Reached && (l.State != harp.BatchRunning || e.At.Before(l.WakeAt) || e.At.Before(p.StartAfter)):
		fail("hosts are reached while the batch is running, and not before their time")
	case l.State.Ended() && !reflect.DeepEqual(next, l):
		fail("a batch that has ended never changes")
	case next.State.Ended() && next.Counts.Unended() > 0:
		fail("a batch ends when all its members have")
	case l.State == harp.BatchCancelling && next.State != harp.BatchCancelling && !next.State.Ended():
		fail("what is cancelling only ends")
	}
	if e.Kind != store.BatchSettled {
		return
	}
	isOver := next.Reached == hosts && next.Counts.Unended() == 0
	switch {
	case next.State == harp.BatchRunning && p.StopAfter > 0 && next.Failures >= p.StopAfter:
		fail("too many failures stop it")
	case isOver && !next.State.Ended():
		fail("it ends with its last member")
	case !next.State.Ended() && next.Counts.Unended() == 0 && next.NextDue(p).IsZero() && !next.MayReach(p, e.At):
		fail("something is still to come")
	case next.State == harp.BatchSucceeded && next.Counts.Succeeded+skipped != hosts:
		fail("it succeeds when all members did")
	case next.State == harp.BatchSucceeded && skipped == hosts:
		fail("it does not succeed without a member")
	case next.State == harp.BatchPaused && (next.Pause == nil || !next.Pause.Until.Equal(next.Pause.Time.Add(p.MaxPause)) || !next.NextDue(p).Equal(next.Pause.Until)):
		fail("a pause says until when")
	}
}

// batchWalk is a batch that is driven as a store does it: as many members as may hold a slot, and
// whatever happens settled at once.
type batchWalk struct {
	t     *testing.T
	r     *rand.Rand
	plan  store.BatchPlan
	life  store.BatchLife
	now   time.Time
	slots int // members in sent
}

func (w *batchWalk) apply(e store.BatchEvent) {
	w.t.Helper()
	e.At = w.now
	next, err := w.life.Next(&w.plan, e)
	checkBatchStep(w.t, &w.plan, w.life, next, e, err)
	if err != nil {
		w.t.Fatalf("%+v of %+v: %v", e, w.life, err)
	}
	w.life = next
	w.slots = next.Counts.Sent
}

func (w *batchWalk) step() {
	switch n := w.r.IntN(20); {
	case n == 0 && w.life.State == harp.BatchRunning:
		w.apply(store.BatchEvent{Kind: store.BatchPaused, By: ada})
	case n == 1 && w.life.State == harp.BatchPaused && w.r.IntN(3) > 0:
		w.apply(store.BatchEvent{Kind: store.BatchResumed, By: ada})
	case n == 2 && w.r.IntN(20) == 0:
		w.apply(store.BatchEvent{Kind: store.BatchCancel, By: ada})
	case n < 12:
		var possible []store.BatchEvent
		for _, m := range moves {
			if w.life.Counts.In(m.From) > 0 && (m.To != harp.StateSent || w.life.State == harp.BatchRunning && w.slots < w.plan.Parallel) {
				possible = append(possible, m)
			}
		}
		if len(possible) > 0 {
			m := possible[w.r.IntN(len(possible))]
			m.Kind = store.MemberMoved
			w.apply(m)
		}
	default:
		w.now = w.now.Add(time.Duration(w.r.IntN(100)) * time.Second)
	}
	w.apply(store.BatchEvent{Kind: store.BatchSettled})
	for w.slots < w.plan.Parallel && w.life.MayReach(&w.plan, w.now) {
		switch w.r.IntN(6) {
		case 0:
			w.apply(store.BatchEvent{Kind: store.MemberSkipped, Reason: harp.ReasonOffline})
		case 1:
			w.apply(store.BatchEvent{Kind: store.MemberReached, To: harp.StateQueued})
		default:
			w.apply(store.BatchEvent{Kind: store.MemberReached, To: harp.StateSent})
		}
	}
	w.apply(store.BatchEvent{Kind: store.BatchSettled})
}

// TestBatchLifeWalks drives larger batches at random: each of them ends, and says why.
func TestBatchLifeWalks(t *testing.T) {
	endings := map[string]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := plans()[r.IntN(len(plans()))]
		p.Waves = []int{2 + r.IntN(3), 10 + r.IntN(10), 40}
		p.Parallel, p.StopAfter = 1+r.IntN(5), r.IntN(2)*(1+r.IntN(12))
		w := batchWalk{t: t, r: r, plan: p, life: store.BeginBatch(&p, begin), now: begin}
		for n := 0; !w.life.State.Ended(); n++ {
			if n == 100_000 {
				t.Fatalf("seed %d: %+v does not end: %+v", seed, p, w.life)
			}
			w.step()
		}
		endings[string(w.life.State)+" "+w.life.Reason]++
	}
	for _, want := range []string{"failed failures", "failed ", "failed stopped", "cancelled requested"} {
		if endings[want] == 0 {
			t.Errorf("no batch ended as %q of %v", want, endings)
		}
	}
}

// TestBatchLifeReasons checks how batches end, and what is kept of why.
func TestBatchLifeReasons(t *testing.T) {
	reach := store.BatchEvent{Kind: store.MemberReached, To: harp.StateSent}
	skip := store.BatchEvent{Kind: store.MemberSkipped, Reason: harp.ReasonOffline}
	end := func(s harp.State) store.BatchEvent {
		return store.BatchEvent{Kind: store.MemberMoved, From: harp.StateSent, To: s}
	}
	settle := store.BatchEvent{Kind: store.BatchSettled}
	cancel := store.BatchEvent{Kind: store.BatchCancel, By: ada}
	two := store.BatchPlan{Waves: []int{2}, Parallel: 2, MaxPause: time.Hour}
	stopping, giving := two, two
	stopping.StopAfter, giving.StopAfter, giving.StopCancel = 1, 1, true
	asking := two
	asking.ApproveFirst = true
	resume, late := store.BatchEvent{Kind: store.BatchResumed, By: ada}, store.BatchEvent{Kind: store.BatchSettled, At: begin.Add(time.Hour)}
	for _, c := range []struct {
		name   string
		plan   store.BatchPlan
		events []store.BatchEvent
		state  harp.BatchState
		reason string
	}{
		{"all succeed", two, []store.BatchEvent{reach, reach, end(harp.StateSucceeded), end(harp.StateSucceeded)}, harp.BatchSucceeded, ""},
		{"one is skipped", two, []store.BatchEvent{reach, skip, end(harp.StateSucceeded)}, harp.BatchSucceeded, ""},
		{"all are skipped", two, []store.BatchEvent{skip, skip}, harp.BatchFailed, harp.BatchReasonNoHost},
		{"one fails", two, []store.BatchEvent{reach, reach, end(harp.StateSucceeded), end(harp.StateFailed)}, harp.BatchFailed, ""},
		{"a skipped one is no failure", stopping, []store.BatchEvent{skip}, harp.BatchRunning, ""},
		{"failures pause", stopping, []store.BatchEvent{reach, end(harp.StateExpired)}, harp.BatchPaused, harp.BatchReasonFailures},
		{"failures of the last", stopping, []store.BatchEvent{reach, reach, end(harp.StateSucceeded), end(harp.StateLost)}, harp.BatchFailed, harp.BatchReasonFailures},
		{"failures cancel", giving, []store.BatchEvent{reach, reach, end(harp.StateFailed)}, harp.BatchCancelling, harp.BatchReasonFailures},
		{"failures have cancelled", giving, []store.BatchEvent{reach, end(harp.StateTimedOut)}, harp.BatchFailed, harp.BatchReasonFailures},
		{"a cancel is no failure", stopping, []store.BatchEvent{reach, end(harp.StateCancelled)}, harp.BatchRunning, ""},
		{"a cancel waits", two, []store.BatchEvent{reach, cancel}, harp.BatchCancelling, harp.BatchReasonRequested},
		{"cancelled", two, []store.BatchEvent{reach, cancel, end(harp.StateCancelled)}, harp.BatchCancelled, harp.BatchReasonRequested},
		{"cancelled before the first", two, []store.BatchEvent{cancel}, harp.BatchCancelled, harp.BatchReasonRequested},
		{"a cancel that came too late", two, []store.BatchEvent{reach, reach, cancel, end(harp.StateSucceeded), end(harp.StateSucceeded)}, harp.BatchSucceeded, ""},
		{"restored", two, []store.BatchEvent{{Kind: store.BatchRestored}}, harp.BatchFailed, harp.BatchReasonRestored},
		{"to be approved", asking, nil, harp.BatchPaused, harp.BatchReasonApproval},
		{"paused as well", asking, []store.BatchEvent{{Kind: store.BatchPaused, By: ada}}, harp.BatchPaused, harp.BatchReasonApproval},
		{"approved", asking, []store.BatchEvent{resume}, harp.BatchRunning, ""},
		{"approved and done", asking, []store.BatchEvent{resume, reach, reach, end(harp.StateSucceeded), end(harp.StateSucceeded)}, harp.BatchSucceeded, ""},
		{"approved and cancelled", asking, []store.BatchEvent{resume, cancel}, harp.BatchCancelled, harp.BatchReasonRequested},
		{"not approved", asking, []store.BatchEvent{cancel}, harp.BatchCancelled, harp.BatchReasonNotApproved},
		{"nobody in time", asking, []store.BatchEvent{late}, harp.BatchCancelled, harp.BatchReasonApproval},
		{"unapproved and restored", asking, []store.BatchEvent{{Kind: store.BatchRestored}}, harp.BatchFailed, harp.BatchReasonRestored},
	} {
		l := store.BeginBatch(&c.plan, begin)
		for _, e := range append(c.events, settle) {
			var err error
			if e.At.IsZero() {
				e.At = begin
			}
			if l, err = l.Next(&c.plan, e); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if l.State != c.state || l.Reason != c.reason || l.State.Ended() == l.EndTime.IsZero() {
			t.Errorf("%s: %+v, want %s(%s)", c.name, l, c.state, c.reason)
		}
	}
}

// TestBatchLifeRestored checks that members which cannot be read, and so were not lost one by one, are counted as lost all the same.
func TestBatchLifeRestored(t *testing.T) {
	p := store.BatchPlan{Waves: []int{5}, Parallel: 5, MaxPause: time.Hour}
	w := batchWalk{t: t, plan: p, life: store.BeginBatch(&p, begin), now: begin}
	for _, s := range []harp.State{harp.StateQueued, harp.StateSent, harp.StateSent, harp.StateSent} {
		w.apply(store.BatchEvent{Kind: store.MemberReached, To: s})
	}
	w.apply(store.BatchEvent{Kind: store.MemberMoved, From: harp.StateSent, To: harp.StateSucceeded})
	w.apply(store.BatchEvent{Kind: store.MemberMoved, From: harp.StateSent, To: harp.StateUnknown})
	w.apply(store.BatchEvent{Kind: store.BatchRestored})
	if got := w.life.Counts; got != (store.MemberCounts{Succeeded: 1, Lost: 3}) {
		t.Errorf("its members are counted as %+v", got)
	}
}

// TestBatchLifePausedForTooLong checks that a batch which is cancelled as it was paused for too long is paused no more.
func TestBatchLifePausedForTooLong(t *testing.T) {
	p := store.BatchPlan{Waves: []int{2}, Parallel: 1, MaxPause: time.Hour}
	w := batchWalk{t: t, plan: p, life: store.BeginBatch(&p, begin), now: begin}
	w.apply(store.BatchEvent{Kind: store.MemberReached, To: harp.StateSent})
	w.apply(store.BatchEvent{Kind: store.BatchPaused, By: ada})
	w.now = begin.Add(time.Hour)
	w.apply(store.BatchEvent{Kind: store.BatchSettled})
	if w.life.State != harp.BatchCancelling || w.life.Pause != nil || !w.life.NextDue(&p).IsZero() {
		t.Errorf("it is %+v", w.life)
	}
}

// TestBatchLifeResumed checks that failures count anew once somebody has resumed the batch.
func TestBatchLifeResumed(t *testing.T) {
	p := store.BatchPlan{Waves: []int{9}, Parallel: 9, StopAfter: 2, MaxPause: time.Hour}
	w := batchWalk{t: t, plan: p, life: store.BeginBatch(&p, begin), now: begin}
	fail := func() {
		w.apply(store.BatchEvent{Kind: store.MemberReached, To: harp.StateSent})
		w.apply(store.BatchEvent{Kind: store.MemberMoved, From: harp.StateSent, To: harp.StateFailed})
		w.apply(store.BatchEvent{Kind: store.BatchSettled})
	}
	for range 2 {
		fail()
		if w.life.State != harp.BatchRunning {
			t.Fatalf("one failure makes it %+v", w.life)
		}
		fail()
		if w.life.State != harp.BatchPaused || !w.life.Pause.Until.Equal(begin.Add(time.Hour)) {
			t.Fatalf("two failures make it %+v", w.life)
		}
		w.apply(store.BatchEvent{Kind: store.BatchResumed, By: ada})
	}
}

// TestBatchLifeRate checks that no more hosts are reached within a span than the rate allows.
func TestBatchLifeRate(t *testing.T) {
	p := store.BatchPlan{Waves: []int{9}, Parallel: 9, Rate: 2, RatePer: time.Minute, MaxPause: time.Hour}
	w := batchWalk{t: t, plan: p, life: store.BeginBatch(&p, begin), now: begin}
	reached := 0
	for range 5 {
		for w.life.MayReach(&p, w.now) {
			w.apply(store.BatchEvent{Kind: store.MemberReached, To: harp.StateSent})
			reached++
		}
		if due := w.life.NextDue(&p); reached < 9 && !due.Equal(begin.Add(time.Duration(reached/2)*time.Minute)) {
			t.Fatalf("after %d the next is due at %v", reached, due)
		}
		w.now = w.now.Add(time.Minute)
	}
	if reached != 9 {
		t.Fatalf("%d of 9 are reached in five minutes", reached)
	}
	set := w.life.ClockSet(time.Hour)
	if !set.RatedAt.Equal(w.life.RatedAt.Add(time.Hour)) {
		t.Fatalf("with the clock set the span begins at %v, was %v", set.RatedAt, w.life.RatedAt)
	}
}
