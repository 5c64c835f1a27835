package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// batchWalk does at random what happens to a batch.
type batchWalk struct {
	*world
	r     *rand.Rand
	b     *store.Batch
	hosts []string
	ended map[string]harp.State // how members had ended that have
}

// checkEnded checks that what has ended stays so.
func (w *batchWalk) checkEnded() {
	w.Helper()
	for _, j := range w.members(w.b) {
		if had, is := w.ended[j.ID]; is && had != j.State {
			w.Fatalf("step %d on host %s had ended as %s and is %s(%s)", j.Step(), j.Host, had, j.State, j.Reason)
		}
		if j.State.Ended() {
			w.ended[j.ID] = j.State
		}
	}
}

// checkStarted checks that what an operation has started is of a batch that nothing has stopped, this operation included.
func (w *batchWalk) checkStarted(jobs []*store.Job) {
	w.Helper()
	for _, j := range jobs {
		if is := w.readBatch(w.b); j.Batch == w.b.ID && is.State != harp.BatchRunning {
			w.Fatalf("step %d on host %s is started in the operation in which its batch is %s(%s)", j.Step(), j.Host, is.State, is.Reason)
		}
	}
}

// advance is that of the world, each operation of which is checked.
func (w *batchWalk) advance() {
	w.Helper()
	for more := true; more; {
		did, err := w.st.Advance(w.ctx(), w.now)
		w.must(err)
		w.checkStarted(did.Claimed)
		more = did.More
	}
}

// claim is that of the world, and checked.
func (w *batchWalk) claim(n int, hosts ...string) {
	w.Helper()
	w.checkStarted(w.world.claim(n, hosts...))
}

