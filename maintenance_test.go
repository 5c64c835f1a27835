package harp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A time that is stored nowhere.
var tooLate = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// patching is a window that can be.
func patching() Window {
	return Window{Name: "patching", Target: "role=db", Cron: "0 2 * * 6", For: 90 * time.Minute, TZ: "Europe/Madrid"}
}

// holidays is a window of a calendar that can be.
func holidays() Window {
	return Window{Name: "holidays", Target: "*", Mode: WindowRefuse, Calendar: &WindowCalendar{
		Content: []byte("BEGIN:VCALENDAR"), Event: "Bank*", Zones: map[string]string{"Office": "Europe/Madrid"},
	}}
}

func TestWindowCheck(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	most := slices.Repeat([]string{strings.Repeat("p", MaxProcedureName)}, MaxWindowPatterns)
	long := holidays()
	long.Calendar.Content = make([]byte, MaxCalendar)
	for _, w := range []Window{
		patching(), holidays(), long,
		{Name: "global", Target: "*", From: at},
		{Name: strings.Repeat("n", MaxWindowName), Target: strings.Repeat("t", MaxTarget), From: at, To: at.Add(1), Mode: WindowHold, Procedures: most, Exempt: most},
	} {
		if err := w.Check(); err != nil {
			t.Errorf("%.10s: %v", w.Name, err)
		}
	}
	zones := map[string]string{}
	for n := range MaxWindowPatterns + 1 {
		zones[fmt.Sprint(n)] = "UTC"
	}
	for _, c := range []struct {
		field  string
		change func(*Window)
	}{
		{"name", func(w *Window) { w.Name = "" }},
		{"name", func(w *Window) { w.Name = "a\tb" }},
		{"name", func(w *Window) { w.Name = "\xff" }},
		{"name", func(w *Window) { w.Name = strings.Repeat("n", MaxWindowName+1) }},
		{"target", func(w *Window) { w.Target = "" }},
		{"target", func(w *Window) { w.Target = strings.Repeat("t", MaxTarget+1) }},
		{"doc", func(w *Window) { w.Doc = "\xff" }},
		{"reason", func(w *Window) { w.Reason = strings.Repeat("r", MaxWhy+1) }},
		{"tz", func(w *Window) { w.TZ = strings.Repeat("z", MaxTZ+1) }},
		{"cron", func(w *Window) { w.Cron = strings.Repeat("*", MaxCron+1) }},
		{"mode", func(w *Window) { w.Mode = "maybe" }},
		{"procedures", func(w *Window) { w.Procedures = append(most, "p") }},
		{"procedures", func(w *Window) { w.Procedures = []string{""} }},
		{"exempt", func(w *Window) { w.Exempt = append(most, "p") }},
		{"exempt", func(w *Window) { w.Exempt = []string{strings.Repeat("p", MaxProcedureName+1)} }},
		{"from", func(w *Window) { w.Cron, w.For = "", 0 }},
		{"from", func(w *Window) { w.From = at }},
		{"from", func(w *Window) { w.Calendar = holidays().Calendar }},
		{"from", func(w *Window) { *w = Window{Name: "n", Target: "*", From: tooLate} }},
		{"to", func(w *Window) { w.To = at }},
		{"to", func(w *Window) { *w = Window{Name: "n", Target: "*", From: at, To: at} }},
		{"to", func(w *Window) { *w = Window{Name: "n", Target: "*", From: at, To: tooLate} }},
		{"for", func(w *Window) { w.For = 0 }},
		{"for", func(w *Window) { w.For = time.Second - 1 }},
		{"for", func(w *Window) { *w = Window{Name: "n", Target: "*", From: at, For: time.Hour} }},
		{"tz", func(w *Window) { *w = Window{Name: "n", Target: "*", From: at, TZ: "UTC"} }},
		{"calendar", func(w *Window) { *w = holidays(); w.Calendar.Content = nil }},
		{"calendar", func(w *Window) { *w = holidays(); w.Calendar.Content = make([]byte, MaxCalendar+1) }},
		{"calendar.url", func(w *Window) { *w = holidays(); w.Calendar.URL = "https://cal.example.org" }},
		{"calendar.url", func(w *Window) {
			*w = holidays()
			w.Calendar.Content, w.Calendar.URL = nil, strings.Repeat("u", MaxReceiverURL+1)
		}},
		{"event", func(w *Window) { *w = holidays(); w.Calendar.Event = "\xff" }},
		{"zones", func(w *Window) { *w = holidays(); w.Calendar.Zones = zones }},
		{"zones", func(w *Window) { *w = holidays(); w.Calendar.Zones = map[string]string{"Office": ""} }},
		{"zones", func(w *Window) { *w = holidays(); w.Calendar.Zones = map[string]string{"\xff": "UTC"} }},
	} {
		w := patching()
		c.change(&w)
		if err := w.Check(); !isAbout(err, c.field) {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func isAbout(err error, field string) bool {
	var is *FieldError
	return errors.As(err, &is) && is.Field == field
}

func TestSpansCheck(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(2, 0, 0)
	if err := CheckSpans("w", from, to); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		field, name string
		from, to    time.Time
	}{
		{"name", "", from, to},
		{"name", strings.Repeat("n", MaxWindowName+1), from, to},
		{"from", "w", time.Time{}, to},
		{"to", "w", from, time.Time{}},
		{"to", "w", from, from},
		{"to", "w", from, to.Add(1)},
		{"to", "w", from, tooLate},
	} {
		if err := CheckSpans(c.name, c.from, c.to); !isAbout(err, c.field) {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestStartCheck(t *testing.T) {
	t.Parallel()
	if err := CheckStart("web01", "backup", time.Time{}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		field, host, procedure string
		at                     time.Time
	}{
		{"host", "", "p", time.Time{}},
		{"host", strings.Repeat("h", MaxHostName+1), "p", time.Time{}},
		{"procedure", "h", "", time.Time{}},
		{"procedure", "h", "\xff", time.Time{}},
		{"at", "h", "p", tooLate},
	} {
		if err := CheckStart(c.host, c.procedure, c.at); !isAbout(err, c.field) {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestHostPauseChangeCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []HostPauseChange{{}, {Unpause: true}, {Reason: strings.Repeat("r", MaxWhy), Until: time.Unix(1, 0)}} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	for field, c := range map[string]HostPauseChange{
		"reason": {Reason: strings.Repeat("r", MaxWhy+1)},
		"until":  {Until: tooLate},
	} {
		if err := c.Check(); !isAbout(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestWindowAsJSON: what is read by people and scripts has words, not nanoseconds.
func TestWindowAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0).UTC()
	for want, is := range map[string]any{
		`{"name":"patching","target":"role=db","cron":"0 2 * * 6","tz":"Europe/Madrid","for":"1h30m0s"}`:                                                    patching(),
		`{"name":"holidays","target":"*","mode":"refuse","calendar":{"content":"QkVHSU46VkNBTEVOREFS","event":"Bank*","zones":{"Office":"Europe/Madrid"}}}`: holidays(),
		`{"name":"w","target":"*","from":"1970-01-01T00:00:01Z","open":true,"span":{"from":"1970-01-01T00:00:01Z"},` +
			`"error":{"code":"invalid","message":"is gone","ran":"no","fault":"caller","field":"tz"}}`: WindowStatus{
			Window: Window{Name: "w", Target: "*", From: at}, Open: true, Span: Span{From: at}, Err: &FieldError{Field: "tz", Message: "is gone"},
		},
		`{"name":"w","target":"*","calendar":{"url":"https://cal.example.org"},"open":false,` +
			`"fetch":{"at":"1970-01-01T00:00:01Z","bytes":3,"since":"1970-01-01T00:00:01Z","why":"500","stale":true}}`: WindowStatus{
			Window: Window{Name: "w", Target: "*", Calendar: &WindowCalendar{URL: "https://cal.example.org"}}, Fetch: &CalendarFetch{At: at, Bytes: 3, Since: at, Why: "500", Stale: true},
		},
	} {
		if got, err := json.Marshal(is); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	var read Window
	if err := json.Unmarshal([]byte(`{"name":"w","for":"1h30m"}`), &read); err != nil || read.For != 90*time.Minute {
		t.Error(read.For, err)
	}
	var status WindowStatus
	if err := json.Unmarshal([]byte(`{"name":"w","for":"long"}`), &status); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
