package dispatcher

import (
	"cmp"
	"context"
	"encoding/binary"
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
	renewing sync.Mutex // one after another finds the spans of windows, which may take a while: sessions begin meanwhile

	making      sync.Mutex              // one after another: the last gate that a host gets is of what is so last. Guards what follows
	windows     []hostWindow            // changed with renewing held as well, as are from and until
	from, until time.Time               // what is known of them
	shared      map[string]*window.Gate // of hosts, by the windows that they are in and how they are paused
}

// hostWindow is a window with its spans, and where it is.
type hostWindow struct {
	of    *openWindow
	spans *window.Expanded
	maybe *window.Expanded // spans on hosts of which nobody knows whether they are in it
	on    *target.Matcher  // nil: it may be on all hosts

	byNames bool // it is on hosts that its target writes out
}

// isMaybe marks the number of a window on a host of which nobody knows whether it is in it.
const isMaybe = 1 << 15

// renewAllHolds is reviewAllHolds that finds all spans anew.
func (d *Dispatcher) renewAllHolds() { d.giveAllGates(true) }

// reviewAllHolds gives all hosts gates of the windows and pauses that there are now.
func (d *Dispatcher) reviewAllHolds() { d.giveAllGates(false) }

func (d *Dispatcher) giveAllGates(anew bool) {
	g := &d.windows.gates
	g.renewing.Lock()
	defer g.renewing.Unlock()
	d.findSpans(g, anew)
	for from, first := "", true; first || from != ""; first = false {
		var some []*host
		some, from = d.hosts.page(from, matchedAtOnce)
		d.reviewHolds(some...)
	}
}

// findSpans reads where windows are, and finds their spans: of a window of which it has them only when these are old. Whoever
// renews calls it.
func (d *Dispatcher) findSpans(g *gates, anew bool) {
	now := d.now()
	from, until := g.from, g.until
	if age := now.Sub(from) - gatesBehind; anew || age < 0 || age >= gatesRenewed {
		from, until, anew = now.Add(-gatesBehind), now.Add(gatesAhead), true
	}
	found := map[*openWindow]hostWindow{}
	for _, w := range g.windows {
		if !anew {
			found[w.of] = w
		}
	}
	var windows []hostWindow
	lost, groups := map[string]error{}, target.NewGroups(d.groups.texts())
	for _, w := range d.windows.all() {
		if w.isOver(from) {
			continue
		}
		one := hostWindow{of: w, spans: found[w].spans, maybe: found[w].maybe}
		if one.spans == nil {
			one.spans = w.window.Expand(from, until)
			if one.maybe = one.spans; w.window.Only {
				one.maybe = one.spans.Outside()
			}
		}
		if w.err == nil {
			var err error
			if one.on, err = compileTarget(w.Window.Target, groups); err != nil {
				lost[w.Window.Name] = err
			} else {
				_, one.byNames = one.on.Names()
			}
		}
		windows = append(windows, one)
	}
	d.windows.setLost(lost)
	g.making.Lock()
	defer g.making.Unlock()
	g.windows, g.from, g.until, g.shared = windows, from, until, map[string]*window.Gate{}
}

// reviewHolds gives some hosts gates anew, as something of them has changed.
func (d *Dispatcher) reviewHolds(some ...*host) {
	g := &d.windows.gates
	g.making.Lock()
	defer g.making.Unlock()
	on, err := d.windowsOn(g.windows, some)
	for i, h := range some {
		gate := new(window.Gate) // it keeps back everything, and refuses nothing
		if err == nil {
			gate = g.gate(on[i], h.pauses())
		}
		h.setHolds(gate)
		d.store.SetHolds(h.name, gate)
	}
	d.wakeClock()
}

// gate returns that of a host in these windows, nil if nothing is ever kept back there. Hosts that do not differ share one. Whoever
// makes gates calls it.
func (g *gates) gate(on []uint16, pauses []window.Pause) *window.Gate {
	if len(on)+len(pauses) == 0 {
		return nil
	}
	var key []byte
	for _, n := range on {
		key = binary.BigEndian.AppendUint16(key, n)
	}
	for _, p := range pauses { // which begin as no window's number does
		key = fmt.Appendf(key, "[%q %q %q %q %v %v %t", p.What, p.By, p.Kind, p.Reason, p.Since, p.Until, p.Over)
	}
	if gate := g.shared[string(key)]; gate != nil {
		return gate
	}
	windows := make([]*window.Expanded, len(on))
	for i, n := range on {
		if w := g.windows[n&^isMaybe]; n&isMaybe == 0 {
			windows[i] = w.spans
		} else {
			windows[i] = w.maybe
		}
	}
	gate := new(window.NewGate(g.from, g.until, windows, pauses))
	if len(g.shared) >= maxShared {
		clear(g.shared)
	}
	g.shared[string(key)] = gate
	return gate
}

