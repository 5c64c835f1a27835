package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// starts notes when procedures start, and on which host.
type starts struct {
	mu   sync.Mutex // guards what follows
	seen []start
}

type start struct {
	host, procedure string
	at              time.Time
}

func (s *starts) register(a *agent.Agent) {
	for _, name := range []string{"patch", "look", "long"} {
		var opts []agent.ProcOption
		if name == "look" {
			opts = append(opts, agent.ReadOnly())
		}
		agent.Handle(a, harp.NewProc[struct{}, string](name), func(ctx context.Context, _ struct{}) (string, error) {
			info, _ := agent.FromContext(ctx)
			s.mu.Lock()
			s.seen = append(s.seen, start{info.Host, name, time.Now()})
			s.mu.Unlock()
			if name == "long" {
				time.Sleep(time.Hour)
			}
			return "done", nil
		}, opts...)
	}
}

func (s *starts) all() []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// inWindows runs a test with two hosts in virtual time.
func inWindows(t *testing.T, test func(t *testing.T, sys *harptest.System, seen *starts)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var seen starts
		sys := harptest.New(t, harptest.Options{Agents: []string{"web01", "web02"}, Register: seen.register})
		test(t, sys, &seen)
	})
}

func put(t *testing.T, sys *harptest.System, w harp.Window) {
	t.Helper()
	if err := sys.Caller().Maintenance().Put(t.Context(), w); err != nil {
		t.Fatalf("put %s: %v", w.Name, err)
	}
}

func call(t *testing.T, sys *harptest.System, host, procedure string, opts ...harp.Option) *harp.Job {
	t.Helper()
	job, err := sys.Caller().Host(host).Call(t.Context(), procedure, nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// succeeds waits for a job and returns when it started.
func succeeds(t *testing.T, job *harp.Job) time.Time {
	t.Helper()
	if r, err := job.Wait(t.Context()); err != nil || r.State != harp.StateSucceeded {
		t.Fatalf("it is %s, %v", r.State, err)
	}
	s, err := job.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.StartTime
}

// waitsFor checks that a job is queued for this reason, and returns what keeps it.
func waitsFor(t *testing.T, job *harp.Job, reason string) []harp.Obstacle {
	t.Helper()
	synctest.Wait()
	s, err := job.Status(t.Context())
	if err != nil || s.State != harp.StateQueued || s.Reason != reason {
		t.Fatalf("it is %s(%s), %v, want queued(%s)", s.State, s.Reason, err, reason)
	}
	return s.Obstacles
}

// TestWindow: what is called in a window waits for its end, and says so; what runs goes on; other hosts, procedures that are exempt and
// those that are read only are not concerned.
func TestWindow(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		begin := time.Now().Add(10 * time.Second)
		end := begin.Add(time.Minute)
		put(t, sys, harp.Window{Name: "db", Reason: "kernel", Target: "web01", Exempt: []string{"lo?g"}, From: begin, To: end})
		long := call(t, sys, "web01", "long")
		if at := succeeds(t, call(t, sys, "web01", "patch")); !at.Before(begin) {
			t.Errorf("before the window it starts at %v", at)
		}
		time.Sleep(time.Until(begin) - 500*time.Millisecond)
		early := call(t, sys, "web01", "patch")
		waitsFor(t, early, harp.ReasonWindow)
		time.Sleep(time.Second)
		job := call(t, sys, "web01", "patch")
		all := waitsFor(t, job, harp.ReasonWindow)
		if len(all) != 1 || all[0].Window != "db" || all[0].Why != "kernel" || !all[0].Since.Equal(begin) || !all[0].Until.Equal(end) {
			t.Errorf("what keeps it is %+v", all)
		}
		if v, err := sys.Caller().Maintenance().Why(t.Context(), "web01", "patch", time.Time{}); err != nil || v.May || v.Mode != harp.WindowHold || !v.Until.Equal(end) || len(v.Obstacles) != 1 {
			t.Errorf("it may start: %+v, %v", v, err)
		}
		for _, free := range []*harp.Job{call(t, sys, "web01", "look"), call(t, sys, "web02", "patch")} {
			if at := succeeds(t, free); !at.Before(end) {
				t.Errorf("a start that no window concerns is at %v", at)
			}
		}
		if s, err := call(t, sys, "web01", "long").Status(t.Context()); err != nil || s.State == harp.StateQueued {
			t.Errorf("what is exempt is %+v, %v", s.State, err)
		}
		var held []string
		for s, err := range sys.Caller().Maintenance().Held(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, s.ID)
		}
		if !slices.Equal(held, []string{job.ID(), early.ID()}) {
			t.Errorf("held are %v", held)
		}
		for _, waited := range []*harp.Job{early, job} {
			if at := succeeds(t, waited); at.Before(end) || at.After(end.Add(time.Second)) {
				t.Errorf("it starts at %v, %v after the end", at, at.Sub(end))
			}
		}
		if s, err := long.Status(t.Context()); err != nil || s.State != harp.StateRunning {
			t.Errorf("what ran before is %s, %v", s.State, err)
		}
	})
}

