package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// dyingStore is a store whose process is killed after some commits of schedules, and that now and then cannot make one.
type dyingStore struct {
	store.Store

	mu     sync.Mutex // guards what follows
	left   int64      // commits until it is; below zero it is dead
	chance *rand.Rand // nil: it can make all
}

func (s *dyingStore) die() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left < 0 || s.chance != nil && s.chance.IntN(50) == 0 {
		return errTest
	}
	return nil
}

// live has it make so many commits more.
func (s *dyingStore) live(left int64, chance *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.chance = left, chance
}

func (s *dyingStore) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	if err := s.die(); err != nil {
		return store.ScheduleStepped{}, err
	}
	return s.Store.StepSchedule(ctx, step, now)
}

func (s *dyingStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	if err := s.die(); err != nil {
		return 0, err
	}
	return s.Store.ChangeDocuments(ctx, c)
}

func (s *dyingStore) ChangeBatch(ctx context.Context, id string, e store.BatchEvent, op store.Operation) (store.BatchChanged, error) {
	if err := s.die(); err != nil {
		return store.BatchChanged{}, err
	}
	return s.Store.ChangeBatch(ctx, id, e, op)
}

// era is a time in which a schedule had the same times.
type era struct {
	sch      harp.Schedule
	from, to time.Time
}

// randomSchedules is a dispatcher with two schedules, one of which comes after the other, and what is to be in their ledgers.
type randomSchedules struct {
	t       *testing.T
	chance  *rand.Rand
	disk    *memory.Disk
	ahead   atomic.Int64 // of the clock
	st      *dyingStore
	d       *Dispatcher
	s       *service
	eras    []era
	follows bool // there is one that comes after it
	history []string
}

func (r *randomSchedules) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

