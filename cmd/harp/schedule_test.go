package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// beforeDST is the Friday before clocks are set forward in Europe.
var beforeDST = time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)

// scheduling is a fake with hosts, at a Friday noon.
func scheduling(t *testing.T) *fake {
	t.Helper()
	f := running(t, 2)
	f.schedules.now = beforeDST
	return f
}

// addMadrid adds a schedule called s, in Europe/Madrid.
func addMadrid(t *testing.T, f *fake, cron string, flags ...string) {
	t.Helper()
	got := schedules(t, f, slices.Concat([]string{"add", "s", "demo*", "count", "to=3", "--cron", cron, "--tz", "Europe/Madrid"}, flags)...)
	if got.code != exitOK {
		t.Fatal(got)
	}
}

// schedules runs a command of harp schedule.
func schedules(t *testing.T, f *fake, args ...string) said {
	t.Helper()
	return runFake(t, t.Context(), f, nil, append([]string{"schedule"}, args...)...)
}

// TestScheduleAdd: every flag is in the schedule.
func TestScheduleAdd(t *testing.T) {
	f := scheduling(t)
	addMadrid(
		t, f, "30 2 * * *", "--from", "2027-03-01T00:00:00Z", "--until", "2028-03-01T00:00:00Z", "--jitter", "5m", "--gap", "skip", "--repeat", "both",
		"--overlap", "cancel-old", "--catch-up", "none", "--catch-up-most", "2", "--pause-on-failure", "3", "--expect", "1h", "--doc", "for people",
		"--schedule-label", "team=db", "--label", "kind=nightly", "--parallel", "5", "--rolling", "1,10%", "--wave-pause", "1m", "--approve",
		"--subset", "50%", "--shuffle", "--rate", "10/1m", "--stop-after", "5%", "--on-stop", "pause", "--max-hosts", "9", "--when-unfit", "skip", "--when-held", "skip", "--when-offline", "skip",
		"--queue", "db=1", "--queue-per-host", "--concurrency", "2", "--priority", "7", "--silence-timeout", "1m", "--max-exec-time", "none",
		"--offline-wait", "2m", "--retry", "lost", "--attempts", "4", "--backoff", "2s", "--info", "812",
	)
	got := f.schedules.put[0]
	req := got.Request
	got.Request = harp.Request{}
	want := harp.Schedule{
		Name: "s", Doc: "for people", Cron: "30 2 * * *", TZ: "Europe/Madrid", From: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC),
		Jitter: 5 * time.Minute, Gap: harp.GapSkip, Repeat: harp.RepeatBoth, Overlap: harp.OverlapCancelOld, CatchUp: harp.NoLimit, CatchUpMost: 2,
		PauseOnFailure: 3, Expect: time.Hour, Labels: map[string]string{"team": "db"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	made, err := harp.NewBatchRequest(
		"demo*", "count", harp.Args{"to": 3}, harp.Label("kind", "nightly"), harp.Parallel(5), harp.Rolling("1", "10%"), harp.WavePause(time.Minute), harp.Approve(),
		harp.Subset("50%"), harp.Shuffle(), harp.Rate(10, time.Minute), harp.StopAfter("5%"), harp.OnStop(harp.PauseBatch), harp.MaxHosts(9), harp.WhenUnfit(harp.SkipHost), harp.WhenHeld(harp.SkipHost),
		harp.WhenOffline(harp.SkipHost), harp.Queue(harp.Args{"db": "1"}), harp.QueuePerHost(), harp.Concurrency(2), harp.Priority(7),
		harp.SilenceTimeout(time.Minute), harp.MaxExecTime(harp.NoLimit), harp.OfflineWait(2*time.Minute),
		harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 4, Backoff: 2 * time.Second}), harp.Info(812),
	)
	if made.ID = ""; err != nil || !reflect.DeepEqual(req, made) {
		t.Errorf("got %+v\nwant %+v, %v", req, made, err)
	}
}

// TestScheduleWhen: --every and --at are words of package schedule.
func TestScheduleWhen(t *testing.T) {
	for flag, want := range map[string]string{"--every=90m": "every 90m", "--at=2027-04-01 02:00": "at 2027-04-01 02:00", "--cron=@daily": "@daily"} {
		f := scheduling(t)
		got := schedules(t, f, "add", "s", "demo1", "count", "to=3", flag)
		if got.code != exitOK || f.schedules.put[0].Cron != want {
			t.Error(got, f.schedules.put)
		}
	}
}

