package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// batchID is that of the batches that tests submit.
const batchID = "019c13e8-0000-7000-8000-0000000000b1"

// running has hosts demo1 and so on, and a batch on them that ends as it is given.
func running(t *testing.T, hosts int, failed ...string) *fake {
	t.Helper()
	f := ended(t, nil)
	f.every = true
	for i := 1; i < hosts; i++ {
		f.hosts = append(f.hosts, harp.HostStatus{Name: fmt.Sprintf("demo%d", i+1), Online: true, Procedures: []string{"count", "hello"}})
	}
	f.batches = batchOf(batchID, hosts, failed...)
	f.batches.preview = harp.Preview{Hosts: hosts, Digest: "d"}
	return f
}

// runBatch runs count on all hosts.
func runBatch(t *testing.T, f *fake, change func(*cli), args string) said {
	t.Helper()
	return runFake(t, t.Context(), f, change, append(strings.Fields("run demo* count to=3 --id "+batchID), strings.Fields(args)...)...)
}

func TestRunIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name      string
		hosts     int
		dangerous bool
		change    func(*cli)
		args      string
		code      int
		asked     bool
	}{
		{"nobody to ask", 3, false, nil, "", exitUsage, false},
		{"sure", 3, false, nil, "-y", exitOK, false},
		{"one host", 1, false, nil, "", exitOK, false},
		{"one host, dangerous, nobody to ask", 1, true, nil, "", exitUsage, false},
		{"yes", 3, false, typing("y\n"), "", exitOK, true},
		{"no", 3, false, typing("n\n"), "", exitUsage, true},
		{"dangerous, yes", 1, true, typing("yes\n"), "", exitOK, true},
		{"stdin is a pipe", 3, false, func(c *cli) { c.errTerminal = true }, "", exitUsage, false},
		{"only to see", 3, false, nil, "--dry-run", exitOK, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := running(t, test.hosts)
			f.batches.preview.Dangerous = test.dangerous
			got := runBatch(t, f, test.change, test.args)
			if got.code != test.code || strings.Contains(got.stderr, "Run it? [y/N]") != test.asked {
				t.Errorf("got %+v", got)
			}
			submitted := test.code == exitOK && test.args != "--dry-run"
			if (len(f.submitted) == 1) != submitted {
				t.Errorf("submitted %+v", f.submitted)
			}
			held := test.asked || test.hosts == 1 // of one host nobody is asked: it has to stay the only one
			if len(f.submitted) == 1 && (f.submitted[0].Batch.Confirmed == "d") != held {
				t.Errorf("confirmed %q", f.submitted[0].Batch.Confirmed)
			}
		})
	}
}

// What failed is called again as it was confirmed; where nobody can be asked it was already.
func TestBatchRetryIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name      string
		hosts     int
		dangerous bool
		change    func(*cli)
		args      string
		code      int
		asked     bool
	}{
		{"nobody to ask", 3, false, nil, "", exitOK, false},
		{"dangerous, nobody to ask", 3, true, nil, "", exitUsage, false},
		{"sure", 3, true, nil, "-y", exitOK, false},
		{"one host", 1, false, typing("n\n"), "", exitOK, false},
		{"yes", 3, false, typing("y\n"), "", exitOK, true},
		{"no", 3, false, typing("n\n"), "", exitUsage, true},
		{"no answer", 3, false, typing(""), "", exitUsage, true},
		{"dangerous, yes", 1, true, typing("yes\n"), "", exitOK, true},
		{"sure on a terminal", 3, false, typing(""), "-y", exitOK, false},
		{"only to see", 3, false, typing(""), "--dry-run", exitOK, false},
		{"refused", 3, false, typing("y\n"), "--max-hosts 2", exitRefused, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := running(t, test.hosts)
			f.batches.preview.Dangerous = test.dangerous
			f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Needs: []string{harp.NeedBatch}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}, Batch: harp.BatchOptions{Parallel: 1}}}
			args := append([]string{"batch", "retry", batchID, "-d"}, strings.Fields(test.args)...)
			got := runFake(t, t.Context(), f, test.change, args...)
			if got.code != test.code || strings.Contains(got.stderr, "Run it? [y/N]") != test.asked {
				t.Errorf("got %+v", got)
			}
			said := "count on " + hostCount(test.hosts) + ", 1 at a time"
			if test.dangerous && test.asked {
				said += "; count is marked dangerous"
			}
			if test.code == exitOK && test.args != "--dry-run" && !strings.HasPrefix(got.stderr, said) {
				t.Errorf("said %q, want %q", got.stderr, said)
			}
			submitted := test.code == exitOK && test.args != "--dry-run"
			if (len(f.submitted) == 1) != submitted {
				t.Errorf("submitted %+v", f.submitted)
			}
			held := test.asked || test.hosts == 1
			if len(f.submitted) == 1 && (f.submitted[0].Batch.Confirmed == "d") != held {
				t.Errorf("confirmed %q", f.submitted[0].Batch.Confirmed)
			}
		})
	}
}

