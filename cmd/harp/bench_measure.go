package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/harpcaller/harp"
)

// measurement is one run of harp bench.
type measurement struct {
	caller *harp.Caller
	doc    harp.ProcedureDoc
	name   string // of the host
	args   any
	flags  *benchFlags
	run    string // the label's value

	host  *harp.Host
	start time.Time

	mu       sync.Mutex // guards what follows
	begun    int
	accepted latencies     // until the dispatcher has a call
	ended    latencies     // until a job's end is known, of those that were not cancelled here
	took     time.Duration // from the start to the last of these
	records  uint64
	failed   int   // of those that ended
	failure  error // of the first of these
	stopped  int   // jobs that were cancelled here
	left     int   // of those, how many had not ended when they were left alone
	err      error // why there were no more calls
}

func newMeasurement(caller *harp.Caller, host string, doc harp.ProcedureDoc, args any, f *benchFlags) *measurement {
	run := harp.NewID()
	return &measurement{
		caller: caller, doc: doc, name: host, args: args, flags: f, run: run,
		// A host that is away is not measured, and no job is to wait for it.
		host: caller.Host(host, harp.Label(benchLabel, run), harp.WhenOffline(harp.FailFast)),
	}
}

// measure makes calls until there are enough, the time is over, one is not accepted or
// ctx ends. When it returns all jobs have ended, or as many as let themselves be ended.
func (m *measurement) measure(ctx context.Context) {
	m.start = time.Now()
	var calls sync.WaitGroup
	for range m.flags.inFlight {
		calls.Go(func() {
			for m.another(ctx) {
				m.measureCall(ctx)
			}
		})
	}
	calls.Wait()
	if m.ended.n == 0 {
		m.took = time.Since(m.start)
	}
}

// another reports whether one more call is to be made.
func (m *measurement) another(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	enough := m.flags.most > 0 && m.begun >= m.flags.most
	if enough || m.err != nil || ctx.Err() != nil || time.Since(m.start) >= time.Duration(m.flags.length) {
		return false
	}
	m.begun++
	return true
}

// measureCall makes one call and waits for its end. The submission is not interrupted: what
// may have been accepted could not be cancelled for sure.
func (m *measurement) measureCall(ctx context.Context) {
	begin := time.Now()
	job, err := m.host.Call(context.WithoutCancel(ctx), m.doc.Name, m.args)
	if err != nil {
		m.abortRun(err)
		var uncertain *harp.CallError
		if errors.As(err, &uncertain) {
			m.cancelJob(ctx, m.caller.Job(uncertain.JobID))
		}
		return
	}
	accepted := time.Since(begin)
	records, err := m.readRecords(ctx, job)
	if err != nil {
		m.cancelJob(ctx, job)
		if ctx.Err() == nil {
			m.abortRun(err)
		}
		return
	}
	result, err := job.Wait(ctx)
	if err != nil {
		m.cancelJob(ctx, job)
		if ctx.Err() == nil {
			m.abortRun(err)
		}
		return
	}
	m.noteJob(job, accepted, time.Since(begin), records, result.Err)
}

// readRecords reads the records of a job until its end, if its procedure has any.
func (m *measurement) readRecords(ctx context.Context, job *harp.Job) (n uint64, err error) {
	if !m.doc.Streams {
		return 0, nil
	}
	for _, err := range job.Follow(ctx, harp.Since(0)) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (m *measurement) noteJob(job *harp.Job, accepted, ended time.Duration, records uint64, failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = time.Since(m.start)
	m.accepted.addLatency(accepted)
	m.ended.addLatency(ended)
	m.records += records
	if failure == nil {
		return
	}
	if m.failed++; m.failure == nil {
		m.failure = fmt.Errorf("job %s: %w", job.ID(), failure)
	}
}

// abortRun ends the run. The first reason is reported.
func (m *measurement) abortRun(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

// endsWithin is how long jobs that were cancelled are waited for.
const endsWithin = 10 * time.Second

// cancelJob asks a job to stop and waits until it has, though ctx may have ended.
func (m *measurement) cancelJob(ctx context.Context, job *harp.Job) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), endsWithin)
	defer done()
	_, err := job.Cancel(ctx)
	if errors.Is(err, harp.ErrNotFound) {
		return // it was not accepted
	}
	if err == nil {
		_, err = job.Wait(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped++
	if err != nil {
		m.left++
	}
}

// outcome is how the run ended: nil if it was not interrupted and all jobs succeeded.
func (m *measurement) outcome(ctx context.Context) error {
	rest := ""
	if m.left > 0 {
		rest = fmt.Sprintf("; %s may not have ended: harp job ls --label %s=%s", jobsText(m.left), benchLabel, m.run)
	}
	switch {
	case m.err != nil:
		return fmt.Errorf("%w%s", m.err, rest)
	case ctx.Err() != nil:
		return &detachedError{nothing: jobsText(m.stopped) + " cancelled" + rest}
	case m.failure != nil:
		return fmt.Errorf("%d of %s did not succeed; the first, %w", m.failed, jobsText(int(m.ended.n)), m.failure) //nolint:gosec // what was counted
	}
	return nil
}
