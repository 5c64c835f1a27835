package window

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Mode says what becomes of a start that a window keeps back.
type Mode string

// The modes.
const (
	Hold   Mode = "hold"   // it waits
	Refuse Mode = "refuse" // it is refused
)

// Window keeps starts back on the hosts that it is about: those in its spans, or with Only those out of them.
type Window struct {
	Name          string
	Mode          Mode // empty is Hold
	Only          bool // starts are allowed in its spans only; of several such windows one is enough
	SchedulesOnly bool // it concerns what a schedule or a dependency starts
	Procedures    []string
	Exempt        []string // from Procedures; in both * is any text, ? one character
	All           bool     // it concerns procedures with the trait read_only too
	Source        Source
}

// Start is the start of a procedure on a host.
type Start struct {
	Procedure string
	ReadOnly  bool // the procedure has the trait read_only
	Scheduled bool // a schedule or a dependency starts it
	Begun     bool // it goes on with what has begun: no window concerns it, only pauses
}

// Concerns reports whether a window has a say in a start: its procedure is like one of Procedures, or there are none, and
// like none of Exempt.
func (w *Window) Concerns(s Start) bool {
	isLike := func(pattern string) bool { return MatchGlob(pattern, s.Procedure) }
	return !s.Begun && (!w.SchedulesOnly || s.Scheduled) && (w.All || !s.ReadOnly) &&
		(len(w.Procedures) == 0 || slices.ContainsFunc(w.Procedures, isLike)) && !slices.ContainsFunc(w.Exempt, isLike)
}

// Expanded is a window with its spans of some time. It never changes, and the gates of many hosts may have it.
type Expanded struct {
	Window
	from, until time.Time // what is known of it
	runs        []Span    // disjoint, with room between them, by their beginnings
}

// Expand finds the spans of a window that have a moment in [from, until), once for all hosts. Of a source with more
// than 10,000 less is known.
func (w Window) Expand(from, until time.Time) *Expanded {
	if end := from.AddDate(maxYears, 0, 0); end.Before(until) {
		until = end
	}
	e := &Expanded{Window: w, from: from, until: until}
	told := 0
	for span := range w.Source.Between(from, until) {
		if told++; told == maxSpans {
			if span.From.Before(until) {
				e.until = span.From
			}
			break
		}
		e.add(span)
	}
	if n := len(e.runs); n > 0 && !e.runs[n-1].To.IsZero() && !e.runs[n-1].To.Before(e.until) {
		e.runs[n-1] = goOn(w.Source, e.runs[n-1])
	}
	return e
}

// add joins a span to the last run if there is no time between them.
func (e *Expanded) add(span Span) {
	if !span.To.IsZero() && !span.To.After(span.From) {
		return
	}
	n := len(e.runs)
	if n == 0 || !e.runs[n-1].To.IsZero() && span.From.After(e.runs[n-1].To) {
		e.runs = append(e.runs, span)
		return
	}
	if last := &e.runs[n-1]; span.To.IsZero() || !last.To.IsZero() && span.To.After(last.To) {
		last.To = span.To
	}
}

// At returns the span that covers a moment, or else the next one that is known. Spans without time between them are one.
func (e *Expanded) At(moment time.Time) (run Span, covers, ok bool) {
	i := e.index(moment)
	if i == len(e.runs) {
		return Span{}, false, false
	}
	return e.runs[i], e.runs[i].Covers(moment), true
}

// Outside returns what a window with Only keeps back by itself: a window without, whose spans are those between its own. It is for a host of
// which nobody knows whether it is in the window: so nothing starts there that other windows keep back.
func (e *Expanded) Outside() *Expanded {
	out := &Expanded{Window: e.Window, from: e.from, until: e.until}
	out.Only = false
	var begin time.Time // before all that is known
	for _, run := range e.runs {
		out.add(Span{From: begin, To: run.From})
		if begin = run.To; begin.IsZero() {
			return out
		}
	}
	out.add(Span{From: begin})
	return out
}

// index is that of the first run that ends after a moment.
func (e *Expanded) index(moment time.Time) int {
	i, _ := slices.BinarySearchFunc(e.runs, moment, func(s Span, t time.Time) int {
		if !s.To.IsZero() && !s.To.After(t) {
			return -1
		}
		return 1
	})
	return i
}

// Pause keeps back all starts, of a host or of a queue, until it ends. It has begun: a clock may be set back behind Since.
type Pause struct {
	What   string // is paused: "host", "queue"
	By     string // who asked for it
	Kind   string // of that principal
	Reason string
	Since  time.Time
	Until  time.Time // zero: until somebody ends it
	Over   bool      // it has ended at Until, and does not begin anew where a clock is set back behind that
}

// keeps reports whether the pause keeps back starts at a moment.
func (p Pause) keeps(at time.Time) bool { return !p.Over && (p.Until.IsZero() || at.Before(p.Until)) }

// Gate is what keeps back starts on one host, or in one of its queues, as it is known ahead of time. The zero Gate knows nothing, and keeps
// back everything.
type Gate struct {
	from, until time.Time
	windows     []*Expanded
	pauses      []Pause
}