func (w *batchWalk) step() {
	host := w.hosts[w.r.IntN(len(w.hosts))]
	switch n := w.r.IntN(28); {
	case n < 3:
		w.gate(host)
		w.claim(10, host)
	case n < 5:
		w.st.SetGate(host, store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
		_, err := w.st.Silence(w.ctx(), host, w.now, w.now.Add(time.Duration(1+w.r.IntN(300))*time.Second))
		w.must(err)
	case n == 5 && w.readBatch(w.b).State == harp.BatchRunning:
		w.change(w.b, store.BatchPaused)
	case n == 6 && w.readBatch(w.b).State == harp.BatchPaused:
		w.change(w.b, store.BatchResumed)
	case n == 7 && w.r.IntN(40) == 0:
		w.change(w.b, store.BatchCancel)
	case n == 8 && w.b.Member.Queue != nil && w.r.IntN(6) == 0:
		_, err := w.st.CancelQueue(w.ctx(), w.b.Member.Queue, store.Operation{ID: w.id(), By: caller, Time: w.now})
		if !errors.Is(err, harp.ErrNotFound) { // there may be none now
			w.must(err)
		}
	case n == 9 && w.r.IntN(4) == 0:
		all := w.members(w.b)
		j := all[w.r.IntN(len(all))]
		w.try(j, w.event(j, store.CancelReq)) // it may have ended
	case n < 10:
		w.pass(time.Duration(w.r.IntN(60)) * time.Second)
		w.advance()
	case n == 10 && w.b.Member.Queue != nil && w.r.IntN(2) == 0:
		until := w.now.Add(time.Duration(1+w.r.IntN(60)) * time.Second)
		err := w.st.ChangeQueue(w.ctx(), w.b.Member.Queue, harp.QueueChange{Paused: new(true), Until: until}, store.Operation{ID: w.id(), By: caller, Time: w.now})
		w.must(err)
	case n == 10:
		w.st.SetHolds(host, nil)
	case n < 14:
		from := time.Duration(w.r.IntN(60)-30) * time.Second
		w.setHolds(host, w.windowOf(from, from+time.Minute, func(is *window.Window) {
			is.Mode = []window.Mode{window.Hold, window.Refuse}[w.r.IntN(2)]
		}))
	default:
		w.moveSome()
	}
}

// moveSome lets something happen to one or two members that have an attempt, in one operation.
func (w *batchWalk) moveSome() {
	var ts []store.Transition
	all := w.members(w.b)
	for _, n := range w.r.Perm(len(all)) {
		j := all[n]
		if !store.HoldsSlot(j.State) || len(ts) == 2 {
			continue
		}
		kinds := []store.Kind{store.Started, store.End, store.End, store.End, store.NotNow, store.Lose, store.CancelReq}
		e := w.event(j, kinds[w.r.IntN(len(kinds))])
		e.Jitter = w.r.Float64()
		switch {
		case e.Kind == store.NotNow:
			e.Wake = w.now.Add(time.Duration(1+w.r.IntN(60)) * time.Second)
		case e.Kind == store.End && w.r.IntN(4) == 0:
			e.Failure = failures.New("remote", "no")
		}
		ts = append(ts, store.Transition{ID: j.ID, Event: e})
	}
	out, err := w.st.Apply(w.ctx(), ts...) // some of it may not be possible
	w.must(err)
	for _, c := range out {
		w.checkStarted(c.Claimed)
	}
}

// finish has every member end that has not.
func (w *batchWalk) finish() {
	w.gate(w.hosts...)
	for _, host := range w.hosts[:len(w.hosts)/2] {
		w.st.SetHolds(host, nil) // those of the others end
	}
	for n := 0; !w.readBatch(w.b).State.Ended(); n++ {
		if n == 200 {
			w.Fatalf("it does not end: %+v", w.readBatch(w.b))
		}
		if w.readBatch(w.b).State == harp.BatchPaused {
			w.change(w.b, store.BatchResumed)
		}
		w.pass(time.Minute)
		w.advance()
		w.claim(100, w.hosts...)
		for _, j := range w.members(w.b) {
			switch {
			case j.State == harp.StateUnknown:
				w.must(w.try(j, w.event(j, store.Lose)).Err)
			case store.HoldsSlot(j.State):
				w.apply(j, store.End)
			}
		}
		w.checkBatch(w.b)
	}
}

func walkBatch(seed uint64) func(w *world) {
	return func(w *world) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to be repeated
		hosts := hostsOf(12)
		b := w.batch(hosts, parallel(1+r.IntN(4)), waves([][]int{{12}, {1, 4, 12}, {6, 12}}[r.IntN(3)]...), stopAfter(r.IntN(5)), func(b *store.BatchSubmission) {
			b.Batch.SkipAway, b.Batch.SkipHeld = r.IntN(3) == 0, r.IntN(3) == 0
			b.Hosts[r.IntN(12)].Unfit = harp.ReasonUnfit
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed, harp.StateLost}, Attempts: 1 + r.IntN(3), Backoff: time.Second, MaxBackoff: time.Minute}
			if r.IntN(3) == 0 {
				b.Batch.Member.Queue, b.Batch.Member.Concurrency = queue("q"), 2
			}
			if b.Batch.Plan.WavePause = time.Minute; r.IntN(2) == 0 {
				b.Batch.Plan.Approve = true
			}
			b.Batch.Plan.ApproveFirst = r.IntN(4) == 0
			if seed%2 == 1 {
				for range 1 + r.IntN(4) {
					ending := []harp.Ending{"", "", harp.OnFailed, harp.OnEnded}[r.IntN(4)]
					b.Batch.Steps = append(b.Batch.Steps, store.BatchStep{Procedure: "then", On: ending, Classes: b.Batch.Classes})
				}
			}
		})
		walk := &batchWalk{world: w, r: r, b: b, hosts: hosts, ended: map[string]harp.State{}}
		for n := range 80 {
			walk.step()
			w.checkBatch(b)
			walk.checkEnded()
			if w.open != nil && n%20 == 19 {
				w.reopen()
				w.checkBatch(b)
			}
			if w.readBatch(b).State.Ended() {
				return
			}
		}
		walk.finish()
	}
}

const walkRule = "whatever happens to a batch, its counts are what its members say, no more than may hold a slot, waves come one after the other, the log has each end once, nothing is started in or after what stops it, and it ends"

// batchWalks are walks with different seeds.
func batchWalks(from, n uint64) (rules []rule) {
	for seed := from; seed < from+n; seed++ {
		rules = append(rules, rule{fmt.Sprintf("batch/walk/%d", seed), walkRule, walkBatch(seed)})
	}
	return rules
}
