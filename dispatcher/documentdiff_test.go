package dispatcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

func argsOf(t *testing.T, args harp.Args) harp.Schedule {
	t.Helper()
	v, err := harp.NewValue(args)
	if err != nil {
		t.Fatal(err)
	}
	return harp.Schedule{Name: "s", Request: harp.Request{Args: v}}
}

// Secrets are not shown in what changes of a schedule, neither of before nor of now, whole or in part.
func TestScheduleChangesHideSecrets(t *testing.T) {
	old := &scheduled{putSchedule: putSchedule{
		Schedule:   argsOf(t, harp.Args{"user": "ada", "password": "swordfish", "keys": harp.Args{"a": "xyzzy", "b": 1}, "token": "foo"}),
		SecretArgs: []string{"keys", "password"},
	}}
	put := &putSchedule{
		Schedule:   argsOf(t, harp.Args{"user": "eve", "password": "plugh", "keys": harp.Args{"a": "fee", "b": 1}, "token": "bar", "long": strings.Repeat("ü", maxShownValue)}),
		SecretArgs: []string{"keys", "password", "token"},
	}
	got, err := scheduleChanges(old, put)
	if err != nil {
		t.Fatal(err)
	}
	want := []harp.FieldChange{
		{Field: "request.args.keys.a", Old: `"***"`, New: `"***"`},
		{Field: "request.args.long", New: `"` + strings.Repeat("ü", maxShownValue/2-1) + "..."},
		{Field: "request.args.password", Old: `"***"`, New: `"***"`},
		{Field: "request.args.token", Old: `"***"`, New: `"***"`},
		{Field: "request.args.user", Old: `"ada"`, New: `"eve"`},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are\n%+v, want\n%+v", got, want)
	}
}

// What is in the calendar of a window is not shown.
func TestWindowChanges(t *testing.T) {
	old := harp.Window{Name: "w", Target: "*", Calendar: &harp.WindowCalendar{Content: []byte("abc"), Event: "x"}}
	is := old
	is.Calendar = &harp.WindowCalendar{Content: []byte("abcd"), Event: "x"}
	once := harp.Window{Name: "w", Target: "*", Cron: "@daily", For: 1}
	for _, c := range []struct {
		to   harp.Window
		want []harp.FieldChange
	}{
		{is, []harp.FieldChange{{Field: "calendar.content", Old: `"3 bytes"`, New: `"4 bytes"`}}},
		{once, []harp.FieldChange{
			{Field: "calendar.content", Old: `"3 bytes"`}, {Field: "calendar.event", Old: `"x"`}, {Field: "cron", New: `"@daily"`}, {Field: "for", New: `"1ns"`},
		}},
		{old, nil},
	} {
		if got, err := windowChanges(old, c.to); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("the changes are %+v, %v, want %+v", got, err, c.want)
		}
	}
}
