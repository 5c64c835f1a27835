package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// failure is an error as it comes from the store or over the network.
func failure(code string) error { return failures.New(code, "").Err() }

// conflictAbout is a conflict of a type, as the dispatcher refuses what a state forbids.
func conflictAbout(kind string) error {
	f := failures.New("conflict", "its agent is connected")
	f.Type = kind
	return f.Err()
}

func TestExitCode(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"success", nil, 0},
		{"the procedure failed", &harp.RemoteError{Type: "oops"}, 1},
		{"the procedure panicked", &harp.RemoteError{Type: "panic"}, 1},
		{"a command's exit code is not taken for harp's own", &harp.RemoteError{Type: "exit", ExitCode: code(8)}, 1},
		{"nor is one that looks like a signal's", &harp.RemoteError{Type: "exit", ExitCode: code(137)}, 1},
		{"a signal ended the command", &harp.RemoteError{Type: "signal", ExitCode: code(137)}, 137},
		{"a procedure's own type of this name", &harp.RemoteError{Type: "signal"}, 1},
		{"not ended when the wait was over", &waitedError{job: harp.NewID()}, 9},
		{"usage", &usageError{command: "harp", err: errors.New("unknown flag")}, 2},
		{"a field is wrong", &harp.FieldError{Field: "args.to", Message: "must be an integer"}, 2},
		{"the same over the network", failure("invalid"), 2},
		{"the id names another call", failure("conflict"), 2},
		{"the state of a host forbids it", conflictAbout("host"), 6},
		{"the same in a context", fmt.Errorf("remove: %w", conflictAbout("host")), 6},
		{"other hosts were confirmed", conflictAbout("confirmed"), 2},
		{"the key names another call", conflictAbout(harp.ConflictOfKey), 2},
		{"a name that is taken", &existsError{}, 2},
		{"rejected for its arguments", failure("rejected_invalid"), 2},
		{"cancelled", failure("cancelled"), 3},
		{"denied", failure("denied"), 4},
		{"rejected by the agent's policy", failure("rejected_denied"), 4},
		{"no such thing", failures.NotFound("host", "nope"), 5},
		{"pruned", failure("pruned"), 5},
		{"rejected for its procedure", failure("rejected_not_found"), 5},
		{"refused", failure("refused"), 6},
		{"no space", failure("no_space"), 6},
		{"rejected", failure("rejected"), 6},
		{"unreachable", &harp.HostError{Host: "web01", Stage: "lookup", Err: harp.ErrUnreachable}, 7},
		{"expired", failure("expired"), 7},
		{"expired while the host was away", failure("expired_offline"), 7},
		{"lost", failure("lost"), 8},
		{"a call that may have arrived", &harp.CallError{JobID: harp.NewID(), Err: harp.ErrUnavailable}, 8},
		{"a time limit", &harp.TimeoutError{Of: harp.LimitSilenceTimeout}, 124},
		{"the same over the network", failure("timeout"), 124},
		{"the dispatcher cannot be reached", &harp.HostError{Host: "harp:7440", Stage: "dial", Err: harp.ErrUnavailable}, 125},
		{"the connection was closed", harp.ErrClosed, 125},
		{"two hosts with one name", failure("duplicate_host"), 125},
		{"a dispatcher's store failed", fmt.Errorf("%w: %w", store.ErrPoisoned, harp.ErrNoSpace), 125},
		{"anything else", io.ErrUnexpectedEOF, 125},
		{"from a newer dispatcher", failure("of_tomorrow"), 125},
		{"interrupted", &detachedError{jobs: []string{harp.NewID()}}, 130},
		{"interrupted before anything was sent", context.Canceled, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := exitCode(test.err, false); got != test.want {
				t.Errorf("exit code of %v is %d, want %d", test.err, got, test.want)
			}
			if test.err == nil {
				return
			}
			if got := exitCode(fmt.Errorf("call: %w", test.err), false); got != test.want {
				t.Errorf("wrapped it is %d, want %d", got, test.want)
			}
		})
	}
}

func TestExitCodeRemote(t *testing.T) {
	for code, want := range map[int]int{1: 1, 2: 2, 8: 8, 130: 130, 255: 255, 0: 1, -1: 1, 256: 1, -1073741819: 1} {
		if got := exitCode(&harp.RemoteError{Type: "exit", ExitCode: &code}, true); got != want {
			t.Errorf("exit code of %d is %d, want %d", code, got, want)
		}
	}
	if got := exitCode(failure("lost"), true); got != exitUnknown {
		t.Errorf("exit code of a lost job is %d, want %d", got, exitUnknown)
	}
}

