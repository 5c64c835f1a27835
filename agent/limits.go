package agent

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// Limits bound what an agent takes on. A zero field means its default.
type Limits struct {
	MaxAttempts int           // attempts that run or are being told, beyond which, as above 32 MiB of their requests, it answers that it is busy; the last sixteenth of them is for callers that have none. Default 1,024
	MaxResult   int           // bytes of a result, at most 2 MiB; above the job has failed. Default 1 MiB
	MaxRecord   int           // bytes of a record, at most 2 MiB; above emit returns an error. Default 64 KiB
	Grace       time.Duration // how long functions go on when their agent stops, before their contexts end; then as long for the dispatcher to take the last results. Default 5 s
	MaxJournal  int64         // bytes of what the agent holds, with what supervisors of commands may hold, which is half of it at most; the journal is on disk about twice as many. Default 1 GiB; 64 MiB for one in memory
	MaxJobSpool int64         // bytes of a job's records and ends in it. A command's supervisor has half of them at most. Default 64 MiB
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.MaxAttempts, manyAttempts)
	setDefault(&l.MaxResult, harp.MaxResult)
	setDefault(&l.MaxRecord, harp.MaxRecord)
	setDefault(&l.Grace, 5*time.Second)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check reports what cannot be. The error is a *harp.FieldError.
func (l Limits) check() error {
	for _, limit := range []struct {
		field       string
		value, most int
	}{
		{"max_attempts", l.MaxAttempts, 1 << 20},
		{"max_result", l.MaxResult, wire.MaxMessage},
		{"max_record", l.MaxRecord, wire.MaxMessage},
	} {
		if limit.value < 1 || limit.value > limit.most {
			return &harp.FieldError{Field: "limits." + limit.field, Message: fmt.Sprintf("must be from 1 to %d", limit.most)}
		}
	}
	if l.MaxJournal < 0 {
		return &harp.FieldError{Field: "limits.max_journal", Message: "must not be negative"}
	}
	if l.MaxJobSpool < 0 {
		return &harp.FieldError{Field: "limits.max_job_spool", Message: "must not be negative"}
	}
	if l.Grace < 0 {
		return &harp.FieldError{Field: "limits.grace", Message: "must not be negative"}
	}
	return nil
}

// Limits of calls for which nobody has named any.
const (
	defaultTimeout     = 10 * time.Minute
	defaultMaxExecTime = 24 * time.Hour
)

// silenceDefault is the longest silence of a procedure for which nobody has named any: one that
// yields no records has nothing to say until it ends.
func (p *procedure) silenceDefault() time.Duration {
	if !p.doc.Streams {
		return harp.NoLimit
	}
	return defaultTimeout
}

// grant returns the limit of a call: what was asked for, within the procedure's
// own, which is also its default. 0 is none.
func grant(asked, own, other time.Duration) time.Duration {
	if asked == 0 {
		asked = other
		if own > 0 {
			asked = own
		}
	}
	if own > 0 {
		asked = min(asked, own)
	}
	if asked == harp.NoLimit {
		return 0
	}
	return asked
}

// watch measures an attempt against its two limits on the monotonic clock. The one
// on silence counts from the last record offered and stands still while harp itself
// holds the procedure back; the one on the whole run never does.
type watch struct {
	timeout, maxExec time.Duration
	exceeded         func(cause string, limit time.Duration)
	soon             time.Duration // after which early is called; 0: it is not
	early            func()

	mu    sync.Mutex  // guards what follows; never held while calling a function
	timer *time.Timer // for what comes first; nil: not begun, or ended
	begun time.Time
	last  time.Time // when a record was offered
	held  int       // emits that wait
	slept bool      // the timer has passed over the silence meanwhile
}

// begin starts both clocks.
func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = time.Now()
	w.last = w.begun
	if d := w.nextLocked(w.begun); d > 0 {
		w.timer = time.AfterFunc(d, w.look)
	}
}

// never is longer than anything runs.
const never = time.Duration(math.MaxInt64)

// nextLocked is how long nothing can happen, 0 if nothing ever can.
func (w *watch) nextLocked(now time.Time) time.Duration {
	next := never
	if w.soon > 0 {
		next = w.soon - now.Sub(w.begun)
	}
	if w.timeout > 0 && w.held == 0 {
		next = min(next, w.timeout-now.Sub(w.last))
	}
	if w.maxExec > 0 {
		next = min(next, w.maxExec-now.Sub(w.begun))
	}
	if next == never {
		return 0
	}
	return max(next, 1)
}

// offered notes a record.
func (w *watch) offered() {
	w.mu.Lock()
	w.last = time.Now()
	w.mu.Unlock()
}

// hold notes that an emit has to wait.
func (w *watch) hold() {
	w.mu.Lock()
	w.held++
	w.mu.Unlock()
}

// release notes that it no longer does.
func (w *watch) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if w.held--; w.held == 0 && w.slept {
		w.slept = false
		w.againLocked(w.last)
	}
}

// againLocked sets the timer for what comes next.
func (w *watch) againLocked(now time.Time) {
	if d := w.nextLocked(now); w.timer != nil && d > 0 {
		w.timer.Reset(d)
	}
}

// look does what is due.
func (w *watch) look() {
	switch due, cause, limit := w.due(); {
	case cause != "":
		w.exceeded(cause, limit)
	case due != nil:
		due()
	}
}

// due returns what to do now, or the limit that is exceeded, and sees to the rest
// later.
func (w *watch) due() (early func(), cause string, limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	switch {
	case w.timer == nil:
		return nil, "", 0
	case w.maxExec > 0 && now.Sub(w.begun) >= w.maxExec:
		return nil, wire.CauseMaxExecTime, w.maxExec
	case w.timeout > 0 && w.held == 0 && now.Sub(w.last) >= w.timeout:
		return nil, wire.CauseTimeout, w.timeout
	case w.soon > 0 && now.Sub(w.begun) >= w.soon:
		early, w.soon = w.early, 0
	}
	w.slept = w.held > 0
	w.againLocked(now)
	return early, "", 0
}

// end stops both clocks.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
