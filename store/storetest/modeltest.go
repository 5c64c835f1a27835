package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// testModel does at random what a punctual dispatcher may do, to a store and to the
// model, and compares them after each step.
func testModel(t *testing.T, open func(t *testing.T) store.Store, place func(t *testing.T) func() (store.Store, error)) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(rt)
		if place != nil {
			d.open = place(t)
			d.reopen()
		} else {
			d.st = open(t)
		}
		defer func() { d.st.Close() }()
		actions := map[string]func(*rapid.T){
			"submit": d.submit, "submit more": d.submit, "claim": d.claim, "gate": d.gate,
			"event": d.event, "more events": d.event, "cancel": d.cancel, "pass": d.pass,
			"silence": d.silence, "change": d.change, "set the clock": d.clock, "ready": d.ready, "holds": d.holds,
			"": d.compare,
		}
		if place != nil {
			actions["reopen"] = func(*rapid.T) { d.reopen() }
		}
		rt.Repeat(actions)
	})
}

// testModelReady does what the random steps seldom do one after the other: the clock is set
// back behind the StartAfter of a job that its agent is too busy for, before a restart or
// after, and then the agent is ready.
func testModelReady(t *testing.T, place func(t *testing.T) func() (store.Store, error)) {
	for name, setBefore := range map[string]bool{"set before": true, "set after": false} {
		t.Run(name, func(t *testing.T) {
			d := newDuel(t)
			d.open = place(t)
			d.reopen()
			defer func() { d.st.Close() }()
			open := store.Gate{Open: true, Most: 1}
			d.setGate("h0", open)
			d.add(store.Submission{Job: store.Job{
				ID: harp.NewID(), Host: "h0", Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: d.now, Concurrency: 1,
				NotBefore: d.now.Add(time.Minute),
			}})
			d.tick(2 * time.Minute)
			if setBefore {
				d.setClock(-time.Hour)
			}
			j := d.m.jobs[0]
			d.happen(j, store.Event{Kind: store.NotNow, At: d.now, Wake: d.now.Add(time.Second), Attempt: j.Attempt, Fence: j.Fence})
			d.reopen()
			d.setGate("h0", open)
			if !setBefore {
				d.setClock(-time.Hour)
			}
			for _, passes := range []time.Duration{0, 2 * time.Hour} {
				d.tick(passes)
				d.wake("h0")
				d.compare(nil)
			}
			if j.State != harp.StateSent || j.Fence != 2 {
				t.Fatalf("it is %s, fence %d, and was not sent twice", j.State, j.Fence)
			}
		})
	}
}

func newDuel(t rapid.TB) *duel {
	d := &duel{TB: t, m: newModel(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ctx: context.Background()}
	d.m.paused = func(j *modelJob) time.Time {
		got, err := d.st.Job(d.ctx, j.ID)
		d.must(err)
		return got.WakeAt
	}
	return d
}

// duel is a store and the model of it.
type duel struct {
	rapid.TB
	st    store.Store
	open  func() (store.Store, error)
	m     *model
	now   time.Time
	ticks time.Duration
	ctx   context.Context //nolint:containedctx // of one run of a test
}

func (d *duel) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *duel) reopen() {
	if d.st != nil {
		d.must(d.st.Close())
		d.m.reopened()
	}
	var err error
	d.st, err = d.open()
	d.must(err)
}

// unlike is a duration that no two things share, so that what happens at one time
// has an order.
func (d *duel) unlike(at time.Duration) time.Duration {
	d.ticks++
	return at + d.ticks*1009
}

// tick lets a moment go by before an operation, or more, and does what falls due.
func (d *duel) tick(by time.Duration) {
	until := d.now.Add(d.unlike(by))
	for range 1000 {
		due := d.st.NextDue()
		if want := d.m.due(); !want.IsZero() && (due.IsZero() || due.After(want)) {
			d.Fatalf("next due is %v, want %v", due, want)
		}
		if due.IsZero() || due.After(until) {
			d.now = until
			return
		}
		if due.After(d.now) {
			d.now = due
		}
		d.advance()
	}
	d.Fatalf("something stays due: %v at %v", d.st.NextDue(), d.now)
}