// What is asked is all that matters of what is about to happen.
func TestRunSaysWhatItWillDo(t *testing.T) {
	f := running(t, 3)
	runNew := func(change func(*cli), args string) said {
		return runFake(t, t.Context(), f, change, append(strings.Fields("run demo* count to=3"), strings.Fields(args)...)...)
	}
	f.batches.preview = harp.Preview{Hosts: 512, Away: 3, Unfit: 1, Held: 2, UnfitHosts: []harp.UnfitHost{{Host: "db01", Err: failures.NotFound("procedure", "count")}}, Digest: "d"}
	got := runNew(typing("n\n"), "--parallel 50 --stop-after 5% --rolling 1,10% --when-unfit skip")
	want := "count on 512 hosts (3 away, 1 unfit, 2 held), 50 at a time, in waves up to 1, 52, 512, stop after 26 failures. Run it? [y/N] harp: aborted; nothing was run\n"
	if got != (said{stderr: want, code: exitUsage}) {
		t.Errorf("got %+v", got)
	}
	got = runNew(typing("y\n"), "")
	if got.code != exitNotFound || !strings.Contains(got.stderr, "1 host, db01; --when-unfit skip leaves them out") || len(f.submitted) > 0 {
		t.Errorf("with an unfit host: got %+v", got)
	}
	for args, code := range map[string]int{
		"--max-hosts 511": exitRefused, "--when-unfit skip --when-offline fail": exitUnreachable, "--when-unfit skip --subset 600": exitUsage,
		"--when-unfit skip --dry-run --max-hosts 1": exitRefused, "--rolling 10%,5%": exitUsage, "--stop-after 101%": exitUsage, "--parallel 0": exitUsage,
		"--rate 0/s": exitUsage, "--on-stop cry": exitUsage, "--when-unfit cry": exitUsage, "--when-offline cry": exitUsage,
	} {
		if got := runNew(nil, "-y "+args); got.code != code || len(f.submitted) > 0 {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

// A batch that was made before is found by its id or key, though hosts have become such that it would be refused
// now: that it did not run would be a lie.
func TestABatchThatWasMadeIsNotSaidNotToHaveRun(t *testing.T) {
	for _, args := range []string{"--id " + batchID, "--idempotency-key k", "--subset 600 --id " + batchID} {
		f := running(t, 3)
		f.batches.preview = harp.Preview{Hosts: 3, Unfit: 1, UnfitHosts: []harp.UnfitHost{{Host: "demo3", Err: failures.NotFound("procedure", "count")}}, Digest: "d"}
		for _, command := range []string{"run demo* count to=3 -y -d ", "batch retry " + batchID + " -y -d "} {
			f.submitted = nil
			f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Needs: []string{harp.NeedBatch}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}}}
			if got := runFake(t, t.Context(), f, nil, strings.Fields(command+args)...); got.code != exitOK || len(f.submitted) != 1 {
				t.Errorf("%s%s: got %+v and %d submissions", command, args, got, len(f.submitted))
			}
		}
	}
	f := running(t, 3)
	f.batches.preview = harp.Preview{Hosts: 3, Unfit: 1, UnfitHosts: []harp.UnfitHost{{Host: "demo3", Err: failures.NotFound("procedure", "count")}}, Digest: "d"}
	if got := runFake(t, t.Context(), f, nil, strings.Fields("run demo* count to=3 -y -d --id new")...); got.code != exitNotFound || len(f.submitted) != 0 {
		t.Errorf("of a new one: got %+v and %d submissions", got, len(f.submitted))
	}
}

// One that was made before is found though its hosts are gone, or do not have the procedure any more: whoever has the id is asked, and
// runs nothing on hosts that nobody has seen.
func TestACallWhoseHostsAreGoneIsFound(t *testing.T) {
	for command, code := range map[string]int{
		"run web* count to=3 -d --id " + batchID:               exitOK,
		"run web* count to=3 -d --idempotency-key k":           exitOK,
		"run web01,web02 lost to=3 -d --id " + batchID:         exitOK,
		"run web* -d --id " + batchID + " -- ls":               exitOK,
		"run web* -d --id " + batchID + " --steps FILE":        exitOK,
		"run web* count to=3 -d":                               exitNotFound,
		"run web* count to=3 -d --id new":                      exitNotFound,
		"run web* count to=3 --dry-run --id " + batchID:        exitNotFound,
		"run web* count to=3 -d --max-hosts 0 --id " + batchID: exitUsage,
		"call web01 count to=3 -d --id " + batchID:             exitOK,
		"call web01 lost to=3 -d --idempotency-key k":          exitOK,
		"exec --id " + batchID + " -d web01 ls":                exitOK,
		"call web01 count to=3 -d":                             exitNotFound,
		"call web01 count to=3 --dry-run --id " + batchID:      exitNotFound,
	} {
		steps := filepath.Join(t.TempDir(), "steps.yaml")
		if err := os.WriteFile(steps, []byte("- procedure: count\n  args: {to: 3}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := running(t, 3)
		f.every = false
		got := runFake(t, t.Context(), f, nil, strings.Fields(strings.Replace(command, "FILE", steps, 1))...)
		if got.code != code || (len(f.submitted) == 1) != (code == exitOK) {
			t.Errorf("%s: got %+v and %d submissions", command, got, len(f.submitted))
		}
		if code == exitOK && command[:3] == "run" && f.submitted[0].Batch.Confirmed != noHosts {
			t.Errorf("%s: confirmed is %q", command, f.submitted[0].Batch.Confirmed)
		}
	}
	f := running(t, 3)
	f.every, f.submitErr = false, failures.NotFound("target", "web*")
	if got := runBatch(t, f, nil, "-y"); got.code != exitNotFound || !strings.Contains(got.stderr, "no such host: demo*") {
		t.Errorf("of one that was not made: got %+v", got)
	}
}

// A batch by which another was made again is found though that one goes on, or its hosts are gone: whoever has the id is asked.
func TestARetryThatWasMadeIsFound(t *testing.T) {
	for _, refused := range []error{failures.New("conflict", "batch B is running").Err(), failures.NotFound("target", "hosts")} {
		for args, code := range map[string]int{
			"--id " + batchID: exitOK, "--idempotency-key k": exitOK,
			"": exitCode(refused, false), "--id new": exitCode(refused, false), "--dry-run --id " + batchID: exitCode(refused, false),
		} {
			f := running(t, 3)
			f.batches.unseen = refused
			f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Needs: []string{harp.NeedBatch}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}}}
			got := runFake(t, t.Context(), f, nil, strings.Fields("batch retry "+batchID+" -d "+args)...)
			if got.code != code || (len(f.submitted) == 1) != (code == exitOK) {
				t.Errorf("%q, where it is refused with %v: got %+v and %d submissions", args, refused, got, len(f.submitted))
			}
			for _, r := range f.submitted {
				if r.Batch.Confirmed != noHosts {
					t.Errorf("%q: confirmed is %q", args, r.Batch.Confirmed)
				}
			}
		}
	}
}

