package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
)

const (
	foldAbove = 5                      // hosts: then equal results are printed once
	askEvery  = 500 * time.Millisecond // how far the batch is
	askWithin = 5 * time.Second        // the dispatcher may be restarted meanwhile
	maxOutput = 64 << 10               // of what a command printed on a host
)

// batchWatch shows how the members of a batch end, until it has ended or is paused and nothing of it
// runs.
type batchWatch struct {
	cli       *cli
	batch     *harp.Batch
	since     uint64          // the number of the log to begin with
	tail      bool            // or with what comes from now on
	records   bool            // print these, too
	output    bool            // what commands printed is their result
	unfolded  bool            // print equal results, too
	approve   bool            // ask at the end of each wave
	questions context.Context // while it lasts
	noWait    bool            // stop at the end of what is there
	hosts     map[string]bool // only these; nil: all

	uncancelled atomic.Bool // it was to be cancelled, and could not be

	status   harp.BatchStatus // when it was asked for last
	asked    time.Time
	progress *progress
	next     uint64                 // where to go on
	told     int                    // members whose end was told
	heard    time.Time              // when something came last
	code     int                    // of the worst end that was told
	printed  map[string]*keptOutput // by host, what its command printed
}

// run shows the batch. Errors: *saidError with the worst exit code, *detachedError, the library's.
func (w *batchWatch) run(ctx context.Context) error {
	var err error
	if w.status, err = w.batch.Status(ctx); err != nil {
		return unless(ctx, err, w.detached())
	}
	w.asked, w.heard, w.next = time.Now(), time.Now(), w.since
	w.progress, w.printed = newProgress(w.cli, w.status), map[string]*keptOutput{}
	if err := w.print(w.entries(ctx)); err != nil {
		w.progress.clear()
		return w.cli.unprinted(unless(ctx, err, w.detached()), "harp batch results "+w.batch.ID())
	}
	w.progress.clear()
	if w.noWait {
		return nil
	}
	w.sumUp()
	if code := w.exitCode(); code != exitOK {
		return &saidError{code}
	}
	return nil
}

// logEntry is an entry of the batch's log, or why there are no more.
type logEntry struct {
	harp.HostRecord
	err error
}