// TestWrongScheduleFlags: what cannot be is refused with the field and what was expected.
func TestWrongScheduleFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "invalid --cron: give one of --cron, --every, --at and --after"},
		{[]string{"--cron", "@daily", "--every", "1h"}, "invalid --every: cannot be combined with --cron: a schedule has one of --cron, --every and --at"},
		{[]string{"--every", "1h", "--at", "2027-04-01 02:00"}, "invalid --at: cannot be combined with --every"},
		{[]string{"--cron", "0 0 31 2 *"}, `invalid --cron: "0 0 31 2 *" never fires`},
		{[]string{"--at", "2020-01-01 00:00"}, `invalid --at: "at 2020-01-01 00:00" fires no more`},
		{[]string{"--cron", "@daily", "--tz", "Europe/Nowhere"}, "invalid --tz: "},
		{[]string{"--cron", "TZ=Europe/Madrid 0 2 * * *"}, "invalid --cron: "},
		{[]string{"--every", "1h", "--jitter", "1h"}, "invalid --jitter: 1h0m0s reaches from "},
		{[]string{"--cron", "@daily", "--from", "2027-05-01", "--until", "2027-04-01"}, "invalid --until: must be later than from"},
		{[]string{"--cron", "@daily", "--until", "2027-03-26T13:00:00Z"}, "invalid --until: is before "},
		{[]string{"--cron", "@daily", "--overlap", "maybe"}, "invalid --overlap: must be skip, queue, cancel-old or allow"},
		{[]string{"--cron", "@daily", "--gap", "maybe"}, `invalid --gap: must be "after", "skip" or nothing`},
		{[]string{"--cron", "@daily", "--id", "new"}, "unknown flag: --id"},
		{[]string{"--cron", "@daily", "--start-after", "1h"}, "unknown flag: --start-after"},
	} {
		got := schedules(t, scheduling(t), append([]string{"add", "s", "demo1", "count", "to=3"}, c.args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: %d %s", c.args, got.code, got.stderr)
		}
	}
}

// TestCronCaret: what is wrong with a field is shown at its place.
func TestCronCaret(t *testing.T) {
	for cron, want := range map[string]string{
		"0 25 * * *":           "invalid --cron: hour: \"25\" is not in 0-23\n  0 25 * * *\n    ^\n",
		"0  2 * * MONN":        "  0  2 * * MONN\n           ^\n",
		"99 0 2 * * *":         "  99 0 2 * * *\n  ^\n",
		"0 2 * * MON 2027-x":   "  0 2 * * MON 2027-x\n              ^\n",
		"0 0 2 * * MON 100000": "  0 0 2 * * MON 100000\n                ^\n",
	} {
		got := schedules(t, scheduling(t), "add", "s", "demo1", "count", "to=3", "--cron", cron)
		if got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d\n%s", cron, got.code, got.stderr)
		}
	}
}

// TestScheduleAddTwice: another schedule takes the place of one only when that is asked for.
func TestScheduleAddTwice(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "@daily")
	got := schedules(t, f, "add", "s", "demo1", "count", "to=5", "--cron", "@hourly")
	if got.code != exitUsage || !strings.Contains(got.stderr, "schedule s already exists (count on demo*); --replace overwrites it") {
		t.Error(got)
	}
	if got := schedules(t, f, "add", "s", "demo1", "count", "to=5", "--cron", "@hourly", "--replace"); got.code != exitOK {
		t.Error(got)
	}
	if len(f.schedules.all) != 1 || f.schedules.all[0].Cron != "@hourly" {
		t.Error(f.schedules.all)
	}
}

func TestScheduleDryRun(t *testing.T) {
	f := scheduling(t)
	got := schedules(t, f, "add", "s", "demo1", "count", "to=3", "--cron", "@daily", "--dry-run")
	if got.code != exitOK || got.stdout != "would make schedule s: @daily, count on demo1\n" || len(f.schedules.put) != 0 {
		t.Error(got, f.schedules.put)
	}
	addMadrid(t, f, "@daily")
	for _, args := range [][]string{{"rm", "s"}, {"pause", "s"}, {"unpause", "s"}, {"skip", "s"}, {"backfill", "s", "--from", "2h", "--to", "1h"}} {
		if got := schedules(t, f, append(args, "--dry-run")...); got.code != exitOK || !strings.HasPrefix(got.stdout, "would ") {
			t.Error(args, got)
		}
	}
	if len(f.schedules.changes)+len(f.schedules.deleted) != 0 || !f.schedules.from.IsZero() {
		t.Errorf("%+v", f.schedules)
	}
}

