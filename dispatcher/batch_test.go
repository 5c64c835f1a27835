package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
)

// hostName is a procedure that says on which host it runs.
var hostName = harp.NewProc[struct{}, string]("host.name")

// ofBatches offers what the tests of batches call.
func ofBatches(a *agent.Agent) {
	greeter(a)
	agent.Handle(a, hostName, func(ctx context.Context, _ struct{}) (string, error) {
		info, _ := agent.FromContext(ctx)
		return info.Host, nil
	})
	agent.Handle(a, harp.NewProc[failArgs, string]("fail.on"), func(ctx context.Context, in failArgs) (string, error) {
		info, _ := agent.FromContext(ctx)
		if slices.Contains(in.Hosts, info.Host) {
			return "", agent.Errorf("asked", nil, "it was asked for")
		}
		return "fine", nil
	})
}

type failArgs struct {
	Hosts []string `json:"hosts"`
}

// webs connects so many agents of batches, web01 and on.
func (s *system) webs(n int) (names []string) {
	s.t.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("web%02d", i+1))
		s.agent(names[i], ofBatches)
	}
	return names
}

// allOf are all that a sequence yields.
func allOf[T any](t testing.TB, seq iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// ended waits for a batch and checks how it ended.
func ended(t testing.TB, b *harp.Batch, state harp.BatchState, reason string) harp.BatchStatus {
	t.Helper()
	s, err := b.Wait(t.Context())
	if err != nil || s.State != state || s.Reason != reason {
		t.Fatalf("the batch is %s(%s), want %s(%s): %+v, %v", s.State, s.Reason, state, reason, s, err)
	}
	return s
}

// A batch calls a procedure on each host that a target selects, each call a job of its own, and tells
// how each ended.
func TestBatch(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		names := sys.webs(5)
		id := harp.NewID()
		b := must[*harp.Batch](t)(hostName.Run(ctx, sys.caller.Target("web*"), struct{}{}, harp.JobID(id), harp.Label("k", "v"), harp.Parallel(2)))
		if b.ID() != id || b.Existed() {
			t.Errorf("the batch is %s, existed %v", b.ID(), b.Existed())
		}
		s := ended(t, b, harp.BatchSucceeded, "")
		if s.ID != id || s.Target != "web*" || s.Procedure != "host.name" || s.Hosts != 5 || s.Reached != 5 || s.Waves != 1 || s.Parallel != 2 ||
			s.Counts[harp.StateSucceeded] != 5 || len(s.Counts) != 1 || s.Labels["k"] != "v" || s.EndTime.IsZero() {
			t.Errorf("the status is %+v", s)
		}
		results := allOf(t, b.Results(ctx))
		var hosts []string
		for n, r := range results {
			hosts = append(hosts, r.Host)
			if r.Seq != uint64(n) || r.Job != harp.MemberID(id, r.Host, 1) || r.State != harp.StateSucceeded || r.Err != nil {
				t.Errorf("result %d is %+v", n, r)
			}
			var name string
			if err := r.Value.Decode(&name); err != nil || name != r.Host {
				t.Errorf("%s returned %q, %v", r.Host, name, err)
			}
			if got := must[string](t)(hostName.Get(ctx, b.Job(r.Host))); got != r.Host {
				t.Errorf("the job on %s returned %s", r.Host, got)
			}
		}
		if slices.Sort(hosts); !slices.Equal(hosts, names) {
			t.Errorf("the results are of %v", hosts)
		}
		if rest := allOf(t, b.Results(ctx, harp.Since(3))); len(rest) != 2 || rest[0].Host != results[3].Host {
			t.Errorf("from 3 on there are %+v", rest)
		}
		testMembers(t, sys, b, names)
		testSameBatch(t, sys, b)
	})
}