// TestWindowChanges: a window that is put holds at once, and one that is changed, ended or deleted lets go at once; so does the
// pause of a host.
func TestWindowChanges(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		ctx, m, hosts := t.Context(), sys.Caller().Maintenance(), sys.Caller().Hosts()
		now := func() harp.Window { return harp.Window{Name: "w", Target: "web*", From: time.Now()} }
		for name, change := range map[string][2]func() error{
			"delete": {func() error { return m.Put(ctx, now()) }, func() error { return m.Delete(ctx, "w") }},
			"end":    {func() error { return m.Put(ctx, now()) }, func() error { return m.End(ctx, "w") }},
			"target": {func() error { return m.Put(ctx, now()) }, func() error {
				w := now()
				w.Target = "web02"
				return m.Put(ctx, w)
			}},
			"procedures": {func() error { return m.Put(ctx, now()) }, func() error {
				w := now()
				w.Exempt = []string{"pat*"}
				return m.Put(ctx, w)
			}},
			"pause": {
				func() error { _, err := hosts.Pause(ctx, "web01", "disk", time.Time{}); return err },
				func() error { _, err := hosts.Unpause(ctx, "web01"); return err },
			},
			"labels": {func() error {
				_, err := hosts.Label(ctx, "web01", map[string]string{"in": "repair"})
				w := now()
				w.Target = "in=repair"
				return errors.Join(err, m.Put(ctx, w))
			}, func() error { _, err := hosts.Label(ctx, "web01", nil, "in"); return err }},
			"group": {func() error {
				err := sys.Caller().Groups().Put(ctx, "repair", "web01")
				w := now()
				w.Target = "@repair"
				return errors.Join(err, m.Put(ctx, w))
			}, func() error { return sys.Caller().Groups().Put(ctx, "repair", "web02") }},
		} {
			if err := change[0](); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			time.Sleep(time.Second)
			job := call(t, sys, "web01", "patch")
			waitsFor(t, job, harp.ReasonWindow)
			time.Sleep(time.Hour)
			waitsFor(t, job, harp.ReasonWindow)
			before := time.Now()
			if err := change[1](); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if at := succeeds(t, job); at.Sub(before) > time.Second {
				t.Errorf("%s: it starts %v later", name, at.Sub(before))
			}
			if err := m.Delete(ctx, "w"); err != nil && !errors.Is(err, harp.ErrNotFound) {
				t.Fatal(err)
			}
		}
	})
}

