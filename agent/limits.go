package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// Limits bound what an agent takes on. A zero field means its default.
type Limits struct {
	MaxAttempts int           // attempts that run or are being told, beyond which it answers that it is busy. Default 1,024
	MaxResult   int           // bytes of a result, at most 2 MiB; above the job has failed. Default 1 MiB
	MaxRecord   int           // bytes of a record, at most 2 MiB; above emit returns an error. Default 64 KiB
	Grace       time.Duration // how long an agent that stops waits for its dispatcher to take the last results. Default 5 s
	MaxJournal  int64         // bytes of the journal, on disk about twice as many. Default 1 GiB; 64 MiB for one in memory
	MaxJobSpool int64         // bytes of a job's records and ends in it. Default 64 MiB
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.MaxAttempts, 1024)
	setDefault(&l.MaxResult, wire.MaxResult)
	setDefault(&l.MaxRecord, wire.MaxRecord)
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

	mu      sync.Mutex // guards what follows; never held while calling exceeded
	silence *time.Timer
	total   *time.Timer
	last    time.Time // when a record was offered
	held    int       // emits that wait
	asleep  bool      // the silence timer fired while held
}

// begin starts both clocks.
func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if w.timeout > 0 {
		w.silence = time.AfterFunc(w.timeout, w.listen)
	}
	if w.maxExec > 0 {
		w.total = time.AfterFunc(w.maxExec, func() { w.exceeded(wire.CauseMaxExecTime, w.maxExec) })
	}
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
	w.held--
	if w.held == 0 && w.asleep && w.silence != nil {
		w.asleep = false
		w.silence.Reset(w.timeout)
	}
}

// listen looks whether the silence has lasted too long.
func (w *watch) listen() {
	if w.tooSilent() {
		w.exceeded(wire.CauseTimeout, w.timeout)
	}
}

func (w *watch) tooSilent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.timeout - time.Since(w.last)
	switch {
	case w.silence == nil:
		return false
	case w.held > 0:
		w.asleep = true
		return false
	case left > 0:
		w.silence.Reset(left)
		return false
	}
	return true
}

// end stops both clocks.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range []*time.Timer{w.silence, w.total} {
		if t != nil {
			t.Stop()
		}
	}
	w.silence, w.total = nil, nil
}