// The arguments of what has run are as they were then, whatever hosts offer now: another procedure of that name, or none.
func TestArgumentsOfWhatHasRun(t *testing.T) {
	for words, was := range map[string]harp.Args{
		"count to=7 every=1s": {"to": "7", "every": "1s"},            // which is a number now
		"count up=7":          {"up": "7"},                           // there is no such argument any more
		"count down=true":     {"down": true},                        // nor such
		"gone to=7":           {"to": "7"},                           // nobody offers it
		"gone to=7 at=7":      {"to": 7.0, "at": 7},                  // nobody does
		"gone to={\"a\":[1]}": {"to": map[string]any{"a": []int{1}}}, // nobody does
	} {
		for _, command := range []string{"run demo* ", "call demo1 "} {
			want, err := harp.NewValue(was)
			if err != nil {
				t.Fatal(err)
			}
			f := running(t, 3)
			f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Host: "demo1", Procedure: strings.Fields(words)[0], Args: want}}
			got := runFake(t, t.Context(), f, nil, strings.Fields(command+words+" -y -d --id "+batchID)...)
			if got.code != exitOK || len(f.submitted) != 1 || canonical(t, f.submitted[0].Args) != canonical(t, want) {
				t.Errorf("%s%s: got %+v and %+v", command, words, got, f.submitted)
			}
		}
	}
	f := running(t, 3)
	f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Host: "demo1", Procedure: "count", Args: harp.Value{0xc0}}}
	if got := runBatch(t, f, nil, "-y -d"); got.code != exitOK || f.submitted[0].Args.String() != `{"to":3}` {
		t.Errorf("of another call: got %+v and %+v", got, f.submitted)
	}
}

func canonical(t *testing.T, v harp.Value) string {
	t.Helper()
	is, err := v.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return string(is)
}

func TestFlagsOfABatch(t *testing.T) {
	f := running(t, 3)
	got := runBatch(t, f, nil, "-y -d --parallel 2 --rolling 1,50% --wave-pause 5m --approve --subset 2 --shuffle --rate 10/1m --stop-after 5% --on-stop cancel --max-hosts 9 "+
		"--when-offline skip --when-unfit skip --ping --queue a=b --queue-per-host")
	if got != (said{stdout: batchID + "\n", stderr: "count on 2 hosts of 3 (2 away), 2 at a time, in waves up to 1, 2, stop after 1 failure\n"}) {
		t.Errorf("got %+v", got)
	}
	want := harp.BatchOptions{
		Parallel: 2, Rolling: []string{"1", "50%"}, WavePause: 5 * time.Minute, Approve: true, Subset: "2", Shuffle: true, Rate: 10, RatePer: time.Minute,
		StopAfter: "5%", OnStop: harp.CancelBatch, MaxHosts: 9, Probe: true, WhenUnfit: harp.SkipHost, QueuePerHost: true,
	}
	if req := f.submitted[0]; fmt.Sprint(req.Batch) != fmt.Sprint(want) || req.WhenOffline != harp.SkipHost || req.Target != "demo*" {
		t.Errorf("asked for %+v", req)
	}
}