// TestPauseOfAHost: the pause says by whom, why and until when, in the status of the host and of a job that waits, and ends by
// itself, also over a restart of the dispatcher.
func TestPauseOfAHost(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		ctx, until := t.Context(), time.Now().Add(time.Hour).UTC()
		if n, err := sys.Caller().Hosts().Pause(ctx, "web*", "disk", until); n != 2 || err != nil {
			t.Fatalf("it pauses %d hosts, %v", n, err)
		}
		job := call(t, sys, "web01", "patch")
		sys.RestartDispatcher()
		sys.WaitOnline("web01")
		all := waitsFor(t, job, harp.ReasonWindow)
		if len(all) != 1 || all[0].Window != "" || all[0].Why != "disk" || all[0].By.Name != harptest.CallerName || !all[0].Until.Equal(until) {
			t.Errorf("what keeps it is %+v", all)
		}
		h, err := sys.Caller().Hosts().Get(ctx, "web01")
		if err != nil || h.Pause == nil || h.Pause.Reason != "disk" || h.Pause.By.Name != harptest.CallerName || !h.Pause.Until.Equal(until) {
			t.Errorf("the host is %+v, %v", h.Pause, err)
		}
		if at := succeeds(t, job); at.Before(until) || at.After(until.Add(time.Second)) {
			t.Errorf("it starts at %v", at)
		}
		if _, err := sys.Caller().Hosts().Pause(ctx, "web01", "", time.Now().Add(-time.Hour)); !errors.Is(err, harp.ErrInvalid) || harp.FailureOf(err).Field != "until" {
			t.Errorf("a pause until the past gives %v", err)
		}
	})
}

// TestPauseOfAQueue: the pause says by whom, why, since when and until when, in the status of the queue, in that of a job that
// waits and in events, and ends by itself, also over a restart of the dispatcher.
func TestPauseOfAQueue(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		ctx, queues, q := t.Context(), sys.Caller().Queues(), harp.Args{"db": 1}
		since, until := time.Now().UTC(), time.Now().Add(time.Hour).UTC()
		if err := queues.Pause(ctx, q, "disk", until); err != nil {
			t.Fatal(err)
		}
		job := call(t, sys, "web01", "patch", harp.Queue(q))
		sys.RestartDispatcher()
		sys.WaitOnline("web01")
		all := waitsFor(t, job, harp.ReasonPaused)
		if len(all) != 1 || all[0].Why != "disk" || all[0].By.Name != harptest.CallerName || all[0].Since.Before(since) || !all[0].Until.Equal(until) {
			t.Errorf("what keeps it is %+v", all)
		}
		is, err := queues.Get(ctx, q)
		if p := is.Pause; err != nil || !is.Paused || p == nil || p.Reason != "disk" || p.By.Name != harptest.CallerName || !p.Since.Equal(all[0].Since) || !p.Until.Equal(until) {
			t.Errorf("the queue is %+v, paused by %+v, %v", is, p, err)
		}
		if at := succeeds(t, job); at.Before(until) || at.After(until.Add(time.Second)) {
			t.Errorf("it starts at %v", at)
		}
		if is, err := queues.Get(ctx, q); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("the queue is %+v, %v", is, err)
		}
		page, err := sys.Caller().EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"queue.*"}}, false)
		if err != nil || len(page.Events) != 2 {
			t.Fatalf("events are %+v, %v", page.Events, err)
		}
		if e := page.Events[0]; e.Type != harp.EventQueuePaused || e.Reason != "disk" || e.By.Name != harptest.CallerName || !e.Until.Equal(until) {
			t.Errorf("of the pause is told %+v", e)
		}
		if e := page.Events[1]; e.Type != harp.EventQueueUnpaused || e.By != (harp.Principal{}) || e.Time.Before(until) {
			t.Errorf("of its end is told %+v", e)
		}
		if err := queues.Pause(ctx, q, "", time.Now().Add(-time.Hour)); !errors.Is(err, harp.ErrInvalid) || harp.FailureOf(err).Field != "until" {
			t.Errorf("a pause until the past gives %v", err)
		}
		if is, err := queues.Get(ctx, q); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("the queue is %+v, %v", is, err)
		}
	})
}

