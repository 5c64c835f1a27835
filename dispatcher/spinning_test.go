package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// tallied is a store that counts what is asked of it, and in which writing or reading may fail.
type tallied struct {
	store.Store
	mu     sync.Mutex // guards what follows
	calls  map[string]int
	reads  error // why nothing can be read; nil: it can
	writes error
}

func (s *tallied) set(reads, writes error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.reads, s.writes = map[string]int{}, reads, writes
}

func (s *tallied) tally() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}

// note counts a call. Who calls without a pause gets one, so that the test ends.
func (s *tallied) note(call string) {
	s.mu.Lock()
	s.calls[call]++
	n := s.calls[call]
	s.mu.Unlock()
	if n > 10_000 {
		time.Sleep(time.Second)
	}
}

func readIn[T any](s *tallied, call string, do func() (T, error)) (T, error) {
	s.note(call)
	s.mu.Lock()
	err := s.reads
	s.mu.Unlock()
	if err != nil {
		var none T
		return none, err
	}
	return do()
}

func writeIn[T any](s *tallied, call string, do func() (T, error)) (T, error) {
	s.note(call)
	s.mu.Lock()
	err := s.writes
	s.mu.Unlock()
	if err != nil {
		var none T
		return none, err
	}
	return do()
}

func nothing(do func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, do() }
}

type pageOf[T any] struct {
	page []T
	next string
}

func (s *tallied) NextDue() time.Time { s.note("NextDue"); return s.Store.NextDue() }

func (s *tallied) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*store.Job, error) {
	return writeIn(s, "Claim", func() ([]*store.Job, error) { return s.Store.Claim(ctx, hosts, n, now) })
}

func (s *tallied) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	return writeIn(s, "Apply", func() ([]store.Change, error) { return s.Store.Apply(ctx, ts...) })
}

func (s *tallied) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	return writeIn(s, "Advance", func() (store.Advanced, error) { return s.Store.Advance(ctx, now) })
}

func (s *tallied) Silence(ctx context.Context, host string, at, lostAt time.Time) ([]*store.Job, error) {
	return writeIn(s, "Silence", func() ([]*store.Job, error) { return s.Store.Silence(ctx, host, at, lostAt) })
}

func (s *tallied) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	return writeIn(s, "Append", func() (*store.Job, error) { return s.Store.Append(ctx, a) })
}

func (s *tallied) ChangeBatch(ctx context.Context, id string, e store.BatchEvent, op store.Operation) (store.BatchChanged, error) {
	return writeIn(s, "ChangeBatch", func() (store.BatchChanged, error) { return s.Store.ChangeBatch(ctx, id, e, op) })
}

func (s *tallied) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	return writeIn(s, "ChangeDocuments", func() (int, error) { return s.Store.ChangeDocuments(ctx, c) })
}

func (s *tallied) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	return writeIn(s, "StepSchedule", func() (store.ScheduleStepped, error) { return s.Store.StepSchedule(ctx, step, now) })
}

func (s *tallied) OpenSession(ctx context.Context, of store.Session) (uint64, error) {
	return writeIn(s, "OpenSession", func() (uint64, error) { return s.Store.OpenSession(ctx, of) })
}

func (s *tallied) PutHost(ctx context.Context, h store.Host) error {
	_, err := writeIn(s, "PutHost", nothing(func() error { return s.Store.PutHost(ctx, h) }))
	return err
}

func (s *tallied) Wake(ctx context.Context, host string, now time.Time) error {
	_, err := writeIn(s, "Wake", nothing(func() error { return s.Store.Wake(ctx, host, now) }))
	return err
}

func (s *tallied) AppendEvents(ctx context.Context, events ...harp.Event) error {
	_, err := writeIn(s, "AppendEvents", nothing(func() error { return s.Store.AppendEvents(ctx, events...) }))
	return err
}

func (s *tallied) Job(ctx context.Context, id string) (*store.Job, error) {
	return readIn(s, "Job", func() (*store.Job, error) { return s.Store.Job(ctx, id) })
}

func (s *tallied) Request(ctx context.Context, id string) (harp.Submission, error) {
	return readIn(s, "Request", func() (harp.Submission, error) { return s.Store.Request(ctx, id) })
}

func (s *tallied) Active(ctx context.Context, host string) ([]*store.Job, error) {
	return readIn(s, "Active", func() ([]*store.Job, error) { return s.Store.Active(ctx, host) })
}

