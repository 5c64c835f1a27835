package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// local makes times of day the same wherever the tests run.
func local(t *testing.T) {
	was := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = was })
}

func onTerminal(c *cli) { c.terminal = true }

func TestCall(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3", "--queue", "host=web01",
		"--concurrency", "2", "--priority", "-5", "--timeout", "1m", "--max-exec-time", "none", "--label", "a=b",
		"--info", `{"ticket":812}`, "--when-offline", "fail", "--id", secondID)
	want := said{
		stdout: "{\"i\":1}\nout\x1b[2J\nput\n\"a\\u009b text\"\n{\"counted\":3}\n",
		stderr: "job " + secondID + " on demo1\n",
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r := f.submitted[0]
	if r.ID != secondID || r.Queue.String() != `{"host":"web01"}` || r.Concurrency != 2 || r.Priority != -5 ||
		r.SilenceTimeout != time.Minute || r.MaxExecTime != harp.NoLimit || r.Labels["a"] != "b" ||
		r.Info.String() != `{"ticket":812}` || r.WhenOffline != harp.FailFast || r.Args.String() != `{"to":3}` {
		t.Errorf("asked for %+v", r)
	}
}

func TestCallOnATerminal(t *testing.T) {
	local(t)
	got := runFake(t, t.Context(), ended(t, nil), onTerminal, "call", "demo1", "count", "to=3")
	want := "12:00:00.000 #0 {\"i\":1}\n" +
		"12:00:00.000 #1 out out\\x1b[2J\n" +
		"12:00:00.000 #1 out put\n" +
		"12:00:00.000 #2 \"a\\u009b text\"\n" +
		"{\"counted\":3}\n"
	if got.stdout != want {
		t.Errorf("printed %q, want %q", got.stdout, want)
	}
}

func TestCallDetached(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "call", "-d", "demo1", "count", "to=3")
	if want := (said{stdout: f.submitted[0].ID + "\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCallAsJSON(t *testing.T) {
	got := runFake(t, t.Context(), ended(t, nil), nil, "call", "demo1", "count", "to=3", "-o", "json")
	if got.code != 0 || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	var job map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &job); err != nil || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%q is not one line of JSON: %v", got.stdout, err)
	}
	for _, name := range []string{
		"v", "id", "host", "procedure", "args", "state", "reason", "started",
		"submit_time", "start_time", "end_time", "attempt", "records", "principal", "value",
	} {
		if _, ok := job[name]; !ok {
			t.Errorf("%s is missing in %s", name, got.stdout)
		}
	}
	if job["v"] != 1.0 || job["id"] != firstID || job["submit_time"] != "2026-01-31T12:00:00Z" || job["value"].(map[string]any)["counted"] != 3.0 {
		t.Errorf("printed %s", got.stdout)
	}
}

func TestCallFails(t *testing.T) {
	f := ended(t, &harp.RemoteError{Type: "oops", Message: "no"})
	got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3")
	if got.code != 1 || !strings.Contains(got.stderr, "failed (it ran): oops: no; job ") {
		t.Errorf("got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "job", "get", firstID, "-o", "json")
	if got.code != 1 || !strings.Contains(got.stdout, `"error":{"code":"remote","type":"oops"`) || !strings.Contains(got.stdout, `"value":null`) {
		t.Errorf("got %+v", got)
	}
}

func TestCallIsCheckedBeforeAnythingIsSent(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"call", "demo1", "count", "to=many"}, 2},
		{[]string{"call", "demo1", "count"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--queue", "web01"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--timeout", "0"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--concurrency", "0"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--when-offline", "cry"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--label", "x"}, 2},
		{[]string{"call", "demo1", "count", "to=1", "--id", "x"}, 2},
		{[]string{"call", "demo1"}, 2},
		{[]string{"call", "nope", "count", "to=1"}, 5},
		{[]string{"call", "demo1", "nope"}, 5},
	} {
		f := ended(t, nil)
		got := runFake(t, t.Context(), f, nil, test.args...)
		if got.code != test.code || got.stdout != "" || got.stderr == "" || len(f.submitted) > 0 {
			t.Errorf("%q: got %+v and %d calls, want exit code %d and none", test.args, got, len(f.submitted), test.code)
		}
	}
}

func TestCallOfAHostThatHasNotSpoken(t *testing.T) {
	f := ended(t, nil)
	f.hosts = []harp.HostStatus{{Name: "new"}}
	f.procedures = nil
	if got := runFake(t, t.Context(), f, nil, "call", "-d", "new", "whatever", "n=5"); got.code != 0 || f.submitted[0].Args.String() != `{"n":5}` {
		t.Errorf("got %+v", got)
	}
}

func TestCallThatIsRefused(t *testing.T) {
	f := ended(t, nil)
	f.submitErr = failures.New("refused", "the cap is 1m").Err()
	if got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3"); got.code != 6 || !strings.Contains(got.stderr, "did not run") {
		t.Errorf("got %+v", got)
	}
}