// TestScheduleNext: what clocks do is shown.
func TestScheduleNext(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *")
	got := schedules(t, f, "next", "s", "-n", "3")
	want := `TIME                       JITTER  NOTE
Sat 2027-03-27 02:30 CET
Sun 2027-03-28 03:00 CEST          moved: 02:30 does not exist, runs at the end of the gap
Mon 2027-03-29 02:30 CEST
`
	if got.code != exitOK || got.stdout != want {
		t.Errorf("%d %s\n%s", got.code, got.stderr, got.stdout)
	}
	got = schedules(t, f, "next", "s", "-n", "2", "--from", "2027-10-30T12:00:00Z", "-o", "json")
	var read struct{ Times []harp.Upcoming }
	if err := json.Unmarshal([]byte(got.stdout), &read); err != nil || len(read.Times) != 2 {
		t.Fatal(got, err)
	}
	if at := read.Times[0]; !at.Nominal.Equal(time.Date(2027, 10, 31, 0, 30, 0, 0, time.UTC)) || at.Wall != "Sun 2027-10-31 02:30 CEST" {
		t.Errorf("%+v", at)
	}
	if got := schedules(t, f, "next", "none"); got.code != exitNotFound || !strings.Contains(got.stderr, "See: harp schedule ls") {
		t.Error(got)
	}
}

func TestScheduleNextWithJitter(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *", "--jitter", "1h")
	got := schedules(t, f, "next", "s", "-n", "1")
	row := strings.Fields(strings.Split(got.stdout, "\n")[1])
	delay, err := time.ParseDuration(strings.TrimPrefix(row[4], "+"))
	if err != nil || delay <= 0 || delay >= time.Hour {
		t.Errorf("%s %v", got.stdout, err)
	}
}

// TestScheduleSkip: a time is named as it is printed.
func TestScheduleSkip(t *testing.T) {
	for text, want := range map[string]time.Time{
		"":                          time.Date(2027, 3, 27, 1, 30, 0, 0, time.UTC),
		"2027-03-28 03:00":          time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
		"Sun 2027-03-28 03:00 CEST": time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
		"2027-03-28T01:00:00Z":      time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
		"2027-03-29":                time.Date(2027, 3, 29, 0, 30, 0, 0, time.UTC),
	} {
		f := scheduling(t)
		addMadrid(t, f, "30 2 * * *")
		args := []string{"skip", "s"}
		if text != "" {
			args = append(args, "--at", text)
		}
		got := schedules(t, f, args...)
		if got.code != exitOK || !slices.Equal(f.schedules.changes, []harp.ScheduleChange{{Kind: harp.SkipOfSchedule, At: want}}) {
			t.Errorf("%q: %v %+v", text, got, f.schedules.changes)
		}
	}
	f := scheduling(t)
	addMadrid(t, f, "0 * * * *")
	for text, want := range map[string]string{
		"2027-03-28 02:00":     "is not one of the next 1000 times of s; harp schedule next s shows them",
		"2027-03-28T01:00:01Z": "is not one of the next",
		"2027-03-29":           "is ambiguous: Mon 2027-03-29 00:00 CEST or Mon 2027-03-29 01:00 CEST",
	} {
		if got := schedules(t, f, "skip", "s", "--at", text); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Error(text, got)
		}
	}
}

func TestScheduleChanges(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "@daily")
	for _, args := range [][]string{{"pause", "s", "--reason", "freeze", "--until", "2027-04-01T00:00:00Z"}, {"unpause", "s"}, {"rm", "s"}} {
		if got := schedules(t, f, args...); got.code != exitOK || !strings.HasSuffix(got.stderr, " schedule s\n") {
			t.Error(got)
		}
	}
	want := []harp.ScheduleChange{{Kind: harp.PauseOfSchedule, Reason: "freeze", Until: f.schedules.changes[0].Until}, {Kind: harp.UnpauseOfSchedule}}
	if !slices.Equal(f.schedules.changes, want) || !want[0].Until.Equal(time.Date(2027, 4, 1, 0, 0, 0, 0, time.UTC)) || !slices.Equal(f.schedules.deleted, []string{"s"}) {
		t.Errorf("%+v", f.schedules)
	}
	if got := schedules(t, f, "backfill", "s", "--from", "2027-03-01T00:00:00Z", "--to", "2027-03-08T00:00:00Z"); got.code != exitOK || got.stderr != "schedule s runs for 3 times, one after another\n" {
		t.Error(got)
	}
	if got := schedules(t, f, "backfill", "s", "--from", "soon", "--to", "now"); got.code != exitUsage || !strings.Contains(got.stderr, "must be a time such as") {
		t.Error(got)
	}
	for _, args := range [][]string{nil, {"--from", "2h"}, {"--to", "1h"}, {"2h", "1h"}} {
		if got := schedules(t, f, append([]string{"backfill", "s"}, args...)...); got.code != exitUsage || !f.schedules.from.Equal(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)) {
			t.Error(args, got)
		}
	}
}