// Equal results of more than five hosts are printed once, and what failed as it comes.
func TestResultsAreFolded(t *testing.T) {
	f := running(t, 7, "demo3")
	got := runBatch(t, f, nil, "-y")
	want := said{
		stdout: "6 hosts (demo1, demo2, demo4, demo5, demo6, …): 3\n",
		stderr: "count on 7 hosts\nbatch " + batchID + "\nF demo3  oops: no\\x1b[2J  job " + harp.MemberID(batchID, "demo3", 1) +
			"\nbatch failed: 7 hosts, ok 6 failed 1 in 1.5s\nRetry with: harp batch retry " + batchID + " --failed\n",
		code: exitFailed,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = runBatch(t, running(t, 7), nil, "-y")
	if got.code != exitOK || got.stdout != "7 hosts: 3\n" {
		t.Errorf("of all: got %+v", got)
	}
	for args, lines := range map[string]int{"-y --no-fold": 6, "-y -o id": 7, "-y -o jsonl": 7, "-y -o json": 1, "-y -o template={{.host}}": 7} {
		got := runBatch(t, f, nil, args)
		if got.code != exitFailed || strings.Count(got.stdout, "\n") != lines || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	if got := runBatch(t, running(t, 5), nil, "-y -q"); got.stderr != "" || !strings.HasPrefix(got.stdout, "demo1: 3\ndemo2: 3\n") {
		t.Errorf("of five: got %+v", got)
	}
}

// The exit code is the most severe; members that were skipped are left out of it.
func TestExitCodeOfABatch(t *testing.T) {
	for name, test := range map[string]struct {
		state  harp.BatchState
		reason string
		ends   []harp.Result
		skips  map[string]int
		code   int
	}{
		"failed and lost":     {harp.BatchFailed, "", []harp.Result{{State: harp.StateFailed, Err: &harp.RemoteError{}}, {State: harp.StateLost, Err: harp.ErrLost}}, nil, exitUnknown},
		"timed out":           {harp.BatchFailed, "", []harp.Result{{State: harp.StateFailed, Err: &harp.RemoteError{}}, {State: harp.StateTimedOut, Err: harp.ErrTimeout}}, nil, exitTimeout},
		"cancelled":           {harp.BatchCancelled, harp.BatchReasonRequested, []harp.Result{{State: harp.StateCancelled, Err: harp.ErrCancelled}}, nil, exitCancelled},
		"cancelled at an end": {harp.BatchCancelled, harp.BatchReasonRequested, []harp.Result{{State: harp.StateSucceeded}}, nil, exitCancelled},
		"expired":             {harp.BatchFailed, "", []harp.Result{{State: harp.StateExpired, Err: harp.ErrUnreachable}}, nil, exitUnreachable},
		"skipped":             {harp.BatchSucceeded, "", []harp.Result{{State: harp.StateSucceeded}, {State: harp.StateExpired, Err: harp.ErrUnreachable}}, map[string]int{harp.ReasonOffline: 1}, exitOK},
		"all skipped":         {harp.BatchFailed, harp.BatchReasonNoHost, []harp.Result{{State: harp.StateExpired, Err: harp.ErrUnreachable}}, map[string]int{harp.ReasonOffline: 1}, exitUnreachable},
		"unfit":               {harp.BatchSucceeded, "", []harp.Result{{State: harp.StateSucceeded}, {State: harp.StateRejected, Err: unfitError()}}, map[string]int{harp.ReasonUnfit: 1}, exitOK},
		"stopped":             {harp.BatchFailed, harp.BatchReasonStopped, []harp.Result{{State: harp.StateSucceeded}}, nil, exitFailed},
		"rejected":            {harp.BatchFailed, "", []harp.Result{{State: harp.StateSucceeded}, {State: harp.StateRejected, Err: harp.ErrRejected}}, nil, exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			f := running(t, len(test.ends))
			s := f.batches.status(1)
			s.State, s.Reason, s.Skipped, s.Counts = test.state, test.reason, test.skips, map[harp.State]int{}
			f.batches.log = nil
			for i, end := range test.ends {
				skipped := i >= len(test.ends)-len(test.skips) // the last ones
				if !skipped {
					s.Counts[end.State]++
				}
				f.batches.log = append(f.batches.log, harp.HostRecord{Seq: uint64(i), Host: "demo1", Job: firstID, End: &end, Skipped: skipped})
			}
			f.batches.status = func(int) harp.BatchStatus { return s }
			got := runFake(t, t.Context(), f, nil, "batch", "results", batchID)
			if got.code != test.code || strings.Count(got.stderr, "S demo1  ") != len(test.skips) {
				t.Errorf("got %+v", got)
			}
			got = runFake(t, t.Context(), f, nil, "batch", "follow", batchID)
			if got.code != test.code { // how all members ended was told before
				t.Errorf("of one that is followed from now on: got %+v", got)
			}
			got = runFake(t, t.Context(), f, nil, "batch", "results", batchID, "-o", "jsonl")
			if strings.Count(got.stdout, `"skipped":true`) != len(test.skips) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func unfitError() error {
	failure := failures.New("rejected", "the host was left out of its batch")
	failure.Type = harp.ReasonUnfit
	return failure.Err()
}

// A batch that is followed ends the command with the code of harp run, be its members' ends told as they come or before.
func TestExitCodeOfAFollowedBatch(t *testing.T) {
	requested := harp.BatchStatus{State: harp.BatchCancelled, Reason: harp.BatchReasonRequested}
	paused := harp.BatchStatus{State: harp.BatchPaused, Reason: harp.BatchReasonOperator}
	running := harp.BatchStatus{State: harp.BatchRunning}
	for name, test := range map[string]struct {
		failed, cancelled int              // of three that have ended
		is                harp.BatchStatus // in which state; none: as it ended
		code              int
	}{
		"all succeeded":                {0, 0, harp.BatchStatus{}, exitOK},
		"some failed":                  {1, 0, harp.BatchStatus{}, exitFailed},
		"cancelled":                    {0, 1, requested, exitCancelled},
		"cancelled, and some failed":   {1, 1, requested, exitCancelled},
		"cancelled as all had begun":   {0, 0, requested, exitCancelled},
		"paused":                       {0, 0, paused, exitWaited},
		"paused, and some failed":      {1, 0, paused, exitFailed},
		"interrupted":                  {0, 0, running, exitDetached},
		"interrupted, and some failed": {1, 0, running, exitDetached},
	} {
		for _, since := range []string{"", "--since 0"} {
			synctest.Test(t, func(t *testing.T) {
				f := ended(t, nil)
				ends := slices.Concat(slices.Repeat([]harp.Result{{State: harp.StateFailed, Err: &harp.RemoteError{Type: "oops"}}}, test.failed),
					slices.Repeat([]harp.Result{{State: harp.StateCancelled, Err: harp.ErrCancelled}}, test.cancelled))
				for len(ends) < 3 {
					ends = append(ends, harp.Result{State: harp.StateSucceeded, Value: harp.Value{0x03}})
				}
				f.batches = batchOf(batchID, 3)
				s := f.batches.status(1)
				s.Counts = map[harp.State]int{}
				for i := range ends {
					s.Counts[ends[i].State]++
					f.batches.log[i].End = &ends[i]
				}
				if test.failed > 0 {
					s.State = harp.BatchFailed
				}
				if test.is.State != "" {
					s.State, s.Reason = test.is.State, test.is.Reason
				}
				ctx := t.Context()
				if !s.State.Ended() {
					s.Hosts, s.EndTime, s.Counts[harp.StateQueued] = 5, time.Time{}, 2
					f.batches.more = make(chan harp.HostRecord)
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Minute)
					defer cancel()
				}
				f.batches.status = func(int) harp.BatchStatus { return s }
				got := runFake(t, ctx, f, nil, append([]string{"batch", "follow", batchID}, strings.Fields(since)...)...)
				told := strings.Count(got.stdout, "demo") + strings.Count(got.stderr, "F demo") + strings.Count(got.stderr, "C demo")
				if got.code != test.code || (told > 0) != (since != "") {
					t.Errorf("%s %s: got %+v, want %d", name, since, got, test.code)
				}
			})
		}
	}
	f := ended(t, nil)
	if got := runFake(t, t.Context(), f, nil, "batch", "follow", batchID); got.code != exitNotFound || got.stdout != "" {
		t.Errorf("of one that is not there: got %+v", got)
	}
}

// A batch that is paused, and nothing of it runs, ends the command, which says how to resume it.
func TestAPausedBatchEndsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7, "demo1")
		all := f.batches
		f.batches.log, f.batches.more = all.log[:2], make(chan harp.HostRecord)
		f.batches.status = func(asked int) harp.BatchStatus {
			s := all.status(1)
			s.State, s.Reason, s.EndTime = harp.BatchPaused, harp.BatchReasonFailures, time.Time{}
			s.Counts = map[harp.State]int{harp.StateFailed: 1, harp.StateSucceeded: 1, harp.StateQueued: 5}
			if asked < 5 {
				s.Counts[harp.StateRunning], s.Counts[harp.StateQueued] = 1, 4
			}
			return s
		}
		begun := time.Now()
		got := runBatch(t, f, nil, "-y")
		if got.code != exitFailed || !strings.Contains(got.stderr, "batch paused (failures): 7 hosts, ok 1 failed 1 waiting 5\nResume with: harp batch resume "+batchID) {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(begun); took < 4*askEvery || took > 6*askEvery {
			t.Errorf("it took %v", took)
		}
	})
}

// So does one of which a member was cancelled before its host's turn: how that ended comes when the turn does.
func TestAPausedBatchWithAMemberThatWasCancelledEndsTheCommand(t *testing.T) {
	for args, code := range map[string]int{"run demo* count to=3 -y --id " + batchID: exitCancelled, "batch results --no-wait " + batchID: exitOK} {
		synctest.Test(t, func(t *testing.T) {
			f := running(t, 7)
			all := f.batches
			f.batches.log, f.batches.more = all.log[:2:2], make(chan harp.HostRecord)
			f.batches.status = func(int) harp.BatchStatus {
				s := all.status(1)
				s.State, s.Reason, s.EndTime, s.Reached = harp.BatchPaused, harp.BatchReasonOperator, time.Time{}, 2
				s.Counts, s.Early = map[harp.State]int{harp.StateSucceeded: 2, harp.StateCancelled: 1, harp.StateQueued: 4}, 1
				return s
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			got := runFake(t, ctx, f, nil, strings.Fields(args)...)
			if got.code != code || ctx.Err() != nil {
				t.Errorf("%s: got %+v", args, got)
			}
		})
	}
}

// How a batch ended is waited for where its dispatcher does not answer just when its log has ended.
func TestTheEndOfABatchIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7)
		all := f.batches
		f.batches.status = func(asked int) harp.BatchStatus {
			s := all.status(1)
			if asked == 1 {
				s.State, s.Counts, s.EndTime = harp.BatchRunning, map[harp.State]int{harp.StateRunning: 7}, time.Time{}
			}
			return s
		}
		f.batches.silent = func(waits bool) bool { return !waits && f.batches.asked > 0 }
		got := runBatch(t, f, nil, "-y")
		if got.code != exitOK || !strings.Contains(got.stderr, "batch succeeded: 7 hosts, ok 7 in ") {
			t.Errorf("got %+v", got)
		}
	})
}