// testMembers checks that the members of a batch are jobs as all others.
func testMembers(t *testing.T, sys *system, b *harp.Batch, names []string) {
	ctx := t.Context()
	jobs := allOf(t, sys.caller.Jobs(ctx, harp.JobFilter{Batch: b.ID()}))
	for n, j := range jobs {
		if j.Host != names[n] || j.Batch != b.ID() || j.ID != b.Job(j.Host).ID() || j.State != harp.StateSucceeded || j.Labels["k"] != "v" {
			t.Errorf("job %d is %+v", n, j)
		}
	}
	if len(jobs) != len(names) || len(allOf(t, sys.caller.Jobs(ctx, harp.JobFilter{Procedure: "host.name"}))) != len(names) {
		t.Errorf("%d jobs are of the batch", len(jobs))
	}
	page := must[harp.Page[harp.JobStatus]](t)(sys.caller.JobsPage(ctx, harp.JobFilter{Batch: b.ID(), Limit: 2}, ""))
	next := must[harp.Page[harp.JobStatus]](t)(sys.caller.JobsPage(ctx, harp.JobFilter{Batch: b.ID(), Limit: 2}, page.Cursor))
	if len(page.Items) != 2 || len(next.Items) != 2 || next.Items[0].Host != names[2] {
		t.Errorf("pages of two are %+v, %+v", page, next)
	}
	if failed := allOf(t, sys.caller.Jobs(ctx, harp.JobFilter{Batch: b.ID(), States: []harp.State{harp.StateFailed}})); len(failed) > 0 {
		t.Errorf("failed are %+v", failed)
	}
	events := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID(), Types: []string{"batch.*"}}, false))
	if n := len(events.Events); n != 2 || events.Events[1].Type != harp.EventBatchSucceeded || events.Events[1].Counts[harp.StateSucceeded] != len(names) {
		t.Errorf("the events are %+v", events.Events)
	}
	again := must[*harp.Job](t)(b.Job(names[0]).Retry(ctx))
	if s := must[harp.JobStatus](t)(again.Status(ctx)); s.Host != names[0] || s.RetryOf != b.Job(names[0]).ID() || s.Batch != "" {
		t.Errorf("made again it is %+v", s)
	}
	if _, err := b.Job("web99").Status(ctx); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("a job on a host that is not in the batch: %v", err)
	}
	all := allOf(t, sys.caller.Batches(ctx, harp.BatchFilter{States: []harp.BatchState{harp.BatchSucceeded}}))
	if len(all) != 1 || all[0].ID != b.ID() {
		t.Errorf("the batches are %+v", all)
	}
}

// testSameBatch checks that a batch is submitted once.
func testSameBatch(t *testing.T, sys *system, b *harp.Batch) {
	ctx := t.Context()
	again := must[*harp.Batch](t)(sys.caller.Target("  web*").Call(ctx, "host.name", harp.Args{}, harp.JobID(b.ID()), harp.MaxHosts(1)))
	if again.ID() != b.ID() || !again.Existed() {
		t.Errorf("submitted again it is %s, existed %v", again.ID(), again.Existed())
	}
	if _, err := sys.caller.Target("web01").Call(ctx, "host.name", harp.Args{}, harp.JobID(b.ID())); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another request under its id: %v", err)
	}
	if _, err := sys.caller.Host("web01").Call(ctx, "host.name", nil, harp.JobID(b.ID())); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("a job under its id: %v", err)
	}
	key := harp.IdempotencyKey("k", 24*time.Hour)
	first := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, key))
	second := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, key))
	if first.ID() != second.ID() || !second.Existed() {
		t.Errorf("under one key there are %s and %s", first.ID(), second.ID())
	}
	id := harp.NewID()
	_, err := sys.caller.Target("web*").Call(ctx, "host.name", nil, key, harp.JobID(id), harp.Queue(harp.Args{"q": 1}))
	if !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "batch "+first.ID()) || strings.Contains(err.Error(), id) {
		t.Errorf("another batch under its key: %v", err)
	}
	ended(t, first, harp.BatchSucceeded, "")
}

