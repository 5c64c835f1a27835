package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store/badger"
)

// What the flags of a call say of further attempts and of calling again reaches the
// dispatcher.
func TestCallFlagsOfRetries(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "call", "-d", "demo1", "hello", "name=Ada",
		"--retry", "lost,failed", "--attempts", "5", "--backoff", "2s", "--idempotency-key", "k", "--idempotency-ttl", "1d")
	if got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	r := f.submitted[0]
	want := harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed}, Attempts: 5, Backoff: 2 * time.Second}
	if !reflect.DeepEqual(r.Retry, want) || r.IdempotencyKey != "k" || r.IdempotencyTTL != 24*time.Hour {
		t.Errorf("submitted %+v", r)
	}
	if got := runFake(t, t.Context(), f, nil, "call", "-d", "demo1", "hello", "name=Ada", "--idempotency-key", "k"); got.code != 0 || f.submitted[1].IdempotencyTTL != keyTTL {
		t.Errorf("with a key alone: %+v, submitted %+v", got, f.submitted[1])
	}
	for _, flags := range []string{"--retry cancelled", "--attempts 101", "--backoff 0s", "--idempotency-key=", "--idempotency-ttl 1m", "--idempotency-key k --idempotency-ttl 31d"} {
		args := append([]string{"call", "-d", "demo1", "hello", "name=Ada"}, strings.Fields(flags)...)
		if got := runFake(t, t.Context(), f, nil, args...); got.code != exitUsage || len(f.submitted) != 2 {
			t.Errorf("%s: got %+v", flags, got)
		}
	}
}

// Flags of a repetition go over what the first call said, and only those that are
// given.
func TestJobRetry(t *testing.T) {
	f := ended(t, nil)
	first := harp.Request{
		ID: firstID, Host: "demo1", Procedure: "count", Args: value(t, map[string]any{"to": 3}), Priority: 7, SilenceTimeout: time.Minute,
		WhenOffline: harp.FailFast, Labels: map[string]string{"a": "b"}, IdempotencyKey: "k", IdempotencyTTL: time.Minute,
	}
	f.feed.requests = map[string]harp.Request{firstID: first}
	got := runFake(t, t.Context(), f, nil, "job", "retry", firstID, "-d", "--id", secondID, "--timeout", "5m", "--label", "c=d")
	if want := (said{stdout: secondID + "\n"}); got != want {
		t.Fatalf("got %+v", got)
	}
	want := first
	want.ID, want.RetryOf, want.SilenceTimeout, want.IdempotencyKey, want.IdempotencyTTL = secondID, firstID, 5*time.Minute, "", 0
	want.Labels = map[string]string{"a": "b", "c": "d"}
	if r := f.submitted[0]; !reflect.DeepEqual(r, want) {
		t.Errorf("submitted\n%+v, want\n%+v", r, want)
	}
	got = runFake(t, t.Context(), f, nil, "job", "retry", firstID, "--priority", "0", "--when-offline", "wait")
	if r := f.submitted[1]; got.code != 0 || r.Priority != 0 || r.WhenOffline != harp.WaitForHost {
		t.Errorf("got %+v, submitted %+v", got, r)
	}
	if !strings.Contains(got.stderr, "repeats "+firstID) || !strings.Contains(got.stdout, `{"counted":3}`) {
		t.Errorf("got %+v", got)
	}
	f.submitErr = failures.New("conflict", "the job has not ended").Err()
	if got = runFake(t, t.Context(), f, nil, "job", "retry", firstID); got.code != exitUsage || !strings.Contains(got.stderr, "did not run") {
		t.Errorf("of a job that runs: got %+v", got)
	}
	if got = runFake(t, t.Context(), f, nil, "job", "retry", secondID[:35]+"9"); got.code != exitNotFound {
		t.Errorf("of no job: got %+v", got)
	}
}

func TestForceLost(t *testing.T) {
	f := ended(t, nil)
	if got := runFake(t, t.Context(), f, nil, "job", "force-lost", firstID); got.code != exitUsage || len(f.feed.forced) > 0 {
		t.Errorf("without a reason: got %+v", got)
	}
	got := runFake(t, t.Context(), f, nil, "job", "force-lost", firstID, "--reason", "the rack burned")
	if got.code != 0 || f.feed.forced[firstID] != "the rack burned" || !strings.Contains(got.stderr, "given up") {
		t.Errorf("got %+v, %v", got, f.feed.forced)
	}
	if got = runFake(t, t.Context(), f, nil, "job", "force-lost", firstID, "--reason", "x", "-o", "json"); got.stdout != `{"v":1,"id":"`+firstID+`","state":"lost"}`+"\n" {
		t.Errorf("got %+v", got)
	}
}