// The id of what was submitted is told where it cannot be printed.
func TestAnIDThatCannotBePrinted(t *testing.T) {
	for _, command := range []string{"run demo* count to=3 -y -d", "run demo* count to=3 -y -d -o json", "call demo1 count to=3 -d"} {
		f := running(t, 3)
		got := runFake(t, t.Context(), f, func(c *cli) { c.stdout.w = fullWriter{} }, strings.Fields(command)...)
		if got.code != exitHarp || len(f.submitted) != 1 || !strings.Contains(got.stderr, f.submitted[0].ID+" goes on") {
			t.Errorf("%s: got %+v and %d submissions", command, got, len(f.submitted))
		}
	}
}

// What runs is named where what it returns cannot be printed, also if its id was to be printed nowhere.
func TestResultsThatCannotBePrinted(t *testing.T) {
	for _, command := range []string{
		"run demo* count to=3 -y -q", "run demo* count to=3 -y -q --no-fold", "run demo* count to=3 -y -q -o json", "run demo* count to=3 -y -q -o jsonl",
		"call demo1 count to=3 -q", "call demo1 count to=3 -o json", "call demo1 count to=3 -o jsonl",
	} {
		f := running(t, 7)
		f.jobs, f.results = []harp.JobStatus{{State: harp.StateSucceeded}}, map[string]harp.Result{batchID: {State: harp.StateSucceeded, Value: harp.Value{3}}}
		got := runFake(t, t.Context(), f, func(c *cli) { c.stdout.w = fullWriter{} }, strings.Fields(command+" --id "+batchID)...)
		if got.code != exitHarp || len(f.submitted) != 1 || !strings.Contains(got.stderr, "see it with: harp ") || !strings.Contains(got.stderr, batchID) {
			t.Errorf("%s: got %+v and %d submissions", command, got, len(f.submitted))
		}
	}
}