// TestWindowOnly: starts are allowed within the spans of such windows alone; one of several is enough.
func TestWindowOnly(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, seen *starts) {
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(midnight))
		put(t, sys, harp.Window{Name: "night", Only: true, Target: "web01", Cron: "0 2 * * *", For: time.Hour, TZ: "UTC"})
		put(t, sys, harp.Window{Name: "noon", Only: true, Target: "web01", Cron: "0 12 * * *", For: time.Hour, TZ: "UTC"})
		job := call(t, sys, "web01", "patch")
		if all := waitsFor(t, job, harp.ReasonWindow); len(all) != 2 || !all[0].Only || !all[0].Until.Equal(midnight.Add(2*time.Hour)) {
			t.Errorf("what keeps it is %+v", all)
		}
		if at := succeeds(t, job); at.Before(midnight.Add(2*time.Hour)) || at.After(midnight.Add(2*time.Hour+time.Second)) {
			t.Errorf("it starts at %v", at)
		}
		time.Sleep(time.Until(midnight.Add(3*time.Hour - 500*time.Millisecond)))
		if at := succeeds(t, call(t, sys, "web01", "patch")); at.Before(midnight.Add(12 * time.Hour)) {
			t.Errorf("late in the night it starts at %v", at)
		}
	})
}

// TestWindowRefuses: a call is refused, naming the window and its end; hosts of a batch are left out; a schedule that is refused on
// all hosts is skipped; what was queued before waits.
func TestWindowRefuses(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, seen *starts) {
		ctx := t.Context()
		sys.StopAgent("web02")
		queued := call(t, sys, "web02", "patch", harp.OfflineWait(harp.NoLimit))
		end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		w := harp.Window{Name: "freeze", Mode: harp.WindowRefuse, Target: "web02", From: time.Now(), To: end}
		put(t, sys, w)
		_, err := sys.Caller().Host("web02").Call(ctx, "patch", nil)
		f := harp.FailureOf(err)
		if !errors.Is(err, harp.ErrRefused) || f.Type != "window" || !slices.ContainsFunc([]string{f.Message}, func(s string) bool {
			return s == "maintenance window freeze refuses it until "+end.Format(time.RFC3339)
		}) {
			t.Errorf("the call gives %v", err)
		}
		sys.StartAgent("web02")
		sys.WaitOnline("web02")
		time.Sleep(2 * time.Second) // it may have been on its way as the agent left
		waitsFor(t, queued, harp.ReasonWindow)
		p, err := sys.Caller().Target("web*").Preview(ctx, "patch", nil)
		if err != nil || p.Held != 1 {
			t.Errorf("the preview is %+v, %v", p, err)
		}
		batch, err := sys.Caller().Target("web*").Call(ctx, "patch", nil)
		if err != nil {
			t.Fatal(err)
		}
		var ends []string
		for r, err := range batch.Results(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			s, err := sys.Caller().Job(r.Job).Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, fmt.Sprintf("%s %s(%s)", r.Host, s.State, s.Reason))
		}
		if slices.Sort(ends); !slices.Equal(ends, []string{"web01 succeeded()", "web02 expired(window)"}) {
			t.Errorf("the batch ends %v", ends)
		}
		req, err := harp.NewBatchRequest("web*", "patch", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Target, w.SchedulesOnly = "web*", true
		put(t, sys, w)
		if err := sys.Caller().Schedules().Put(ctx, harp.Schedule{Name: "beat", Cron: "* * * * *", Request: req}); err != nil {
			t.Fatal(err)
		}
		next, err := sys.Caller().Schedules().Next(ctx, "beat", 1)
		if err != nil || next[0].Hosts != 2 || next[0].Held != 2 || next[0].HeldBy != "freeze" || !next[0].HeldUntil.Equal(end) {
			t.Errorf("its next time is %+v, %v", next, err)
		}
		succeeds(t, call(t, sys, "web01", "patch")) // no schedule starts it
		succeeds(t, queued)
		before := len(seen.all())
		time.Sleep(90 * time.Second)
		for e, err := range sys.Caller().Schedules().Ledger(ctx, harp.LedgerFilter{Schedule: "beat"}) {
			if err != nil || e.Outcome != harp.TimeSkipped || e.Reason != harp.TimeWindow || e.Detail != "freeze" {
				t.Errorf("the ledger has %+v, %v", e, err)
			}
		}
		if n := len(seen.all()); n != before {
			t.Errorf("the schedule started %d", n-before)
		}
	})
}

