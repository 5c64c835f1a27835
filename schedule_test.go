package harp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// nightly is a schedule that can be.
func nightly(t *testing.T) Schedule {
	t.Helper()
	req, err := NewBatchRequest("role=web", "backup", Args{"level": "full"}, Label("kind", "backup"))
	if err != nil {
		t.Fatal(err)
	}
	req.ID = ""
	return Schedule{Name: "nightly", Cron: "30 2 * * *", TZ: "Europe/Madrid", Request: req}
}

func TestScheduleCheck(t *testing.T) {
	t.Parallel()
	if err := nightly(t).Check(); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		field  string
		change func(*Schedule)
	}{
		{"name", func(s *Schedule) { s.Name = "" }},
		{"name", func(s *Schedule) { s.Name = "a\x00b" }},
		{"name", func(s *Schedule) { s.Name = strings.Repeat("n", MaxScheduleName+1) }},
		{"cron", func(s *Schedule) { s.Cron = "" }},
		{"cron", func(s *Schedule) { s.Cron = strings.Repeat("*", MaxCron+1) }},
		{"tz", func(s *Schedule) { s.TZ = strings.Repeat("z", MaxTZ+1) }},
		{"doc", func(s *Schedule) { s.Doc = "\xff" }},
		{"from", func(s *Schedule) { s.From = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"until", func(s *Schedule) { s.From, s.Until = at, at }},
		{"jitter", func(s *Schedule) { s.Jitter = -1 }},
		{"jitter", func(s *Schedule) { s.Cron, s.Jitter = "at 2027-03-01 02:00", NoLimit }},
		{"catch_up", func(s *Schedule) { s.CatchUp = -1 }},
		{"catch_up_most", func(s *Schedule) { s.CatchUpMost = -1 }},
		{"catch_up_most", func(s *Schedule) { s.CatchUpMost = MaxCatchUp + 1 }},
		{"pause_on_failure", func(s *Schedule) { s.PauseOnFailure = -1 }},
		{"expect", func(s *Schedule) { s.Expect = -1 }},
		{"overlap", func(s *Schedule) { s.Overlap = "maybe" }},
		{"gap", func(s *Schedule) { s.Gap = "maybe" }},
		{"repeat", func(s *Schedule) { s.Repeat = "maybe" }},
		{"label", func(s *Schedule) { s.Labels = map[string]string{"": "x"} }},
		{"target", func(s *Schedule) { s.Request = Request{Procedure: "backup"} }},
		{"id", func(s *Schedule) { s.Request.ID = NewID() }},
		{"traceparent", func(s *Schedule) { s.Request.TraceParent = "00-1-2-01" }},
		{"idempotency_key", func(s *Schedule) { s.Request.IdempotencyKey = "k" }},
		{"start_after", func(s *Schedule) { s.Request.StartAfter = at }},
		{"start_before", func(s *Schedule) { s.Request.StartBefore = at }},
		{"confirmed", func(s *Schedule) { s.Request.Batch.Confirmed = "d" }},
		{"probe", func(s *Schedule) { s.Request.Batch.Probe = true }},
		{"retry", func(s *Schedule) { s.Request.RetryOf = NewID() }},
		{"procedure", func(s *Schedule) { s.Request.Procedure = "" }},
	} {
		s := nightly(t)
		c.change(&s)
		var field *FieldError
		if err := s.Check(); !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestScheduleChangeCheck(t *testing.T) {
	t.Parallel()
	if err := (ScheduleChange{Kind: PauseOfSchedule, Reason: "freeze"}).Check(); err != nil {
		t.Error(err)
	}
	for field, c := range map[string]ScheduleChange{
		"kind":   {Kind: "stop"},
		"reason": {Kind: PauseOfSchedule, Reason: strings.Repeat("r", MaxWhy+1)},
		"until":  {Kind: PauseOfSchedule, Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"at":     {Kind: SkipOfSchedule, At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		var got *FieldError
		if err := c.Check(); !errors.As(err, &got) || got.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestScheduleAsJSON: what is read by people and scripts has words, not nanoseconds.
func TestScheduleAsJSON(t *testing.T) {
	t.Parallel()
	s := nightly(t)
	s.Jitter, s.Request.MaxExecTime, s.Request.Batch.WavePause = 90*time.Second, NoLimit, time.Minute
	s.Request.Retry = RetryPolicy{Backoff: time.Second}
	got, err := json.Marshal(ScheduleStatus{Schedule: s, Version: 2, Next: Upcoming{Nominal: time.Unix(1, 0).UTC(), Wall: "w"}, Err: &FieldError{Field: "tz", Message: "is gone"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"nightly","cron":"30 2 * * *","tz":"Europe/Madrid","jitter":"1m30s",` +
		`"request":{"target":"role=web","procedure":"backup","args":{"level":"full"},"labels":{"kind":"backup"},"needs":["batch"],"max_exec_time":"none",` +
		`"retry":{"backoff":"1s"},"batch":{"wave_pause":"1m0s"}},"version":2,"next":{"time":"0001-01-01T00:00:00Z","nominal":"1970-01-01T00:00:01Z","wall":"w"},` +
		`"error":{"code":"invalid","message":"is gone","ran":"no","fault":"caller","field":"tz"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
