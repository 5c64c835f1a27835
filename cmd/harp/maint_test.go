package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// maintain runs a command of harp maint.
func maintain(t *testing.T, f *fake, args ...string) said {
	t.Helper()
	return runFake(t, t.Context(), f, nil, append([]string{"maint"}, args...)...)
}

// holidays are two events of whole days.
const holidays = `BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//example//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20270501
SUMMARY:May Day
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;VALUE=DATE:20271225
SUMMARY:Christmas
END:VEVENT
END:VCALENDAR
`

// calendarFile is a file with holidays.
func calendarFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holidays.ics")
	if err := os.WriteFile(path, []byte(holidays), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMaintAdd: every flag is in the window.
func TestMaintAdd(t *testing.T) {
	file := calendarFile(t)
	at := func(day, hour int) time.Time { return time.Date(2027, 5, day, hour, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		flags []string
		want  harp.Window
	}{
		{
			[]string{"--from", "2027-05-01T22:00:00Z", "--for", "4h", "--reason", "new rack", "--doc", "for people"},
			harp.Window{Mode: harp.WindowHold, From: at(1, 22), To: at(2, 2), Reason: "new rack", Doc: "for people"},
		},
		{[]string{"--from", "2027-05-01T22:00:00Z", "--to", "2027-05-02T02:00:00Z"}, harp.Window{Mode: harp.WindowHold, From: at(1, 22), To: at(2, 2)}},
		{[]string{"--from", "2027-05-01T22:00:00Z"}, harp.Window{Mode: harp.WindowHold, From: at(1, 22)}},
		{
			[]string{"--cron", "0 2 * * SUN", "--for", "2h", "--tz", "Europe/Madrid", "--mode", "refuse", "--only", "--schedules-only", "--proc", "db.*", "--proc", "web.*", "--exempt", "db.ping", "--all"},
			harp.Window{Mode: harp.WindowRefuse, Only: true, SchedulesOnly: true, All: true, Procedures: []string{"db.*", "web.*"}, Exempt: []string{"db.ping"}, Cron: "0 2 * * SUN", For: 2 * time.Hour, TZ: "Europe/Madrid"},
		},
		{
			[]string{"--calendar", file, "--event", "Christ*", "--zone", "a=b=Europe/Madrid", "--tz", "Europe/Madrid"},
			harp.Window{Mode: harp.WindowHold, TZ: "Europe/Madrid", Calendar: &harp.WindowCalendar{Content: []byte(holidays), Event: "Christ*", Zones: map[string]string{"a=b": "Europe/Madrid"}}},
		},
	} {
		f := scheduling(t)
		got := maintain(t, f, append([]string{"add", "w", "--target", "role=db"}, c.flags...)...)
		c.want.Name, c.want.Target = "w", "role=db"
		if got.code != exitOK || len(f.maintenance.put) != 1 || !reflect.DeepEqual(f.maintenance.put[0], c.want) {
			t.Errorf("%q: %v\n%+v\nwant\n%+v", c.flags, got, f.maintenance.put, c.want)
		}
	}
}

// TestWrongWindowFlags: what cannot be is refused with the field and what was expected, before anything is sent.
func TestWrongWindowFlags(t *testing.T) {
	file := calendarFile(t)
	cut := filepath.Join(t.TempDir(), "cut.ics")
	if err := os.WriteFile(cut, []byte(holidays[:150]), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "invalid --from: give one of --from, --cron and --calendar"},
		{[]string{"--from", "now", "--cron", "@daily", "--for", "1h"}, "invalid --cron: cannot be combined with --from: a window has one of --from, --cron and --calendar"},
		{[]string{"--from", "now", "--for", "1h", "--to", "2h"}, "invalid --to: cannot be combined with --for"},
		{[]string{"--from", "now", "--to", "2020-01-01"}, "invalid --to: must be later than from"},
		{[]string{"--from", "now", "--tz", "Europe/Madrid"}, "invalid --tz: needs cron or calendar"},
		{[]string{"--from", "now", "--event", "x"}, "invalid --event: needs --calendar"},
		{[]string{"--from", "now", "--mode", "maybe"}, `invalid --mode: must be "hold" or "refuse"`},
		{[]string{"--cron", "@daily"}, "invalid --for: is required with --cron"},
		{[]string{"--cron", "@daily", "--for", "none"}, "invalid --for: must be a duration; --from alone has no end"},
		{[]string{"--cron", "@daily", "--for", "1h", "--to", "2h"}, "invalid --to: needs --from"},
		{[]string{"--cron", "0 25 * * *", "--for", "1h"}, "invalid --cron: hour: \"25\" is not in 0-23\n  0 25 * * *\n    ^\n"},
		{[]string{"--cron", "@daily", "--for", "1h", "--tz", "Nowhere"}, `invalid --tz: "Nowhere" is not a time zone`},
		{[]string{"--calendar", file, "--for", "1h"}, "invalid --for: needs --from or --cron"},
		{[]string{"--calendar", file, "--tz", "Nowhere"}, `invalid --tz: "Nowhere" is not a time zone`},
		{[]string{"--calendar", file, "--zone", "x"}, `invalid --zone: "x" is not name=zone`},
		{[]string{"--calendar", file, "--zone", "x=Nowhere"}, "invalid --zone: "},
		{[]string{"--calendar", cut}, "invalid --calendar: "},
		{[]string{"--calendar", file + "x"}, "invalid --calendar: open "},
		{[]string{"--calendar", "-"}, "invalid --calendar: must not be empty"},
	} {
		f := scheduling(t)
		got := maintain(t, f, append([]string{"add", "w", "--target", "role=db"}, c.args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, c.want) || len(f.maintenance.put) > 0 {
			t.Errorf("%q: %d %s", c.args, got.code, got.stderr)
		}
	}
	if got := maintain(t, scheduling(t), "add", "w", "--target", "role=db web", "--from", "now"); got.code != exitUsage || !strings.Contains(got.stderr, "  role=db web\n          ^\n") {
		t.Error(got)
	}
	if got := maintain(t, scheduling(t), "add", "w", "--from", "now"); got.code != exitUsage || !strings.Contains(got.stderr, "missing --target") {
		t.Error(got)
	}
}

// TestMaintAddSays: a window that is added says when it is and how many hosts it is about; another one takes its place only
// when that is asked for.
func TestMaintAddSays(t *testing.T) {
	f := scheduling(t)
	f.every = true
	add := []string{"add", "w", "--target", "demo*", "--cron", "0 2 * * SUN", "--for", "2h", "--tz", "Europe/Madrid", "--time", "iso"}
	got := maintain(t, f, append(slices.Clone(add), "--dry-run")...)
	first, spans, _ := strings.Cut(got.stdout, "\n")
	if first != "would make window w: hold on demo*, 2 hosts now; 0 2 * * SUN for 2h, Europe/Madrid" || !strings.HasPrefix(spans, "FROM ") || strings.Count(spans, "\n") < 5 || len(f.maintenance.put) > 0 {
		t.Error(got)
	}
	if got := maintain(t, f, add...); got.stderr != "window w: hold on demo*, 2 hosts now; next 2027-03-28T01:00:00.000Z\n" {
		t.Error(got)
	}
	if got := maintain(t, f, add...); got.code != exitUsage || !strings.Contains(got.stderr, "window w already exists (hold on demo*); --replace overwrites it") {
		t.Error(got)
	}
	got = maintain(t, f, append(slices.Clone(add), "--replace", "-o", "json")...)
	var shown struct {
		For   string `json:"for"`
		Open  bool   `json:"open"`
		Hosts int    `json:"hosts"`
		Span  struct{ From time.Time }
	}
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil || shown.For != "2h0m0s" || shown.Open || shown.Hosts != 2 || shown.Span.From.Hour() != 1 {
		t.Error(got, err)
	}
}

// TestMaintOn: the global window begins by the clock of the dispatcher.
func TestMaintOn(t *testing.T) {
	f := scheduling(t)
	f.every = true
	behind := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	f.clock = func() time.Time { return behind }
	if got := maintain(t, f, "off"); got.code != exitNotFound || !strings.Contains(got.stderr, "harp: maintenance is not on: no such window: global\n") {
		t.Error(got)
	}
	if got := maintain(t, f, "on", "--dry-run"); got.stdout != "would hold what starts on *, 2 hosts now\n" || len(f.maintenance.put) > 0 {
		t.Error(got)
	}
	got := maintain(t, f, "on", "--reason", "moving")
	want := harp.Window{Name: "global", Target: "*", Reason: "moving", From: behind}
	if got.code != exitOK || !reflect.DeepEqual(f.maintenance.put, []harp.Window{want}) || !strings.Contains(got.stderr, "harp maint off ends this") {
		t.Errorf("%v %+v", got, f.maintenance.put)
	}
	if got := maintain(t, f, "on", "--target", "role=db"); got.code != exitOK || f.maintenance.put[1].Target != "role=db" || len(f.maintenance.all) != 1 {
		t.Error(got)
	}
	if got := maintain(t, f, "off"); got.code != exitOK || got.stderr != "maintenance is off: deleted window global\n" || !slices.Equal(f.maintenance.deleted, []string{"global", "global"}) {
		t.Error(got)
	}
	ahead := time.Now().Add(time.Hour)
	f.clock = func() time.Time { return ahead }
	if maintain(t, f, "on"); f.maintenance.put[2].From.After(time.Now()) {
		t.Error(f.maintenance.put[2])
	}
}

// Who is there is asked before all that starts on several hosts is held.
func TestHoldingSeveralHostsIsConfirmed(t *testing.T) {
	for answer, want := range map[string]int{"y\n": exitOK, "n\n": exitUsage} {
		f := scheduling(t)
		f.every = true
		got := runFake(t, t.Context(), f, typing(answer), "maint", "on")
		if !strings.Contains(got.stderr, "Hold what starts on 2 hosts? [y/N]") || got.code != want || len(f.maintenance.put) == 1 != (want == exitOK) {
			t.Error(got)
		}
		f.hosts = nil // and nobody is where there are none
		if got := runFake(t, t.Context(), f, typing(answer), "maint", "on", "--target", "x"); got.code != exitOK || !strings.Contains(got.stderr, "0 hosts") {
			t.Error(got)
		}
	}
}

// windows is a fake with windows of each kind.
func windows(t *testing.T) *fake {
	t.Helper()
	f := scheduling(t)
	f.maintenance.all = []harp.WindowStatus{
		{Window: harp.Window{Name: "db", Target: "role=db", Reason: "kernel", Cron: "0 2 * * SUN", For: 2 * time.Hour, TZ: "Europe/Madrid", Exempt: []string{"a", "b"}}, By: harp.Principal{Kind: "caller", Name: "ops"}, Span: harp.Span{From: beforeDST, To: beforeDST.Add(time.Hour), Note: "moved"}},
		{Window: harp.Window{Name: "gone", Target: "*", From: noon, To: noon.Add(time.Hour)}},
		{Window: harp.Window{Name: "hours", Target: "*", Only: true, Mode: harp.WindowRefuse, SchedulesOnly: true, All: true, Procedures: []string{"db.*"}, Calendar: &harp.WindowCalendar{Event: "May*", Content: []byte("12345"), Zones: map[string]string{"x": "UTC"}}}, Open: true, Span: harp.Span{From: noon, To: beforeDST}},
		{Window: harp.Window{Name: "later", Target: "*", From: noon.AddDate(100, 0, 0)}},
		{Window: harp.Window{Name: "never", Target: "*", Cron: "0 0 29 2 *", For: time.Hour}},
		{Window: harp.Window{Name: "odd", Target: "*", Cron: "x", For: time.Hour}, Err: &harp.FieldError{Field: "cron", Message: "is odd"}},
		{Window: harp.Window{Name: "open", Target: "*", From: noon}, Open: true, Span: harp.Span{From: noon}},
	}
	return f
}

func TestMaintList(t *testing.T) {
	f := windows(t)
	got := maintain(t, f, "ls", "--time", "iso", "-o", "wide")
	want := `NAME   TARGET   MODE                       WHEN                                                   NOW                                      PROCEDURES                 REASON  BY
db     role=db  hold                       0 2 * * SUN for 2h, Europe/Madrid                  next 2027-03-26T12:00:00.000Z            not a, not b               kernel  ops
gone   *        hold                       2026-01-31T12:00:00.000Z to 2026-01-31T13:00:00.000Z   over
hours  *        refuse schedules outside  calendar, May*                                         open until 2027-03-26T12:00:00.000Z      db.*, read-only ones too
later  *        hold                       from 2126-01-31T12:00:00.000Z                          next 2126-01-31T12:00:00.000Z
never  *        hold                       0 0 29 2 * for 1h                                  none within a year
odd    *        hold                       x for 1h                                           cannot be told: invalid cron: is odd
open   *        hold                       from 2026-01-31T12:00:00.000Z                          open, no end
`
	squeezed := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if got.code != exitOK || squeezed(got.stdout) != squeezed(want) {
		t.Errorf("%d %s\n%s", got.code, got.stderr, got.stdout)
	}
	if got := maintain(t, f, "ls", "-o", "id"); got.stdout != "db\ngone\nhours\nlater\nnever\nodd\nopen\n" {
		t.Error(got)
	}
}

func TestMaintShow(t *testing.T) {
	f := windows(t)
	for name, lines := range map[string][]string{
		"db":    {"reason kernel", "target role=db", "mode hold", "exempt a, b", "cron 0 2 * * SUN", "for 2h", "zone Europe/Madrid", "now next 2027-03-26T12:00:00.000Z", "note moved", "by caller ops"},
		"hours": {"mode refuse schedules outside", "procedures db.*", "read-only too yes", "calendar 5 bytes", "event May*", "zones x=UTC", "now open until 2027-03-26T12:00:00.000Z"},
		"open":  {"from 2026-01-31T12:00:00.000Z", "now open, no end"},
	} {
		got := maintain(t, f, "show", name, "--time", "iso")
		for _, line := range lines {
			if !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(l string) bool { return strings.Join(strings.Fields(l), " ") == line }) {
				t.Errorf("%q is not in\n%s", line, got.stdout)
			}
		}
	}
	if got := maintain(t, f, "show", "hours", "-o", "json"); !strings.Contains(got.stdout, base64.StdEncoding.EncodeToString([]byte("12345"))) {
		t.Error(got)
	}
	if got := maintain(t, f, "show", "none"); got.code != exitNotFound || !strings.Contains(got.stderr, "no such window: none; did you mean gone?\nSee: harp maint ls\n") {
		t.Error(got)
	}
}

func TestMaintSpans(t *testing.T) {
	f := windows(t)
	got := maintain(t, f, "spans", "db", "--from", "2027-03-27T00:00:00Z", "--to", "2027-04-05T00:00:00Z", "--time", "iso")
	want := `FROM                      TO                        NOTE
2027-03-28T01:00:00.000Z  2027-03-28T03:00:00.000Z  moved: 02:00 does not exist, runs at the end of the gap
2027-04-04T00:00:00.000Z  2027-04-04T02:00:00.000Z
`
	if got.code != exitOK || got.stdout != want {
		t.Errorf("%v\n%s", got, got.stdout)
	}
	if got := maintain(t, f, "spans", "open", "-o", "jsonl"); got.stdout != `{"from":"2026-01-31T12:00:00Z"}`+"\n" || f.maintenance.to.Sub(f.maintenance.from) < 29*24*time.Hour || time.Since(f.maintenance.from) > time.Hour {
		t.Error(got, f.maintenance)
	}
	if got := maintain(t, f, "spans", "open"); !strings.HasSuffix(got.stdout, "no end\n") {
		t.Error(got)
	}
	if got := maintain(t, f, "spans", "db", "--from", "2027-03-27", "--to", "2030-04-05"); got.code != exitUsage || !strings.Contains(got.stderr, "invalid --to: must be at most two years later than from") {
		t.Error(got)
	}
}

func TestMaintChanges(t *testing.T) {
	f := windows(t)
	for _, args := range [][]string{{"end", "open", "--dry-run"}, {"rm", "open", "--dry-run"}} {
		if got := maintain(t, f, args...); !strings.HasPrefix(got.stdout, "would ") || len(f.maintenance.ended)+len(f.maintenance.deleted) > 0 {
			t.Error(got)
		}
	}
	if got := maintain(t, f, "end", "open"); got.stderr != "ended window open\n" || !slices.Equal(f.maintenance.ended, []string{"open"}) {
		t.Error(got)
	}
	if got := maintain(t, f, "rm", "open", "-o", "json"); got.stdout != `{"v":1,"name":"open"}`+"\n" || !slices.Equal(f.maintenance.deleted, []string{"open"}) {
		t.Error(got)
	}
	if got := maintain(t, f, "rm", "open"); got.code != exitNotFound || !strings.Contains(got.stderr, "harp: no such window: open\n") {
		t.Error(got)
	}
	f.maintenance.err = failures.New("conflict", "window db is not open").Err()
	if got := maintain(t, f, "end", "db"); got.code != exitUsage {
		t.Error(got)
	}
}

// obstacles are a window, one that lets start only within its spans, and pauses.
func obstacles() []harp.Obstacle {
	return []harp.Obstacle{
		{Reason: harp.ReasonWindow, Window: "db-patching", Why: "kernel updates", Until: noon},
		{Reason: harp.ReasonWindow, Window: "global"},
		{Reason: harp.ReasonWindow, Window: "change-hours", Only: true, Until: noon},
		{Reason: harp.ReasonWindow, Window: "never", Only: true, Why: "closed"},
		{Reason: harp.ReasonWindow, By: harp.Principal{Name: "ada"}, Why: "new disk", Until: noon},
		{Reason: harp.ReasonWindow},
	}
}

// TestMaintWhy: what keeps a start back is said in words, and by the exit code.
func TestMaintWhy(t *testing.T) {
	f := windows(t)
	f.maintenance.verdict = harp.Verdict{At: noon, May: true, Until: noon.Add(time.Hour)}
	if got := maintain(t, f, "why", "demo1", "--time", "iso"); got.code != exitOK || got.stdout != "a call may start on demo1 until 2026-01-31T13:00:00.000Z\n" || f.maintenance.procedure != "*" || !f.maintenance.at.IsZero() {
		t.Error(got, f.maintenance)
	}
	f.maintenance.verdict = harp.Verdict{At: noon, Mode: harp.WindowHold, Obstacles: obstacles()}
	want := `count waits on demo1:
- the window db-patching: kernel updates, until 2026-01-31T12:00:00.000Z
- the window global, no end set
- the window change-hours, which lets start only within its spans, next at 2026-01-31T12:00:00.000Z
- the window never: closed, which lets start only within its spans, and none is known to come
- the host, which is paused, by ada: new disk, until 2026-01-31T12:00:00.000Z
- the host, which is paused, no end set
`
	got := maintain(t, f, "why", "demo1", "--proc", "count", "--at", "2027-03-27T00:00:00Z", "--time", "iso")
	if got.code != exitRefused || got.stdout != want || got.stderr != "" || f.maintenance.procedure != "count" || f.maintenance.at.Day() != 27 {
		t.Errorf("%v\n%s", got, got.stdout)
	}
	f.maintenance.verdict.Mode = harp.WindowRefuse
	if got := maintain(t, f, "why", "demo1"); got.code != exitRefused || !strings.HasPrefix(got.stdout, "a call is refused on demo1:\n") {
		t.Error(got)
	}
	if got := maintain(t, f, "why", "demo1", "-o", "json"); got.code != exitRefused || !strings.HasPrefix(got.stdout, `{"v":1,"at":"2026-01-31T12:00:00Z","may":false,"mode":"refuse","obstacles":[{"reason":"window"`) || !strings.Contains(got.stdout, `"host":"demo1","procedure":"*"`) {
		t.Error(got)
	}
	if got := maintain(t, f, "why", "demo1", "--proc", "conut"); got.code != exitNotFound || got.stdout != "" || !strings.Contains(got.stderr, "no such procedure: conut on demo1; did you mean count?") {
		t.Error(got)
	}
	if got := maintain(t, f, "why", "demo7"); got.code != exitNotFound || !strings.Contains(got.stderr, "no such host: demo7") {
		t.Error(got)
	}
}

// TestJobWhyWindow: harp job why names windows and pauses.
func TestJobWhyWindow(t *testing.T) {
	f := windows(t)
	f.jobs = []harp.JobStatus{{ID: firstID, Host: "demo1", State: harp.StateQueued, Reason: harp.ReasonWindow, Obstacles: obstacles()}}
	got := runFake(t, t.Context(), f, nil, "job", "why", firstID, "--time", "iso")
	want := "job " + firstID + ` on demo1 waits:
- for window db-patching: kernel updates, until 2026-01-31T12:00:00.000Z
- for window global, no end set
- for window change-hours, which lets start only within its spans, next at 2026-01-31T12:00:00.000Z
- for window never: closed, which lets start only within its spans, and none is known to come
- for its host, which is paused, by ada: new disk, until 2026-01-31T12:00:00.000Z
- for its host, which is paused, no end set
`
	if got.code != exitOK || got.stdout != want {
		t.Errorf("%v\n%s", got, got.stdout)
	}
}

// TestJobShowWindow: harp job show says which windows a job waits for, and until when, of those that wait for them alone.
func TestJobShowWindow(t *testing.T) {
	f := windows(t)
	f.jobs = []harp.JobStatus{{ID: firstID, Host: "demo1", State: harp.StateQueued, Reason: harp.ReasonWindow, Obstacles: []harp.Obstacle{
		{Reason: harp.ReasonOffline}, obstacles()[0], obstacles()[5],
	}}}
	want := "\nheld by  window db-patching: kernel updates, until 2026-01-31T12:00:00.000Z; host, which is paused, no end set\n"
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID, "--time", "iso"); got.code != exitOK || !strings.Contains(got.stdout, want) {
		t.Errorf("%v\n%s", got, got.stdout)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID, "-o", "json"); !strings.Contains(got.stdout, `"obstacles":[{"reason":"offline"},{"reason":"window","until":"2026-01-31T12:00:00Z",`) {
		t.Error(got)
	}
	f.jobs[0].Obstacles = f.jobs[0].Obstacles[:1]
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID); got.code != exitOK || strings.Contains(got.stdout, "held by") {
		t.Errorf("%v\n%s", got, got.stdout)
	}
}

