package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files writes files into a folder and returns it.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const nightly = `# comments are for people
kind: schedule
name: nightly
doc: the databases, before the office opens
cron: 30 2 * * *
tz: Europe/Madrid
jitter: 5m
catch_up: 2d
catch_up_most: 3
overlap: queue
from: 2027-01-01T00:00:00+01:00
labels: {team: db}
target: role=db   and env!=dev
procedure: backup
args: {level: full, keep: 14, ratio: 2.0, on: true, since: 2026-01-01, parts: [a, 1]}
options:
  queue: {backup: main}
  max_exec_time: none
  silence_timeout: 90s
  retry: {on: [lost], attempts: 2, backoff: 1m}
  labels: {ticket: 12}
  parallel: 10
  rolling: [1, 10%]
  stop_after: 5
---
kind: group
name: databases
target: role=db
`

func TestRead(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": nightly, "b.yml": "---\n# nothing\n---\nkind: group\nname: web\ntarget: web*\n", "notes.txt": "x", ".hidden.yaml": "x"})
	if err := os.Mkdir(filepath.Join(dir, "below.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	request, err := harp.NewBatchRequest("role=db and env!=dev", "backup",
		map[string]any{"level": "full", "keep": 14, "ratio": 2.0, "on": true, "since": "2026-01-01", "parts": []any{"a", 1}},
		harp.Queue(map[string]string{"backup": "main"}), harp.MaxExecTime(harp.NoLimit), harp.SilenceTimeout(90*time.Second), harp.Label("ticket", "12"),
		harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2, Backoff: time.Minute}),
		harp.Parallel(10), harp.Rolling("1", "10%"), harp.StopAfter("5"))
	if err != nil {
		t.Fatal(err)
	}
	request.ID = ""
	want := harp.Schedule{
		Name: "nightly", Doc: "the databases, before the office opens", Cron: "30 2 * * *", TZ: "Europe/Madrid", Jitter: 5 * time.Minute,
		CatchUp: 48 * time.Hour, CatchUpMost: 3, Overlap: harp.OverlapQueue, From: time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC),
		Labels: map[string]string{"team": "db"}, Request: request,
	}
	if len(set.Documents) != 3 || set.Documents[0].Schedule == nil {
		t.Fatalf("read %+v", set.Documents)
	}
	got := *set.Documents[0].Schedule
	if !sameValue(got.Request.Args, request.Args) {
		t.Errorf("the arguments are %s, want %s", got.Request.Args, request.Args)
	}
	got.Request.Args, want.Request.Args = harp.Value{}, harp.Value{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	for i, want := range []harp.Group{{Name: "databases", Target: "role=db"}, {Name: "web", Target: "web*"}} {
		if got := *set.Documents[i+1].Group; got != want {
			t.Errorf("read group %+v, want %+v", got, want)
		}
	}
	if got, want := set.At(harp.GroupDocument, "web"), filepath.Join(dir, "b.yml")+":4"; got != want {
		t.Errorf("group web is at %s, want %s", got, want)
	}
	if got := set.At(harp.GroupDocument, "none"); got != "" {
		t.Errorf("a group that is not there is at %s", got)
	}
}

// sameValue reports whether two values are the same, in whatever order their maps are.
func sameValue(a, b harp.Value) bool {
	a, err := a.Canonical()
	if err != nil {
		return false
	}
	b, err = b.Canonical()
	return err == nil && string(a) == string(b)
}