// NewGate makes a gate of the windows whose targets the host is in, and of its pauses. It is known in [from, until), or less if a
// window is known for less.
func NewGate(from, until time.Time, windows []*Expanded, pauses []Pause) Gate {
	for _, w := range windows {
		if w.from.After(from) {
			from = w.from
		}
		if w.until.Before(until) {
			until = w.until
		}
	}
	return Gate{from, until, windows, pauses}
}

// KnownUntil returns the first moment of which the gate knows nothing.
func (g Gate) KnownUntil() time.Time { return g.until }

// Verdict says whether something may start at a moment.
type Verdict struct {
	At        time.Time
	Unknown   bool       // the gate does not know this moment, and so it may not start; Obstacles are the windows that do not
	Obstacles []Obstacle // that keep it back, windows by their order and then pauses
	Until     time.Time  // when the answer changes, or is known: nothing keeps it back any more, or something does; zero: at no time that is known
	// KnownUntil is the first moment of which nothing is known.
	KnownUntil time.Time
}

// Obstacle is a window or a pause that keeps a start back.
type Obstacle struct {
	Window string // its name
	Mode   Mode
	Only   bool      // no window of this kind covers the moment
	Pause  *Pause    // that it is, instead of a window
	Since  time.Time // when it began; with Only unknown
	Until  time.Time // when it ends by itself, with Only when that window covers the next moment; zero: at no time that is known
	Note   string    // of the span
}

// May reports whether it may start.
func (v Verdict) May() bool { return !v.Unknown && len(v.Obstacles) == 0 }

// Mode returns what becomes of a start that is kept back: of several modes Refuse is stronger.
func (v Verdict) Mode() Mode {
	for _, o := range v.Obstacles {
		if o.Mode == Refuse {
			return Refuse
		}
	}
	return Hold
}

// Margin is by how much sooner a start is kept back than its window begins: it takes time until it has started.
const Margin = time.Second

// Left returns for how long after the moment it may be started, with a [Margin]; 0: not any more.
func (v Verdict) Left() time.Duration {
	if !v.May() {
		return 0
	}
	end := v.Until
	if end.IsZero() {
		end = v.KnownUntil
	}
	return max(end.Sub(v.At)-Margin, 0)
}

// maxShortGaps is how many times between windows, in each of which nothing starts, are looked at for the end of a verdict: behind them it is not known.
const maxShortGaps = 100

// JudgeStart is Judge for what is to start at a moment: where it is too late for that before something keeps it back, it says
// what does then. What is kept back is so until it may be started: a time no longer than a [Margin] between windows is none.
func (g Gate) JudgeStart(s Start, at time.Time) Verdict {
	v := g.Judge(s, at)
	if v.May() && v.Left() == 0 && !v.Until.IsZero() {
		v = g.Judge(s, v.Until)
		v.At = at
	}
	if v.May() || v.Unknown {
		return v
	}
	for range maxShortGaps {
		if v.Until.IsZero() {
			return v
		}
		gap := g.Judge(s, v.Until)
		if !gap.May() || gap.Left() > 0 || gap.Until.IsZero() {
			return v
		}
		v.Until = g.Judge(s, gap.Until).Until
	}
	v.Until = time.Time{}
	return v
}

// Judge says whether something may start at a moment, what keeps it back, and until when that is so.
func (g Gate) Judge(s Start, at time.Time) Verdict {
	v := Verdict{At: at, KnownUntil: g.until, Unknown: at.Before(g.from) || !at.Before(g.until)}
	if v.Unknown {
		for _, w := range g.windows {
			if at.Before(w.from) || !at.Before(w.until) {
				v.Obstacles = append(v.Obstacles, Obstacle{Window: w.Name, Mode: Hold, Only: w.Only, Note: "of this moment it cannot be told"})
			}
		}
		if at.Before(g.from) && g.from.Before(g.until) {
			v.Until = g.from
		}
		return v
	}
	of := g.of(s)
	v.Obstacles = of.obstacles(at)
	until := of.nextHold
	if len(v.Obstacles) > 0 {
		until = of.release
	}
	if end, ok := until(at); ok && end.Before(g.until) {
		v.Until = end
	}
	return v
}

// startGate is a gate with those windows alone that have a say in a start.
type startGate Gate

func (g Gate) of(s Start) startGate {
	of := startGate{g.from, g.until, make([]*Expanded, 0, len(g.windows)), g.pauses}
	for _, w := range g.windows {
		if w.Concerns(s) {
			of.windows = append(of.windows, w)
		}
	}
	return of
}

// maxLooked is at how many windows is looked for the end of what is kept back, or let through, each as often as a span of another one ends. There may be
// hundreds, with thousands of spans each, and the store does nothing else meanwhile: where that is not enough the end so far is told, and it is asked again
// then.
const maxLooked = 100_000