// TestASlowLineStartsNothingInAWindow: a call that is on its way for long comes when its window has begun, and waits for its end.
func TestASlowLineStartsNothingInAWindow(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		begin := time.Now().Add(time.Minute)
		end := begin.Add(time.Minute)
		put(t, sys, harp.Window{Name: "w", Target: "web01", From: begin, To: end})
		time.Sleep(time.Until(begin) - 3*time.Second)
		sys.Delay("web01", 4*time.Second)
		job := call(t, sys, "web01", "patch")
		time.Sleep(10 * time.Second)
		waitsFor(t, job, harp.ReasonWindow)
		sys.Heal("web01")
		if at := succeeds(t, job); at.Before(end) || at.After(end.Add(time.Second)) {
			t.Errorf("it starts at %v, %v after the end", at, at.Sub(end))
		}
	})
}

// TestWhenHeldSkip: hosts that a window holds when their turn comes are left out of a batch that asks for it, and wait in another.
func TestWhenHeldSkip(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		end := time.Now().Add(time.Hour)
		put(t, sys, harp.Window{Name: "w", Target: "web02", From: time.Now(), To: end})
		for policy, want := range map[harp.HeldPolicy]string{harp.SkipHost: "expired(window)", harp.WaitForHeld: "queued(window)"} {
			batch, err := sys.Caller().Target("web*").Call(t.Context(), "patch", nil, harp.WhenHeld(policy))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			s, err := sys.Caller().Job(harp.MemberID(batch.ID(), "web02", 1)).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s(%s)", s.State, s.Reason); got != want {
				t.Errorf("with %q it is %s, want %s", policy, got, want)
			}
		}
	})
}

// TestAPausedHostIsLeftOutAsPaused: a host that is left out as it is paused is told so; where a window keeps it back as well it is that.
func TestAPausedHostIsLeftOutAsPaused(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		if _, err := sys.Caller().Hosts().Pause(t.Context(), "web02", "disk", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"expired(paused)", "expired(window)"} {
			batch, err := sys.Caller().Target("web*").Call(t.Context(), "patch", nil, harp.WhenHeld(harp.SkipHost))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			job := sys.Caller().Job(harp.MemberID(batch.ID(), "web02", 1))
			s, err := job.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s(%s)", s.State, s.Reason); got != want {
				t.Errorf("it is %s, want %s", got, want)
			}
			is, err := batch.Status(t.Context())
			if err != nil || is.State != harp.BatchSucceeded || is.Skipped[s.Reason] != 1 {
				t.Errorf("the batch is %+v, %v", is, err)
			}
			if _, err := job.Get(t.Context()); !errors.Is(err, harp.ErrExpired) {
				t.Errorf("it ends with %v", err)
			}
			put(t, sys, harp.Window{Name: "w", Target: "web02", From: time.Now(), To: time.Now().Add(time.Hour)})
		}
	})
}

