package harp

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// report is a schedule that comes after another.
func report(t *testing.T) Schedule {
	t.Helper()
	s := nightly(t)
	s.Name, s.Cron, s.TZ = "report", "", ""
	s.After = []Dependency{{Schedule: "nightly", On: OnFailed, Within: 6 * time.Hour}, {Schedule: "check", Within: NoLimit}}
	return s
}

func TestDependencyCheck(t *testing.T) {
	t.Parallel()
	if err := report(t).Check(); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		field  string
		change func(*Schedule)
	}{
		{"cron", func(s *Schedule) { s.Cron = "@daily" }},
		{"tz", func(s *Schedule) { s.TZ = "UTC" }},
		{"from", func(s *Schedule) { s.From = at }},
		{"until", func(s *Schedule) { s.Until = at }},
		{"jitter", func(s *Schedule) { s.Jitter = 1 }},
		{"gap", func(s *Schedule) { s.Gap = GapSkip }},
		{"repeat", func(s *Schedule) { s.Repeat = RepeatBoth }},
		{"catch_up", func(s *Schedule) { s.CatchUp = 1 }},
		{"catch_up_most", func(s *Schedule) { s.CatchUpMost = 1 }},
		{"after[0].schedule", func(s *Schedule) { s.After[0].Schedule = "" }},
		{"after[1].schedule", func(s *Schedule) { s.After[1].Schedule = strings.Repeat("n", MaxScheduleName+1) }},
		{"after[1].schedule", func(s *Schedule) { s.After[1].Schedule = s.Name }},
		{"after[1].schedule", func(s *Schedule) { s.After[1].Schedule = s.After[0].Schedule }},
		{"after[1].on", func(s *Schedule) { s.After[1].On = "cancelled" }},
		{"after[0].within", func(s *Schedule) { s.After[0].Within = -1 }},
		{"after", func(s *Schedule) {
			for i := range MaxDependencies {
				s.After = append(s.After, Dependency{Schedule: fmt.Sprint(i)})
			}
		}},
		{"target", func(s *Schedule) { s.Request = Request{Procedure: "backup"} }},
	} {
		s := report(t)
		c.change(&s)
		var field *FieldError
		if err := s.Check(); !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestEndingFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ending                                Ending
		running, succeeded, failed, cancelled bool
	}{
		{"", false, true, false, false},
		{OnSucceeded, false, true, false, false},
		{OnFailed, false, false, true, false},
		{OnEnded, false, true, true, true},
		{"of a newer harp", false, false, false, false},
	} {
		got := []bool{c.ending.Fits(BatchRunning), c.ending.Fits(BatchSucceeded), c.ending.Fits(BatchFailed), c.ending.Fits(BatchCancelled)}
		if want := []bool{c.running, c.succeeded, c.failed, c.cancelled}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q fits %v, want %v", c.ending, got, want)
		}
	}
}

func TestDependencyAsJSON(t *testing.T) {
	t.Parallel()
	s := report(t)
	got, err := json.Marshal(s)
	if want := `{"name":"report","after":[{"schedule":"nightly","on":"failed","within":"6h0m0s"},{"schedule":"check","within":"none"}],`; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("it is %s, %v", got, err)
	}
	var back Schedule
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back.After, s.After) {
		t.Errorf("it is read as %+v, %v", back.After, err)
	}
	if err := json.Unmarshal([]byte(`{"within":"soon"}`), &Dependency{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("within soon: %v", err)
	}
}
