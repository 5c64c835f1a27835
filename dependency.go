package harp

import (
	"encoding/json"
	"fmt"
	"time"
)

// Dependency is a schedule, of which each run that ends so has another schedule run, whatever it was made for:
// a time, by hand, a backfill, or an end itself.
type Dependency struct {
	Schedule string        `json:"schedule" msgpack:"schedule"`
	On       Ending        `json:"on,omitempty" msgpack:"on,omitempty"`         // default: OnSucceeded
	Within   time.Duration `json:"within,omitempty" msgpack:"within,omitempty"` // an end longer ago counts no more; 0 or NoLimit: however long ago
}

// Ending says how something has to end for what comes after it.
type Ending string

// The endings.
const (
	OnSucceeded Ending = "succeeded"
	OnFailed    Ending = "failed" // not if it was cancelled
	OnEnded     Ending = "ended"  // in whatever way
)

// Fits reports whether a run that is in this state now has ended so; what is not set is OnSucceeded.
func (e Ending) Fits(state BatchState) bool {
	switch e {
	case "", OnSucceeded:
		return state == BatchSucceeded
	case OnFailed:
		return state == BatchFailed
	case OnEnded:
		return state.Ended()
	default:
		return false
	}
}

// checkEnding refuses an ending that is none.
func checkEnding(field string, e Ending) error {
	switch e {
	case "", OnSucceeded, OnFailed, OnEnded:
		return nil
	default:
		return &FieldError{Field: field, Message: fmt.Sprintf("must be %q, %q or %q; the default is %q", OnSucceeded, OnFailed, OnEnded, OnSucceeded)}
	}
}

// checkAfter refuses dependencies that cannot be, and what means nothing beside them.
func (s Schedule) checkAfter() error {
	if len(s.After) > MaxDependencies {
		return &FieldError{Field: "after", Message: fmt.Sprintf("%d, at most %d", len(s.After), MaxDependencies)}
	}
	seen := map[string]bool{}
	for i, d := range s.After {
		field := fmt.Sprintf("after[%d]", i)
		if err := checkName(field+".schedule", d.Schedule, MaxScheduleName); err != nil {
			return err
		}
		switch {
		case d.Schedule == s.Name:
			return &FieldError{Field: field + ".schedule", Message: "a schedule cannot come after itself"}
		case seen[d.Schedule]:
			return &FieldError{Field: field + ".schedule", Message: fmt.Sprintf("%s is there twice", d.Schedule)}
		case d.Within < 0:
			return &FieldError{Field: field + ".within", Message: "must not be negative"}
		}
		if err := checkEnding(field+".on", d.On); err != nil {
			return err
		}
		seen[d.Schedule] = true
	}
	for _, f := range []struct {
		field string
		given bool
	}{
		{"cron", s.Cron != ""},
		{"tz", s.TZ != ""},
		{"from", !s.From.IsZero()},
		{"until", !s.Until.IsZero()},
		{"jitter", s.Jitter != 0},
		{"gap", s.Gap != GapByExpression},
		{"repeat", s.Repeat != RepeatByExpression},
		{"catch_up", s.CatchUp != 0},
		{"catch_up_most", s.CatchUpMost != 0},
	} {
		if f.given {
			return &FieldError{Field: f.field, Message: "is of a schedule that has times, and this one comes after others"}
		}
	}
	return nil
}

// dependencyJSON is how a Dependency is written as JSON.
type (
	dependencyFields Dependency
	dependencyJSON   struct {
		dependencyFields
		Within durationJSON `json:"within,omitzero"`
	}
)

// MarshalJSON writes the fields that are not zero, Within as "6h0m0s".
func (d Dependency) MarshalJSON() ([]byte, error) {
	return plainJSON(dependencyJSON{dependencyFields(d), durationJSON(d.Within)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (d *Dependency) UnmarshalJSON(text []byte) error {
	var read dependencyJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*d = Dependency(read.dependencyFields)
	d.Within = time.Duration(read.Within)
	return nil
}