func (d *duel) advance() {
	var ended, claimed []*store.Job
	for {
		did, err := d.st.Advance(d.ctx, d.now)
		d.must(err)
		ended, claimed = append(ended, did.Ended...), append(claimed, did.Claimed...)
		if !did.More {
			break
		}
	}
	wantEnded, wantClaimed := d.m.advance(d.now)
	d.same("ended", sorted(ended), sortedModel(wantEnded))
	d.same("claimed by time", sorted(claimed), sortedModel(wantClaimed))
}

func sorted(jobs []*store.Job) []string {
	var out []string
	for _, j := range jobs {
		out = append(out, describe(j))
	}
	slices.Sort(out)
	return out
}

func sortedModel(jobs []*modelJob) []string {
	var out []*store.Job
	for _, j := range jobs {
		out = append(out, &j.Job)
	}
	return sorted(out)
}

// describe is what must agree of a job, whatever its reason.
func describe(j *store.Job) string {
	return fmt.Sprintf("%d %s started %q attempt %d fence %d since %v wake %v cancel %v survivor %v outcome %v",
		j.No, j.State, j.Started, j.Attempt, j.Fence, j.Since.UnixNano(), j.WakeAt.UnixNano(), j.Cancel != nil, j.Survivor, j.Outcome)
}

func (d *duel) same(what string, got, want []string) {
	d.Helper()
	if !slices.Equal(got, want) {
		d.Fatalf("%s:\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

var hostNames = []string{"h0", "h1", "h2"}

func (d *duel) submit(t *rapid.T) {
	d.tick(0)
	var batch []store.Submission
	for range rapid.IntRange(1, 3).Draw(t, "jobs") {
		batch = append(batch, d.draw(t))
	}
	d.add(batch...)
}

// add submits jobs.
func (d *duel) add(batch ...store.Submission) {
	d.Helper()
	out, err := d.st.Submit(d.ctx, batch, d.now)
	d.must(err)
	for i, o := range out {
		d.must(o.Err)
		j := batch[i].Job
		j.No = o.Job.No
		want := d.m.submit(j, d.now)
		d.same("submitted", []string{describe(o.Job)}, []string{describe(&want.Job)})
	}
}

// draw makes a job.
func (d *duel) draw(t *rapid.T) store.Submission {
	j := store.Job{
		ID: harp.NewID(), Host: rapid.SampledFrom(hostNames).Draw(t, "host"), Procedure: rapid.SampledFrom([]string{"p", "p", "q"}).Draw(t, "procedure"),
		Priority:    rapid.IntRange(-1, 1).Draw(t, "priority"),
		OfflineWait: harp.NoLimit, SubmitTime: d.now, Concurrency: 1,
	}
	if q := rapid.IntRange(0, 2).Draw(t, "queue"); q > 0 {
		j.Queue, j.Concurrency = queue(fmt.Sprint(q)), rapid.IntRange(1, 3).Draw(t, "concurrency")
	}
	seconds := func(name string) time.Duration {
		return d.unlike(time.Duration(rapid.IntRange(0, 30).Draw(t, name)) * time.Second)
	}
	if rapid.Bool().Draw(t, "waits for its host") {
		j.OfflineWait = seconds("offline wait")
	}
	if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		j.NotBefore = d.now.Add(seconds("not before"))
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
		j.Expires = d.now.Add(seconds("expires"))
	}
	if rapid.IntRange(0, 3).Draw(t, "scheduled") == 0 {
		j.Schedule, j.FireTime = "s", d.now
	}
	j.ReadOnly = rapid.IntRange(0, 3).Draw(t, "read only") == 0
	if n := rapid.IntRange(0, 3).Draw(t, "attempts"); n > 1 {
		pause := seconds("backoff")
		j.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed}, Attempts: n, Backoff: pause, MaxBackoff: 2 * pause}
	}
	return store.Submission{Job: j}
}

func (d *duel) claim(t *rapid.T) {
	d.tick(0)
	hosts := rapid.SliceOfN(rapid.SampledFrom(hostNames), 1, 3).Draw(t, "hosts")
	n := rapid.IntRange(1, 4).Draw(t, "n")
	got, err := d.st.Claim(d.ctx, hosts, n, d.now)
	d.must(err)
	d.claimed(got, d.m.claim(hosts, n, d.now))
}

// claimed compares jobs in their order.
func (d *duel) claimed(got []*store.Job, want []*modelJob) {
	d.Helper()
	var a, b []string
	for _, j := range got {
		a = append(a, describe(j))
	}
	for _, j := range want {
		b = append(b, describe(&j.Job))
	}
	d.same("claimed", a, b)
}