// A job tells its attempts, why and since when nothing is known, and what came late.
func TestShowAttempts(t *testing.T) {
	local(t)
	f := ended(t, nil)
	f.jobs[0] = harp.JobStatus{
		ID: firstID, Host: "demo1", Procedure: "count", State: harp.StateUnknown, UnknownOf: harp.StateRunning, Since: noon,
		SubmitTime: noon, Attempt: 2, RetryOf: secondID, DuplicatePossible: true,
		Late: &harp.Result{State: harp.StateFailed, Value: value(t, 7), Err: errors.New("harp: boom")},
		Attempts: []harp.Attempt{
			{Number: 1, Sent: noon, Started: noon.Add(time.Second), Ended: noon.Add(2 * time.Second), Outcome: "lost", Reason: "journal_gone"},
			{Number: 2, Sent: noon.Add(3 * time.Second), Base: 5},
		},
	}
	got := runFake(t, t.Context(), f, nil, "job", "show", firstID)
	if want := `id         019c13e8-0000-7000-8000-000000000001
host       demo1
procedure  count
state      unknown (was running)
since      2026-01-31 12:00:00Z
submitted  2026-01-31 12:00:00Z
attempt    2
retry of   019c13e8-0000-7000-8000-000000000002
late       failed, returned 7: boom
records    0

An attempt was lost with its agent's journal and another followed: it may have run more than once.

ATTEMPT  SENT                  BEGAN                 ENDED                 OUTCOME              FROM RECORD
1        2026-01-31 12:00:00Z  2026-01-31 12:00:01Z  2026-01-31 12:00:02Z  lost (journal_gone)  0
2        2026-01-31 12:00:03Z                                                                   5
`; got.stdout != want {
		t.Errorf("printed\n%s\nwant\n%s", got.stdout, want)
	}
}

// A job that waits between two attempts tells how the last one ended.
func TestShowTheAttemptOfAJobThatWaits(t *testing.T) {
	local(t)
	f := ended(t, nil)
	f.jobs[0].State, f.jobs[0].Reason, f.jobs[0].Since = harp.StateQueued, harp.ReasonBackoff, noon
	f.jobs[0].Attempts = []harp.Attempt{{Number: 1, Sent: noon, Outcome: "failed"}}
	got := runFake(t, t.Context(), f, nil, "job", "show", firstID)
	if !strings.Contains(got.stdout, "queued (backoff)") || !strings.Contains(got.stdout, "OUTCOME") || !strings.Contains(got.stdout, " failed ") {
		t.Errorf("printed\n%s", got.stdout)
	}
}