func TestScheduleRun(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "@daily")
	got := schedules(t, f, "run", "s", "-d", "--even-if-paused", "--even-if-running")
	if got.code != exitOK || harp.CheckID(strings.TrimSpace(got.stdout)) != nil || f.schedules.triggered[0] != (harp.Trigger{EvenIfRunning: true, EvenIfPaused: true}) {
		t.Error(got, f.schedules.triggered)
	}
	f.schedules.err = failures.New("conflict", "schedule s is paused").Err()
	if got := schedules(t, f, "run", "s"); got.code != exitUsage || !strings.Contains(got.stderr, "schedule s is paused; did not run") {
		t.Error(got)
	}
	f.schedules.err = failures.New("conflict", "schedule s is paused: the backup did not run").Err() // which says nothing of this run
	if got := schedules(t, f, "run", "s"); !strings.Contains(got.stderr, "the backup did not run; did not run") {
		t.Error(got)
	}
}

// TestScheduleHistory: times in a row of which the same is to be said are one line.
func TestScheduleHistory(t *testing.T) {
	f := scheduling(t)
	at := func(day int) time.Time { return time.Date(2027, 3, day, 2, 0, 0, 0, time.UTC) }
	f.schedules.ledger = []harp.LedgerEntry{
		{Schedule: "s", Kind: harp.LedgerManual, Outcome: harp.TimeFired, From: at(20), To: at(20), Count: 1, At: at(20), Batch: "b2", By: harp.Principal{Name: "ops"}},
		{Schedule: "s", Kind: harp.LedgerTime, Outcome: harp.TimeFailed, From: at(19), To: at(19), Count: 1, Err: &harp.FieldError{Field: "target", Message: "is gone"}},
		{Schedule: "s", Kind: harp.LedgerTime, Outcome: harp.TimeSkipped, Reason: harp.TimePaused, Detail: "ops: freeze", From: at(11), To: at(18), Count: 8},
		{Schedule: "s", Kind: harp.LedgerTime, Outcome: harp.TimeMissed, Reason: harp.TimeDown, From: at(2), To: at(10), Count: 9, AtLeast: true},
		{Schedule: "s", Kind: harp.LedgerTime, Outcome: harp.TimeFired, From: at(1), To: at(1), Count: 1, Late: 5500 * time.Millisecond, Batch: "b1"},
	}
	got := runFake(t, t.Context(), f, nil, "schedule", "history", "s", "--time", "iso", "--outcome", "fired,missed", "--since", "2027-03-01", "-n", "5")
	want := `TIME                                                                OUTCOME  BATCH  WHY
2027-03-20T02:00:00.000Z                                            fired    b2     run now by ops
2027-03-19T02:00:00.000Z                                            failed   invalid target: is gone
2027-03-11T02:00:00.000Z to 2027-03-18T02:00:00.000Z, 8 times           skipped  paused: ops: freeze
2027-03-02T02:00:00.000Z to 2027-03-10T02:00:00.000Z, at least 9 times  missed   no dispatcher was running
2027-03-01T02:00:00.000Z                                            fired    b1     5s late
`
	squeezed := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if got.code != exitOK || squeezed(got.stdout) != squeezed(want) {
		t.Errorf("%d %s\n%s", got.code, got.stderr, got.stdout)
	}
	if fmt.Sprint(f.schedules.filter.Outcomes) != "[fired missed]" || f.schedules.filter.Schedule != "s" || f.schedules.filter.From.IsZero() {
		t.Errorf("%+v", f.schedules.filter)
	}
	if got := schedules(t, f, "history", "s", "--outcome", "lost"); got.code != exitUsage || !strings.Contains(got.stderr, `invalid --outcome: "lost" is not one of`) {
		t.Error(got)
	}
	if got := schedules(t, f, "history", "-o", "jsonl"); strings.Count(got.stdout, "\n") != 5 || !strings.Contains(got.stdout, `"late":"5.5s"`) {
		t.Error(got)
	}
}

