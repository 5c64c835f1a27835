package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/harpcaller/harp"
)

// waitLine is a line at the end of a terminal's stderr that says what a job waits for. It is
// painted when nothing was printed for a second, and erased before anything is.
type waitLine struct {
	w io.Writer // stderr

	mu      sync.Mutex
	shown   bool
	within  bool      // a printed line has no end yet
	printed time.Time // when the last was
	silent  time.Time // since when the dispatcher does not answer
	state   string    // of the job, as was heard last
}

// paintEvery is how often the line is painted, and the silence before it is.
const paintEvery = time.Second

// showWaiting paints what a job waits for until the function that it returns is called. Where
// stderr is no terminal nothing is painted.
func (c *cli) showWaiting(ctx context.Context, job *harp.Job) (stop func()) {
	if !c.errTerminal || c.quiet || c.format != formatText {
		return func() {}
	}
	columns, _ := c.size()
	ctx, cancel := context.WithCancel(ctx)
	var painting sync.WaitGroup
	painting.Go(func() { c.line.paintLoop(ctx, job, cmp.Or(columns, 80)-1) })
	return func() {
		cancel()
		painting.Wait()
		c.line.erase()
	}
}

// erasing is a writer that erases the line first.
type erasing struct {
	line *waitLine
	w    io.Writer
}

// Write implements io.Writer.
func (e *erasing) Write(b []byte) (int, error) {
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	e.line.eraseLocked()
	e.line.printed = time.Now()
	if len(b) > 0 {
		e.line.within = b[len(b)-1] != '\n'
	}
	return e.w.Write(b)
}

// direct is a writer that erases nothing: another program gets the terminal itself.
func direct(w io.Writer) io.Writer {
	if e, ok := w.(*erasing); ok {
		return e.w
	}
	return w
}

func (l *waitLine) paintLoop(ctx context.Context, job *harp.Job, columns int) {
	tick := time.NewTicker(paintEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, paintEvery)
		s, err := job.Status(asking)
		cancel()
		if ctx.Err() == nil {
			l.paint(s, err, time.Now(), columns)
		}
	}
}

// paint writes the line anew, unless something was printed just now.
func (l *waitLine) paint(s harp.JobStatus, err error, now time.Time, columns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.silent, l.state = time.Time{}, stateText(s)
	case l.silent.IsZero():
		l.silent = now
	}
	if l.within || now.Sub(l.printed) < paintEvery {
		return
	}
	_, _ = fmt.Fprint(l.w, overwrite+text.Snip(safeLine(l.textOf(s, now)), columns, "…"))
	l.shown = true
}

// textOf says in which state the job is and since when, or that the dispatcher does not say.
func (l *waitLine) textOf(s harp.JobStatus, now time.Time) string {
	switch {
	case l.silent.IsZero():
	case now.Sub(l.silent) < time.Second:
		return "no answer from the dispatcher; trying again"
	default:
		return "no answer from the dispatcher for " + age(now.Sub(l.silent)) + "; trying again"
	}
	what := stateText(s)
	if s.State == harp.StateQueued && s.QueuePos > 0 {
		what += ", place " + strconv.Itoa(s.QueuePos)
	}
	since := s.SubmitTime
	if !s.Since.IsZero() {
		since = s.Since
	}
	return what + ", for " + age(max(now.Sub(since), 0))
}

// goesOn says what becomes of a job that is not waited for any more, as far as is known.
func (l *waitLine) goesOn() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.silent.IsZero():
		return "may go on: the dispatcher does not answer"
	case l.state != "":
		return "is " + l.state + " and goes on"
	}
	return "goes on"
}

func (l *waitLine) erase() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eraseLocked()
}

func (l *waitLine) eraseLocked() {
	if l.shown {
		_, _ = fmt.Fprint(l.w, overwrite)
		l.shown = false
	}
}