// fullWriter takes nothing.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// On a terminal one line is repainted, at most ten times a second; what failed stands above it.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7, "demo1")
		all := f.batches
		f.batches.log, f.batches.more = nil, make(chan harp.HostRecord)
		f.batches.status = func(asked int) harp.BatchStatus {
			s := all.status(1)
			if done := min(asked-1, 7); done < 7 {
				s.State, s.Counts = harp.BatchRunning, map[harp.State]int{harp.StateSucceeded: done, harp.StateRunning: 1, harp.StateQueued: 6 - done}
			}
			return s
		}
		var rest sync.WaitGroup
		defer rest.Wait()
		rest.Go(func() {
			for _, e := range all.log {
				time.Sleep(700 * time.Millisecond)
				f.batches.more <- e
			}
			close(f.batches.more)
		})
		begun := time.Now()
		got := runBatch(t, f, func(c *cli) {
			ofSize(60, 10)(c)
			c.errTerminal = true
		}, "-y")
		took := time.Since(begun)
		if n := strings.Count(got.stderr, overwrite); n > 10*int(took.Seconds()+1) || n < 7 {
			t.Errorf("in %v it was repainted %d times", took, n)
		}
		if got.code != exitFailed || !strings.Contains(got.stderr, overwrite+"ok 1 running 1 waiting 5, 00:00, ~3s left") || !strings.Contains(got.stderr, overwrite+"\x1b[31mF\x1b[0m demo1  oops") {
			t.Errorf("got %q", got.stderr)
		}
		for line := range strings.SplitSeq(got.stderr, overwrite) {
			if strings.HasPrefix(line, "ok ") && widest(line) > 60 && !strings.Contains(line, "\n") {
				t.Errorf("it is too wide: %q", line)
			}
		}
		if !strings.HasSuffix(got.stderr, " --failed\n") {
			t.Errorf("at the end %q", got.stderr)
		}
	})
}

// Without a terminal a line is told each 10 s.
func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7)
		all := f.batches
		f.batches.log, f.batches.more = all.log, make(chan harp.HostRecord)
		f.batches.status = func(int) harp.BatchStatus {
			s := all.status(1)
			s.State, s.Counts = harp.BatchRunning, map[harp.State]int{harp.StateSucceeded: 3, harp.StateRunning: 4}
			return s
		}
		time.AfterFunc(35*time.Second, func() { close(f.batches.more) })
		got := runBatch(t, f, nil, "-y")
		if n := strings.Count(got.stderr, "ok 3 running 4, 00:"); n != 3 || strings.Contains(got.stderr, overwrite) {
			t.Errorf("got %q", got.stderr)
		}
	})
}