// TestNothingStartsInAWindow: twenty callers call all the time, while every other two minutes are a window, which a dispatcher that
// crashes and agents that come and go do not change.
func TestNothingStartsInAWindow(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, seen *starts) {
		begin := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		time.Sleep(time.Until(begin))
		put(t, sys, harp.Window{Name: "every", Target: "web*", Cron: "2-58/4 * * * *", For: 2 * time.Minute, TZ: "UTC"})
		const callers, calls = 20, 50
		draws := rand.New(rand.NewPCG(1, 2))
		var pauses [callers][calls]time.Duration
		for c := range callers {
			for n := range calls {
				pauses[c][n] = time.Duration(draws.Int64N(int64(50 * time.Second)))
			}
		}
		var calling sync.WaitGroup
		for c := range callers {
			calling.Go(func() {
				for n := range calls {
					time.Sleep(pauses[c][n])
					job, err := sys.Caller().Host(fmt.Sprintf("web0%d", 1+c%2)).Call(t.Context(), "patch", nil, harp.OfflineWait(harp.NoLimit))
					if err != nil {
						t.Errorf("call: %v", err)
						return
					}
					if n%10 == 0 {
						if r, err := job.Wait(t.Context()); err != nil || r.State != harp.StateSucceeded {
							t.Errorf("it is %s, %v", r.State, err)
						}
					}
				}
			})
		}
		for range 5 {
			time.Sleep(3*time.Minute + 20*time.Second)
			sys.CrashDispatcher()
			sys.StartDispatcher()
			sys.Cut("web01")
			sys.Heal("web01")
		}
		calling.Wait()
		time.Sleep(10 * time.Minute)
		all := seen.all()
		for _, s := range all {
			if in := s.at.Sub(begin) % (4 * time.Minute); in >= 2*time.Minute {
				t.Errorf("%s starts %v into a window", s.host, in-2*time.Minute)
			}
		}
		if len(all) != callers*calls {
			t.Errorf("%d of %d calls started", len(all), callers*calls)
		}
	})
}

// TestWindowIsTold: each opening and each end of a window is an event, once, also when the dispatcher crashes in between; the ledger
// says how many hosts of a run are held; a target can ask which hosts are paused.
func TestWindowIsTold(t *testing.T) {
	inWindows(t, func(t *testing.T, sys *harptest.System, _ *starts) {
		ctx := t.Context()
		put(t, sys, harp.Window{Name: "short", Reason: "why", Target: "web02", Cron: "*/2 * * * *", For: time.Minute, TZ: "UTC"})
		req, err := harp.NewBatchRequest("web*", "patch", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sys.Caller().Schedules().Put(ctx, harp.Schedule{Name: "beat", Cron: "30 */2 * * * *", TZ: "UTC", Overlap: harp.OverlapAllow, Request: req}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(47 * time.Second)
			sys.CrashDispatcher()
			sys.StartDispatcher()
			sys.WaitOnline("web01", "web02")
		}
		time.Sleep(time.Minute)
		var told []harp.EventType
		page, err := sys.Caller().EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"window.*"}}, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if e.Window != "short" || e.Reason != "why" || e.Type == harp.EventWindowOpened && e.Until.Sub(e.Time.Truncate(time.Minute)) != time.Minute {
				t.Errorf("it is told %+v", e)
			}
			told = append(told, e.Type)
		}
		want := []harp.EventType{harp.EventWindowChanged, harp.EventWindowOpened, harp.EventWindowClosed, harp.EventWindowOpened, harp.EventWindowClosed, harp.EventWindowOpened}
		if !slices.Equal(told[:min(len(told), len(want))], want) {
			t.Errorf("told is %v", told)
		}
		fired := 0
		for e, err := range sys.Caller().Schedules().Ledger(ctx, harp.LedgerFilter{Schedule: "beat", Outcomes: []harp.TimeOutcome{harp.TimeFired}}) {
			if err != nil {
				t.Fatal(err)
			}
			fired++
			if until := e.From.Truncate(2 * time.Minute).Add(time.Minute).Format(time.RFC3339); e.Detail != "1 of 2 hosts held until "+until+" by short" {
				t.Errorf("the ledger says %q", e.Detail)
			}
		}
		if fired == 0 {
			t.Error("nothing fired")
		}
		if _, err := sys.Caller().Hosts().Pause(ctx, "web02", "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{"host.paused=true": "web02", "host.paused=false": "web01"} {
			if got, err := sys.Caller().Target(text).Hosts(ctx); err != nil || !slices.Equal(got, []string{want}) {
				t.Errorf("%s selects %v, %v", text, got, err)
			}
		}
	})
}