func (d *duel) gate(t *rapid.T) {
	d.tick(0)
	g := store.Gate{Open: rapid.Bool().Draw(t, "open"), Most: rapid.IntRange(0, 3).Draw(t, "most")}
	if !g.Open {
		g.Reason = rapid.SampledFrom([]string{harp.ReasonOffline, harp.ReasonOffline, "window"}).Draw(t, "reason")
		g.LastHeard = d.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "heard")) * time.Second)
	}
	d.setGate(rapid.SampledFrom(hostNames).Draw(t, "host"), g)
}

func (d *duel) setGate(host string, g store.Gate) {
	d.m.setGate(host, g)
	d.st.SetGate(host, g)
}

var kinds = []store.Kind{
	store.Started, store.NotNow, store.NotNow, store.NotNow, store.Refused, store.CancelReq, store.Stop, store.End, store.End, store.Silent,
	store.Withdrawn, store.Alive, store.Lose, store.Lose, store.Expire, store.Gone,
}

// event lets something happen to a job, often what may.
func (d *duel) event(t *rapid.T) {
	d.tick(0)
	var candidates []*modelJob
	for _, j := range d.m.jobs {
		if !j.State.Ended() {
			candidates = append(candidates, j)
		}
	}
	if len(candidates) == 0 {
		t.Skip("no job")
	}
	j := rapid.SampledFrom(candidates).Draw(t, "job")
	e := store.Event{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), At: d.now, Attempt: j.Attempt, Fence: j.Fence}
	if e.Kind == store.NotNow && rapid.Bool().Draw(t, "later") {
		e.Wake = d.now.Add(d.unlike(time.Second))
	}
	d.fill(t, &e)
	d.happen(j, e)
}

// happen lets an event happen to a job.
func (d *duel) happen(j *modelJob, e store.Event) {
	d.Helper()
	effect, claimed, wantErr := d.m.apply(j, e)
	out, err := d.st.Apply(d.ctx, store.Transition{ID: j.ID, Event: e})
	d.must(err)
	if (wantErr == nil) != (out[0].Err == nil) {
		d.Fatalf("%s in %s: %v, want %v", e.Kind, j.State, out[0].Err, wantErr)
	}
	if wantErr != nil {
		d.m.latest = d.now
		return
	}
	if out[0].Effect != effect {
		d.Fatalf("%s: effect %+v, want %+v", e.Kind, out[0].Effect, effect)
	}
	d.claimed(out[0].Claimed, claimed)
}

// fill draws what an event has to say.
func (d *duel) fill(t *rapid.T, e *store.Event) {
	switch e.Kind {
	case store.Stop:
		e.Stopping = &store.Stopping{Cause: harp.LimitSilenceTimeout}
	case store.End:
		e.Jitter = float64(rapid.IntRange(0, 1).Draw(t, "jitter"))
		switch rapid.IntRange(0, 3).Draw(t, "end") {
		case 0, 1:
			e.Failure = failures.New("remote", "no")
		case 2:
			e.Stopping = &store.Stopping{Cause: "cancel"}
		}
	case store.Lose:
		e.Jitter = float64(rapid.IntRange(0, 1).Draw(t, "jitter"))
		e.Reason = rapid.SampledFrom([]string{harp.LostAgentRestarted, harp.LostTooLong, harp.LostForced, ""}).Draw(t, "reason")
	case store.Silent:
		e.Wake = d.now.Add(d.unlike(10 * time.Second))
	default:
	}
}

func (d *duel) silence(t *rapid.T) {
	d.tick(0)
	host := rapid.SampledFrom(hostNames).Draw(t, "host")
	lostAt := d.now.Add(d.unlike(time.Duration(rapid.IntRange(0, 30).Draw(t, "patience")) * time.Second))
	got, err := d.st.Silence(d.ctx, host, d.now, lostAt)
	d.must(err)
	d.claimed(got, d.m.silence(host, d.now, lostAt))
}

func (d *duel) change(t *rapid.T) {
	d.tick(0)
	q := queue(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "queue")))
	var c harp.QueueChange
	if rapid.Bool().Draw(t, "pause") {
		is := rapid.Bool().Draw(t, "paused")
		c.Paused = &is
		if rapid.Bool().Draw(t, "ends") {
			c.Reason, c.Until = "disk", d.now.Add(d.unlike(time.Duration(rapid.IntRange(1, 60).Draw(t, "until"))*time.Second))
		}
	}
	if n := rapid.IntRange(-1, 4).Draw(t, "concurrency"); n >= 0 {
		c.Concurrency = &n
	}
	err := d.st.ChangeQueue(d.ctx, q, c, store.Operation{By: somebody, Time: d.now})
	if is := d.m.change(q, c, d.now); is != (err == nil) {
		d.Fatalf("changed a queue that is there, %v: %v", is, err)
	}
}

