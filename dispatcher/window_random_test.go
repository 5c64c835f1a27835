package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/window"
)

// heldWorld is what was said of windows, pauses, labels and a group. It never changes: what is said makes another one.
type heldWorld struct {
	windows map[string]harp.Window
	pauses  map[string]time.Time // of hosts, until when; zero: until somebody ends it
	roles   map[string]string    // labels of hosts
	grouped string               // the role that the group has
}

func (w *heldWorld) clone() *heldWorld {
	c := *w
	c.windows, c.pauses, c.roles = maps.Clone(w.windows), maps.Clone(w.pauses), maps.Clone(w.roles)
	return &c
}

// isOn reports whether a host is in the target of a window, of those that a test puts.
func (w *heldWorld) isOn(target, host string) bool {
	role, isRole := strings.CutPrefix(target, "role=")
	switch {
	case target == "@g":
		return w.roles[host] == w.grouped
	case isRole:
		return w.roles[host] == role
	}
	return target == "*" || target == host
}

func covers(w harp.Window, at time.Time) bool {
	if w.Cron != "" { // */30 * * * * *
		return at.Sub(at.Truncate(30*time.Second)) < w.For
	}
	return !at.Before(w.From) && (w.To.IsZero() || at.Before(w.To))
}

// concerns reports whether a window has a say in the start of a procedure on a host.
func (w *heldWorld) concerns(one harp.Window, host, proc string) bool {
	return w.isOn(one.Target, host) && (one.All || proc != "look") && !slices.Contains(one.Exempt, proc) && (len(one.Procedures) == 0 || slices.Contains(one.Procedures, proc))
}

// held says whether something keeps a procedure from starting on a host at a moment, and whether a window refuses it.
func (w *heldWorld) held(host, proc string, at time.Time) (held, refused bool) {
	only, open, outsideRefused := false, false, false
	for _, one := range w.windows {
		switch {
		case !w.concerns(one, host, proc):
		case one.Only:
			only, open, outsideRefused = true, open || covers(one, at), outsideRefused || one.Mode == harp.WindowRefuse
		case covers(one, at):
			held, refused = true, refused || one.Mode == harp.WindowRefuse
		}
	}
	if only && !open {
		held, refused = true, refused || outsideRefused
	}
	if until, paused := w.pauses[host]; paused && (until.IsZero() || at.Before(until)) {
		held = true
	}
	return held, refused
}

// isFree reports whether nothing keeps something back for so long that it may be started. All spans begin and end with half a second.
func (w *heldWorld) isFree(host, proc string, at time.Time) bool {
	for t := at; !t.After(at.Add(window.Margin)); t = t.Truncate(time.Second / 2).Add(time.Second / 2) {
		if held, _ := w.held(host, proc, t); held {
			return false
		}
	}
	end, _ := w.held(host, proc, at.Add(window.Margin))
	return !end
}

// begun is a start that a host has seen.
type begun struct {
	host, proc string
	at         time.Time
	before     *heldWorld // what was said as it began
}

// randomWindows is a dispatcher with hosts, and what has started there.
type randomWindows struct {
	t      *testing.T
	chance *rand.Rand
	disk   *memory.Disk
	clock  *brokenClock
	sys    *system
	stops  []func()
	hosts  []string

	mu      sync.Mutex // guards what follows
	world   *heldWorld
	starts  []begun
	jobs    map[string][2]string // by id: host and procedure
	batches []string
	history []string
}

func (r *randomWindows) now() time.Time { return time.Now().Add(time.Duration(r.clock.ahead.Load())) }

func (r *randomWindows) note(format string, args ...any) {
	r.history = append(r.history, r.now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (r *randomWindows) fatal(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(r.history, "\n"))
}

func (r *randomWindows) open() {
	r.sys = newSystem(r.t, embedded, memory.OpenDisk(r.disk, nil), dispatcher.Config{Now: r.clock.now})
	r.stops = nil
	for _, host := range r.hosts {
		r.stops = append(r.stops, r.sys.agent(host, func(a *agent.Agent) {
			for _, name := range []string{"work", "other", "look"} {
				var opts []agent.ProcOption
				if name == "look" {
					opts = append(opts, agent.ReadOnly())
				}
				agent.Handle(a, harp.NewProc[struct{}, string](name), func(context.Context, struct{}) (string, error) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.starts = append(r.starts, begun{host, name, r.now(), r.world})
					return "", nil
				}, opts...)
			}
		}))
	}
}