// What cannot be a batch is refused before anything is stored, and says what is wrong.
func TestRefusedBatches(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		sys.agent("db01", greeter)
		sys.agent("idle01", func(*agent.Agent) {})
		preview := must[harp.Preview](t)(sys.caller.Target("web*").Preview(ctx, "host.name", nil))
		for name, c := range map[string]struct {
			target string
			args   any
			opts   []harp.Option
			want   error
			text   string
		}{
			"nobody":       {"nobody*", nil, nil, harp.ErrNotFound, "no host"},
			"unknown host": {"web01,web77", nil, nil, harp.ErrNotFound, "web77"},
			"syntax":       {"web01 web02", nil, nil, harp.ErrInvalid, "target"},
			"group":        {"@none", nil, nil, harp.ErrInvalid, "none"},
			"long":         {strings.Repeat("web01,", 700) + "web*", nil, nil, harp.ErrInvalid, "group"},
			"lacking":      {"web*,db*", nil, nil, harp.ErrNotFound, "1 host, db01"},
			"idle":         {"web*,idle*", nil, nil, harp.ErrNotFound, "1 host, idle01"},
			"max hosts":    {"web*", nil, []harp.Option{harp.MaxHosts(2)}, harp.ErrRefused, "selects 3 hosts, at most 2"},
			"confirmed":    {"web01,web02", nil, []harp.Option{harp.Confirmed(preview.Digest)}, harp.ErrConflict, "confirmed"},
			"subset":       {"web*", nil, []harp.Option{harp.Subset("4")}, harp.ErrInvalid, "subset"},
			"parallel":     {"web*", nil, []harp.Option{harp.Parallel(1001)}, harp.ErrRefused, "limits.batch_parallel"},
			"waves":        {"web*", nil, []harp.Option{harp.Rolling("2", "10%")}, harp.ErrInvalid, "do not rise"},
		} {
			_, err := sys.caller.Target(c.target).Call(ctx, "host.name", c.args, c.opts...)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || harp.RanOf(err) != harp.DidNotRun {
				t.Errorf("%s: %v, ran %s", name, err, harp.RanOf(err))
			}
		}
		_, err := sys.caller.Target("web*").Call(ctx, "hello", harp.Args{"nobody": 1})
		if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "3 hosts, web01, web02, web03") {
			t.Errorf("arguments that do not fit: %v", err)
		}
		if all := allOf(t, sys.caller.Batches(ctx, harp.BatchFilter{})); len(all) > 0 {
			t.Errorf("stored are %+v", all)
		}
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, harp.Confirmed(preview.Digest), harp.MaxHosts(3)))
		ended(t, b, harp.BatchSucceeded, "")
	})
}

// Hosts that are away or cannot run the call are left out where that is asked for; FailFast stores
// nothing.
func TestSkippedMembers(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "away"}}})
			sys.webs(2)
			sys.agent("db01", greeter)
			_, err := sys.caller.Target("web*,away").Call(ctx, "host.name", nil, harp.WhenOffline(harp.FailFast))
			if !errors.Is(err, harp.ErrUnreachable) || !strings.Contains(err.Error(), "away") {
				t.Errorf("failing fast: %v", err)
			}
			b := must[*harp.Batch](t)(sys.caller.Target("*").Call(ctx, "host.name", nil, harp.WhenOffline(harp.SkipHost), harp.WhenUnfit(harp.SkipHost)))
			s := ended(t, b, harp.BatchSucceeded, "")
			if s.Counts[harp.StateSucceeded] != 2 || len(s.Counts) != 1 || s.Skipped[harp.ReasonOffline] != 1 || s.Skipped[harp.ReasonUnfit] != 1 {
				t.Errorf("the status is %+v", s)
			}
			states := map[string]harp.State{}
			for _, r := range allOf(t, b.Results(ctx)) {
				states[r.Host] = r.State
				if want := r.Host == "away" || r.Host == "db01"; r.Skipped != want {
					t.Errorf("of %s it is said that it was skipped: %v", r.Host, r.Skipped)
				}
			}
			if len(states) != 4 || states["away"] != harp.StateExpired || states["db01"] != harp.StateRejected {
				t.Errorf("the results are %v", states)
			}
			none := must[*harp.Batch](t)(sys.caller.Target("away").Call(ctx, "host.name", nil, harp.WhenOffline(harp.SkipHost)))
			ended(t, none, harp.BatchFailed, harp.BatchReasonNoHost)
		})
	}
}