func TestQueueChanges(t *testing.T) {
	f := ended(t, nil)
	f.queues = []harp.QueueStatus{{Name: value(t, map[string]any{"host": "web01"}), Concurrency: 1}}
	for args, want := range map[string]string{
		"queue pause host=web01":                     `{"v":1,"name":{"host":"web01"},"paused":true}`,
		"queue unpause host=web01":                   `{"v":1,"name":{"host":"web01"},"paused":false}`,
		"queue set --concurrency 4 host=web01":       `{"v":1,"name":{"host":"web01"},"concurrency":4}`,
		`queue set {"host":"web01"} --concurrency 5`: `{"v":1,"name":{"host":"web01"},"concurrency":5}`,
	} {
		f.feed.changes = nil
		got := runFake(t, t.Context(), f, nil, append(strings.Fields(args), "-o", "json")...)
		if got.stdout != want+"\n" || len(f.feed.changes) != 1 {
			t.Errorf("%s: got %+v, %+v", args, got, f.feed.changes)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "queue", "pause", "host=web01"); !strings.Contains(got.stderr, `queue {"host":"web01"} will start no more jobs`) {
		t.Errorf("got %+v", got)
	}
	f.feed.changes = nil
	runFake(t, t.Context(), f, nil, "queue", "pause", "host=web01", "--reason", "new disk", "--until", "2027-03-27T00:00:00Z")
	want := []harp.QueueChange{{Paused: new(true), Reason: "new disk", Until: time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)}}
	if !reflect.DeepEqual(f.feed.changes, want) {
		t.Errorf("got %+v, want %+v", f.feed.changes, want)
	}
	for args, want := range map[string]int{
		"queue pause host=web01 --until soon":       exitUsage,
		"queue pause host=web01 --until 2400-01-01": exitUsage,
		"queue unpause host=web01 --until 2h":       exitUsage,
		"queue set host=web01":                      exitUsage,
		"queue set --concurrency -1 host=web01":     exitUsage,
		"queue pause nonsense":                      exitUsage,
		"queue unpause host=web02":                  exitNotFound,
		"queue set --concurrency 2 host=web02":      exitNotFound,
	} {
		if got := runFake(t, t.Context(), f, nil, strings.Fields(args)...); got.code != want {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

// TestQueuePause: a queue that is paused is shown with what is known of that.
func TestQueuePause(t *testing.T) {
	local(t)
	f := ended(t, nil)
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for want, p := range map[string]*harp.QueuePause{
		"by ada at 2026-01-31 12:00:00Z: new disk; until 2026-01-31 13:00:00Z": {By: harp.Principal{Name: "ada"}, Reason: "new disk", Since: noon, Until: noon.Add(time.Hour)},
		"by caller ada at 2026-01-31 12:00:00Z":                                {By: harp.Principal{Kind: "caller", Name: "ada"}, Since: noon},
		"yes":                                                                  {},
	} {
		f.queues = []harp.QueueStatus{{Name: value(t, map[string]any{"host": "web01"}), Concurrency: 1, Paused: true, Pause: p}}
		if got := runFake(t, t.Context(), f, nil, "queue", "ls"); !strings.HasSuffix(got.stdout, "  0        "+want+"\n") {
			t.Errorf("%s: got %+v", want, got)
		}
		if got := runFake(t, t.Context(), f, nil, "queue", "show", "host=web01"); !strings.HasSuffix(got.stdout, "\npaused       "+want+"\n") {
			t.Errorf("%s: got %+v", want, got)
		}
	}
}

func TestPrune(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "prune", "--older-than", "90d")
	if age := time.Since(f.feed.before); got.stdout != "1 job deleted\n" || age < 90*24*time.Hour || age > 90*24*time.Hour+time.Minute {
		t.Errorf("got %+v, before %v", got, f.feed.before)
	}
	if got = runFake(t, t.Context(), f, nil, "prune", "--older-than", "2026-01-31T12:00:00Z", "-o", "json"); got.stdout != `{"v":1,"pruned":1,"ended_before":"2026-01-31T12:00:00Z"}`+"\n" {
		t.Errorf("got %+v", got)
	}
	if got = runFake(t, t.Context(), f, nil, "prune"); got.code != exitUsage {
		t.Errorf("without a time: got %+v", got)
	}
}

func TestEventFollow(t *testing.T) {
	local(t)
	f := ended(t, nil)
	f.feed.events = []harp.Event{
		{Cursor: "7", Time: noon, Type: harp.EventHostAway, Host: "web01", Reason: "no answer\x1b[2J"},
		{
			Cursor: "8", Time: noon, Type: harp.EventJobLost, Job: firstID, Host: "web01", Procedure: "p", Queue: value(t, map[string]any{"q": 1}),
			State: harp.StateLost, Reason: harp.LostForced, Attempt: 2, By: harp.Principal{Kind: "caller", Name: "ci"}, Labels: map[string]string{"a": "b"},
		},
	}
	got := runFake(t, t.Context(), f, nil, "event", "follow", "--after", "start", "--type", "job.*,host.away", "--job", firstID, "--host", "web01")
	want := "2026-01-31 12:00:00Z  host.away           " + `host=web01 reason="no answer\x1b[2J"` + "\n" +
		"2026-01-31 12:00:00Z  job.lost            " + `job=` + firstID + ` host=web01 proc=p queue={"q":1} attempt=2 reason=forced by="caller ci" labels=a=b` + "\n"
	if got.stdout != want || got.code != exitNotFound { // the fake keeps nothing after its end
		t.Errorf("got %+v, want\n%s", got, want)
	}
	if want := (harp.EventFilter{After: "start", Types: []string{"job.*", "host.away"}, Job: firstID, Host: "web01"}); !reflect.DeepEqual(f.feed.selected, want) {
		t.Errorf("asked for %+v", f.feed.selected)
	}
	got = runFake(t, t.Context(), f, nil, "event", "follow", "-o", "jsonl")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	var e map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || len(lines) != 2 || e["cursor"] != "8" || e["job"] != firstID {
		t.Errorf("printed %s", got.stdout)
	}
	if got = runFake(t, t.Context(), f, nil, "event", "follow", "-o", "json"); got.code != exitUsage {
		t.Errorf("as one object: got %+v", got)
	}
}

// Who stops following is told where to go on.
func TestEventFollowInterrupted(t *testing.T) {
	for _, test := range []struct {
		events []harp.Event
		args   []string
		want   string
	}{
		{[]harp.Event{{Cursor: "7"}, {Cursor: "8"}}, nil, "stopped after 8. Resume with: harp event follow --after 8\n"},
		{nil, []string{"--after", "5"}, "stopped after 5. Resume with: harp event follow --after 5\n"},
		{nil, nil, "stopped. Resume with: harp event follow\n"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		f := ended(t, nil)
		f.feed.events, f.feed.atEnd = test.events, cancel
		got := runFake(t, ctx, f, nil, append([]string{"event", "follow"}, test.args...)...)
		if got.code != exitDetached || got.stderr != test.want {
			t.Errorf("got %+v, want %q", got, test.want)
		}
	}
}

func TestEventsWithoutWaiting(t *testing.T) {
	f := ended(t, nil)
	f.feed.events = []harp.Event{{Cursor: "7", Type: harp.EventHostAway}}
	f.feed.atEnd = func() {}
	got := runFake(t, t.Context(), f, nil, "event", "follow", "--after", "start", "--no-wait", "-o", "jsonl")
	if got.code != 0 || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("got %+v", got)
	}
}

// storeBackup is the backup of an empty store.
func storeBackup(t *testing.T) []byte {
	t.Helper()
	st, err := badger.Open(t.TempDir(), &badger.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(st.Backup(t.Context(), &b), st.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// namesIn are the files of a folder.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// A file has the backup's name only when it is a whole backup; else what was there
// stays.
func TestBackupFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b")
	f := ended(t, nil)
	f.feed.copied = storeBackup(t)
	got := runFake(t, t.Context(), f, nil, "backup", path)
	if want := (said{stdout: fmt.Sprintf("%d bytes in %s\n", len(f.feed.copied), path)}); got != want {
		t.Fatalf("got %+v", got)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, f.feed.copied) || !slices.Equal(namesIn(t, dir), []string{"b"}) {
		t.Errorf("%v, in the folder %v", err, namesIn(t, dir))
	}
	good := f.feed.copied
	for name, change := range map[string]func(){
		"cut short":  func() { f.feed.copied = good[:len(good)-1] },
		"nothing":    func() { f.feed.copied = nil },
		"lost":       func() { f.feed.copied, f.feed.backupErr = good, failures.New("unavailable", "gone").Err() },
		"not backup": func() { f.feed.copied, f.feed.backupErr = []byte("hello"), nil },
	} {
		change()
		if got := runFake(t, t.Context(), f, nil, "backup", path); got.code != exitHarp {
			t.Errorf("%s: got %+v", name, got)
		}
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, good) || !slices.Equal(namesIn(t, dir), []string{"b"}) {
			t.Errorf("%s: %v, in the folder %v", name, err, namesIn(t, dir))
		}
	}
	f.feed.copied, f.feed.backupErr = []byte("hello"), nil
	got = runFake(t, t.Context(), f, nil, "backup", path, "--no-verify", "-o", "json")
	if want := fmt.Sprintf(`{"v":1,"file":%q,"bytes":5,"verified":false}`+"\n", path); got.stdout != want {
		t.Errorf("unchecked: got %+v", got)
	}
}

func TestRestoreFile(t *testing.T) {
	dir := t.TempDir()
	path, to := filepath.Join(dir, "b"), filepath.Join(dir, "to")
	if err := os.WriteFile(path, storeBackup(t), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runFake(t, t.Context(), nil, nil, "restore", path, "--dir", to)
	if got.code != 0 || !strings.Contains(got.stdout, "lost (restored): 0") {
		t.Fatalf("got %+v", got)
	}
	for args, want := range map[string]int{
		"restore " + path + " --dir " + to:             exitUsage, // not empty
		"restore " + path + ".none --dir " + to + "2":  exitUsage,
		"restore " + path:                              exitUsage,
		"restore " + os.Args[0] + " --dir " + to + "3": exitHarp, // no backup
	} {
		if got := runFake(t, t.Context(), nil, nil, strings.Fields(args)...); got.code != want {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := restoreBackup(ctx, path, filepath.Join(dir, "never")); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