func (r *randomSchedules) note(format string, args ...any) {
	r.history = append(r.history, r.now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (r *randomSchedules) open(left int64) {
	r.st = &dyingStore{Store: memory.OpenDisk(r.disk, nil), left: math.MaxInt64}
	d, err := Open(r.t.Context(), r.st, Config{Hosts: StaticHosts{{Name: "web01"}}, Logger: slog.New(slog.DiscardHandler), Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}
	if left >= 0 {
		r.st.live(left, rand.New(rand.NewPCG(r.chance.Uint64(), 2)))
	}
	r.d, r.s = d, d.service(harp.Principal{Kind: "caller", Name: "ada"})
	r.t.Cleanup(func() {
		if r.d == d {
			r.close()
		}
	})
}

func (r *randomSchedules) close() {
	d := r.d
	r.d = nil
	if err := d.Shutdown(context.WithoutCancel(r.t.Context())); err != nil && !errors.Is(err, errTest) {
		r.t.Fatal(err)
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (r *randomSchedules) newSchedule() harp.Schedule {
	c := r.chance
	req, err := harp.NewBatchRequest("web*", "hello", nil, harp.OfflineWait(pick(c, time.Second, 12*time.Second, 45*time.Second)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.ID = ""
	sch := harp.Schedule{
		Name: "a", Cron: pick(c, "*/10 * * * * *", "*/15 * * * * *", "5,35 * * * * *", "every 20s", "* * * * *"), Request: req,
		Jitter: pick(c, 0, 0, 3*time.Second, 8*time.Second), Overlap: pick(c, harp.OverlapSkip, harp.OverlapQueue, harp.OverlapCancelOld, harp.OverlapAllow),
		CatchUp: pick(c, 0, 2*time.Second, 30*time.Second), CatchUpMost: pick(c, 0, 1, 3, 100), PauseOnFailure: pick(c, 0, 0, 0, 3),
	}
	return sch
}

func (r *randomSchedules) endEra(now time.Time) {
	if n := len(r.eras); n > 0 && r.eras[n-1].to.IsZero() {
		r.eras[n-1].to = now
	}
}

func (r *randomSchedules) isThere() bool {
	n := len(r.eras)
	return n > 0 && r.eras[n-1].to.IsZero()
}

// act does something at random.
func (r *randomSchedules) act() {
	ctx, c := r.t.Context(), r.chance
	change := func(what string, k harp.ScheduleChange) {
		r.note("%s: %v", what, r.s.ChangeSchedule(ctx, harp.NewID(), "a", k))
	}
	switch n := c.IntN(20); {
	case n < 4:
		sch := r.newSchedule()
		err := r.s.PutSchedule(ctx, harp.NewID(), sch)
		r.note("put %s jitter %v %s catch up %v %d: %v", sch.Cron, sch.Jitter, sch.Overlap, sch.CatchUp, sch.CatchUpMost, err)
		if err == nil {
			from := r.now()
			if is, err := r.d.schedules.find("a"); err == nil && is.state.Through.After(from) {
				from = is.state.Through // the clock was set back
			}
			r.endEra(from)
			r.eras = append(r.eras, era{sch: sch, from: from})
		}
	case n < 6 && !r.follows:
		err := r.s.DeleteSchedule(ctx, harp.NewID(), "a")
		r.note("delete: %v", err)
		if err == nil {
			r.endEra(r.now())
		}
	case n < 8:
		change("pause", harp.ScheduleChange{Kind: harp.PauseOfSchedule, Reason: pick(c, "x", "y"), Until: pick(c, time.Time{}, r.now().Add(time.Duration(1+c.IntN(60))*time.Second))})
	case n < 11:
		change("unpause", harp.ScheduleChange{Kind: harp.UnpauseOfSchedule})
	case n < 12:
		change("skip", harp.ScheduleChange{Kind: harp.SkipOfSchedule})
	case n < 13:
		_, err := r.s.TriggerSchedule(ctx, harp.NewID(), "a", harp.Trigger{EvenIfRunning: true})
		r.note("trigger: %v", err)
	case n < 14:
		count, err := r.s.BackfillSchedule(ctx, harp.NewID(), "a", r.now().Add(-time.Duration(c.IntN(300))*time.Second), r.now())
		r.note("backfill %d: %v", count, err)
	case n < 15:
		by := time.Duration(1+c.IntN(100)) * time.Second
		if r.follows && c.IntN(3) == 0 { // one that is deleted and put anew would fire again
			by = -by
		}
		is, err := r.d.schedules.find("a")
		isFresh := err == nil && is.state.Fresh
		r.ahead.Add(int64(by))
		r.d.now()
		if n := len(r.eras); isFresh && r.now().Before(r.eras[n-1].from) {
			r.eras[n-1].from = r.now() // its times come
		}
		r.note("the clock is set by %v", by)
	case n < 18:
		r.close()
		away := time.Duration(c.IntN(90)) * time.Second
		r.note("closed for %v", away)
		time.Sleep(away)
		r.open(int64(c.IntN(60)))
	default:
		from := r.now().Add(time.Duration(c.IntN(30)) * time.Second)
		w := harp.Window{Name: "w", Target: "*", Mode: harp.WindowRefuse, SchedulesOnly: true, From: from, To: from.Add(time.Duration(1+c.IntN(40)) * time.Second)}
		r.note("window: %v", r.s.PutWindow(ctx, harp.NewID(), w))
	}
}

func (r *randomSchedules) rest() {
	c, now := r.chance, r.now()
	next := now.Truncate(5 * time.Second).Add(5 * time.Second).Sub(now) // times are at such moments
	time.Sleep(pick(c, 0, 0, time.Duration(c.IntN(20_000))*time.Millisecond, next, next-1, next+1, next+10*time.Millisecond))
}

func (r *randomSchedules) fatal(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(r.history, "\n"))
}

func (r *randomSchedules) ledger(name string) (all []harp.LedgerEntry) {
	for cursor := ""; ; {
		page, err := r.s.ScheduleLedger(r.t.Context(), harp.LedgerFilter{Schedule: name}, cursor)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Items...)
		if cursor = page.Cursor; cursor == "" {
			return all
		}
	}
}

// nominals are the times of which the ledger has to tell.
func (r *randomSchedules) nominals(through time.Time) (all []time.Time) {
	for _, e := range r.eras {
		spec, err := parseSchedule(&e.sch)
		if err != nil {
			r.t.Fatal(err)
		}
		to := e.to
		if to.IsZero() {
			to = through
		}
		for m := range spec.Between(e.from.Add(1), to.Add(1)) {
			all = append(all, m.Nominal)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal) // one that waits for its jitter as its schedule is changed is in two eras where the clock was set back
}

// check compares ledgers and batches with the times there were.
func (r *randomSchedules) check() {
	r.t.Helper()
	through := r.now()
	if r.isThere() {
		is, err := r.d.schedules.find("a")
		if err != nil {
			r.t.Fatal(err)
		}
		through = is.state.Through
		if next, found := is.Next(through); found && !next.Time.After(r.now()) {
			r.fatal("%v is not settled at %v, of %+v", next, r.now(), is.state)
		}
		if !is.state.Waiting.IsZero() {
			r.fatal("it goes on waiting for %v: %+v", is.state.Waiting, is.state)
		}
	}
	var runs []harp.LedgerEntry
	points, count, afters := map[time.Time]int{}, 0, map[string]int{}
	fired, batches := map[time.Time]int{}, map[string]bool{}
	entries := r.ledger("a")
	for _, e := range entries {
		if e.Outcome == harp.TimeFired {
			if batches[e.Batch] {
				r.fatal("batch %s is in two entries", e.Batch)
			}
			batches[e.Batch] = true
			if e.Kind != harp.LedgerManual {
				fired[e.From]++
			}
		}
		if e.Kind != harp.LedgerTime {
			continue
		}
		if count += e.Count; e.Count > 1 {
			runs = append(runs, e)
		} else {
			points[e.From]++
		}
	}
	tell := func() string {
		var lines []string
		for _, e := range slices.Backward(entries) {
			lines = append(lines, fmt.Sprintf("%s %s %s %s-%s %d %s", e.Kind, e.Outcome, e.Reason, e.From.Format("15:04:05"), e.To.Format("15:04:05"), e.Count, e.Detail))
		}
		return strings.Join(lines, "\n")
	}
	nominals := r.nominals(through)
	ahead := 0
	isCovered := func(n time.Time) bool {
		return slices.ContainsFunc(runs, func(e harp.LedgerEntry) bool { return !n.Before(e.From) && !n.After(e.To) })
	}
	maybe := 0
	for _, e := range entries {
		if e.Kind != harp.LedgerTime || e.Count > 1 || e.Reason != harp.TimeByHand {
			continue
		}
		switch isNominal := slices.ContainsFunc(nominals, e.From.Equal); {
		case !isNominal: // it is yet to come, or the schedule has it no more
			ahead++
		case !r.follows && isCovered(e.From): // it was skipped by hand before the schedule was deleted, perhaps
			maybe++
		}
	}
	for _, n := range nominals {
		if points[n] > 1 || points[n] == 0 && !isCovered(n) {
			r.fatal("%v is told %d times\n%s", n, points[n], tell())
		}
	}
	if more := count - ahead - len(nominals); more < 0 || more > maybe {
		r.fatal("there were %d times, and %d are told\n%s", len(nominals), count-ahead, tell())
	}
	for n, times := range fired {
		if times > 1 {
			r.fatal("%v fired %d times\n%s", n, times, tell())
		}
	}
	for _, e := range r.ledger("b") {
		if e.Kind == harp.LedgerAfter {
			afters[e.After]++
		}
	}
	for cursor := ""; ; {
		page, err := r.d.store.ListBatches(r.t.Context(), store.BatchFilter{}, cursor)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, b := range page.Batches {
			if b.Member.Schedule != "a" {
				continue
			}
			if !batches[b.ID] {
				r.fatal("batch %s is in no entry", b.ID)
			}
			delete(batches, b.ID)
			if r.follows && (!b.State.Ended() || afters[b.ID] != 1) {
				r.fatal("batch %s, %s, is in %d entries of b\n%s", b.ID, b.State, afters[b.ID], tell())
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(batches) > 0 {
		r.fatal("batches of the ledger are not there: %v", batches)
	}
}

// Whatever is done to a schedule, and whenever the dispatcher is killed: each time is told once, and fires once at most.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &randomSchedules{t: t, chance: rand.New(rand.NewPCG(seed, 1)), disk: memory.NewDisk(), follows: seed%2 == 1}
				r.open(-1)
				sch := r.newSchedule()
				put(t, r.s, sch)
				r.eras = append(r.eras, era{sch: sch, from: r.now()})
				if r.follows {
					b := after(t, "b", "a")
					b.Overlap = pick(r.chance, harp.OverlapSkip, harp.OverlapQueue, harp.OverlapAllow)
					put(t, r.s, b)
				}
				for range 60 {
					r.rest()
					r.act()
				}
				r.close()
				r.open(-1)
				if r.isThere() {
					if err := r.s.ChangeSchedule(t.Context(), harp.NewID(), "a", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				r.check()
			})
		})
	}
}