func (s *tallied) Host(ctx context.Context, name string) (store.Host, error) {
	return readIn(s, "Host", func() (store.Host, error) { return s.Store.Host(ctx, name) })
}

func (s *tallied) Batch(ctx context.Context, id string) (*store.Batch, error) {
	return readIn(s, "Batch", func() (*store.Batch, error) { return s.Store.Batch(ctx, id) })
}

func (s *tallied) BatchMembers(ctx context.Context, id string, from, n int) ([]*store.Job, error) {
	return readIn(s, "BatchMembers", func() ([]*store.Job, error) { return s.Store.BatchMembers(ctx, id, from, n) })
}

func (s *tallied) BatchLog(ctx context.Context, id string, from uint64, n int) (store.BatchLog, error) {
	return readIn(s, "BatchLog", func() (store.BatchLog, error) { return s.Store.BatchLog(ctx, id, from, n) })
}

func (s *tallied) Events(ctx context.Context, f harp.EventFilter, most int) (harp.EventPage, error) {
	return readIn(s, "Events", func() (harp.EventPage, error) { return s.Store.Events(ctx, f, most) })
}

func (s *tallied) Document(ctx context.Context, kind, name string) ([]byte, error) {
	return readIn(s, "Document", func() ([]byte, error) { return s.Store.Document(ctx, kind, name) })
}

func (s *tallied) ListDocuments(ctx context.Context, kind, cursor string, limit int) ([]store.Document, string, error) {
	p, err := readIn(s, "ListDocuments", func() (p pageOf[store.Document], err error) {
		p.page, p.next, err = s.Store.ListDocuments(ctx, kind, cursor, limit)
		return p, err
	})
	return p.page, p.next, err
}

func (s *tallied) Schedule(ctx context.Context, name string) (*store.Schedule, error) {
	return readIn(s, "Schedule", func() (*store.Schedule, error) { return s.Store.Schedule(ctx, name) })
}

func (s *tallied) Drift(ctx context.Context, host, name string) (harp.DriftStatus, error) {
	return readIn(s, "Drift", func() (harp.DriftStatus, error) { return s.Store.Drift(ctx, host, name) })
}