// TestScheduleShow: people and programs see the whole of it.
func TestScheduleShow(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *", "--overlap", "queue", "--max-exec-time", "none")
	s := &f.schedules.all[0]
	s.Pause = &harp.SchedulePause{By: harp.Principal{Kind: "caller", Name: "ops"}, Reason: "freeze", Since: beforeDST}
	s.LastBatch = batchID
	got := schedules(t, f, "show", "s", "--time", "iso")
	for _, line := range []string{
		"when 30 2 * * *", "zone Europe/Madrid", "next paused", "paused by caller ops at 2027-03-26T12:00:00.000Z: freeze", "last batch " + batchID,
		"overlap queue", "target demo*", "procedure count", `args {"to":3}`, "max exec time none",
	} {
		if !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(l string) bool { return strings.Join(strings.Fields(l), " ") == line }) {
			t.Errorf("%q is not in\n%s", line, got.stdout)
		}
	}
	for format, want := range map[string]string{
		"json":                              `"request":{"target":"demo*","procedure":"count","args":{"to":3}`,
		"yaml":                              "max_exec_time: none",
		"template={{.name}} {{.next.wall}}": "s Sat 2027-03-27 02:30 CET",
	} {
		if got := schedules(t, f, "show", "s", "-o", format); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Error(format, got)
		}
	}
	if got := schedules(t, f, "ls"); !strings.Contains(got.stdout, "s     30 2 * * *  Europe/Madrid  count      demo*   paused") {
		t.Error(got.stdout)
	}
	if got := schedules(t, f, "ls", "-o", "id"); got.stdout != "s\n" {
		t.Error(got.stdout)
	}
}

// TestScheduleShowsWhatARunDoes: a dry run, further steps and all else that decides what a run does are seen.
func TestScheduleShowsWhatARunDoes(t *testing.T) {
	f := scheduling(t)
	addMadrid(
		t, f, "30 2 * * *", "--shuffle", "--rate", "10/1m", "--queue", "db=1", "--queue-per-host", "--concurrency", "2", "--priority", "7",
		"--retry", "lost,failed", "--attempts", "4", "--backoff", "2s", "--info", "812",
	)
	r := &f.schedules.all[0].Request
	r.DryRun, r.Retry.MaxBackoff, r.Batch.Drift, r.Batch.RebootWait, r.Batch.EachStep = true, time.Minute, "config", 5*time.Minute, true
	r.Batch.Then = []harp.ChainStep{
		{Procedure: "restart"},
		{Procedure: "tell", On: harp.OnFailed, Args: r.Args, MaxExecTime: time.Minute, Retry: harp.RetryPolicy{Attempts: 1}},
	}
	got := schedules(t, f, "show", "s")
	for _, line := range []string{
		"dry run yes", "drift config", "then restart if succeeded", `then tell if failed, args {"to":3}, max exec time 1m, retry never`, "reboot wait 5m", "each step yes",
		"shuffle yes", "rate 10 in 1m", "queue per host yes", "concurrency 2", "priority 7", "retry if lost or failed, 4 attempts, backoff 2s, at most 1m", "info 812",
	} {
		if !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(l string) bool { return strings.Join(strings.Fields(l), " ") == line }) {
			t.Errorf("%q is not in\n%s", line, got.stdout)
		}
	}
}

// TestCompleteSchedules: names of schedules, and behind a new name what harp run takes.
func TestCompleteSchedules(t *testing.T) {
	f := scheduling(t)
	addMadrid(t, f, "@daily")
	for args, want := range map[string]string{
		"show ":                          "s\t@daily: count on demo*",
		"history ":                       "s\t@daily: count on demo*",
		"add new demo":                   "demo1",
		"add new demo1 c":                "count",
		"pause s --until ":               ":",
		"add new demo1 count --overlap ": "cancel-old",
	} {
		words := strings.Split(args, " ")
		if got := runFake(t, t.Context(), f, nil, append([]string{"__complete", "schedule"}, words...)...); !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %q", args, got.stdout)
		}
	}
}