// Too many failures stop a batch, which goes on when it is resumed; what failed is made again by another
// one that names it.
func TestStopAndRetry(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(6)
		fails := failArgs{Hosts: []string{"web01", "web02"}}
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "fail.on", fails, harp.Parallel(1), harp.StopAfter("2")))
		paused := sys.until(b, harp.BatchPaused)
		if paused.Reason != harp.BatchReasonFailures || paused.Failures != 2 || paused.Reached != 2 || paused.StopAfter != 2 || paused.Pause == nil ||
			paused.Counts[harp.StateFailed] != 2 || paused.Counts[harp.StateQueued] != 4 {
			t.Errorf("it stopped as %+v", paused)
		}
		if _, err := b.Retry(ctx, []string{"lost"}); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("made again of none: %v", err)
		}
		if _, _, err := b.PreviewRetry(ctx, []string{"lost"}); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("of none it would be made again: %v", err)
		}
		ofEnded := []string{"failed", "succeeded"}
		confirmed, _, err := b.PreviewRetry(ctx, ofEnded)
		if err != nil || confirmed.Hosts != 2 {
			t.Errorf("of what has ended it would be made again as %+v, %v", confirmed, err)
		}
		if err := b.Resume(ctx); err != nil {
			t.Error(err)
		}
		s := ended(t, b, harp.BatchFailed, "")
		_, err = b.Retry(ctx, ofEnded, harp.Confirmed(confirmed.Digest))
		if !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "other hosts are to be called again now than were confirmed: 6, where there were 2") {
			t.Errorf("confirmed before others ended it is made again with %v", err)
		}
		if s.Counts[harp.StateSucceeded] != 4 || s.Counts[harp.StateFailed] != 2 {
			t.Errorf("it ended as %+v", s)
		}
		if err := b.Pause(ctx, "too late"); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("a pause of one that has ended: %v", err)
		}
		if n, err := b.Cancel(ctx); n != 0 || err != nil {
			t.Errorf("a cancel of one that has ended: %d, %v", n, err)
		}
		seen, req, err := b.PreviewRetry(ctx, nil, harp.Parallel(2))
		if err != nil || seen.Hosts != 2 || !seen.Refusal.IsZero() || req.Procedure != "fail.on" || req.RetryOf != b.ID() || req.Batch.Parallel != 2 || req.Batch.StopAfter != "2" {
			t.Errorf("made again it would be %+v, %+v, %v", seen, req, err)
		}
		if n := len(allOf(t, sys.caller.Batches(ctx, harp.BatchFilter{}))); n != 1 {
			t.Errorf("there are %d batches", n)
		}
		again := must[*harp.Batch](t)(b.Retry(ctx, nil, harp.Parallel(2), harp.Confirmed(seen.Digest)))
		s = ended(t, again, harp.BatchFailed, harp.BatchReasonFailures)
		if s.Hosts != 2 || s.RetryOf != b.ID() || s.Parallel != 2 || s.StopAfter != 2 {
			t.Errorf("made again it is %+v", s)
		}
		if j := must[harp.JobStatus](t)(again.Job("web01").Status(ctx)); j.RetryOf != b.Job("web01").ID() {
			t.Errorf("a member made again is %+v", j)
		}
		folded, err := harp.Fold(b.Results(ctx))
		if err != nil || len(folded) != 2 || len(folded[0].Hosts) != 4 || !slices.Equal(folded[1].Hosts, fails.Hosts) || folded[1].Result.State != harp.StateFailed {
			t.Errorf("folded it is %+v, %v", folded, err)
		}
	})
}

// until waits until a batch is in a state, by its events.
func (s *system) until(b *harp.Batch, state harp.BatchState) harp.BatchStatus {
	s.t.Helper()
	f := harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID(), Types: []string{"batch.*"}}
	for _, err := range s.caller.Events(s.t.Context(), f) {
		if err != nil {
			s.t.Fatal(err)
		}
		if status := must[harp.BatchStatus](s.t)(b.Status(s.t.Context())); status.State == state {
			return status
		}
	}
	panic("events do not end")
}