func TestHelpNamesEveryExitCode(t *testing.T) {
	topic := strings.Join(strings.Fields(helpTopics()[0].Long), " ")
	for _, code := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 124, 125, 130} {
		if !strings.Contains(topic, fmt.Sprintf(" %d ", code)) {
			t.Errorf("help exit-codes says nothing of %d", code)
		}
	}
}

func TestReport(t *testing.T) {
	id := harp.NewID()
	for _, test := range []struct {
		err    error
		format format
		stdout string
		stderr string
	}{
		{nil, formatJSON, "", ""},
		{&harp.RemoteError{Type: "oops", Message: "no\x1b[2J\nmore"}, formatText, "", "harp: oops: no\\x1b[2J\\nmore\n"},
		{harp.ErrClosed, formatText, "", "harp: closed\n"},
		{
			&usageError{command: "harp call", err: errors.New("unknown flag: --x")}, formatText, "",
			"harp: unknown flag: --x\nSee: harp call --help\n",
		},
		{
			&detachedError{jobs: []string{id}, resume: "harp job follow " + id + " --since 18", at: " at #17"}, formatText, "",
			"detached at #17; job " + id + " goes on. Resume with: harp job follow " + id + " --since 18\n",
		},
		{
			failures.NotFound("host", "nope"), formatJSON,
			`{"v":1,"error":{"code":"not_found","type":"host","message":"no such host: nope","ran":"no","fault":"caller"}}` + "\n",
			"harp: no such host: nope\nSee: harp host ls\n",
		},
		{failures.NotFound("procedure", "x on y"), formatText, "", "harp: no such procedure: x on y\nSee: harp proc ls\n"},
		{
			&harp.HostError{Host: "a:1", Stage: "dial", Err: harp.ErrUnavailable}, formatText, "",
			"harp: a:1: dispatcher unavailable at dial\nSee: harp doctor\n",
		},
		{
			&harp.CallError{JobID: id, Err: harp.ErrUnavailable}, formatText, "",
			"harp: call may have been accepted as job " + id + ": harp: dispatcher unavailable\nSee: harp job show " + id + "\n",
		},
		{&detachedError{nothing: "nothing was called"}, formatText, "", "interrupted; nothing was called\n"},
	} {
		var stdout, stderr bytes.Buffer
		c := newCLI(nil, &stdout, &stderr, func(string) string { return "" })
		c.format = test.format
		c.reportError(test.err)
		if stdout.String() != test.stdout || stderr.String() != test.stderr {
			t.Errorf("report of %v is %q on stdout and %q on stderr,\nwant %q and %q",
				test.err, stdout.String(), stderr.String(), test.stdout, test.stderr)
		}
	}
}

// The exit code of a job's end is the same whoever asks for it, and whenever.
func TestExitCodeOfAJob(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"succeeded", nil, 0},
		{"failed", &harp.RemoteError{Type: "oops"}, 1},
		{"a command that failed", &harp.RemoteError{Type: "exit", ExitCode: code(42)}, 1},
		{"rejected for its arguments", failure("rejected_invalid"), 2},
		{"cancelled", failure("cancelled"), 3},
		{"rejected by the agent's policy", failure("rejected_denied"), 4},
		{"rejected for its procedure", failure("rejected_not_found"), 5},
		{"rejected", failure("rejected"), 6},
		{"expired", failure("expired"), 7},
		{"expired while the host was away", failure("expired_offline"), 7},
		{"lost", failure("lost"), 8},
		{"timed out", &harp.TimeoutError{Of: harp.LimitSilenceTimeout}, 124},
	} {
		for _, args := range [][]string{
			{"call", "demo1", "count", "to=3"},
			{"call", "demo1", "count", "to=3", "-o", "json"},
			{"job", "retry", firstID},
			{"job", "get", firstID},
			{"job", "get", "last", "-o", "json"},
			{"job", "wait", firstID[:12]},
			{"job", "follow", firstID},
			{"job", "follow", firstID, "--no-wait", "-o", "jsonl"},
		} {
			f := ended(t, test.err)
			f.feed.requests = map[string]harp.Request{firstID: {ID: firstID, Host: "demo1", Procedure: "count", Args: value(t, map[string]any{"to": 3})}}
			if got := runFake(t, t.Context(), f, nil, args...); got.code != test.want {
				t.Errorf("%s: %q exited with %d, want %d: %+v", test.name, args, got.code, test.want, got)
			}
			var remote *harp.RemoteError
			if !errors.As(test.err, &remote) || remote.ExitCode == nil {
				continue
			}
			if got := runFake(t, t.Context(), f, nil, append(args, "--exit", "remote")...); got.code != 42 {
				t.Errorf("%s, remote: %q exited with %d, want 42: %+v", test.name, args, got.code, got)
			}
		}
	}
}