// What nobody knows of is not told as running, and nothing says how long it takes.
func TestProgressToldThatUnknownMembersRan(t *testing.T) {
	c := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
	begun := time.Now()
	p := &progress{cli: c, begun: begun}
	s := harp.BatchStatus{
		State: harp.BatchRunning, Hosts: 20,
		Counts: map[harp.State]int{harp.StateSucceeded: 17, harp.StateCancelling: 1, harp.StateRunning: 1, harp.StateUnknown: 1},
	}
	if got, want := p.line(s, begun.Add(time.Minute)), "ok 17 running 2 unknown 1, 01:00, ~11s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Counts = map[harp.State]int{harp.StateSucceeded: 19, harp.StateUnknown: 1}
	if got, want := p.line(s, begun.Add(10*time.Minute)), "ok 19 unknown 1, 10:00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// How long a batch takes is said by how it went until a member ended last: while none does it counts down, and then nothing is said. What
// it stood still does not count.
func TestProgressCountsDown(t *testing.T) {
	c := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
	s := harp.BatchStatus{State: harp.BatchRunning, Hosts: 20, Counts: map[harp.State]int{harp.StateRunning: 20}}
	p := newProgress(c, s)
	for _, is := range []struct {
		after time.Duration
		ended int
		state harp.BatchState
		want  string
	}{
		{5 * time.Second, 0, harp.BatchRunning, "00:05"},
		{10 * time.Second, 10, harp.BatchRunning, "00:10, ~10s left"},
		{13 * time.Second, 10, harp.BatchRunning, "00:13, ~7s left"},
		{20 * time.Second, 10, harp.BatchRunning, "00:20"},
		{time.Minute, 10, harp.BatchRunning, "01:00"},
		{time.Minute, 15, harp.BatchRunning, "01:00, ~20s left"},
		{2 * time.Minute, 15, harp.BatchPaused, "paused, 02:00"},
		{time.Hour, 15, harp.BatchPaused, "paused, 60:00"},
		{time.Hour + 4*time.Second, 17, harp.BatchRunning, "60:04, ~6s left"},
	} {
		s.State, s.Counts = is.state, map[harp.State]int{harp.StateSucceeded: is.ended}
		if is.ended < 20 {
			s.Counts[harp.StateRunning] = 20 - is.ended
		}
		want := fmt.Sprintf("ok %d running %d, %s", is.ended, 20-is.ended, is.want)
		if got := p.line(s, p.begun.Add(is.after)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Who stops waiting is told how to come back; the batch goes on.
func TestInterruptedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7)
		f.batches.log, f.batches.more = f.batches.log[:2], make(chan harp.HostRecord)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := runFake(t, ctx, f, nil, "batch", "results", batchID)
		want := "detached at 7 of 7 hosts; batch " + batchID + " goes on. Resume with: harp batch results " + batchID + "\n"
		if got.code != exitDetached || got.stdout != "demo1, demo2: 3\n" || !strings.HasSuffix(got.stderr, want) || len(f.batches.changes) > 0 {
			t.Errorf("got %+v", got)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got = runFake(t, ctx, f, nil, "batch", "follow", batchID, "--since", "1", "-o", "jsonl")
		if got.code != exitDetached || strings.Count(got.stdout, "\n") != 1 || !strings.Contains(got.stderr, "Resume with: harp batch follow "+batchID+" --since 2\n") {
			t.Errorf("got %+v", got)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all := f.batches.status(1)
		f.batches.status = func(int) harp.BatchStatus {
			s := all
			s.State, s.Reason, s.Counts = harp.BatchPaused, harp.BatchReasonOperator, map[harp.State]int{harp.StateSucceeded: 2, harp.StateRunning: 5}
			return s
		}
		got = runFake(t, ctx, f, nil, "batch", "results", batchID)
		want = "detached at 2 of 7 hosts; batch " + batchID + " is paused (operator). Resume with: harp batch resume " + batchID + "; come back with: harp batch results " + batchID + "\n"
		if got.code != exitDetached || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("got %+v", got)
		}
		f.batches.status = func(int) harp.BatchStatus { return all }
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(2*time.Second, func() { close(f.batches.more) })
		got = runFake(t, ctx, f, nil, "run", "demo*", "count", "to=3", "-y", "--cancel-on-interrupt")
		if got.code != exitOK || len(f.batches.changes) != 1 || f.batches.changes[0].Kind != harp.CancelOfBatch {
			t.Errorf("got %+v, and %v", got, f.batches.changes)
		}
	})
}

// Commands of hosts are told by what they printed.
func TestRunACommand(t *testing.T) {
	f := running(t, 6, "demo2")
	f.procedures = append(f.procedures, execDoc())
	for i := range f.hosts {
		f.hosts[i].Procedures = append(f.hosts[i].Procedures, execProcedure)
	}
	var log []harp.HostRecord
	for i, e := range f.batches.log {
		log = append(log, harp.HostRecord{Seq: uint64(2 * i), Host: e.Host, Job: e.Job, Record: harp.Record{Kind: harp.KindStdout, Value: value(t, "a\nb\x1b[2J")}})
		e.Seq = uint64(2*i + 1)
		log = append(log, e)
	}
	f.batches.log = log
	got := runFake(t, t.Context(), f, nil, "run", "demo*", "-y", "--", "ls", "-l")
	want := "5 hosts (demo1, demo3, demo4, demo5, demo6):\n  a\n  b\\x1b[2J\ndemo2:\n  a\n  b\\x1b[2J\n"
	want = strings.Replace(want, "5 hosts (demo1, demo3, demo4, demo5, demo6)", "demo1, demo3, demo4, demo5, demo6", 1)
	if got.code != exitFailed || got.stdout != want {
		t.Errorf("got %+v", got)
	}
	if args := f.submitted[0].Args.String(); args != `{"argv":["ls","-l"]}` {
		t.Errorf("asked for %s", args)
	}
}

// Hosts of a file are a list of names.
func TestRunOnHostsOfAFile(t *testing.T) {
	f := running(t, 3)
	got := runFake(t, t.Context(), f, typed("demo1\n# not\n\n a b \n"), "run", "--hosts-file", "-", "count", "to=3", "-y", "-d")
	if got.code != exitOK || f.submitted[0].Target != `demo1,"a b"` {
		t.Errorf("got %+v, and asked for %+v", got, f.submitted)
	}
	if got := runFake(t, t.Context(), f, typed("\n"), "run", "--hosts-file", "-", "count", "to=3", "-y", "-d"); got.code != exitUsage {
		t.Errorf("of none: got %+v", got)
	}
	var long strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&long, "demo%04d\n", n)
	}
	got = runFake(t, t.Context(), f, typed(long.String()), "run", "--hosts-file", "-", "count", "to=3", "-y", "-d")
	if last := f.submitted[len(f.submitted)-1]; got.code != exitOK || last.Target != "" || last.List == nil || last.List.Count != 1000 {
		t.Errorf("got %+v, and asked for %+v", got, last)
	}
}

// What is said of calling members again names none that the command does not find: of a batch that was not cancelled none was cancelled with it.
func TestRetryIsSaidOfWhatIsCalledAgain(t *testing.T) {
	for _, c := range []struct {
		state  harp.BatchState
		reason string
		counts map[harp.State]int
		want   string
	}{
		{harp.BatchFailed, "", map[harp.State]int{harp.StateSucceeded: 2, harp.StateCancelled: 1}, ""},
		{harp.BatchFailed, "", map[harp.State]int{harp.StateFailed: 2, harp.StateCancelled: 1}, " --failed"},
		{harp.BatchFailed, harp.BatchReasonFailures, map[harp.State]int{harp.StateExpired: 2, harp.StateCancelled: 1}, " --unreachable --not-started"},
		{harp.BatchCancelled, harp.BatchReasonRequested, map[harp.State]int{harp.StateCancelled: 1}, " --not-started"},
	} {
		if got := retryFlags(harp.BatchStatus{State: c.state, Reason: c.reason, Counts: c.counts}); got != c.want {
			t.Errorf("of %v %v: %q, want %q", c.state, c.counts, got, c.want)
		}
	}
}