// Of a batch that is made again the hosts that are not known any more are counted, by the preview and by the batch.
func TestRetryWithoutHostsThatAreGone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		stop := sys.agent("web00", ofBatches)
		names := sys.webs(3)
		all := append([]string{"web00"}, names...)
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "fail.on", failArgs{Hosts: all}))
		ended(t, b, harp.BatchFailed, "")
		p, _, err := b.PreviewRetry(ctx, nil)
		if err != nil || p.Hosts != 4 || p.Gone != 0 || len(p.GoneHosts) != 0 {
			t.Errorf("while all are known: %+v, %v", p, err)
		}
		stop()
		synctest.Wait()
		must[int](t)(sys.caller.Hosts().Remove(ctx, "web00"))
		p, _, err = b.PreviewRetry(ctx, nil)
		if err != nil || p.Hosts != 3 || p.Gone != 1 || !slices.Equal(p.GoneHosts, []string{"web00"}) {
			t.Errorf("the preview is %+v, %v", p, err)
		}
		again := must[*harp.Batch](t)(b.Retry(ctx, nil, harp.Confirmed(p.Digest)))
		s := ended(t, again, harp.BatchFailed, "")
		if s.Hosts != 3 || s.Gone != 1 {
			t.Errorf("the batch is %+v", s)
		}
		if s = must[harp.BatchStatus](t)(b.Status(ctx)); s.Gone != 0 {
			t.Errorf("the first batch is %+v", s)
		}
	})
}

// A batch that runs is not made again: more of its members may fail yet.
func TestRetryOfABatchThatRuns(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(2)
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "fail.on", failArgs{Hosts: []string{"web01"}}, harp.Rolling("1"), harp.WavePause(time.Hour)))
		if _, err := b.Job("web01").Get(ctx); harp.FailureOf(err).Code != "remote" {
			t.Errorf("the first member gives %v", err)
		}
		if _, err := b.Retry(ctx, nil); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("it is made again with %v", err)
		}
		if _, err := b.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
}

// The members of a batch are granted the limits of their call, as any call is.
func TestLimitsOfMembers(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.webs(2)
		for b, want := range map[*harp.Batch]time.Duration{
			must[*harp.Batch](t)(sys.caller.Target("web*").Call(t.Context(), "fail.on", failArgs{}, harp.MaxExecTime(time.Minute))): time.Minute,
			must[*harp.Batch](t)(sys.caller.Target("web*").Call(t.Context(), "fail.on", failArgs{})):                                24 * time.Hour,
		} {
			for _, host := range []string{"web01", "web02"} {
				if s := must[harp.JobStatus](t)(b.Job(host).Status(t.Context())); s.MaxExecTime != want {
					t.Errorf("the member on %s may take %v, want %v", host, s.MaxExecTime, want)
				}
			}
		}
	})
}

// What is no batch is not made again, and the error speaks of batches.
func TestRetryOfWhatIsNoBatch(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(1)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "fail.on", failArgs{}))
		for _, id := range []string{harp.NewID(), job.ID()} {
			if _, err := sys.caller.Batch(id).Retry(ctx, nil); !errors.Is(err, harp.ErrNotFound) || !strings.Contains(err.Error(), "no such batch: "+id) {
				t.Errorf("of %s: %v", id, err)
			}
		}
	})
}

