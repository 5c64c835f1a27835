package main

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/schedule"
)

// checkTimes reads when a schedule fires, if it has times, as the dispatcher will, but for what it makes of the present time.
// Errors: *cronError where a field of cron cannot be read; else *harp.FieldError.
func checkTimes(s harp.Schedule) error {
	if len(s.After) > 0 {
		return nil
	}
	_, err := schedule.Parse(s.Cron, s.TZ, schedule.Rules{
		Name: s.Name, From: s.From, Until: s.Until, Jitter: s.Jitter, Gap: schedule.Gap(s.Gap), Repeat: schedule.Repeat(s.Repeat),
	})
	var wrong *schedule.FieldError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Part == "":
		return invalid(wrong.Field, "%s", wrong.Message)
	}
	return &cronError{text: s.Cron, err: wrong}
}

// cronError is an expression with a field that cannot be read. It is harp.ErrInvalid.
type cronError struct {
	text string
	err  *schedule.FieldError
}

func (e *cronError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error that the dispatcher would give.
func (e *cronError) Unwrap() error {
	return &harp.FieldError{Field: e.err.Field, Message: e.err.Part + ": " + e.err.Message}
}

// place returns the expression, and a line with a caret below the field.
func (e *cronError) place() (text, caret string) { return placeIn(e.text, e.offset()) }

// offset is where the field begins.
func (e *cronError) offset() int {
	parts := []string{"second", "minute", "hour", "day of month", "month", "day of week", "year"}
	fields := strings.Fields(e.text)
	field := slices.Index(parts, e.err.Part)
	if n := len(fields); n == 5 || n == 6 && isYear(fields[5]) {
		field-- // it has no seconds
	}
	if field < 0 || field >= len(fields) {
		return 0
	}
	at := 0
	for i := range field {
		at += strings.Index(e.text[at:], fields[i]) + len(fields[i])
	}
	return at + strings.IndexFunc(e.text[at:], func(r rune) bool { return !unicode.IsSpace(r) })
}

// isYear reports whether the last of six fields of cron is that of the year, and the first not that of the seconds.
func isYear(field string) bool {
	const digits = 4
	run := 0
	for _, r := range field {
		if run++; r < '0' || r > '9' {
			run = 0
		}
		if run == digits {
			return true
		}
	}
	return false
}