// entries yields what comes of the batch's log while it is told how far the batch is. It ends with the
// batch, or when that is paused.
func (w *batchWatch) entries(ctx context.Context) iter.Seq2[harp.HostRecord, error] {
	return func(yield func(harp.HostRecord, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		read := make(chan logEntry)
		var reading sync.WaitGroup
		reading.Go(func() { w.readLog(ctx, read) })
		defer reading.Wait()
		defer cancel()
		ticker := time.NewTicker(repaintEvery)
		defer ticker.Stop()
		for {
			select {
			case e, more := <-read:
				if !more {
					yieldError(yield, w.awaitBatchEnd(ctx))
					return
				}
				if e.err == nil {
					w.note(e.HostRecord)
				}
				if !yield(e.HostRecord, e.err) {
					return
				}
			case <-ticker.C:
				if over, err := w.look(ctx); over || err != nil {
					yieldError(yield, err)
					return
				}
			}
		}
	}
}

func yieldError(yield func(harp.HostRecord, error) bool, err error) {
	if err != nil {
		yield(harp.HostRecord{}, err)
	}
}

// readLog reads the batch's log until it ends.
func (w *batchWatch) readLog(ctx context.Context, into chan<- logEntry) {
	defer close(into)
	var from []harp.StreamOption
	if !w.tail {
		from = append(from, harp.Since(w.since))
	}
	for r, err := range w.log(ctx, from) {
		select {
		case into <- logEntry{r, err}:
		case <-ctx.Done():
			return
		}
	}
}

// log is the batch's log, with records only where they are wanted.
func (w *batchWatch) log(ctx context.Context, from []harp.StreamOption) iter.Seq2[harp.HostRecord, error] {
	if w.records || w.output || w.tail {
		return w.batch.Follow(ctx, from...)
	}
	return func(yield func(harp.HostRecord, error) bool) {
		for r, err := range w.batch.Results(ctx, from...) {
			if !yield(harp.HostRecord{Seq: r.Seq, Host: r.Host, Job: r.Job, Step: r.Step, End: &r.Result, Skipped: r.Skipped}, err) {
				return
			}
		}
	}
}

// look asks how far the batch is, now and then, and tells it. It is over when no more is to come for
// now.
func (w *batchWatch) look(ctx context.Context) (over bool, err error) {
	if time.Since(w.asked) >= askEvery {
		if err := w.ask(ctx); err != nil {
			return false, err
		}
		switch {
		case w.noWait && w.isTold():
			return true, nil
		case w.isHeld() && w.isTold():
			return w.goOn(ctx)
		}
	}
	w.progress.show(w.status)
	return false, nil
}

// ask asks for the status. A dispatcher that does not answer is asked again later.
func (w *batchWatch) ask(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := w.batch.Status(short)
	w.asked = time.Now()
	switch {
	case err == nil:
		w.status = s
	case ctx.Err() != nil, !errors.Is(err, harp.ErrUnavailable) && short.Err() == nil:
		return err
	}
	return nil
}

// awaitBatchEnd asks how the batch has ended, whose log has, until that is answered.
func (w *batchWatch) awaitBatchEnd(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, err := w.batch.Wait(ctx)
	if err == nil {
		w.status = s
	}
	return err
}

// isHeld reports whether the batch is paused, and nothing of it runs.
func (w *batchWatch) isHeld() bool {
	return w.status.State == harp.BatchPaused && runningMembers(w.status) == 0
}

// isTold reports whether all that has ended was told.
func (w *batchWatch) isTold() bool {
	if w.since == 0 && !w.tail {
		return w.told >= endedMembers(w.status)-w.status.Early
	}
	return time.Since(w.heard) > 2*askEvery // nobody knows how many were told before
}

// goOn asks whether the next wave is to begin, where that was wanted and somebody can be asked.
func (w *batchWatch) goOn(ctx context.Context) (over bool, err error) {
	c := w.cli
	if !w.approve || w.status.Reason != harp.BatchReasonWave || !awaitsApproval(w.status) || !c.inTerminal || !c.errTerminal {
		return true, nil
	}
	if w.questions.Err() != nil && ctx.Err() == nil {
		return w.uncancelled.Load(), nil // else it is being cancelled
	}
	w.progress.clear()
	since := w.status.Since
	ended := w.status.Wave - 1 // paused, the batch is in the wave that is to be approved
	question := fmt.Sprintf("Wave %d of %d is over: %s. Go on?", ended, w.status.Waves, memberText(w.status))
	err = c.ask(w.questions, question, "the batch stays paused")
	var no *abortedError
	switch {
	case w.questions.Err() != nil && ctx.Err() == nil:
		return false, nil
	case errors.As(err, &no):
		return true, w.ask(ctx) // somebody else may have approved it
	case err != nil:
		return false, err
	}
	now, err := w.batch.Status(ctx) // without an answer nothing is approved
	if err != nil {
		return false, err
	}
	if w.status = now; !now.Since.Equal(since) || !awaitsApproval(now) {
		return false, nil // somebody else has answered, and the next wave is another question; or has paused it
	}
	if err := w.batch.Approve(ctx, now.Wave); err != nil && !errors.Is(err, harp.ErrConflict) { // it is elsewhere meanwhile
		return false, err
	}
	err = w.ask(ctx)
	w.progress.measureAnew(w.status, time.Since(w.progress.begun))
	return false, err
}

// note remembers what is told.
func (w *batchWatch) note(r harp.HostRecord) {
	w.next, w.heard = r.Seq, time.Now() // there may be more records of this number
	if r.End == nil {
		return
	}
	w.next = r.Seq + 1
	w.told++
	if !r.Skipped {
		w.code = worseCode(w.code, exitCode(r.End.Err, w.cli.remote))
	}
}

// exitCode is that of the worst end, whether it was told or before. A batch that has not ended, and one
// that was ended by other things than its members, are not successes either.
func (w *batchWatch) exitCode() int {
	code := w.code
	for state, of := range map[harp.State]int{
		harp.StateFailed: exitFailed, harp.StateTimedOut: exitTimeout, harp.StateExpired: exitUnreachable,
		harp.StateLost: exitUnknown, harp.StateCancelled: exitCancelled, harp.StateRejected: exitRefused,
	} {
		if w.status.Counts[state] > 0 && (state != harp.StateRejected || w.since > 0 || w.tail) { // else it was told for what
			code = worseCode(code, of)
		}
	}
	switch s := w.status; {
	case code != exitOK || s.State == harp.BatchSucceeded:
		return code
	case s.State == harp.BatchCancelled:
		return exitCancelled
	case s.Reason == harp.BatchReasonNoHost:
		return exitUnreachable
	case !s.State.Ended():
		return exitWaited
	}
	return exitFailed
}

// sumUp says how the batch ended, and what can be done now.
func (w *batchWatch) sumUp() {
	s := w.status
	text := memberText(s)
	if !s.SubmitTime.IsZero() && !s.EndTime.IsZero() {
		text += " in " + roughly(s.EndTime.Sub(s.SubmitTime))
	}
	w.cli.notice("batch %s: %s, %s", batchStateText(s), hostCount(s.Hosts), text)
	switch {
	case s.State == harp.BatchPaused && s.Reason == harp.BatchReasonApproval && awaitsApproval(s):
		w.cli.notice("Approve with: %s; refuse with: harp batch cancel %s", resumeCommand(s), s.ID)
	case s.State == harp.BatchPaused:
		w.cli.notice("Resume with: %s; end it with: harp batch cancel %s", resumeCommand(s), s.ID)
	case s.State.Ended():
		if flags := retryFlags(s); flags != "" {
			w.cli.notice("Retry with: harp batch retry %s%s", s.ID, flags)
		}
	}
}

// detached is what the command ends with when it is interrupted.
func (w *batchWatch) detached() error {
	id := w.batch.ID()
	e := &detachedError{batch: id, resume: "harp batch results " + id}
	if w.records {
		e.resume = "harp batch follow " + id
	}
	if !w.folds() {
		e.resume += fmt.Sprintf(" --since %d", w.next)
	}
	if w.progress != nil {
		e.at = fmt.Sprintf(" at %d of %s", endedMembers(w.status), hostCount(w.status.Hosts))
	}
	if w.status.State == harp.BatchPaused {
		e.goesOn, e.resume = "is "+batchStateText(w.status), resumeCommand(w.status)+"; come back with: "+e.resume
	}
	return e
}

// print prints what comes of the log in the format that was asked for.
func (w *batchWatch) print(entries iter.Seq2[harp.HostRecord, error]) error {
	switch c := w.cli; {
	case c.format == formatJSON:
		return w.collect(entries)
	case w.folds():
		return w.printFolded(entries)
	}
	for r, err := range entries {
		if err == nil {
			err = w.printEntry(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// folds reports whether equal results are printed once, when all have ended.
func (w *batchWatch) folds() bool {
	return w.cli.format == formatText && !w.records && !w.unfolded && w.status.Hosts > foldAbove
}

// printEntry prints a record or an end as it comes.
func (w *batchWatch) printEntry(r harp.HostRecord) error {
	c := w.cli
	w.progress.clear()
	switch {
	case !w.wanted(r.Host):
	case c.format == formatLines:
		return w.printLine(r)
	case r.End == nil && w.records:
		return w.printRecord(r)
	case r.End == nil:
		return w.keepOutput(r)
	case c.format == formatID:
		c.say("%s", r.Job)
	case w.isResult(r) && (!w.output || !w.records): // then it was printed
		printHosts(c, r.Host, w.resultOf(r).Value)
	}
	return c.stdout.err
}

func (w *batchWatch) wanted(host string) bool { return w.hosts == nil || w.hosts[host] }

// printLine prints an end, or a record where they are wanted, as a line of JSON.
func (w *batchWatch) printLine(r harp.HostRecord) error {
	switch {
	case w.records:
		return w.cli.printLine(r)
	case r.End == nil:
		return w.keepOutput(r)
	}
	return w.cli.printLine(w.resultOf(r))
}

// resultOf is the end of a member. What its command printed is its value where that is wanted.
func (w *batchWatch) resultOf(r harp.HostRecord) harp.HostResult {
	result := harp.HostResult{Seq: r.Seq, Host: r.Host, Job: r.Job, Step: r.Step, Skipped: r.Skipped, Result: *r.End}
	if !w.output {
		return result
	}
	if printed := w.printed[r.Host]; printed != nil {
		if text, err := harp.NewValue(strings.TrimSuffix(string(printed.text), "\n")); err == nil {
			result.Value = text
		}
		delete(w.printed, r.Host)
	}
	return result
}

// keepOutput keeps what a command printed until it has ended.
func (w *batchWatch) keepOutput(r harp.HostRecord) error {
	if !w.output || r.Record.Kind == harp.KindData {
		return nil
	}
	text, err := recordText(r.Record)
	if err != nil {
		return err
	}
	if !r.Record.Partial {
		text += "\n"
	}
	kept := w.printed[r.Host]
	if kept == nil {
		kept = new(keptOutput)
		w.printed[r.Host] = kept
	}
	if !kept.full && len(kept.text)+len(text) > maxOutput {
		kept.full = true
		kept.text = append(kept.text, "(more was printed: harp job follow "+r.Job+" --since 0)"...)
	}
	if !kept.full {
		kept.text = append(kept.text, text...)
	}
	return nil
}

// keptOutput is what a command printed on a host, as much of it as is kept.
type keptOutput struct {
	text []byte
	full bool
}

// printFolded prints what the hosts returned, equal results once, when all have.
func (w *batchWatch) printFolded(entries iter.Seq2[harp.HostRecord, error]) error {
	folded, err := harp.Fold(w.results(entries))
	w.progress.clear()
	for _, f := range folded {
		printHosts(w.cli, foldedHosts(f.Hosts, w.status.Hosts), f.Result.Value)
	}
	if err == nil {
		err = w.cli.stdout.err
	}
	return err
}

// results are those ends that are printed as results: what failed is said as it comes.
func (w *batchWatch) results(entries iter.Seq2[harp.HostRecord, error]) iter.Seq2[harp.HostResult, error] {
	return func(yield func(harp.HostResult, error) bool) {
		for r, err := range entries {
			switch {
			case err != nil:
			case !w.wanted(r.Host):
				continue
			case r.End == nil:
				if err = w.keepOutput(r); err == nil {
					continue
				}
			case !w.isResult(r):
				continue
			}
			if err != nil {
				yield(harp.HostResult{}, err)
				return
			}
			if !yield(w.resultOf(r), nil) {
				return
			}
		}
	}
}

// isResult reports whether the end of a member is printed as a result, and says so if it failed. A
// command that failed may have printed something.
func (w *batchWatch) isResult(r harp.HostRecord) bool {
	if r.End.State == harp.StateSucceeded {
		return true
	}
	w.complain(r)
	return w.printed[r.Host] != nil
}

// foldedHosts names hosts that returned the same: few by name, all by their number.
func foldedHosts(names []string, all int) string {
	const most = 5
	switch n := len(names); {
	case n == all:
		return hostCount(n)
	case n <= most:
		return strings.Join(names, ", ")
	default:
		return fmt.Sprintf("%s (%s, …)", hostCount(n), strings.Join(names[:most], ", "))
	}
}

// printHosts prints what hosts returned. A text of several lines stands below their names.
func printHosts(c *cli, hosts string, v harp.Value) {
	if text, err := v.Any(); err == nil {
		if text, ok := text.(string); ok {
			text = strings.TrimSuffix(text, "\n")
			lines := strings.Split(text, "\n")
			if len(lines) == 1 {
				c.say("%s: %s", hosts, text)
				return
			}
			c.say("%s:", hosts)
			for _, line := range lines {
				c.say("  %s", line)
			}
			return
		}
	}
	value, err := compactJSON(v)
	if err != nil {
		value = []byte("null")
	}
	c.say("%s: %s", hosts, safeJSON(value))
}

// printRecord prints a record with its host: what was printed on stderr, and logged, goes there where
// stdout is no terminal.
func (w *batchWatch) printRecord(r harp.HostRecord) error {
	text, err := recordText(r.Record)
	if err != nil {
		return err
	}
	c := w.cli
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		line = r.Host + ": " + kindMark(r.Record.Kind) + line
		if !c.terminal && (r.Record.Kind == harp.KindStderr || r.Record.Kind == harp.KindLog) {
			c.complain("%s", line)
			continue
		}
		c.say("%s", line)
	}
	return c.stdout.err
}

// complain says how a member failed, in a line: a letter for the state, host, error and job. Of one that was
// cancelled only the number is told.
func (w *batchWatch) complain(r harp.HostRecord) {
	if r.End.State == harp.StateCancelled || w.cli.quiet {
		return
	}
	w.progress.clear()
	letter, colour := stateLetter(r.End.State), red
	if r.Skipped {
		letter, colour = "S", dim
	}
	why := string(r.End.State)
	if r.End.Err != nil {
		why = strings.TrimPrefix(r.End.Err.Error(), "harp: ")
	}
	_, errs := w.cli.painters()
	line := errs.paintText(colour, letter) + " " + safeLine(fmt.Sprintf("%s  %s%s  job %s", r.Host, atStep(r.Step), why, r.Job))
	io.WriteString(w.cli.stderr, line+"\n") //nolint:errcheck // there is nowhere to say it
}

// stateLetter is a letter for how a member failed.
func stateLetter(s harp.State) string {
	if s == harp.StateExpired {
		return "U" // as people say it: unreachable
	}
	return strings.ToUpper(string(s[:1]))
}

// collect prints all ends, or records, and then the batch as one object.
func (w *batchWatch) collect(entries iter.Seq2[harp.HostRecord, error]) error {
	name := "results"
	if w.records {
		name = "records"
	}
	return w.cli.printCollected(name, func(add func(any) error) error {
		for r, err := range entries {
			w.progress.clear()
			switch {
			case err != nil:
				return err
			case !w.wanted(r.Host):
			case w.records:
				err = add(r)
			case r.End == nil:
				err = w.keepOutput(r)
			default:
				err = add(w.resultOf(r))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, func() object { return object{{"batch", w.status}} })
}