// busyFleet has a dispatcher do something of all that it does by itself, much of it a minute from now, and people who wait for it.
func busyFleet(t *testing.T, st store.Store) (sys *system, release func()) {
	sys = newSystem(t, embedded, st, dispatcher.Config{
		Hosts: dispatcher.StaticHosts{{Name: "away"}}, Senders: []notify.Sender{downHook{}},
	})
	ctx, c := t.Context(), sys.caller
	g := newGate()
	register := func(a *agent.Agent) { ofBatches(a); g.register(a) }
	for _, name := range []string{"web01", "web02", "web03"} {
		sys.agent(name, register)
	}
	soon := time.Now().Add(time.Minute)
	queue := harp.Queue(map[string]any{"name": "q"})
	call := func(host, proc string, args any, opts ...harp.Option) *harp.Job {
		return must[*harp.Job](t)(c.Host(host).Call(ctx, proc, args, opts...))
	}
	var jobs []*harp.Job
	for n := range 3 {
		jobs = append(jobs, call("web01", "gate", helloArgs{fmt.Sprint(n)}, queue))
	}
	jobs = append(jobs, call("web02", "gate", helloArgs{"x"}), call("away", "host.name", nil, harp.OfflineWait(time.Minute)),
		call("web03", "host.name", nil, harp.StartAfter(soon)), call("away", "host.name", nil, harp.StartBefore(soon)),
		call("web02", "count", countArgs{1000}, harp.StartAfter(soon)))
	ok(t, c.Queues().Pause(ctx, map[string]any{"name": "p"}, "", soon))
	jobs = append(jobs, call("web02", "host.name", nil, harp.Queue(map[string]any{"name": "p"})))
	batches := []*harp.Batch{
		must[*harp.Batch](t)(c.Target("web*").Call(ctx, "host.name", nil, harp.Parallel(1), harp.StartAfter(soon))),
		must[*harp.Batch](t)(c.Target("web*").Call(ctx, "fail.on", failArgs{Hosts: []string{"web01"}}, harp.StartAfter(soon), harp.StopAfter("1"), harp.Parallel(1), harp.OnStop(harp.CancelBatch))),
		must[*harp.Batch](t)(c.Target("web*").Chain(ctx, []harp.Step{{Procedure: "host.name"}, {Procedure: "host.name", On: harp.OnFailed}}, harp.StartAfter(soon))),
	}
	minutely := yearly("minutely", "host.name", nil)
	minutely.Cron = "* * * * *"
	ok(t, c.Schedules().Put(ctx, minutely))
	ok(t, c.Schedules().Put(ctx, harp.Schedule{Name: "behind", After: []harp.Dependency{{Schedule: "minutely"}}, Request: minutely.Request}))
	ok(t, c.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "web03", From: soon, To: soon.Add(5 * time.Second)}))
	must[int](t)(c.Hosts().Pause(ctx, "web02", "disk", soon))
	to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
	ok(t, c.Notifications().Put(ctx, harp.Notification{Name: "all", On: []string{"*"}, To: to}))
	ok(t, c.Notifications().Put(ctx, harp.Notification{Name: "digest", On: []string{"job.*"}, Digest: time.Minute, To: to}))
	ok(t, c.Notifications().Put(ctx, harp.Notification{Name: "away", On: []string{"host.away"}, For: time.Minute, To: to}))
	_, err := sys.d.ReplaceDocuments(ctx, "folder", func() ([]harp.Document, func(error) error, error) { return nil, nil, errTrouble })
	if !errors.Is(err, errTrouble) {
		t.Fatal(err)
	}
	waiting, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() { _, _ = j.Wait(waiting) })
		all.Go(func() {
			for _, err := range j.Follow(waiting) {
				if err != nil {
					return
				}
			}
		})
	}
	for _, b := range batches {
		all.Go(func() { _, _ = b.Wait(waiting) })
		all.Go(func() { _, _ = b.Job("web03").Wait(waiting) })
		all.Go(func() {
			for _, err := range b.Results(waiting) {
				if err != nil {
					return
				}
			}
		})
	}
	all.Go(func() {
		for _, err := range c.Events(waiting, harp.EventFilter{}) {
			if err != nil {
				return
			}
		}
	})
	return sys, func() {
		for range 4 {
			g.release <- struct{}{}
		}
		t.Cleanup(func() { cancel(); all.Wait() })
	}
}

// Nothing that the dispatcher does is tried without a pause while the store has no room, or cannot be written or read: of each kind of
// call there are a few a second, and of each kind of line in the log a few in all. When it works again all goes on.
func TestNothingSpinsInATroubledStore(t *testing.T) {
	for name, c := range map[string]struct {
		space         store.Space
		reads, writes error
	}{
		"full":              {space: store.SpaceFull},
		"critical":          {space: store.SpaceCritical},
		"low":               {space: store.SpaceLow},
		"cannot be written": {space: store.SpacePlenty, writes: errTrouble},
		"cannot be read":    {space: store.SpacePlenty, reads: errTrouble},
		"neither":           {space: store.SpacePlenty, reads: errTrouble, writes: errTrouble},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				st := &tallied{Store: memory.OpenDisk(disk, nil), calls: map[string]int{}}
				sys, release := busyFleet(t, st)
				synctest.Wait()
				time.Sleep(55 * time.Second)
				disk.SetSpace(c.space)
				st.set(c.reads, c.writes)
				release() // what runs ends
				sys.part()
				for range 3 { // before, while and after most is due
					time.Sleep(10 * time.Second)
					calls := st.tally()
					for _, call := range slices.Sorted(maps.Keys(calls)) {
						if n := calls[call]; n > 200 {
							t.Errorf("%d calls of %s in 10 s", n, call)
						}
					}
					for line, n := range sys.online.takeWarned() {
						if n > 3 {
							t.Errorf("%d lines %q in 10 s", n, line)
						}
					}
					t.Log(calls)
					st.set(c.reads, c.writes)
				}
				disk.SetSpace(store.SpacePlenty)
				st.set(nil, nil)
				sys.heal()
				time.Sleep(2 * time.Minute)
				for _, s := range allOf(t, sys.caller.Jobs(t.Context(), harp.JobFilter{})) {
					if !s.State.Ended() {
						t.Errorf("%s of %s on %s is %s (%s)", s.ID, s.Procedure, s.Host, s.State, s.Reason)
					}
				}
			})
		})
	}
}