// TestWindows checks that windows are read and written, and their calendars from files that stand beside them.
func TestWindows(t *testing.T) {
	const text = `kind: window
name: patches
target: role=db
mode: refuse
schedules_only: true
exempt:
- backup*
cron: 0 3 * * 6
for: 4h
---
kind: window
name: holidays
target: '*'
tz: Europe/Madrid
calendar:
  file: holidays.ics
  event: Public*
  zones:
    Office: Europe/Madrid
---
kind: window
name: remote
target: '*'
calendar:
  url: https://cal.example.org/a.ics
`
	dir := files(t, map[string]string{"f.yaml": text, "holidays.ics": "BEGIN"})
	set, err := manifest.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []harp.Document{
		{Window: &harp.Window{Name: "patches", Target: "role=db", Mode: harp.WindowRefuse, SchedulesOnly: true, Exempt: []string{"backup*"}, Cron: "0 3 * * 6", For: 4 * time.Hour}},
		{Window: &harp.Window{Name: "holidays", Target: "*", TZ: "Europe/Madrid", Calendar: &harp.WindowCalendar{
			Content: []byte("BEGIN"), Event: "Public*", Zones: map[string]string{"Office": "Europe/Madrid"},
		}}},
		{Window: &harp.Window{Name: "remote", Target: "*", Calendar: &harp.WindowCalendar{URL: "https://cal.example.org/a.ics"}}},
	}
	if !reflect.DeepEqual(set.Documents, want) {
		t.Errorf("read %+v %+v", set.Documents[0].Window, set.Documents[1].Window)
	}
	var written []string
	for _, d := range set.Documents {
		one, err := manifest.Write(d, "holidays.ics")
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, string(one))
	}
	if got := strings.Join(written, "---\n"); got != text {
		t.Errorf("written is\n%s", got)
	}
	if got := set.Wrap(&harp.FieldError{Field: "documents[1].zones", Message: "bad"}).Error(); got != filepath.Join(dir, "f.yaml")+":18: calendar.zones: bad" {
		t.Errorf("an error is %s", got)
	}
	if got := set.Wrap(&harp.FieldError{Field: "documents[2].calendar.url", Message: "bad"}).Error(); got != filepath.Join(dir, "f.yaml")+":25: calendar.url: bad" {
		t.Errorf("an error is %s", got)
	}
	for file, want := range map[string]string{"none.ics": "f.yaml:16: calendar.file: open ", "long.ics": "is longer than 786432 bytes", "empty.ics": "empty.ics is empty"} {
		dir := files(t, map[string]string{"f.yaml": strings.Replace(text, "holidays.ics", file, 1), "long.ics": strings.Repeat("x", harp.MaxCalendar+1), "empty.ics": ""})
		if _, err := manifest.Read(dir); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// TestReadRefuses checks that what is wrong in a document is refused, and where.
func TestReadRefuses(t *testing.T) {
	const start = "kind: schedule\nname: s\ncron: '@daily'\nprocedure: p\n"
	const later = "kind: schedule\nname: s\n\nprocedure: p\ntarget: '*'\n"
	for text, want := range map[string]string{
		"a":                                   ":1: must be a map",
		"name: x\n":                           ":1: kind: must be group, notification, retention, schedule or window",
		"kind: thing\n":                       ":1: kind: must be group, notification, retention, schedule or window",
		start + "target: '*'\nodd: 1\n":       ":6: odd: is unknown",
		start + "target: '*'\nargs: x\n":      ":6: args: must be named",
		start + "target: '*'\ncron: x\n":      `:6: cron: is there twice`,
		start + "target: web and\n":           ":5: target: ",
		start:                                 ":1: target: ",
		start + "target: '*'\njitter: 5\n":    ":6: jitter: must be a duration",
		start + "target: '*'\njitter: none\n": ":6: jitter: must be a time that ends",
		start + "target: '*'\noptions: {wave_pause: none}\n": ":6: options.wave_pause: must be a time that ends",
		start + "target: '*'\nfrom: today\n":                 ":6: from: must be a time",
		start + "target: '*'\noverlap: no\n":                 ":6: overlap: must be",
		start + "target: '*'\ncatch_up_most: 0x10\n":         ":6: catch_up_most: must be a whole number",
		start + "target: '*'\nrequest: {target: '*'}\n":      ":6: request: is unknown",
		start + "target: '*'\nlabels: [a]\n":                 ":6: labels: must be a map",
		start + "target: '*'\nlabels: {[a]: b}\n":            ":6: labels: has a key that is no text",
		start + "target: '*'\noptions: 1\n":                  ":6: options: must be a map",
		start + "target: '*'\noptions:\n  id: x\n":           ":7: options.id: is unknown",
		start + "target: '*'\noptions:\n  dry_run: 1\n":      ":7: options.dry_run: must be true or false",
		start + "target: '*'\noptions:\n  stop_after: 0\n":   ":7: options.stop_after: ",
		start + "target: '*'\noptions:\n  rolling: 5\n":      ":7: options.rolling: must be a list",
		start + "target: '*'\noptions:\n  retry: {off: 1}\n": ":7: options.retry.off: is unknown",
		start + "target: '*'\noptions:\n  labels: {'': x}\n": ":7: options.labels: ",
		start + "target: '*'\nargs: {a: .nan}\n":             ":6: args.a: must be a number",
		start + "target: '*'\nargs: {a: !!binary YQ==}\n":    ":6: args.a: must be a text",
		start + "target: '*'\nargs: {a: [{b: 1, b: 2}]}\n":   ":6: args.a[0].b: is there twice",
		start + "target: '*'\nargs: &a {a: *a}\n":            ":6: ",
		later + "after: backup\n":                            ":6: after: must be a list",
		later + "after: [backup]\n":                          ":6: after[0]: must be a map",
		later + "after:\n- {schedule: a}\n- {schedule: s}\n": ":8: after[1].schedule: a schedule cannot come after itself",
		later + "after:\n- schedule: a\n  on: never\n":       ":8: after[0].on: must be",
		later + "after:\n- schedule: a\n  within: soon\n":    ":8: after[0].within: must be a duration",
		later + "after: [{schedule: a, when: failed}]\n":     ":6: after[0].when: is unknown",
		later + "after: [{schedule: a}]\ncron: '@daily'\n":   ":7: cron: is of a schedule that has times",
		later: ":1: cron: must not be empty",
		"kind: group\nname: g\ntarget: x\nby: {}\n":                               ":4: by: is unknown",
		"kind: group\nname: g\ntarget: [a, b]\n":                                  ":3: target: must be one value",
		"kind: group\nname: g\ntarget: a\n---\n{}\n--- {a\n":                      ":7: did not",
		"kind: group\nname: g\ntarget: a\n---\nkind: group\nname: g\ntarget: b\n": ":6: name: group g is also in ",
	} {
		dir := files(t, map[string]string{"f.yaml": text})
		_, err := manifest.Read(dir)
		if !errors.Is(err, harp.ErrInvalid) || !strings.HasPrefix(err.Error(), filepath.Join(dir, "f.yaml")+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestReadAll checks that everything that is wrong is told at once.
func TestReadAll(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": "kind: group\nnme: g\ntarget: a\nx: 1\n", "b.yaml": "kind: x\n"})
	_, err := manifest.Read(dir)
	for _, want := range []string{"a.yaml:2: nme: is unknown", "a.yaml:4: x: is unknown", "b.yaml:1: kind: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, which lacks %s", err, want)
		}
	}
}

func TestReadBounds(t *testing.T) {
	bomb := "kind: schedule\nname: s\na: &a [x,x,x,x,x,x,x,x,x,x]\nargs:\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
		"  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	for text, want := range map[string]string{
		strings.Repeat("#", manifest.MaxFile) + "\n":                "is longer than 1048576 bytes",
		strings.Repeat("kind: group\nname: a\ntarget: a\n---\n", 2): "is also in",
		groups(harp.MaxDocuments + 1):                               "1000 documents",
		bomb:                                                        "has more than 100000 values",
		"kind: schedule\nargs: {a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}\n": "deep",
	} {
		_, err := manifest.Read(files(t, map[string]string{"f.yaml": text}))
		if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	if set, err := manifest.Read(files(t, map[string]string{"f.yaml": groups(harp.MaxDocuments)})); err != nil || len(set.Documents) != harp.MaxDocuments {
		t.Errorf("as many as there may be: %v", err)
	}
	if _, err := manifest.Read(t.TempDir()); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("an empty folder: %v", err)
	}
	for name, text := range map[string]string{"blank": " \n\n", "commented out": "# kind: group\n---\n# nothing\n"} {
		if set, err := manifest.Read(files(t, map[string]string{"f.yaml": text, "g.yaml": "#"})); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "has no document in any file") {
			t.Errorf("a folder of files that are %s: %v, %v", name, set, err)
		}
	}
	if set, err := manifest.Read(files(t, map[string]string{"f.yaml": groups(1), "g.yaml": ""})); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "g.yaml: is empty") {
		t.Errorf("a folder with a file that has lost its documents: %v, %v", set, err)
	}
	if set, err := manifest.Read(filepath.Join(files(t, map[string]string{"f.yaml": "# nothing\n"}), "f.yaml")); err != nil || len(set.Documents) > 0 {
		t.Errorf("a file that says that there is nothing: %v, %v", set, err)
	}
	dir := files(t, map[string]string{"f.yaml": groups(1)})
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "g.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Read(dir); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "g.yaml: is no file") {
		t.Errorf("a folder with what is no file: %v", err)
	}
	if _, err := manifest.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func groups(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\nkind: group\ntarget: a\nname: g" + strings.Repeat("x", i%100) + string(rune('a'+i/100)) + "\n")
	}
	return b.String()
}

