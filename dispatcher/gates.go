package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/window"
)

// What windows and pauses keep back on a host is its gate, which the store compares in the commit of each claim. Gates are
// made ahead of time, whenever one of the things changes that they are made of, and before that is answered.
const (
	gatesAhead   = 25 * time.Hour // of which a gate knows
	gatesBehind  = time.Hour      // of which it knows too, as a clock may be set back
	gatesRenewed = time.Hour      // from time to time
)

// gates are what the gates of all hosts are made of.
type gates struct {
	making sync.Mutex // one after another: the last gate that a host gets is of what is so last. Guards what follows

	windows     []hostWindow
	from, until time.Time // what is known of them
}

// hostWindow is a window with its spans, and where it is.
type hostWindow struct {
	spans *window.Expanded
	on    *target.Matcher // nil: on all hosts
}

// reviewAllHolds gives all hosts gates of the windows and pauses that there are now.
func (d *Dispatcher) reviewAllHolds() {
	g := &d.windows.gates
	g.making.Lock()
	defer g.making.Unlock()
	now := d.now()
	g.from, g.until, g.windows = now.Add(-gatesBehind), now.Add(gatesAhead), nil
	for _, w := range d.windows.all() {
		one := hostWindow{spans: w.window.Expand(g.from, g.until)}
		if w.err == nil {
			one.on, _ = d.fleet.compileTarget(w.Window.Target)
		}
		g.windows = append(g.windows, one)
	}
	for from, first := "", true; first || from != ""; first = false {
		var some []*host
		some, from = d.hosts.page(from, matchedAtOnce)
		d.giveGates(g, some)
	}
	d.wakeClock()
}

// reviewHolds gives some hosts gates anew, as something of them has changed.
func (d *Dispatcher) reviewHolds(some ...*host) {
	g := &d.windows.gates
	g.making.Lock()
	defer g.making.Unlock()
	d.giveGates(g, some)
	d.wakeClock()
}

// giveGates makes the gates of some hosts. Whoever makes gates calls it.
func (d *Dispatcher) giveGates(g *gates, some []*host) {
	on := make([][]*window.Expanded, len(some)) // of each host
	for i, where := range d.windowsOn(d.ctx, g.windows, some) {
		for _, at := range where {
			on[at] = append(on[at], g.windows[i].spans)
		}
	}
	for i, h := range some {
		var gate *window.Gate
		if pauses := h.pauses(); len(on[i])+len(pauses) > 0 {
			gate = new(window.NewGate(g.from, g.until, on[i], pauses))
		}
		h.setHolds(gate)
		d.store.SetHolds(h.name, gate)
	}
}

// windowsOn returns of each window on which of some hosts it is. One of which that cannot be found out is on all.
func (d *Dispatcher) windowsOn(ctx context.Context, windows []hostWindow, some []*host) [][]int {
	if len(windows) == 0 {
		return nil
	}
	where := make([][]int, len(windows))
	all := make([]int, len(some))
	for at := range some {
		all[at] = at
	}
	err := d.fleet.look(ctx, some, func(t *inventory.Table) {
		for i, w := range windows {
			if where[i] = all; w.on != nil {
				where[i] = w.on.Select(t)
			}
		}
	})
	if err != nil { // the dispatcher stops
		for i := range where {
			where[i] = all
		}
	}
	return where
}

// pauses are those of the host, as a gate takes them.
func (h *host) pauses() []window.Pause {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pause; p != nil {
		return []window.Pause{{What: "host", By: p.By.Name, Kind: p.By.Kind, Reason: p.Reason, Since: p.Since, Until: p.Until}}
	}
	return nil
}

func (h *host) setHolds(g *window.Gate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = g
}

// judgeStart says what windows and pauses make of a start on the host at a moment; false: there are none.
func (h *host) judgeStart(s window.Start, at time.Time) (window.Verdict, bool) {
	h.mu.Lock()
	g := h.holds
	h.mu.Unlock()
	if g == nil {
		return window.Verdict{At: at}, false
	}
	return g.Judge(s, at), true
}

// isHeld reports whether a window or a pause keeps something from starting on the host at a moment.
func (h *host) isHeld(s window.Start, at time.Time) bool {
	v, concerns := h.judgeStart(s, at)
	return concerns && v.Left() == 0
}

func isReadOnly(proc harp.ProcedureDoc) bool { return slices.Contains(proc.Traits, harp.TraitReadOnly) }

// startOf is the start of a job as windows see it.
func startOf(j *store.Job) window.Start {
	return window.Start{Procedure: j.Procedure, ReadOnly: j.ReadOnly, Scheduled: !j.FireTime.IsZero()}
}

// held is on how many hosts windows and pauses keep something from starting at a moment.
type held struct {
	fit       int       // hosts that can run it
	hosts     int       // of these, where it is kept back
	refused   int       // of these, where a window refuses it
	by        string    // the first window; "": pauses do
	refusedBy string    // the first that refuses it
	until     time.Time // when the last of the hosts is free; zero: not known
	isEndless bool
}