func TestInterrupted(t *testing.T) {
	for _, test := range []struct {
		args []string
		hint string
	}{
		{[]string{"call", "demo1", "count", "to=3", "--id", secondID}, "detached at #2; job " + secondID + " goes on. Resume with: harp job follow " + secondID + " --since 3\n"},
		{[]string{"job", "follow", firstID, "--since", "0"}, "detached at #2; job " + firstID + " goes on. Resume with: harp job follow " + firstID + " --since 3\n"},
		{[]string{"job", "get", firstID}, "detached; job " + firstID + " goes on. Resume with: harp job get " + firstID + "\n"},
		{[]string{"job", "wait", firstID}, "detached; job " + firstID + " goes on. Resume with: harp job wait " + firstID + "\n"},
	} {
		f := ended(t, nil)
		f.wait = true
		ctx, cancel := context.WithCancel(t.Context())
		f.waiting = cancel
		got := runFake(t, ctx, f, nil, test.args...)
		if got.code != 130 || !strings.HasSuffix(got.stderr, test.hint) || len(f.cancelled) > 0 {
			t.Errorf("%q: got %+v, want %q", test.args, got, test.hint)
		}
	}
}

func TestInterruptedToCancel(t *testing.T) {
	f := ended(t, failures.New("cancelled", "").Err())
	f.wait = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCLI(nil, io.Discard, io.Discard, func(string) string { return "" })
	job := harp.NewCaller(f).Job(firstID)
	on, stop := c.cancelInstead(ctx, "job "+job.ID(), func(ctx context.Context) error {
		_, err := job.Cancel(ctx)
		return err
	})
	stop()
	if on.Err() != nil || len(f.cancelled) != 1 {
		t.Errorf("the job was cancelled %d times, and its wait ended with %v", len(f.cancelled), on.Err())
	}
}

func TestFollow(t *testing.T) {
	text := "{\"i\":1}\nout\x1b[2J\nput\n\"a\\u009b text\"\n"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--since", "0"}, text},
		{[]string{"--since", "2"}, "\"a\\u009b text\"\n"},
		{nil, text},
		{[]string{"--tail", "0"}, ""},
		{[]string{"--no-wait"}, text},
		{[]string{"--since", "2", "-o", "jsonl"}, `{"seq":2,"attempt":1,"time":"2026-01-31T12:00:00Z","kind":"data","value":"a\u009b text"}` + "\n"},
		{[]string{"--since", "2", "-o", "json"}, `{"v":1,"records":[{"seq":2,"attempt":1,"time":"2026-01-31T12:00:00Z","kind":"data","value":"a\u009b text"}]}` + "\n"},
		{[]string{"--since", "3", "-o", "json"}, `{"v":1,"records":[]}` + "\n"},
	} {
		got := runFake(t, t.Context(), ended(t, nil), nil, append([]string{"job", "follow", firstID}, test.args...)...)
		if want := (said{stdout: test.want}); got != want {
			t.Errorf("%q: got %+v, want %+v", test.args, got, want)
		}
	}
	if got := runFake(t, t.Context(), ended(t, nil), nil, "job", "follow", firstID, "--since", "1", "--tail", "1"); got.code != 2 {
		t.Errorf("since with tail: got %+v", got)
	}
}

// What follow leaves out is told; of a job that has ended it leaves out nothing unasked.
func TestFollowTellsWhatItLeavesOut(t *testing.T) {
	for _, test := range []struct {
		args  []string
		state harp.State
		want  said
	}{
		{nil, harp.StateSucceeded, said{stdout: linesFrom(0)}},
		{[]string{"--tail", "3"}, harp.StateSucceeded, said{stdout: linesFrom(37), stderr: "37 earlier records left out; --since 0 shows them\n"}},
		{[]string{"--since", "38"}, harp.StateSucceeded, said{stdout: linesFrom(38)}},
		{nil, harp.StateRunning, said{stdout: linesFrom(30), stderr: "30 earlier records left out; --since 0 shows them\n"}},
		{[]string{"-q"}, harp.StateRunning, said{stdout: linesFrom(30)}},
	} {
		records := make([]harp.Record, 40)
		for i := range records {
			records[i] = record(t, harp.KindStdout, strconv.Itoa(i), false)
		}
		f := printed(t, records...)
		f.jobs[0].State = test.state
		if got := runFake(t, t.Context(), f, nil, append([]string{"job", "follow", firstID}, test.args...)...); got != test.want {
			t.Errorf("%q: got %+v, want %+v", test.args, got, test.want)
		}
	}
}