// TestWrap checks that an error about a document names its file, line and field.
func TestWrap(t *testing.T) {
	dir := files(t, map[string]string{"f.yaml": nightly})
	set, err := manifest.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"documents[0].cron":         ":5: cron: bad",
		"documents[0].parallel":     ":22: options.parallel: bad",
		"documents[0].args.level":   ":15: args.level: bad",
		"documents[0].label ticket": ":21: options.labels.ticket: bad",
		"documents[0].label team":   ":12: labels.team: bad",
		"documents[1].target":       ":28: target: bad",
		"documents[1].odd":          ":26: odd: bad",
	} {
		if got := set.Wrap(&harp.FieldError{Field: field, Message: "bad"}).Error(); got != filepath.Join(dir, "f.yaml")+want {
			t.Errorf("of %s it is %s", field, got)
		}
	}
	for _, other := range []error{harp.ErrConflict, &harp.FieldError{Field: "managed_by"}, &harp.FieldError{Field: "documents[7].cron"}} {
		if got := set.Wrap(other); got != other { //nolint:errorlint // it is to be that very error
			t.Errorf("%v becomes %v", other, got)
		}
	}
}

func TestFieldOf(t *testing.T) {
	for field, want := range map[string]string{
		"cron": "cron", "request.target": "target", "request.args.level": "args.level", "request.batch.parallel": "options.parallel",
		"request.retry.backoff": "options.retry.backoff", "request.labels.a": "options.labels.a", "labels.a": "labels.a", "managed_by": "managed_by",
	} {
		if got := manifest.FieldOf(harp.ScheduleDocument, field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

// TestWriteRead checks that what is written is read as it was.
func TestWriteRead(t *testing.T) {
	text := rapid.StringMatching(`[a-z#:'"{\[ *&!%@-]{0,12}x`)
	rapid.Check(t, func(rt *rapid.T) {
		opts := []harp.Option{harp.Label("k", text.Draw(rt, "label")), harp.Parallel(rapid.IntRange(1, 9).Draw(rt, "parallel")), harp.StopAfter("5%")}
		if rapid.Bool().Draw(rt, "queued") {
			opts = append(opts, harp.Queue(map[string]any{"q": rapid.SampledFrom([]any{1, "1", 1.5, true, nil}).Draw(rt, "queue")}), harp.QueuePerHost())
		}
		args := map[string]any{text.Draw(rt, "name"): []any{text.Draw(rt, "text"), rapid.Int().Draw(rt, "int"), rapid.Float64Range(-1e9, 1e9).Draw(rt, "float"), nil, "yes", "1", "2026-01-01", "a\nb\n", "null", "0x1"}}
		steps := []harp.Step{{Procedure: text.Draw(rt, "procedure"), Args: args, Options: stepOptions(rt)}}
		for range rapid.IntRange(0, 3).Draw(rt, "steps") {
			ending := rapid.SampledFrom([]harp.Ending{"", harp.OnSucceeded, harp.OnFailed, harp.OnEnded}).Draw(rt, "on")
			steps = append(steps, harp.Step{Procedure: text.Draw(rt, "procedure"), Args: args, On: ending, Options: stepOptions(rt)})
		}
		if len(steps) > 1 && rapid.Bool().Draw(rt, "reboots") {
			opts = append(opts, harp.RebootWait(time.Hour), harp.EachStep())
		}
		request, err := harp.NewChainRequest("*", steps, opts...)
		if err != nil {
			rt.Fatal(err)
		}
		request.ID = ""
		want := harp.Schedule{
			Name: text.Draw(rt, "schedule"), Doc: text.Draw(rt, "doc"), Cron: text.Draw(rt, "cron"), CatchUp: harp.NoLimit,
			Jitter: time.Duration(rapid.IntRange(0, 1e13).Draw(rt, "jitter")), Request: request,
		}
		if n := rapid.IntRange(0, 3).Draw(rt, "after"); n > 0 {
			want.Cron, want.CatchUp, want.Jitter = "", 0, 0
			for i := range n {
				want.After = append(want.After, harp.Dependency{
					Schedule: text.Draw(rt, "dependency") + fmt.Sprint(i), On: rapid.SampledFrom([]harp.Ending{"", harp.OnFailed, harp.OnEnded}).Draw(rt, "on"),
					Within: rapid.SampledFrom([]time.Duration{0, time.Hour, harp.NoLimit}).Draw(rt, "within"),
				})
			}
		}
		written, err := manifest.Write(harp.Document{Schedule: &want}, "")
		if err != nil {
			rt.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, written, 0o600); err != nil {
			rt.Fatal(err)
		}
		set, err := manifest.Read(path)
		if err != nil || len(set.Documents) != 1 {
			rt.Fatalf("%s\ncannot be read: %v", written, err)
		}
		got := *set.Documents[0].Schedule
		if !sameValue(got.Request.Args, want.Request.Args) {
			rt.Errorf("%s\nthe arguments are %s, want %s", written, got.Request.Args, want.Request.Args)
		}
		got.Request.Args = want.Request.Args
		for n := range got.Request.Batch.Then {
			s := &got.Request.Batch.Then[n]
			if !sameValue(s.Args, request.Args) {
				rt.Errorf("%s\nthe arguments of a step are %s, want %s", written, s.Args, request.Args)
			}
			s.Args = want.Request.Batch.Then[n].Args
		}
		if len(want.Request.Batch.Then) == 0 {
			want.Request.Batch.Then = nil
		}
		if !reflect.DeepEqual(got, want) {
			rt.Errorf("%s\nis read as\n%+v, want\n%+v", written, got, want)
		}
	})
	after := harp.Schedule{Name: "report", After: []harp.Dependency{{Schedule: "backup", On: harp.OnFailed, Within: 6 * time.Hour}, {Schedule: "check"}}}
	written, err := manifest.Write(harp.Document{Schedule: &after}, "")
	if want := "kind: schedule\nname: report\nafter:\n- schedule: backup\n  on: failed\n  within: 6h\n- schedule: check\n"; err != nil || !strings.HasPrefix(string(written), want) {
		t.Errorf("a schedule is written as %s, %v", written, err)
	}
	group := harp.Group{Name: "g", Target: "a\nor b", By: harp.Principal{Name: "ada"}, Changed: time.Now()}
	written, err = manifest.Write(harp.Document{Group: &group}, "")
	if err != nil || string(written) != "kind: group\nname: g\ntarget: |-\n  a\n  or b\n" {
		t.Errorf("a group is written as %s, %v", written, err)
	}
	if _, err := manifest.Write(harp.Document{}, ""); err == nil {
		t.Error("nothing is written")
	}
}

// Documents that are made to be large take as much memory as their files, about, and are refused or read.
func TestReadIsBounded(t *testing.T) {
	const start = "kind: schedule\nname: s\ncron: '@daily'\nprocedure: p\ntarget: '*'\nargs:\n"
	bomb := strings.Builder{}
	bomb.WriteString(start + "  a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	below := strings.Builder{}
	below.WriteString(start + "  ? " + strings.Repeat("x", 100_000) + "\n  :\n")
	for i := range 5000 {
		fmt.Fprintf(&below, "    k%d: 1\n", i)
	}
	deep := strings.Builder{}
	deep.WriteString(start)
	for i := range 60 {
		fmt.Fprintf(&deep, "%s%s:\n", strings.Repeat(" ", i+2), strings.Repeat("x", 1000))
	}
	for i := range 5000 {
		fmt.Fprintf(&deep, "%sk%d: 1\n", strings.Repeat(" ", 62), i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"aliases":          {bomb.String(), "has more than 100000 values"},
		"an alias of self": {start + "  a: &a [*a]\n", ":7: args.a[0]"},
		"lists":            {start + "  a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n", "is more than 64 deep"},
		"more lists":       {start + "  a: " + strings.Repeat("[", 500_000) + "\n", "f.yaml:"},
		"a long name":      {below.String(), ""},
		"many long names":  {deep.String(), "f.yaml:"},
		"many documents":   {strings.Repeat("---\nk: 1\n", 100_000), "f.yaml:"},
	} {
		dir := files(t, map[string]string{"f.yaml": c.text})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := manifest.Read(dir)
		runtime.ReadMemStats(&after)
		if text := fmt.Sprint(err); (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, harp.ErrInvalid) || !strings.Contains(text, c.want)) {
			t.Errorf("%s: %.300s", name, text)
		} else if len(text) > 10_000 {
			t.Errorf("%s: the error is %d bytes", name, len(text))
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
			t.Errorf("%s: %d bytes take %d", name, len(c.text), took)
		}
	}
}

// An error shows no value of an argument, which may be a secret.
func TestReadShowsNoArguments(t *testing.T) {
	const start = "kind: schedule\nname: s\ncron: '@daily'\nprocedure: p\ntarget: '*'\nargs:\n  password: "
	for _, secret := range []string{"!!int swordfish", "!!float swordfish", "!!bool swordfish", "!!binary swordfish", "{swordfish: 1, swordfish: 2}", "&swordfish [*swordfish]"} {
		_, err := manifest.Read(files(t, map[string]string{"f.yaml": start + secret + "\n"}) + "/f.yaml")
		if err != nil && strings.Contains(err.Error(), "is \"swordfish") {
			t.Errorf("%s: %v", secret, err)
		}
	}
}
