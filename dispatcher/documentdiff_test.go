package dispatcher

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
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

// Whatever differs in arguments is found, also what is written alike, and what is equal is no change.
func TestScheduleChangesAreFound(t *testing.T) {
	sealed := func(text string) msgpack.Sealed {
		return msgpack.Sealed{Raw: string(append([]byte{0xc7, byte(len(text)), msgpack.SealedExt}, text...))}
	}
	at := time.Unix(1, 0).UTC()
	for name, c := range map[string]struct {
		old, is harp.Args
		changes bool
	}{
		"sealed":      {harp.Args{"k": sealed("one")}, harp.Args{"k": sealed("two")}, true},
		"bytes":       {harp.Args{"k": []byte("abc")}, harp.Args{"k": "YWJj"}, true},
		"time":        {harp.Args{"k": at}, harp.Args{"k": at.Format(time.RFC3339)}, true},
		"no number":   {harp.Args{"k": math.NaN()}, harp.Args{"k": "NaN"}, true},
		"dot":         {harp.Args{"a.b": 1, "a": harp.Args{"b": 1}}, harp.Args{"a": harp.Args{"b": 1}}, true},
		"quote":       {harp.Args{`"a.b"`: 1}, harp.Args{"a.b": 1}, true},
		"empty":       {harp.Args{"": harp.Args{"b": 1}}, harp.Args{"": harp.Args{}}, true},
		"null":        {harp.Args{"a": nil}, harp.Args{}, true},
		"same dot":    {harp.Args{"a.b": 1, "a": harp.Args{"b": 2}}, harp.Args{"a": harp.Args{"b": 2}, "a.b": 1}, false},
		"same sealed": {harp.Args{"k": sealed("one")}, harp.Args{"k": sealed("one")}, false},
		"whole":       {harp.Args{"k": 1}, harp.Args{"k": 1.0}, false},
	} {
		for range 20 { // maps are walked in any order
			got, err := scheduleChanges(&scheduled{putSchedule: putSchedule{Schedule: argsOf(t, c.old)}}, &putSchedule{Schedule: argsOf(t, c.is)})
			if err != nil || (len(got) > 0) != c.changes {
				t.Errorf("%s: the changes are %+v, %v", name, got, err)
				break
			}
		}
	}
}

// What is told of changed arguments is bounded, however many there are and however long their names.
func TestScheduleChangesAreBounded(t *testing.T) {
	many := harp.Args{}
	for i := range 3000 {
		many[strconv.Itoa(i)] = i
	}
	for name, args := range map[string]harp.Args{
		"many": many, "below a long name": {strings.Repeat("x", 20_000): many}, "a long name": {strings.Repeat("x", 20_000): 1},
	} {
		got, err := scheduleChanges(&scheduled{putSchedule: putSchedule{Schedule: argsOf(t, nil)}}, &putSchedule{Schedule: argsOf(t, args)})
		size := 0
		for _, c := range got {
			size += len(c.Field) + len(c.Old) + len(c.New)
		}
		if err != nil || len(got) == 0 || size > 64<<10 {
			t.Errorf("%s: %d changes are %d bytes, %v", name, len(got), size, err)
		}
	}
}