// A batch that is cancelled starts nothing more: those that run are told, and those that wait have ended.
func TestCancelledBatch(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		g := newGate()
		for n := range 4 {
			sys.agent(fmt.Sprintf("web%02d", n+1), g.register)
		}
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "gate", helloArgs{Name: "x"}, harp.Parallel(2)))
		<-g.entered
		<-g.entered
		if err := b.Pause(ctx, "lunch"); err != nil {
			t.Error(err)
		}
		if s := must[harp.BatchStatus](t)(b.Status(ctx)); s.State != harp.BatchPaused || s.Reason != harp.BatchReasonOperator || s.Pause.Reason != "lunch" || s.Counts[harp.StateQueued] != 2 {
			t.Errorf("paused it is %+v", s)
		}
		if n, err := b.Cancel(ctx); n != 4 || err != nil {
			t.Errorf("cancelled were %d, %v", n, err)
		}
		s := ended(t, b, harp.BatchCancelled, harp.BatchReasonRequested)
		if s.Counts[harp.StateCancelled] != 4 || s.Cancel == nil {
			t.Errorf("it ended as %+v", s)
		}
		var ran, not int
		for n, r := range allOf(t, b.Results(ctx)) {
			if r.Seq != uint64(n) {
				t.Errorf("result %d has number %d of the log", n, r.Seq)
			}
			switch harp.RanOf(r.Err) {
			case harp.DidRun:
				ran++
			case harp.DidNotRun:
				not++
			case harp.MayHaveRun:
				t.Errorf("%s may have run", r.Host)
			}
		}
		if ran != 2 || not != 2 {
			t.Errorf("%d ran, %d did not", ran, not)
		}
		if j := must[harp.JobStatus](t)(b.Job("web04").Status(ctx)); j.State != harp.StateCancelled || j.Reason != harp.ReasonBatch || len(j.Attempts) > 0 {
			t.Errorf("the last member is %+v", j)
		}
	})
}

// The hosts of a subset have their turn in the order of their names, as those of any batch.
func TestOrderOfASubset(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	names := sys.webs(6)
	b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(t.Context(), "host.name", nil, harp.Subset("6")))
	ended(t, b, harp.BatchSucceeded, "")
	var hosts []string
	for _, j := range allOf(t, sys.caller.Jobs(t.Context(), harp.JobFilter{Batch: b.ID()})) {
		hosts = append(hosts, j.Host)
	}
	if !slices.Equal(hosts, names) {
		t.Errorf("they are %v", hosts)
	}
}

// Following a batch yields the records and ends of all members, from any number of its log on.
func TestFollowBatch(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "count", countArgs{To: 200}))
		records, ends := map[string][]uint64{}, map[string]int{}
		for r, err := range b.Follow(ctx, harp.Since(0)) {
			if err != nil {
				t.Fatal(err)
			}
			if r.End != nil {
				ends[r.Host]++
			} else {
				records[r.Host] = append(records[r.Host], r.Record.Seq)
			}
		}
		for n := range 3 {
			name := fmt.Sprintf("web%02d", n+1)
			if got := records[name]; len(got) != 200 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 200 || ends[name] != 1 {
				t.Errorf("%s has %d records and %d ends", name, len(got), ends[name])
			}
		}
		all := allOf(t, b.Follow(ctx, harp.Since(0)))
		last := all[len(all)-1]
		if rest := allOf(t, b.Follow(ctx, harp.Since(last.Seq))); len(rest) != 1 || rest[0].End == nil {
			t.Errorf("from the last on there are %+v", rest)
		}
		if rest := allOf(t, b.Follow(ctx, harp.Recent(1))); len(rest) != 1 || rest[0].Seq != last.Seq {
			t.Errorf("the last one is %+v", rest)
		}
		if rest := allOf(t, b.Follow(ctx)); len(rest) > 0 {
			t.Errorf("after its end there are %+v", rest)
		}
	})
}

// An agent that does not know batches is sent no member.
func TestAgentWithoutBatches(t *testing.T) {
	sys := newSystem(t, inMemory, nil, dispatcher.Config{})
	a := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedDryRun}}))
	sys.online.wait("web01")
	b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(t.Context(), "work", nil))
	s := ended(t, b, harp.BatchFailed, "")
	results := allOf(t, b.Results(t.Context()))
	if f := harp.FailureOf(results[0].Err); s.Counts[harp.StateRejected] != 1 || f.Code != "rejected" || f.Type != "needs" || f.Ran != harp.DidNotRun {
		t.Errorf("it ended as %+v, %+v", s, f)
	}
	a.tr.Close(nil)
}