func linesFrom(n int) (text string) {
	for i := n; i < 40; i++ {
		text += strconv.Itoa(i) + "\n"
	}
	return text
}

func TestHowAJobEndedIsSaidByAll(t *testing.T) {
	f := ended(t, &harp.TimeoutError{Limit: time.Minute, Of: harp.LimitSilenceTimeout})
	for _, verb := range []string{"follow", "get", "wait"} {
		if got := runFake(t, t.Context(), f, nil, "job", verb, firstID); got.code != 124 || !strings.Contains(got.stderr, "no record for 1m0s") {
			t.Errorf("%s: got %+v", verb, got)
		}
	}
}

func TestJobByBeginningLastAndStdin(t *testing.T) {
	f := ended(t, nil)
	second := f.jobs[0]
	second.ID = secondID
	f.jobs = append(f.jobs, second)
	f.results[secondID] = f.results[firstID]
	stdin := func(c *cli) { c.stdin = strings.NewReader(secondID + "\n") }
	for _, test := range []struct {
		word   string
		change func(*cli)
		code   int
		id     string
	}{
		{firstID, nil, 0, firstID},
		{"last", nil, 0, firstID},
		{"-", stdin, 0, secondID},
		{"-", nil, 2, ""},
		{secondID[:35], nil, 2, ""},
		{"019c13e9", nil, 5, ""},
		{"web01", nil, 2, ""},
	} {
		got := runFake(t, t.Context(), f, test.change, "job", "show", test.word, "-o", "json")
		if got.code != test.code || test.id != "" && !strings.Contains(got.stdout, `"id":"`+test.id+`"`) {
			t.Errorf("%s: got %+v", test.word, got)
		}
	}
	f.jobs = f.jobs[:1]
	if got := runFake(t, t.Context(), f, nil, "job", "show", "019c"); got.code != 0 || !strings.Contains(got.stdout, firstID) {
		t.Errorf("a beginning: got %+v", got)
	}
}