// The exit code of a call that was not taken.
func TestExitCodeOfASubmission(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"a field is wrong", failure("invalid"), 2},
		{"the id names another call", failure("conflict"), 2},
		{"denied", failure("denied"), 4},
		{"no such host any more", failure("not_found"), 5},
		{"pruned", failure("pruned"), 5},
		{"refused", failure("refused"), 6},
		{"no space", failure("no_space"), 6},
		{"the host is away", failure("unreachable"), 7},
		{"it may have arrived", &harp.CallError{JobID: firstID, Err: harp.ErrUnavailable}, 8},
		{"the dispatcher is gone", failure("unavailable"), 125},
		{"it did not say what it means", failure("internal"), 125},
	} {
		for _, args := range [][]string{
			{"call", "demo1", "count", "to=3"},
			{"call", "-d", "demo1", "count", "to=3", "-o", "json"},
			{"exec", "demo1", "--", "ls"},
		} {
			f := ended(t, nil)
			f.procedures = append(f.procedures, execDoc())
			f.submitErr = test.err
			if got := runFake(t, t.Context(), f, nil, args...); got.code != test.want || got.stderr == "" {
				t.Errorf("%s: %q exited with %d, want %d: %+v", test.name, args, got.code, test.want, got)
			}
		}
	}
}

// Waiting no longer than was asked for ends with a code of its own, and the job goes on.
func TestJobWaitTimeout(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{}, {"-o", "json"}} {
		f := ended(t, nil)
		f.wait = true
		f.jobs[0].State = harp.StateRunning
		got := runFake(t, t.Context(), f, nil, append([]string{"job", "wait", firstID, "--timeout", "1ms"}, flags...)...)
		if got.code != exitWaited || !strings.Contains(got.stderr, "has not ended after 1ms: running; it goes on") {
			t.Errorf("got %+v", got)
		}
		if len(flags) > 0 && !strings.Contains(got.stdout, `"state":"running"`) {
			t.Errorf("as JSON: got %+v", got)
		}
	}
	f := ended(t, failure("lost"))
	if got := runFake(t, t.Context(), f, nil, "job", "wait", firstID, "--timeout", "1h"); got.code != exitUnknown {
		t.Errorf("of a job that has ended: got %+v", got)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "wait", firstID, "--timeout", "5"); got.code != exitUsage {
		t.Errorf("without a unit: got %+v", got)
	}
}

// The exit codes of what is no job: the rest of the table.
func TestExitCodeOfACommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*cli)
		args   []string
		want   int
	}{
		{"no such command", nil, []string{"cal"}, 2},
		{"no such flag", nil, []string{"job", "ls", "--all"}, 2},
		{"too few arguments", nil, []string{"call", "demo1"}, 2},
		{"a format that is none", nil, []string{"job", "ls", "-o", "xml"}, 2},
		{"no such host", nil, []string{"host", "show", "nope"}, 5},
		{"no such job", nil, []string{"job", "show", secondID}, 5},
		{"no such procedure", nil, []string{"proc", "show", "nope"}, 5},
		{"no such queue", nil, []string{"queue", "show", "a=b"}, 5},
		{"would be refused", nil, []string{"call", "demo1", "count", "to=3", "--dry-run", "--start-before", "2001-01-01T00:00:00Z"}, 6},
		{"a check failed", nil, []string{"doctor"}, 1},
		{"the dispatcher cannot be reached", func(c *cli) {
			c.dial = func(context.Context, contexts.Context) (*harp.Caller, error) {
				return nil, &harp.HostError{Host: "harp:7440", Stage: "dial", Err: harp.ErrUnavailable}
			}
		}, []string{"host", "ls"}, 125},
		{"stdout is full", func(c *cli) { c.stdout.w = failing{io.ErrShortWrite} }, []string{"host", "ls"}, 125},
		{"version", nil, []string{"version"}, 0},
	} {
		if got := runFake(t, t.Context(), ended(t, nil), test.change, test.args...); got.code != test.want {
			t.Errorf("%s: %q exited with %d, want %d: %+v", test.name, test.args, got.code, test.want, got)
		}
	}
}