// Flags of a repetition go over what the batch was called with, also those that say what is so by default.
func TestFlagsOfABatchRetry(t *testing.T) {
	was := harp.BatchOptions{WhenHeld: harp.SkipHost, WhenUnfit: harp.SkipHost, Approve: true, ApproveFirst: true, Shuffle: true, Probe: true, QueuePerHost: true, Parallel: 7}
	for args, want := range map[string]harp.BatchOptions{
		"": was,
		"--when-held wait --when-unfit refuse --approve=false --approve-first=false --shuffle=false --ping=false --queue-per-host=false": {Parallel: 7},
	} {
		f := running(t, 3)
		f.feed.requests = map[string]harp.Request{batchID: {
			ID: batchID, Needs: []string{harp.NeedBatch}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}, Queue: value(t, map[string]any{"q": 1}), WhenOffline: harp.SkipHost, Batch: was,
		}}
		got := runFake(t, t.Context(), f, nil, append([]string{"batch", "retry", batchID, "-d"}, strings.Fields(args)...)...)
		if got.code != exitOK || len(f.submitted) != 1 {
			t.Fatalf("%q: got %+v and %d submissions", args, got, len(f.submitted))
		}
		r := f.submitted[0]
		is := r.Batch
		if is.Retry, is.Confirmed = nil, ""; fmt.Sprint(is) != fmt.Sprint(want) || r.WhenOffline != harp.SkipHost {
			t.Errorf("%q: asked for %+v, want %+v", args, is, want)
		}
	}
}

// Whoever calls members again is told of those whose hosts are not known any more.
func TestRetryTellsOfHostsThatAreGone(t *testing.T) {
	f := running(t, 3)
	f.batches.preview.Gone, f.batches.preview.GoneHosts = 2, []string{"demo8", "demo9"}
	f.feed.requests = map[string]harp.Request{batchID: {ID: batchID, Needs: []string{harp.NeedBatch}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}}}
	got := runFake(t, t.Context(), f, nil, "batch", "retry", batchID, "-d")
	if got.code != exitOK || !strings.HasPrefix(got.stderr, "count on 3 hosts (2 more not known any more)") {
		t.Errorf("got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "batch", "retry", batchID, "--dry-run")
	if !strings.Contains(got.stdout, "demo8, demo9") {
		t.Errorf("dry it says %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "batch", "retry", batchID, "--dry-run", "-o", "json")
	if !strings.Contains(got.stdout, `"gone_hosts"`) {
		t.Errorf("dry as JSON it says %+v", got)
	}
	was := f.batches.status
	f.batches.status = func(n int) harp.BatchStatus { s := was(n); s.Gone = 2; return s }
	if got = runFake(t, t.Context(), f, nil, "batch", "show", batchID); !strings.Contains(got.stdout, "not known") {
		t.Errorf("the batch is shown as %+v", got)
	}
}

// Flags of a repetition of a chain hold for each of its steps, or are of all of it.
func TestFlagsOfAChainRetry(t *testing.T) {
	f := running(t, 3)
	f.feed.requests = map[string]harp.Request{batchID: {
		ID: batchID, Needs: []string{harp.NeedBatch, harp.NeedChain}, Target: "demo*", Procedure: "count", Args: harp.Value{0xc0}, MaxExecTime: time.Second,
		Batch: harp.BatchOptions{Then: []harp.ChainStep{{Procedure: "hello", Args: harp.Value{0xc0}, MaxExecTime: time.Second, SilenceTimeout: time.Second}}, EachStep: true, RebootWait: time.Hour},
	}}
	flags := "--max-exec-time 2m --timeout 3m --retry failed --attempts 2 --each-step=false --reboot-wait 4m"
	got := runFake(t, t.Context(), f, nil, append([]string{"batch", "retry", batchID, "-d"}, strings.Fields(flags)...)...)
	if got.code != exitOK || len(f.submitted) != 1 {
		t.Fatalf("got %+v and %d submissions", got, len(f.submitted))
	}
	r := f.submitted[0]
	for n := range r.Steps() {
		s, err := r.AtStep(n + 1)
		if err != nil || s.MaxExecTime != 2*time.Minute || s.SilenceTimeout != 3*time.Minute || s.Retry.Attempts != 2 || len(s.Retry.On) != 1 {
			t.Errorf("step %d is asked for as %+v, %v", n+1, s, err)
		}
	}
	if r.Batch.EachStep || r.Batch.RebootWait != 4*time.Minute {
		t.Errorf("asked for %+v", r.Batch)
	}
}

// A concurrency that would be ignored is refused of what is called again as of what is called the first time.
func TestConcurrencyOfARetry(t *testing.T) {
	for _, command := range []string{"batch retry " + batchID, "job retry " + batchID, "run demo* count to=3 -y", "call demo1 count to=3"} {
		for n, code := range map[string]int{"5": exitOK, "1": exitUsage} {
			f := running(t, 3)
			name := value(t, map[string]any{"db": "main"})
			f.queues = []harp.QueueStatus{{Name: name, Concurrency: 5}}
			made := harp.Request{ID: batchID, Host: "demo1", Procedure: "count", Args: harp.Value{0xc0}}
			if strings.HasPrefix(command, "batch") {
				made.Host, made.Target, made.Needs = "", "demo*", []string{harp.NeedBatch}
			}
			f.feed.requests = map[string]harp.Request{batchID: made}
			f.jobs = []harp.JobStatus{{ID: batchID, Host: "demo1", Procedure: "count", State: harp.StateFailed}}
			got := runFake(t, t.Context(), f, nil, strings.Fields(command+" -d --queue db=main --concurrency "+n)...)
			if got.code != code || (len(f.submitted) == 1) != (code == exitOK) {
				t.Errorf("%s with a concurrency of %s: got %+v and %d submissions", command, n, got, len(f.submitted))
			}
		}
	}
}