// A job that has ended may have ended by this very cancel, asked for again as its answer was
// lost.
func TestJobCancelSaysHowItHasEnded(t *testing.T) {
	f := ended(t, nil)
	for _, state := range []harp.State{harp.StateSucceeded, harp.StateCancelled} {
		f.jobs[0].State = state
		got := runFake(t, t.Context(), f, nil, "job", "cancel", firstID)
		if want := (said{stderr: "job " + firstID + " already ended: " + string(state) + "\n"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	f.jobs[0].State = harp.StateRunning
	got := runFake(t, t.Context(), f, nil, "job", "cancel", firstID, "-o", "json")
	if want := (said{stdout: `{"v":1,"id":"` + firstID + `","cancelled":true}` + "\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// How a job ended is known though its status cannot be had any more.
func TestJobWaitThoughItsStatusCannotBeHad(t *testing.T) {
	for code, err := range map[int]error{0: nil, 1: failures.New("remote", "it broke").Err()} {
		f := ended(t, err)
		f.statusErr = harp.ErrUnavailable
		if got := runFake(t, t.Context(), f, nil, "job", "wait", firstID); got.code != code {
			t.Errorf("%v: got %+v", err, got)
		}
	}
}

func TestJobWithProcessesThatOutliveKill(t *testing.T) {
	local(t)
	f := ended(t, nil)
	f.jobs[0].State, f.jobs[0].Survivors = harp.StateCancelling, []int{11, 12}
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID); !strings.Contains(got.stdout, "\noutlive KILL  11 12\n") {
		t.Errorf("it printed\n%s%s", got.stdout, got.stderr)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID, "-o", "json"); !strings.Contains(got.stdout, `"survivors":[11,12]`) {
		t.Errorf("it printed\n%s%s", got.stdout, got.stderr)
	}
}

func TestJobCancelNow(t *testing.T) {
	f := ended(t, nil)
	f.jobs[0].State = harp.StateCancelling
	if got := runFake(t, t.Context(), f, nil, "job", "cancel", firstID); got.code != 0 || len(f.killed) > 0 {
		t.Errorf("without --now: got %+v, killed %v", got, f.killed)
	}
	got := runFake(t, t.Context(), f, nil, "job", "cancel", firstID, "--now")
	if want := (said{stderr: "job " + firstID + ": cancellation requested, without a grace\n"}); got != want || len(f.killed) != 1 || f.killed[0] != firstID {
		t.Errorf("got %+v, want %+v, killed %v", got, want, f.killed)
	}
	f.jobs[0].CancelRequested = &harp.CancelRequest{By: harp.Principal{Kind: "user", Name: "ada"}, Time: f.jobs[0].SubmitTime, Now: true}
	if got := runFake(t, t.Context(), f, nil, "job", "show", firstID); !strings.Contains(got.stdout, "user ada at 2026-01-31 12:00:00Z, without a grace") {
		t.Errorf("got %+v", got)
	}
}

func TestTables(t *testing.T) {
	local(t)
	f := ended(t, nil)
	f.jobs[0].Procedure = "evil\x1b[2J"
	f.hosts = append(f.hosts, harp.HostStatus{Name: "web02", Address: "10.0.0.2:7442", Labels: map[string]string{"role": "web", "env": "prod"}, Error: "dial: refused"})
	f.queues = []harp.QueueStatus{{Name: value(t, map[string]any{"host": "web01"}), Concurrency: 3, Running: 3, Waiting: 7}}
	for _, test := range []struct {
		args string
		want string
	}{
		{"job ls", `ID                                    STATE      HOST   PROCEDURE    SUBMITTED             DURATION
019c13e8-0000-7000-8000-000000000001  succeeded  demo1  evil\x1b[2J  2026-01-31 12:00:00Z  1.5s
`},
		{"job show " + firstID, `id         019c13e8-0000-7000-8000-000000000001
host       demo1
procedure  evil\x1b[2J
args       {"to":3}
state      succeeded
started    yes
submitted  2026-01-31 12:00:00Z
began      2026-01-31 12:00:01Z
ended      2026-01-31 12:00:02Z
duration   1.5s
attempt    1
records    3
`},
		{"host ls", `NAME   ONLINE  PROCEDURES  LABELS             LAST HEARD            PROBLEM
demo1  yes     2                              2026-01-31 12:00:00Z
web02  no      0           env=prod,role=web                        dial: refused
`},
		{"host show web02", `name     web02
online   no
address  10.0.0.2:7442
problem  dial: refused
labels   env=prod, role=web
`},
		{"host refresh", "2 hosts in the registry\n"},
		{"queue ls", `NAME              CONCURRENCY  RUNNING  WAITING  PAUSED
{"host":"web01"}  3            3        7
`},
		{"queue show host=web01", `name         {"host":"web01"}
concurrency  3
running      3
waiting      7
`},
		{"queue cancel host=web01", "cancellation requested for 10 jobs\n"},
		{"proc ls", `PROCEDURE  ARGUMENTS     SUMMARY                          HOSTS
count      to= [every=]  Count up, one record per number  demo1
hello      [name=]       Greet somebody                   demo1
`},
		{"proc show demo1 count", `procedure   count
summary     Count up, one record per number
hosts       demo1
idempotent  yes

record: {i: integer}

result: {counted: integer}

ARGUMENT  TYPE                MEANING
to        integer   required  how far to count, from 1
every     duration  optional  how long to wait before each number

example: harp call demo1 count to=1
`},
	} {
		got := runFake(t, t.Context(), f, nil, strings.Fields(test.args)...)
		if want := (said{stdout: test.want}); got != want {
			t.Errorf("%s printed\n%s\nwant\n%s\nwith %q and exit code %d", test.args, got.stdout, test.want, got.stderr, got.code)
		}
	}
}

func TestListsAsJSON(t *testing.T) {
	f := ended(t, nil)
	for command, name := range map[string]string{"job ls": "jobs", "host ls": "hosts", "proc ls": "procedures", "queue ls": "queues"} {
		got := runFake(t, t.Context(), f, nil, append(strings.Fields(command), "-o", "json")...)
		var list map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != 0 {
			t.Errorf("%s: got %+v, %v", command, got, err)
			continue
		}
		if _, isList := list[name].([]any); len(list) != 2 || list["v"] != 1.0 || !isList {
			t.Errorf("%s printed %s", command, got.stdout)
		}
	}
}

func TestJobListFilters(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "job", "ls", "--host", "demo1", "--proc", "count", "--state", "failed,lost",
		"--queue", "a=b", "--label", "k=v", "--since", "2026-01-31T00:00:00Z", "--until", "1h")
	if got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	if q, err := harp.QueueName(f.filter.Queue); err != nil || q.String() != `{"a":"b"}` ||
		f.filter.Host != "demo1" || f.filter.Procedure != "count" || len(f.filter.States) != 2 ||
		f.filter.Labels["k"] != "v" || f.filter.Since.IsZero() || f.filter.Until.IsZero() {
		t.Errorf("asked for %+v", f.filter)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "ls", "--state", "asleep"); got.code != 2 {
		t.Errorf("an unknown state: got %+v", got)
	}
	second := f.jobs[0]
	f.jobs = append(f.jobs, second)
	if got := runFake(t, t.Context(), f, nil, "job", "ls", "-n", "1"); !strings.Contains(got.stderr, "there are more") {
		t.Errorf("with a limit: got %+v", got)
	}
}

func TestStateText(t *testing.T) {
	for _, test := range []struct {
		job  harp.JobStatus
		want string
	}{
		{harp.JobStatus{State: harp.StateQueued, Reason: harp.ReasonQueue}, "queued (queue)"},
		{harp.JobStatus{State: harp.StateExpired, Reason: harp.ReasonOffline}, "unreachable"},
		{harp.JobStatus{State: harp.StateExpired}, "expired"},
		{harp.JobStatus{State: harp.StateUnknown, UnknownOf: harp.StateRunning}, "unknown (was running)"},
		{harp.JobStatus{State: "of_tomorrow"}, "of_tomorrow"},
	} {
		if got := stateText(test.job); got != test.want {
			t.Errorf("state of %+v is %q, want %q", test.job, got, test.want)
		}
	}
}

// A disk that is full is not success.
func TestStdoutThatCannotBeWritten(t *testing.T) {
	full := errors.New("no space left on device")
	got := runFake(t, t.Context(), ended(t, nil), func(c *cli) { c.stdout.w = failing{full} }, "job", "ls")
	if got.code != 125 || !strings.Contains(got.stderr, full.Error()) {
		t.Errorf("got %+v", got)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestIDsAreNotCut: where a terminal has no room, ids in any column are their last characters, which
// commands take, and never cut to what names nothing.
func TestIDsAreNotCut(t *testing.T) {
	c := newCLI(nil, io.Discard, io.Discard, func(string) string { return "" })
	var out strings.Builder
	c.stdout.w, c.terminal, c.size = &out, true, func() (int, int) { return 50, 20 }
	long := strings.Repeat("x", 60)
	member := "019c13e8-0000-8000-8000-0000000000ab"
	err := printList(c, listing[string]{
		name: "things", header: []string{"host", "job", "error", "batch"}, id: func(s string) string { return s },
		row: func(s string) []string { return []string{s, member, long, firstID} },
	}, []string{"web01"})
	if want := "web01  000000ab  xx"; err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "  "+firstID[len(firstID)-8:]+"\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if len([]rune(strings.TrimSuffix(line, "\n"))) > 50 {
			t.Errorf("too wide: %s", line)
		}
	}
	out.Reset()
	p := eventPrinter{cli: c}
	if err := p.printEvent(harp.Event{Type: harp.EventBatchWave, Job: member, Batch: firstID}); err != nil || !strings.Contains(out.String(), "job=000000ab batch="+firstID[len(firstID)-8:]) {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	c.terminal = false
	if err := p.printEvent(harp.Event{Type: harp.EventBatchWave, Job: member}); err != nil || !strings.Contains(out.String(), "job="+member) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestResultsOfSeveralLines: the line break at the end of a text is no line of its own.
func TestResultsOfSeveralLines(t *testing.T) {
	c := newCLI(nil, io.Discard, io.Discard, func(string) string { return "" })
	var out strings.Builder
	c.stdout.w = &out
	for _, text := range []string{"one\n", "one\ntwo\n", "one\n\n"} {
		v, err := harp.NewValue(text)
		if err != nil {
			t.Fatal(err)
		}
		printHosts(c, "web01", v)
	}
	if want := "web01: one\nweb01:\n  one\n  two\nweb01:\n  one\n  \n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
