// Package when makes of the nouns of package harp what packages schedule and window evaluate, for the dispatcher and for who
// looks at a window before it is put: both say the same in the same words.
package when

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/window"
)

// WindowSource returns when a window is. fetched is what its calendar has if that is at a URL. Errors: *harp.FieldError.
func WindowSource(w *harp.Window, fetched []byte) (window.Source, error) {
	switch {
	case w.Calendar != nil:
		content := w.Calendar.Content
		if w.Calendar.URL != "" {
			content = fetched
		}
		zone, err := schedule.LoadZone(w.TZ)
		if err != nil {
			return nil, FieldError(err)
		}
		c, err := window.ReadCalendar(bytes.NewReader(content), window.CalendarOptions{Zone: zone, Zones: w.Calendar.Zones, Event: w.Calendar.Event})
		if err != nil {
			return nil, FieldError(err)
		}
		return c, nil
	case w.Cron != "":
		spec, err := schedule.Parse(w.Cron, w.TZ, schedule.Rules{Name: w.Name})
		if err != nil {
			return nil, FieldError(err)
		}
		return window.Recurring{Spec: spec, For: w.For}, nil
	case w.From.IsZero():
		return nil, &harp.FieldError{Field: "from", Message: "exactly one of from, cron and calendar must be given"}
	default:
		return window.Once{From: w.From, To: w.To}, nil
	}
}

// FieldError is an error of package schedule or window as callers know it: a *harp.FieldError. Others it returns as they are.
func FieldError(err error) error {
	var (
		calendar *window.CalendarError
		span     *window.FieldError
		field    *schedule.FieldError
	)
	switch {
	case errors.As(err, &calendar):
		message := calendar.Message
		if calendar.Property != "" {
			message = calendar.Property + ": " + message
		}
		if calendar.Line > 0 {
			message = fmt.Sprintf("line %d: %s", calendar.Line, message)
		}
		return &harp.FieldError{Field: "calendar", Message: message}
	case errors.As(err, &span):
		return &harp.FieldError{Field: span.Field, Message: span.Message}
	case errors.As(err, &field):
		message := field.Message
		if field.Part != "" {
			message = field.Part + ": " + message
		}
		return &harp.FieldError{Field: field.Field, Message: message}
	default:
		return err
	}
}