func (d *duel) cancel(t *rapid.T) {
	d.tick(0)
	q := queue(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "queue")))
	by := harp.CancelRequest{By: somebody, Time: d.now}
	done, err := d.st.CancelQueue(d.ctx, q, store.Operation{By: by.By, Time: by.Time})
	isThere := d.m.queues[string(q)] != nil
	want := d.m.cancelQueue(q, by)
	if isThere != (err == nil) || done.Count != want {
		d.Fatalf("cancelled %d of %d: %v", done.Count, want, err)
	}
}

func (d *duel) pass(t *rapid.T) {
	d.tick(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
}

func (d *duel) ready(t *rapid.T) {
	d.tick(0)
	d.wake(rapid.SampledFrom(hostNames).Draw(t, "host"))
}

func (d *duel) wake(host string) {
	d.Helper()
	d.must(d.st.Wake(d.ctx, host, d.now))
	d.m.ready(host, d.now)
}

func (d *duel) clock(t *rapid.T) {
	d.tick(0)
	d.setClock(d.unlike(time.Duration(rapid.IntRange(-100, 100).Draw(t, "seconds")) * time.Second))
	d.tick(0)
}

// compare looks at every job and queue.
func (d *duel) compare(*rapid.T) {
	for _, j := range d.m.jobs {
		got, err := d.st.Job(d.ctx, j.ID)
		d.must(err)
		d.same("job", []string{describe(got)}, []string{describe(&j.Job)})
		if j.State == harp.StateQueued && got.Reason != d.m.reason(j) {
			d.Fatalf("number %d waits for %q, want %q", j.No, got.Reason, d.m.reason(j))
		}
		d.compareObstacles(got, j)
		if got.QueuePos != d.m.place(j) {
			d.Fatalf("number %d has place %d, want %d", j.No, got.QueuePos, d.m.place(j))
		}
	}
	for _, host := range hostNames {
		got, err := d.st.Returning(d.ctx, host)
		d.must(err)
		d.same("returning", sorted(got), sortedModel(d.m.returning(host)))
	}
	for i := 1; i <= 2; i++ {
		d.compareQueue(queue(fmt.Sprint(i)))
	}
}

// compareObstacles looks whether what a job waits for is the first of all that keeps it from starting.
func (d *duel) compareObstacles(got *store.Job, j *modelJob) {
	d.Helper()
	obstacles, err := d.st.Obstacles(d.ctx, j.ID)
	d.must(err)
	want := got.Reason
	switch {
	case j.State != harp.StateQueued:
		if len(obstacles) > 0 {
			d.Fatalf("number %d is %s, and waits for %+v", j.No, j.State, obstacles)
		}
		return
	case j.Survivor:
		want = harp.ObstacleLastAttempt
	case j.isLate(d.m.latest) || len(obstacles) == 0 && want == harp.ReasonQueue || d.m.looksAgain(j.Host):
		return // it is about to expire, or to start, or to be looked at
	}
	if len(obstacles) == 0 || obstacles[0].Reason != want {
		d.Fatalf("number %d waits for %q, and for %+v", j.No, want, obstacles)
	}
}

func (d *duel) compareQueue(q harp.Value) {
	running := d.m.count(func(j *modelJob) bool { return string(j.Queue) == string(q) && store.HoldsSlot(j.State) })
	waiting := d.m.count(func(j *modelJob) bool { return string(j.Queue) == string(q) && j.State == harp.StateQueued })
	s, err := d.st.Queue(d.ctx, q)
	is := d.m.queues[string(q)]
	if is == nil {
		if err == nil || running+waiting > 0 {
			d.Fatalf("a queue without jobs is there: %+v", s)
		}
		return
	}
	d.must(err)
	if s.Running != running || s.Waiting != waiting || s.Concurrency != is.concurrency || s.Paused != (is.pause != nil) || !reflect.DeepEqual(s.Pause, is.pause) {
		d.Fatalf("queue is %+v, want running %d, waiting %d, %+v", s, running, waiting, *is)
	}
}