// windowsOn returns of each of some hosts in which windows it is, by their order. One whose labels cannot be read may be in any, and so may
// each before the registry was read for the first time. Errors: why the dispatcher stops.
func (d *Dispatcher) windowsOn(windows []hostWindow, some []*host) (on [][]uint16, err error) {
	on = make([][]uint16, len(some))
	if len(windows) == 0 {
		return on, nil
	}
	all, lost, isLost, unread := make([]int, len(some)), []int(nil), make([]bool, len(some)), d.hosts.unread.Load()
	for at, h := range some {
		if all[at], isLost[at] = at, unread || h.hasLostLabels(); isLost[at] {
			lost = append(lost, at)
		}
	}
	err = d.fleet.look(d.ctx, some, func(t *inventory.Table) {
		for n, w := range windows {
			is, maybe := []int(nil), all
			if w.on != nil {
				is, maybe = w.on.Select(t), lost
			}
			if w.byNames { // whatever the labels are
				maybe = nil
			}
			for _, at := range is {
				if w.byNames || !isLost[at] {
					on[at] = append(on[at], uint16(n)) //nolint:gosec // there are at most maxWindows
				}
			}
			for _, at := range maybe {
				on[at] = append(on[at], uint16(n)|isMaybe) //nolint:gosec // there are at most maxWindows
			}
		}
	})
	return on, err
}

// pauses are those of the host, as a gate takes them.
func (h *host) pauses() []window.Pause {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pause; p != nil {
		return []window.Pause{{What: "host", By: p.By.Name, Kind: p.By.Kind, Reason: p.Reason, Since: p.Since, Until: p.Until, Over: h.pauseTold}}
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
	g := h.gate()
	if g == nil {
		return window.Verdict{At: at}, false
	}
	return g.JudgeStart(s, at), true
}

func (h *host) gate() *window.Gate {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds
}

// isHeld reports whether a window or a pause keeps something from starting on the host at a moment.
func (h *host) isHeld(s window.Start, at time.Time) bool {
	v, concerns := h.judgeStart(s, at)
	return concerns && v.Left() == 0
}

// mostHeldBy is how many windows a job says that keep it from starting.
const mostHeldBy = 10

// heldBy are the first windows that keep a job from starting now, by their names.
func (d *Dispatcher) heldBy(j *store.Job) (names []string) {
	h := d.hosts.findKnown(j.Host)
	if h == nil {
		return nil
	}
	v, _ := h.judgeStart(startOf(j), d.now())
	for _, o := range v.Obstacles {
		if o.Window != "" {
			names = append(names, o.Window)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), mostHeldBy)]
}

func isReadOnly(proc harp.ProcedureDoc) bool { return slices.Contains(proc.Traits, harp.TraitReadOnly) }

// startOf is the start of a job as windows see it.
func startOf(j *store.Job) window.Start {
	return window.Start{Procedure: j.Procedure, ReadOnly: j.ReadOnly, Scheduled: !j.FireTime.IsZero(), Begun: j.GoesOn()}
}

// hostStarts are the starts of something on hosts, by what may keep it back there: hosts share gates.
type hostStarts struct {
	fit   int                // hosts that can run it
	kinds []startThere       // those that something may keep back, in the order of the first host of each
	hosts map[startThere]int // how many each is of
}

// startThere is a start on hosts that have a gate.
type startThere struct {
	gate  *window.Gate
	start window.Start
}

// add counts a host that can run something.
func (s *hostStarts) add(h *host, start window.Start) {
	s.fit++
	gate := h.gate()
	if gate == nil {
		return
	}
	if s.hosts == nil {
		s.hosts = map[startThere]int{}
	}
	there := startThere{gate, start}
	if s.hosts[there]++; s.hosts[there] == 1 {
		s.kinds = append(s.kinds, there)
	}
}

// heldAt counts the hosts on which the start is kept back at a moment.
func (s *hostStarts) heldAt(at time.Time) held {
	sum := held{fit: s.fit}
	for _, there := range s.kinds {
		sum.add(there.gate.JudgeStart(there.start, at), s.hosts[there])
	}
	return sum
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

// add counts hosts for which a start is judged so.
func (s *held) add(v window.Verdict, hosts int) {
	if len(v.Obstacles) == 0 {
		return
	}
	s.hosts += hosts
	for _, o := range v.Obstacles {
		s.by = cmp.Or(s.by, o.Window)
		if o.Mode == window.Refuse {
			s.refusedBy = cmp.Or(s.refusedBy, o.Window)
		}
	}
	if v.Mode() == window.Refuse {
		s.refused += hosts
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

// startsAmong are the starts on the candidates that are fit.
func (d *Dispatcher) startsAmong(found *candidates, start window.Start) *hostStarts {
	all := &hostStarts{}
	for _, one := range found.hosts {
		class := found.classes[one.class]
		if h := d.hosts.findKnown(one.name); h != nil && class.unfit == nil {
			start.ReadOnly = isReadOnly(class.proc)
			all.add(h, start)
		}
	}
	return all
}

// startsOf is startsAmong for the hosts of a batch of a time of a schedule.
func (d *Dispatcher) startsOf(sub *store.BatchSubmission) *hostStarts {
	all := &hostStarts{}
	for _, one := range sub.Hosts {
		if h := d.hosts.findKnown(one.Name); h != nil && one.Unfit == "" {
			all.add(h, window.Start{Procedure: sub.Batch.Member.Procedure, ReadOnly: sub.Batch.Classes[one.Class].ReadOnly, Scheduled: true})
		}
	}
	return all
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
	all := d.startsAmong(found, window.Start{Procedure: req.Procedure, Scheduled: true})
	for n := range times {
		t := &times[n]
		if !t.Time.Before(until) || ctx.Err() != nil {
			break
		}
		sum := all.heldAt(t.Time)
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
