package schedule

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// heldHost is what windows and pauses are on a host, in a plain way; the zero one has none.
type heldHost struct {
	is          bool
	from, until int64 // what is known of it
	windows     []heldSpan
}

// heldSpan is a window of one span, or a pause.
type heldSpan struct {
	from, to  int64 // 0: without an end
	isPause   bool
	only      bool
	schedules bool // only
	all       bool
	procedure string // "": any
}

func (h heldSpan) covers(at int64) bool {
	return (h.isPause || h.from <= at) && (h.to == 0 || at < h.to)
}

func (h heldSpan) isAbout(j *store.Job) bool {
	return h.isPause || (h.procedure == "" || h.procedure == j.Procedure) && (!h.schedules || !j.FireTime.IsZero()) && (h.all || !j.ReadOnly)
}

// keepsAt reports whether a job must not start at a moment.
func (h heldHost) keepsAt(j *store.Job, at int64) bool {
	if !h.is {
		return false
	}
	among, within := 0, 0
	for _, w := range h.windows {
		switch {
		case !w.isAbout(j):
		case w.only:
			if among++; w.covers(at) {
				within++
			}
		case w.covers(at):
			return true
		}
	}
	return at < h.from || at >= h.until || among > 0 && within == 0
}

// keeps reports whether it must not start at a moment or in the second after.
func (h heldHost) keeps(j *store.Job, now int64) bool {
	moments := []int64{now, h.from, h.until}
	for _, w := range h.windows {
		moments = append(moments, w.from, w.to)
	}
	return slices.ContainsFunc(moments, func(at int64) bool {
		return now <= at && at <= now+int64(time.Second) && h.keepsAt(j, at)
	})
}

func (h heldHost) gate() *window.Gate {
	if !h.is {
		return nil
	}
	at := func(nanos int64) time.Time {
		if nanos == 0 {
			return time.Time{}
		}
		return msgpack.FromNanos(nanos)
	}
	var windows []*window.Expanded
	var pauses []window.Pause
	for _, w := range h.windows {
		if w.isPause {
			pauses = append(pauses, window.Pause{What: "host", Since: at(w.from), Until: at(w.to)})
			continue
		}
		is := window.Window{Name: "w", Only: w.only, SchedulesOnly: w.schedules, All: w.all, Source: window.Once{From: at(w.from), To: at(w.to)}}
		if w.procedure != "" {
			is.Procedures = []string{w.procedure}
		}
		windows = append(windows, is.Expand(at(h.from), at(h.until)))
	}
	g := window.NewGate(at(h.from), at(h.until), windows, pauses)
	return &g
}

func (d *driver) setHolds(*rapid.T) {
	d.tick()
	var h heldHost
	if h.is = rapid.IntRange(0, 3).Draw(d.T, "is held") > 0; h.is {
		h.from, h.until = d.now+d.seconds("known from", -30, 2), d.now+d.seconds("known until", 3, 60)
		for range rapid.IntRange(0, 3).Draw(d.T, "windows") {
			h.windows = append(h.windows, d.span())
		}
	}
	host := d.host()
	d.holds[host] = h
	d.s.SetHolds(host, h.gate())
}

func (d *driver) span() heldSpan {
	w := heldSpan{from: d.now + d.seconds("from", -10, 20), isPause: rapid.IntRange(0, 3).Draw(d.T, "pause") == 0}
	if rapid.IntRange(0, 5).Draw(d.T, "ends") > 0 {
		w.to = w.from + d.seconds("lasts", 0, 20)
	}
	if w.isPause {
		return w
	}
	w.only, w.schedules = rapid.IntRange(0, 3).Draw(d.T, "only") == 0, rapid.IntRange(0, 3).Draw(d.T, "schedules only") == 0
	w.all, w.procedure = rapid.Bool().Draw(d.T, "all"), rapid.SampledFrom([]string{"", "f", "g"}).Draw(d.T, "of")
	return w
}

// endHolds takes all windows away.
func (d *driver) endHolds() {
	for _, host := range hostNames {
		d.holds[host] = heldHost{}
		d.s.SetHolds(host, nil)
	}
	d.advance()
	d.checkHolds()
	if n := len(d.jobs(func(e *Job) bool { return e.isKept })); n > 0 {
		d.Fatalf("%d jobs are kept back by nothing", n)
	}
}

// mayStart checks that no window keeps back a job that starts.
func (d *driver) mayStart(e *Job) {
	d.Helper()
	if h := d.holds[e.host.name]; h.keeps(d.rows[e.ID], d.now) {
		d.Fatalf("job %d is started at %d though it is kept back by %+v", e.No, d.now, h)
	}
}

// mayExpire checks that no window has kept back a job that ends because its host has been absent until a time.
func (d *driver) mayExpire(e *Job, at int64) {
	d.Helper()
	if h := d.holds[e.host.name]; h.keeps(d.rows[e.ID], at) && h.keeps(d.rows[e.ID], d.now) {
		d.Fatalf("job %d ends for its absent host at %d though it is kept back by %+v", e.No, at, h)
	}
}

func (d *driver) reviewHolds(a *Alarm) {
	d.s.ReviewHolds(a, d.now)
	name := a.HostName()
	for o := d.s.Offers([]string{name}, d.now); o.More(); {
		e := o.Next()
		if e == nil {
			break
		}
		d.start(e)
	}
	d.nothingMayStart(name)
}

// nothingMayStart checks that no job waits on some hosts that may start and has room.
func (d *driver) nothingMayStart(hosts ...string) {
	d.Helper()
	for _, e := range d.s.jobs {
		if !slices.Contains(hosts, e.host.name) || e.hostQueue == nil || !e.Waits() {
			continue
		}
		if e.host.mayStart() && e.Queue.free() > 0 && !e.isLate(d.now) && !e.isBlocked() && !d.holds[e.host.name].keeps(d.rows[e.ID], d.now) {
			d.Fatalf("job %d waits though it may start and has room", e.No)
		}
	}
}

// checkHolds compares what is kept back with what must be, when nothing is due.
func (d *driver) checkHolds() {
	d.Helper()
	for i, e := range d.s.jobs {
		h := d.holds[e.host.name]
		switch keeps := h.keeps(d.rows[i], d.now); {
		case !e.Waits():
		case e.isKept && !keeps:
			d.Fatalf("job %d is kept back at %d by none of %+v", e.No, d.now, h)
		case e.hostQueue != nil && keeps:
			d.Fatalf("job %d waits for its turn at %d and not for the end of %+v", e.No, d.now, h)
		}
	}
}
