package harp

import (
	"encoding/json"
	"time"
)

// durationJSON is a duration as JSON has it: "1m30s", or "none" of NoLimit.
type durationJSON time.Duration

// MarshalJSON implements json.Marshaler.
func (d durationJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitText(time.Duration(d)))
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *durationJSON) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	read, err := limitIn("duration", word)
	*d = durationJSON(read)
	return err
}

// requestJSON is how a Request is written as JSON. The fields that it has itself take the place of
// those of its request.
type (
	requestFields Request
	requestJSON   struct {
		requestFields
		SilenceTimeout durationJSON `json:"silence_timeout,omitzero"`
		MaxExecTime    durationJSON `json:"max_exec_time,omitzero"`
		OfflineWait    durationJSON `json:"offline_wait,omitzero"`
		IdempotencyTTL durationJSON `json:"idempotency_ttl,omitzero"`
		Retry          retryJSON    `json:"retry,omitzero"`
		Batch          batchJSON    `json:"batch,omitzero"`
	}

	retryFields RetryPolicy
	retryJSON   struct {
		retryFields
		Backoff    durationJSON `json:"backoff,omitzero"`
		MaxBackoff durationJSON `json:"max_backoff,omitzero"`
	}

	batchJSON struct {
		BatchOptions
		WavePause  durationJSON `json:"wave_pause,omitzero"`
		RatePer    durationJSON `json:"rate_per,omitzero"`
		RebootWait durationJSON `json:"reboot_wait,omitzero"`
	}
)

func newRetryJSON(p RetryPolicy) retryJSON {
	return retryJSON{retryFields(p), durationJSON(p.Backoff), durationJSON(p.MaxBackoff)}
}

func (j retryJSON) policy() RetryPolicy {
	p := RetryPolicy(j.retryFields)
	p.Backoff, p.MaxBackoff = time.Duration(j.Backoff), time.Duration(j.MaxBackoff)
	return p
}

func newRequestJSON(r Request) requestJSON {
	return requestJSON{
		requestFields(r), durationJSON(r.SilenceTimeout), durationJSON(r.MaxExecTime), durationJSON(r.OfflineWait), durationJSON(r.IdempotencyTTL),
		newRetryJSON(r.Retry),
		batchJSON{r.Batch, durationJSON(r.Batch.WavePause), durationJSON(r.Batch.RatePer), durationJSON(r.Batch.RebootWait)},
	}
}

func (j requestJSON) request() Request {
	r := Request(j.requestFields)
	r.SilenceTimeout, r.MaxExecTime = time.Duration(j.SilenceTimeout), time.Duration(j.MaxExecTime)
	r.OfflineWait, r.IdempotencyTTL = time.Duration(j.OfflineWait), time.Duration(j.IdempotencyTTL)
	r.Retry = j.Retry.policy()
	r.Batch = j.Batch.BatchOptions
	r.Batch.WavePause, r.Batch.RatePer, r.Batch.RebootWait = time.Duration(j.Batch.WavePause), time.Duration(j.Batch.RatePer), time.Duration(j.Batch.RebootWait)
	return r
}

// scheduleJSON is how a Schedule is written as JSON, and statusOfScheduleJSON a ScheduleStatus.
type (
	scheduleFields Schedule
	scheduleJSON   struct {
		scheduleFields
		Jitter  durationJSON `json:"jitter,omitzero"`
		CatchUp durationJSON `json:"catch_up,omitzero"`
		Expect  durationJSON `json:"expect,omitzero"`
		Request requestJSON  `json:"request,omitzero"`
	}

	statusOfScheduleJSON struct {
		scheduleJSON
		ManagedBy string         `json:"managed_by,omitempty"`
		Version   uint64         `json:"version"`
		By        Principal      `json:"by,omitzero"`
		Changed   time.Time      `json:"changed,omitzero"`
		Through   time.Time      `json:"through,omitzero"`
		Waiting   time.Time      `json:"waiting,omitzero"`
		Next      Upcoming       `json:"next,omitzero"`
		Pause     *SchedulePause `json:"pause,omitempty"`
		LastBatch string         `json:"last_batch,omitempty"`
		Failures  int            `json:"failures,omitempty"`
		Error     Failure        `json:"error,omitzero"`

		Ends []DependencyEnd `json:"ends,omitempty"`
	}
)

func newScheduleJSON(s Schedule) scheduleJSON {
	return scheduleJSON{scheduleFields(s), durationJSON(s.Jitter), durationJSON(s.CatchUp), durationJSON(s.Expect), newRequestJSON(s.Request)}
}

func (j scheduleJSON) schedule() Schedule {
	s := Schedule(j.scheduleFields)
	s.Jitter, s.CatchUp, s.Expect = time.Duration(j.Jitter), time.Duration(j.CatchUp), time.Duration(j.Expect)
	s.Request = j.Request.request()
	return s
}

// MarshalJSON writes the fields that are not zero, in snake_case: times as RFC 3339, durations as
// "1m30s".
func (s Schedule) MarshalJSON() ([]byte, error) { return plainJSON(newScheduleJSON(s)) }

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	var read scheduleJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = read.schedule()
	return nil
}

// MarshalJSON writes the fields of the Schedule and its own, Err as the [Failure] "error".
func (s ScheduleStatus) MarshalJSON() ([]byte, error) {
	return plainJSON(statusOfScheduleJSON{
		newScheduleJSON(s.Schedule), s.ManagedBy, s.Version, s.By, s.Changed, s.Through, s.Waiting, s.Next, s.Pause, s.LastBatch, s.Failures, FailureOf(s.Err), s.Ends,
	})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (s *ScheduleStatus) UnmarshalJSON(text []byte) error {
	var read statusOfScheduleJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = ScheduleStatus{
		read.schedule(), read.ManagedBy, read.Version, read.By, read.Changed, read.Through, read.Waiting, read.Next, read.Pause, read.LastBatch, read.Failures, read.Error.Err(), read.Ends,
	}
	return nil
}

// ledgerEntryJSON is how a LedgerEntry is written as JSON.
type (
	ledgerEntryFields LedgerEntry
	ledgerEntryJSON   struct {
		ledgerEntryFields
		Late  durationJSON `json:"late,omitzero"`
		Error Failure      `json:"error,omitzero"`
	}
)

// MarshalJSON writes the fields that are not zero, Err as the [Failure] "error".
func (e LedgerEntry) MarshalJSON() ([]byte, error) {
	return plainJSON(ledgerEntryJSON{ledgerEntryFields(e), durationJSON(e.Late), FailureOf(e.Err)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (e *LedgerEntry) UnmarshalJSON(text []byte) error {
	var read ledgerEntryJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*e = LedgerEntry(read.ledgerEntryFields)
	e.Late, e.Err = time.Duration(read.Late), read.Error.Err()
	return nil
}