// add counts a host that can run something.
func (s *held) add(h *host, start window.Start, at time.Time) {
	s.fit++
	v, concerns := h.judgeStart(start, at)
	if !concerns || len(v.Obstacles) == 0 {
		return
	}
	s.hosts++
	for _, o := range v.Obstacles {
		s.by = cmp.Or(s.by, o.Window)
		if o.Mode == window.Refuse {
			s.refusedBy = cmp.Or(s.refusedBy, o.Window)
		}
	}
	if v.Mode() == window.Refuse {
		s.refused++
	}
	switch s.isEndless = s.isEndless || v.Until.IsZero(); {
	case s.isEndless:
		s.until = time.Time{}
	case v.Until.After(s.until):
		s.until = v.Until
	}
}

// String says it in a line, as "12 of 512 hosts held until 2027-03-01T04:00:00Z by patching"; "" if nothing is kept back.
func (s *held) String() string {
	if s.hosts == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d hosts held", s.hosts, s.fit)
	if !s.until.IsZero() {
		text += " until " + s.until.UTC().Format(time.RFC3339)
	}
	if s.by != "" {
		text += " by " + s.by
	}
	return text
}

// heldAmong counts the candidates that are fit on which a start is kept back at a moment.
func (d *Dispatcher) heldAmong(found *candidates, start window.Start, at time.Time) (sum held) {
	for _, one := range found.hosts {
		class := found.classes[one.class]
		if h := d.hosts.findKnown(one.name); h != nil && class.unfit == nil {
			start.ReadOnly = isReadOnly(class.proc)
			sum.add(h, start, at)
		}
	}
	return sum
}

// heldOf is heldAmong for the hosts of a batch of a time of a schedule.
func (d *Dispatcher) heldOf(sub *store.BatchSubmission, at time.Time) (sum held) {
	for _, one := range sub.Hosts {
		if h := d.hosts.findKnown(one.Name); h != nil && one.Unfit == "" {
			sum.add(h, window.Start{Procedure: sub.Batch.Member.Procedure, ReadOnly: sub.Batch.Classes[one.Class].ReadOnly, Scheduled: true}, at)
		}
	}
	return sum
}

// foretellHolds says of times of a schedule on how many of its hosts they are kept back, as far as that is known.
func (d *Dispatcher) foretellHolds(ctx context.Context, s *scheduled, times []harp.Upcoming) error {
	req := s.Schedule.Request
	found, err := d.fleet.findCandidates(ctx, req.Target, req.Procedure, req.Args)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return nil //nolint:nilerr // it selects none now
	}
	until := d.now().Add(gatesAhead - gatesRenewed)
	for n := range times {
		t := &times[n]
		if !t.Time.Before(until) || ctx.Err() != nil {
			break
		}
		sum := d.heldAmong(found, window.Start{Procedure: req.Procedure, Scheduled: true}, t.Time)
		t.Hosts, t.Held, t.HeldBy, t.HeldUntil = len(found.hosts), sum.hosts, sum.by, sum.until
	}
	return context.Cause(ctx)
}

// checkRefused refuses a call that a window refuses when it may start first: now, or at its StartAfter, as far as that is
// known. Errors: harp.ErrRefused of type window.
func (d *Dispatcher) checkRefused(h *host, job *store.Job, now time.Time) error {
	at := now
	if job.NotBefore.After(now) {
		at = job.NotBefore
	}
	v, concerns := h.judgeStart(startOf(job), at)
	if !concerns || len(v.Obstacles) == 0 || v.Mode() != window.Refuse {
		return nil
	}
	for _, o := range v.Obstacles {
		if o.Mode != window.Refuse {
			continue
		}
		text := "maintenance window " + o.Window
		if w, err := d.windows.find(o.Window); err == nil && w.Window.Reason != "" {
			text += " (" + w.Window.Reason + ")"
		}
		text += " refuses it"
		if !v.Until.IsZero() {
			text += " until " + v.Until.UTC().Format(time.RFC3339)
		}
		f := failures.New("refused", text)
		f.Type, f.Host = harp.ReasonWindow, h.name
		return f.Err()
	}
	return nil
}

// refusedByWindowError is why a schedule fires nothing: a window refuses it on all hosts.
type refusedByWindowError struct{ window string }

func (e *refusedByWindowError) Error() string {
	return fmt.Sprintf("window %s refuses it on all hosts", e.window)
}

// callersVerdict is a verdict as callers know it.
func (d *Dispatcher) callersVerdict(v window.Verdict) harp.Verdict {
	out := harp.Verdict{At: v.At.UTC(), May: v.May(), Until: v.Until, KnownUntil: v.KnownUntil}
	if !out.May {
		out.Mode = harp.WindowMode(v.Mode())
	}
	out.Obstacles = store.ObstaclesOf(v)
	for n := range out.Obstacles {
		d.nameReason(&out.Obstacles[n])
	}
	return out
}

// nameReason gives an obstacle that is a window the window's reason.
func (d *Dispatcher) nameReason(o *harp.Obstacle) {
	if o.Window == "" {
		return
	}
	if w, err := d.windows.find(o.Window); err == nil {
		o.By = w.By
		if w.Window.Reason != "" {
			o.Why = w.Window.Reason
		}
	}
}