// TestDryRunHeld: a dry run says what maintenance would make of the call, at its start time if that is known.
func TestDryRunHeld(t *testing.T) {
	f := ended(t, nil)
	dry := func(want string, code int, flags ...string) {
		t.Helper()
		got := runFake(t, t.Context(), f, nil, append([]string{"call", "demo1", "count", "to=3", "--dry-run", "--time", "iso"}, flags...)...)
		if got.code != code || !strings.Contains(got.stdout, "verdict          "+want+"\n") {
			t.Errorf("want %q, got %d %s", want, got.code, got.stdout)
		}
	}
	f.maintenance.verdict = harp.Verdict{May: true}
	dry("would run", exitOK)
	f.maintenance.verdict = harp.Verdict{Mode: harp.WindowHold, Obstacles: obstacles()[:1]}
	dry("would run after waiting for the window db-patching: kernel updates, until 2026-01-31T12:00:00.000Z", exitOK)
	f.maintenance.verdict.Obstacles = append(obstacles()[4:5], obstacles()[1])
	dry("would run after waiting for the host, which is paused, by ada: new disk, until 2026-01-31T12:00:00.000Z, and the window global, no end set", exitOK)
	f.maintenance.verdict = harp.Verdict{Mode: harp.WindowRefuse, Obstacles: obstacles()[:1]}
	dry("would be refused: the window db-patching: kernel updates, until 2026-01-31T12:00:00.000Z", exitRefused)
	if f.maintenance.procedure != "count" || !f.maintenance.at.IsZero() {
		t.Error(f.maintenance)
	}
	f.maintenance.verdict = harp.Verdict{}
	f.maintenance.err = &harp.FieldError{Field: "at", Message: "is too far ahead"}
	dry("would run after waiting for its start time, in 3d", exitOK, "--start-after", "73h")
	if f.maintenance.at.Before(time.Now().Add(72 * time.Hour)) {
		t.Error(f.maintenance)
	}
}

