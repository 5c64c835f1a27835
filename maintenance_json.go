package harp

import (
	"encoding/json"
	"time"
)

// windowJSON is how a Window is written as JSON, and statusOfWindowJSON a WindowStatus.
type (
	windowFields Window
	windowJSON   struct {
		windowFields
		For durationJSON `json:"for,omitzero"`
	}

	statusOfWindowJSON struct {
		windowJSON
		ManagedBy string    `json:"managed_by,omitempty"`
		By        Principal `json:"by,omitzero"`
		Changed   time.Time `json:"changed,omitzero"`
		Open      bool      `json:"open"`
		Span      Span      `json:"span,omitzero"`
		Error     Failure   `json:"error,omitzero"`

		Fetch *CalendarFetch `json:"fetch,omitempty"`
	}
)

// MarshalJSON writes the fields that are not zero, in snake_case: times as RFC 3339, durations as
// "1m30s", the file of a calendar in base64.
func (w Window) MarshalJSON() ([]byte, error) {
	return plainJSON(windowJSON{windowFields(w), durationJSON(w.For)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (w *Window) UnmarshalJSON(text []byte) error {
	var read windowJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*w = read.window()
	return nil
}

func (j windowJSON) window() Window {
	w := Window(j.windowFields)
	w.For = time.Duration(j.For)
	return w
}

// MarshalJSON writes the fields of the Window and its own, Err as the [Failure] "error".
func (s WindowStatus) MarshalJSON() ([]byte, error) {
	return plainJSON(statusOfWindowJSON{
		windowJSON{windowFields(s.Window), durationJSON(s.For)}, s.ManagedBy, s.By, s.Changed, s.Open, s.Span, FailureOf(s.Err), s.Fetch,
	})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (s *WindowStatus) UnmarshalJSON(text []byte) error {
	var read statusOfWindowJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = WindowStatus{read.window(), read.ManagedBy, read.By, read.Changed, read.Open, read.Span, read.Error.Err(), read.Fetch}
	return nil
}