func (r *randomWindows) close() {
	for _, stop := range r.stops {
		stop()
	}
	if err := r.sys.d.Shutdown(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func oneOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// halves is some time of half seconds.
func (r *randomWindows) halves(most int) time.Duration {
	return time.Duration(r.chance.IntN(most)) * time.Second / 2
}

func (r *randomWindows) newWindow() harp.Window {
	c := r.chance
	w := harp.Window{
		Name: oneOf(c, "a", "b", "c", "d"), Target: oneOf(c, "*", "web1", "web2", "role=db", "role=app", "@g"), Mode: oneOf(c, harp.WindowHold, harp.WindowHold, harp.WindowRefuse),
		Only: c.IntN(4) == 0, All: c.IntN(3) == 0,
	}
	switch c.IntN(4) {
	case 0:
		w.Procedures = []string{"work"}
	case 1:
		w.Exempt = []string{"other"}
	}
	if c.IntN(3) == 0 {
		w.Cron, w.For = "*/30 * * * * *", oneOf(c, time.Second, 7*time.Second, 29*time.Second, 30*time.Second)
		return w
	}
	w.From = r.now().Truncate(time.Second / 2).Add(r.halves(40) - 5*time.Second)
	if c.IntN(5) > 0 {
		w.To = w.From.Add(r.halves(60) + 6*time.Second)
	}
	return w
}

// act does something at random. What changes is unknown while it does: a start then may be as it was before or as it is after.
func (r *randomWindows) act() {
	ctx, c := r.t.Context(), r.chance
	m, next := r.sys.caller.Maintenance(), r.world.clone()
	host := oneOf(c, r.hosts...)
	var err error
	switch n := c.IntN(24); {
	case n < 6:
		w := r.newWindow()
		err = m.Put(ctx, w)
		next.windows[w.Name] = w
		r.note("window %+v: %v", w, err)
	case n < 9:
		name := oneOf(c, "a", "b", "c", "d")
		err = m.Delete(ctx, name)
		delete(next.windows, name)
		r.note("delete %s: %v", name, err)
	case n < 10:
		name := oneOf(c, "a", "b", "c", "d")
		err = m.End(ctx, name)
		if w := next.windows[name]; err == nil && w.Cron == "" {
			w.To = r.now()
			next.windows[name] = w
		} else if err == nil {
			r.fatal("a window with times was ended: %+v", w)
		}
		r.note("end %s: %v", name, err)
	case n < 12:
		until := oneOf(c, time.Time{}, r.now().Truncate(time.Second/2).Add(r.halves(30)+time.Second))
		_, err = r.sys.caller.Hosts().Pause(ctx, host, "", until)
		next.pauses[host] = until
		r.note("pause %s until %v: %v", host, until, err)
	case n < 14:
		_, err = r.sys.caller.Hosts().Unpause(ctx, host)
		delete(next.pauses, host)
		r.note("unpause %s: %v", host, err)
	case n < 16:
		role := oneOf(c, "db", "app", "none")
		_, err = r.sys.caller.Hosts().Label(ctx, host, map[string]string{"role": role})
		next.roles[host] = role
		r.note("label %s %s: %v", host, role, err)
	case n < 17:
		next.grouped = oneOf(c, "db", "app")
		err = r.sys.caller.Groups().Put(ctx, "g", "role="+next.grouped)
		r.note("group %s: %v", next.grouped, err)
	case n < 18:
		r.setClock()
	case n < 19:
		r.close()
		away := time.Duration(c.IntN(60_000)) * time.Millisecond
		time.Sleep(away)
		r.note("away for %v", away)
		r.open()
	case n < 21:
		b, batchErr := r.sys.caller.Target("*").Call(ctx, oneOf(c, "work", "other", "look"), struct{}{}, harp.OfflineWait(harp.NoLimit), harp.Parallel(1+c.IntN(3)))
		if batchErr != nil {
			r.fatal("batch: %v", batchErr)
		}
		r.batches = append(r.batches, b.ID())
		r.note("batch %s", b.ID())
	default:
		for range 1 + c.IntN(4) {
			r.call(oneOf(c, r.hosts...), oneOf(c, "work", "other", "look"))
		}
	}
	if err != nil && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, harp.ErrConflict) {
		r.fatal("%v", err)
	}
	if err == nil {
		r.mu.Lock()
		r.world = next
		r.mu.Unlock()
	}
}

// setClock sets the clock, back by less than an hour in all: later ids would be refused.
func (r *randomWindows) setClock() {
	ahead := time.Duration(r.clock.ahead.Load())
	by := time.Duration(r.chance.IntN(200_000)) * time.Millisecond
	switch r.chance.IntN(4) {
	case 0:
		by += 30 * time.Hour // farther than is known
	case 1, 2:
		by = max(-by, -50*time.Minute-ahead)
	}
	r.clock.set(ahead + by)
	if _, err := r.sys.caller.Maintenance().Why(r.t.Context(), "web1", "work", time.Time{}); err != nil { // it notices
		r.fatal("%v", err)
	}
	synctest.Wait()
	r.note("the clock is set by %v", by)
}

// call makes a call, and checks whether it is refused.
func (r *randomWindows) call(host, proc string) {
	held, refuses := r.world.held(host, proc, r.now())
	free := r.world.isFree(host, proc, r.now())
	job, err := r.sys.caller.Host(host, harp.OfflineWait(harp.NoLimit)).Call(r.t.Context(), proc, struct{}{})
	r.note("call %s %s: %v", host, proc, err)
	switch isRefused := errors.Is(err, harp.ErrRefused); {
	case err != nil && !isRefused:
		r.fatal("call: %v", err)
	case isRefused && (free || harp.FailureOf(err).Type != "window"), !isRefused && held && refuses:
		r.fatal("call %s on %s gives %v: held %t, refused %t, free %t, by %+v", proc, host, err, held, refuses, free, r.world)
	case err == nil:
		r.jobs[job.ID()] = [2]string{host, proc}
	}
}

// check compares what has begun since it looked last, what waits, and what is said of that, with the rules.
func (r *randomWindows) check(before *heldWorld) {
	r.t.Helper()
	synctest.Wait()
	now := r.now()
	r.mu.Lock()
	starts := r.starts
	r.starts = nil
	r.mu.Unlock()
	for _, s := range starts {
		was, _ := s.before.held(s.host, s.proc, s.at)
		is, _ := r.world.held(s.host, s.proc, s.at)
		old, _ := before.held(s.host, s.proc, s.at)
		if was && is && old {
			r.fatal("%s began on %s at %v, in %+v", s.proc, s.host, s.at, r.world)
		}
	}
	for id, of := range r.jobs {
		s, err := r.sys.caller.Job(id).Status(r.t.Context())
		switch isFree := r.world.isFree(of[0], of[1], now); {
		case err != nil:
			r.fatal("%v", err)
		case s.State == harp.StateSucceeded:
			delete(r.jobs, id)
		case s.State != harp.StateQueued || isFree || s.Reason != harp.ReasonWindow:
			r.fatal("%s on %s is %s(%s): free %t, in %+v", of[1], of[0], s.State, s.Reason, isFree, r.world)
		}
	}
	r.checkWhy(now)
	r.endPauses(now)
}

// endPauses notes which pauses have ended by themselves: they do not begin anew, wherever the clock is set.
func (r *randomWindows) endPauses(now time.Time) {
	next := r.world.clone()
	maps.DeleteFunc(next.pauses, func(_ string, until time.Time) bool { return !until.IsZero() && !until.After(now) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.world = next
}

// checkWhy compares what is said of a start now with the rules.
func (r *randomWindows) checkWhy(now time.Time) {
	r.t.Helper()
	host, proc := oneOf(r.chance, r.hosts...), oneOf(r.chance, "work", "other", "look")
	v, err := r.sys.caller.Maintenance().Why(r.t.Context(), host, proc, time.Time{})
	if err != nil {
		r.fatal("%v", err)
	}
	if free := r.world.isFree(host, proc, now); v.May != free {
		r.fatal("%s on %s may start: %t, and it is free: %t: %+v, %+v", proc, host, v.May, free, v, r.world)
	}
	if v.May || v.Until.IsZero() {
		return
	}
	if !r.world.isFree(host, proc, v.Until) {
		r.fatal("%s on %s is said to be free from %v on: %+v, %+v", proc, host, v.Until, v, r.world)
	}
	for at := now; at.Before(v.Until) && at.Before(now.Add(10*time.Minute)); at = at.Truncate(time.Second / 2).Add(time.Second / 2) {
		if r.world.isFree(host, proc, at) {
			r.fatal("%s on %s is said to be held until %v, and is free at %v: %+v, %+v", proc, host, v.Until, at, v, r.world)
		}
	}
}

// end ends all windows and pauses, and waits for what they have kept back.
func (r *randomWindows) end() {
	r.t.Helper()
	ctx := r.t.Context()
	for w, err := range r.sys.caller.Maintenance().List(ctx) {
		if err != nil {
			r.fatal("%v", err)
		}
		if err := r.sys.caller.Maintenance().Delete(ctx, w.Name); err != nil {
			r.fatal("%v", err)
		}
	}
	if _, err := r.sys.caller.Hosts().Unpause(ctx, "*"); err != nil {
		r.fatal("%v", err)
	}
	synctest.Wait()
	r.world = &heldWorld{}
	r.check(r.world)
	if len(r.jobs) > 0 {
		r.fatal("jobs wait for nothing: %v", r.jobs)
	}
	for _, id := range r.batches {
		if s, err := r.sys.caller.Batch(id).Status(ctx); err != nil || !s.State.Ended() {
			r.fatal("batch %s is %s: %+v, %v", id, s.State, s, err)
		}
	}
}

// Whatever becomes of windows, pauses, labels, groups, the clock and the dispatcher: nothing starts where something says no, all starts as soon as nothing
// does, calls are refused then alone when that is said, and until when something is held is so.
func TestRandomWindows(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &randomWindows{
					t: t, chance: rand.New(rand.NewPCG(seed, 1)), disk: memory.NewDisk(), clock: new(brokenClock), hosts: []string{"web1", "web2", "web3"},
					world: &heldWorld{windows: map[string]harp.Window{}, pauses: map[string]time.Time{}, roles: map[string]string{}, grouped: "db"}, jobs: map[string][2]string{},
				}
				r.open()
				if err := r.sys.caller.Groups().Put(t.Context(), "g", "role=db"); err != nil {
					t.Fatal(err)
				}
				for range 60 {
					time.Sleep(oneOf(r.chance, 0, r.halves(20), time.Duration(r.chance.IntN(10_000))*time.Millisecond, time.Second/2-1))
					r.check(r.world)
					before := r.world
					r.act()
					r.check(before)
				}
				r.end()
			})
		})
	}
}