// TestMaintenanceEvents: events name the window, and say when a pause ends.
func TestMaintenanceEvents(t *testing.T) {
	for want, e := range map[string]harp.Event{
		`window=db reason="kernel updates" by="caller ops"`:     {Type: harp.EventWindowChanged, Window: "db", Reason: "kernel updates", By: harp.Principal{Kind: "caller", Name: "ops"}},
		"host=demo1 reason=disk until=2026-01-31T12:00:00.000Z": {Type: harp.EventHostPaused, Host: "demo1", Reason: "disk", Until: noon},
	} {
		if got := eventText(e); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, e := range []harp.EventType{harp.EventWindowChanged, harp.EventWindowDeleted, harp.EventHostPaused, harp.EventHostUnpaused} {
		if !slices.Contains(eventTypes(), string(e)) {
			t.Errorf("--type does not offer %s", e)
		}
	}
}

// TestMaintHeld: of the queued jobs those that wait for windows.
func TestMaintHeld(t *testing.T) {
	f := windows(t)
	f.jobs = []harp.JobStatus{
		{ID: firstID, Host: "demo1", Procedure: "count", State: harp.StateQueued, Reason: harp.ReasonWindow},
		{ID: secondID, Host: "demo1", Procedure: "count", State: harp.StateQueued, Reason: harp.ReasonQueue},
	}
	if got := maintain(t, f, "held", "-o", "id"); got.code != exitOK || got.stdout != firstID+"\n" {
		t.Error(got)
	}
	if got := maintain(t, f, "held"); !strings.Contains(got.stdout, "queued (window)") {
		t.Error(got)
	}
}

// TestHostPause: hosts are paused, and shown as such.
func TestHostPause(t *testing.T) {
	f := windows(t)
	f.every = true
	got := runFake(t, t.Context(), f, nil, "host", "pause", "demo*", "--reason", "new disk", "--until", "2027-03-27T00:00:00Z")
	if got.code != exitOK || got.stderr != "paused 2 hosts\n" || !slices.Equal(f.maintenance.paused, []string{"demo*"}) {
		t.Error(got)
	}
	if c := f.maintenance.pauses[0]; c.Unpause || c.Reason != "new disk" || c.Until.Day() != 27 {
		t.Errorf("%+v", c)
	}
	if got := runFake(t, t.Context(), f, nil, "host", "unpause", "demo*", "-o", "json"); got.stdout != `{"v":1,"hosts":2}`+"\n" || f.maintenance.pauses[1] != (harp.HostPauseChange{Unpause: true}) {
		t.Error(got)
	}
	if got := runFake(t, t.Context(), f, nil, "host", "pause", "demo*", "--dry-run"); got.stdout != "would pause 2 hosts\n" || len(f.maintenance.pauses) != 2 {
		t.Error(got)
	}
	if got := runFake(t, t.Context(), f, typing("n\n"), "host", "pause", "demo*"); got.code != exitUsage || !strings.Contains(got.stderr, "Pause 2 hosts? [y/N] aborted; nothing was paused") && !strings.Contains(got.stderr, "nothing was paused") || len(f.maintenance.pauses) != 2 {
		t.Error(got)
	}
	f.hosts[0].Pause = &harp.HostPause{By: harp.Principal{Name: "ada"}, Reason: "new disk", Since: noon, Until: noon.Add(time.Hour)}
	const text = "ada at 2026-01-31T12:00:00.000Z: new disk; until 2026-01-31T13:00:00.000Z"
	if got := runFake(t, t.Context(), f, nil, "host", "ls", "--time", "iso"); !strings.Contains(got.stdout, "paused by "+text+"\n") {
		t.Error(got)
	}
	if got := runFake(t, t.Context(), f, nil, "host", "ls", "--problems", "-o", "id"); got.stdout != "" {
		t.Error(got)
	}
	f.every = false
	if got := runFake(t, t.Context(), f, nil, "host", "show", "demo1", "--time", "iso"); !strings.Contains(got.stdout, "paused by   "+text+"\n") {
		t.Error(got)
	}
}

// TestWhenHeld: hosts that are held are counted, and left out when that is asked for.
func TestWhenHeld(t *testing.T) {
	f := running(t, 2)
	f.batches.preview = harp.Preview{Hosts: 5, Away: 1, Held: 3, Digest: "d"}
	got := runFake(t, t.Context(), f, nil, "run", "demo*", "count", "to=3", "--dry-run")
	if got.code != exitOK || !strings.Contains(got.stdout, "count on 5 hosts (1 away, 3 held)") {
		t.Error(got)
	}
	if got := runFake(t, t.Context(), f, nil, "run", "demo*", "count", "to=3", "-y", "-d", "--when-held", "skip"); got.code != exitOK || f.submitted[0].Batch.WhenHeld != harp.SkipHost {
		t.Error(got, f.submitted)
	}
	if got := runFake(t, t.Context(), f, nil, "run", "demo*", "count", "to=3", "-y", "-d"); got.code != exitOK || f.submitted[1].Batch.WhenHeld != harp.WaitForHeld {
		t.Error(got, f.submitted)
	}
	if got := runFake(t, t.Context(), f, nil, "run", "demo*", "count", "to=3", "-y", "--when-held", "maybe"); got.code != exitUsage || !strings.Contains(got.stderr, "invalid --when-held: must be wait or skip") {
		t.Error(got)
	}
}

// TestRefusedByWindow: a call that a window refuses names it and its end.
func TestRefusedByWindow(t *testing.T) {
	f := ended(t, nil)
	refused := failures.New("refused", "window holidays: May Day, until 2027-05-02T00:00:00Z")
	refused.Type = "window"
	f.submitErr = refused.Err()
	got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3")
	if got.code != exitRefused || !strings.Contains(got.stderr, "window holidays: May Day, until 2027-05-02T00:00:00Z") {
		t.Error(got)
	}
}

// TestScheduleNextHeld: times at which hosts are held say by what, and until when.
func TestScheduleNextHeld(t *testing.T) {
	for want, u := range map[string]harp.Upcoming{
		"":      {},
		"moved": {Note: "moved"},
		"3 of 20 hosts held until 2026-01-31T12:00:00.000Z by db":    {Hosts: 20, Held: 3, HeldBy: "db", HeldUntil: noon},
		"moved; 1 of 1 host held by pauses":                          {Note: "moved", Hosts: 1, Held: 1},
		"1 of 2 hosts held until 2026-01-31T12:00:00.000Z by pauses": {Hosts: 2, Held: 1, HeldUntil: noon},
	} {
		if got := (&cli{times: timesISO}).noteText(u); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *")
	f.schedules.held = harp.Upcoming{Hosts: 20, Held: 3, HeldBy: "db", HeldUntil: beforeDST}
	if got := schedules(t, f, "next", "s", "-n", "1", "--time", "iso"); !strings.Contains(got.stdout, " 3 of 20 hosts held until 2027-03-26T12:00:00.000Z by db\n") {
		t.Error(got)
	}
}

// TestCompleteMaint: names of windows, hosts and procedures, and words of flags.
func TestCompleteMaint(t *testing.T) {
	f := windows(t)
	for args, want := range map[string]string{
		"show ":               "db\thold on role=db",
		"spans ":              "db\t",
		"end ":                "db\t",
		"rm ":                 "db\t",
		"add n --target demo": "demo1",
		"add n --mode ":       "refuse",
		"add n --proc c":      "count",
		"on --target demo":    "demo1",
		"why demo":            "demo1",
		"why demo1 --proc c":  "count",
	} {
		words := strings.Split(args, " ")
		if got := runFake(t, t.Context(), f, nil, append([]string{"__complete", "maint"}, words...)...); !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %q", args, got.stdout)
		}
	}
	if got := maintain(t, f, "add", ""); strings.Contains(got.stdout, "db") {
		t.Error(got)
	}
	for _, words := range [][]string{{"run", "--when-held", ""}, {"host", "pause", "demo"}} {
		got := runFake(t, t.Context(), f, nil, append([]string{"__complete"}, words...)...)
		if !strings.Contains(got.stdout, "skip") && !strings.Contains(got.stdout, "demo1") {
			t.Error(words, got)
		}
	}
}