// kind returns the windows with Only, or those without.
func (g startGate) kind(only bool) iter.Seq[*Expanded] {
	return func(yield func(*Expanded) bool) {
		for _, w := range g.windows {
			if w.Only == only && !yield(w) {
				return
			}
		}
	}
}

// isAllowed reports whether a window with Only covers a moment, or none has a say.
func (g startGate) isAllowed(at time.Time) bool {
	allowed := true
	for w := range g.kind(true) {
		if _, covers, _ := w.At(at); covers {
			return true
		}
		allowed = false
	}
	return allowed
}

func (g startGate) obstacles(at time.Time) (all []Obstacle) {
	allowed := g.isAllowed(at)
	for _, w := range g.windows {
		run, covers, ok := w.At(at)
		if w.Only == covers || w.Only && allowed {
			continue
		}
		o := Obstacle{Window: w.Name, Mode: cmp.Or(w.Mode, Hold), Only: w.Only}
		switch {
		case !w.Only:
			o.Since, o.Until, o.Note = run.From, run.To, run.Note
		case ok:
			o.Until, o.Note = run.From, run.Note
		}
		all = append(all, o)
	}
	for _, p := range g.pauses {
		if p.keeps(at) {
			all = append(all, Obstacle{Mode: Hold, Pause: &p, Since: p.Since, Until: p.Until})
		}
	}
	return all
}

// release returns the first moment from one on at which nothing keeps a start back, and false if there is none.
func (g startGate) release(at time.Time) (time.Time, bool) {
	for left := maxLooked; left > 0; left -= len(g.windows) {
		moved := at
		for w := range g.kind(false) {
			if run, covers, _ := w.At(moved); covers {
				moved = run.To
			}
			if moved.IsZero() {
				return moved, false
			}
		}
		for _, p := range g.pauses {
			if p.keeps(moved) {
				moved = p.Until
			}
			if moved.IsZero() {
				return moved, false
			}
		}
		if !g.isAllowed(moved) {
			moved = g.nextAllowed(moved)
		}
		switch {
		case moved.IsZero():
			return moved, false
		case moved.Equal(at) || !moved.Before(g.until):
			return moved, true
		}
		at = moved
	}
	return at, true
}

// nextAllowed returns when a window with Only covers the next moment; zero: it is not known.
func (g startGate) nextAllowed(at time.Time) (next time.Time) {
	for w := range g.kind(true) {
		if run, _, ok := w.At(at); ok && (next.IsZero() || run.From.Before(next)) {
			next = run.From
		}
	}
	return next
}

// nextHold returns the first moment after one that is free at which something keeps a start back, and false if there
// is none.
func (g startGate) nextHold(at time.Time) (next time.Time, ok bool) {
	consider := func(t time.Time) {
		if !ok || t.Before(next) {
			next, ok = t, true
		}
	}
	for w := range g.kind(false) {
		if run, _, found := w.At(at); found {
			consider(run.From)
		}
	}
	if end, ends := g.endOfAllowed(at); ends {
		consider(end)
	}
	return next, ok
}

// FreeSince returns since when nothing keeps back a start that may be at a moment; zero: for as long as is known.
func (g Gate) FreeSince(s Start, at time.Time) (since time.Time) {
	consider := func(t time.Time) {
		if t.After(since) && t.After(g.from) && !t.After(at) {
			since = t
		}
	}
	of := g.of(s)
	for w := range of.kind(false) {
		if i := w.index(at); i > 0 {
			consider(w.runs[i-1].To)
		}
	}
	for _, p := range g.pauses {
		consider(p.Until)
	}
	consider(of.beginOfAllowed(at))
	return since
}

// beginOfAllowed returns the first moment from which on to another one windows with Only cover all; zero: none has a say.
func (g startGate) beginOfAllowed(at time.Time) (begin time.Time) {
	begin = at
	for left := maxLooked; left > 0; left -= len(g.windows) {
		moved, concerned := begin, false
		for w := range g.kind(true) {
			concerned = true
			i := w.index(moved)
			if i == len(w.runs) || !w.runs[i].Covers(moved) {
				i-- // it may end there
			}
			if i >= 0 && !w.runs[i].To.Before(moved) || i >= 0 && w.runs[i].To.IsZero() {
				moved = earliest(moved, w.runs[i].From)
			}
		}
		switch {
		case !concerned:
			return time.Time{}
		case moved.Equal(begin):
			return begin
		}
		begin = moved
	}
	return begin
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// endOfAllowed returns the first moment from one on that no window with Only covers, and false if there is none or none
// has a say.
func (g startGate) endOfAllowed(at time.Time) (time.Time, bool) {
	for left := maxLooked; left > 0; left -= len(g.windows) {
		moved := at
		concerned := false
		for w := range g.kind(true) {
			concerned = true
			run, covers, _ := w.At(moved)
			switch {
			case covers && run.To.IsZero():
				return time.Time{}, false
			case covers:
				moved = run.To
			}
		}
		if !concerned || moved.Equal(at) {
			return moved, concerned
		}
		at = moved
	}
	return at, true
}
