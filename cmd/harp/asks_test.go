package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
)

// offering is a host that offers a procedure with the traits.
func offering(t *testing.T, traits ...string) *fake {
	t.Helper()
	f := ended(t, nil)
	f.procedures[0].Traits = traits // count
	return f
}

// typing has a person at both ends.
func typing(line string) func(*cli) {
	return func(c *cli) {
		c.stdin = strings.NewReader(line)
		c.inTerminal, c.errTerminal = true, true
	}
}

func TestDangerousProceduresAreConfirmed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cli)
		flag   string
		asked  bool
		code   int
		calls  int
	}{
		{"nobody to ask", nil, "-d", false, exitUsage, 0},
		{"nobody to ask, but sure", nil, "-y", false, exitOK, 1},
		{"stdin is a pipe", func(c *cli) { c.errTerminal = true }, "-d", false, exitUsage, 0},
		{"yes", typing("y\n"), "-d", true, exitOK, 1},
		{"no", typing("n\n"), "-d", true, exitUsage, 0},
		{"no answer", typing(""), "-d", true, exitUsage, 0},
		{"only to see", nil, "--dry-run", false, exitOK, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := offering(t, harp.TraitDangerous)
			got := runFake(t, t.Context(), f, test.change, "call", "demo1", "count", "to=3", test.flag)
			if got.code != test.code || len(f.submitted) != test.calls {
				t.Errorf("got %+v and %d calls, want exit code %d and %d", got, len(f.submitted), test.code, test.calls)
			}
			if asked := strings.Contains(got.stderr, "Call it on demo1?"); asked != test.asked {
				t.Errorf("said %q", got.stderr)
			}
		})
	}
	f := offering(t, harp.TraitDangerous)
	if got := runFake(t, t.Context(), f, nil, "job", "retry", firstID); got.code != exitUsage || len(f.submitted) > 0 {
		t.Errorf("a repetition: got %+v and %d calls", got, len(f.submitted))
	}
}

// A procedure that can say what it would do is asked to.
func TestDryRunOfTheProcedure(t *testing.T) {
	f := offering(t, harp.TraitDryRun, harp.TraitDangerous)
	got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3", "--dry-run")
	if got.code != 0 || len(f.submitted) != 1 || !f.submitted[0].DryRun {
		t.Fatalf("got %+v, submitted %+v", got, f.submitted)
	}
	if !strings.Contains(got.stderr, "would run") || !strings.Contains(got.stderr, "dry run as job ") || !strings.HasSuffix(got.stdout, "{\"counted\":3}\n") {
		t.Errorf("got %+v", got)
	}
	f.feed.requests = map[string]harp.Request{firstID: {ID: firstID, Host: "demo1", Procedure: "count", Args: value(t, map[string]any{"to": 3})}}
	got = runFake(t, t.Context(), f, nil, "job", "retry", firstID, "--dry-run")
	if got.code != 0 || len(f.submitted) != 2 || !f.submitted[1].DryRun || f.submitted[1].RetryOf != firstID {
		t.Errorf("a repetition: got %+v, submitted %+v", got, f.submitted)
	}
	f.hosts[0].Online = false
	got = runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3", "--dry-run", "--when-offline", "fail")
	if got.code != exitRefused || !strings.Contains(got.stderr, "the host is away") {
		t.Errorf("of a host that is away: got %+v", got)
	}
}

// A secret is not shown, however it is given.
func TestDryRunHidesSecrets(t *testing.T) {
	f := ended(t, nil)
	f.procedures[0].Params = []string{"name", "token"}
	f.procedures[0].Args = json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"token":{"type":"string","writeOnly":true}}}`)
	for _, flags := range [][]string{{}, {"-o", "json"}} {
		for stdin, words := range map[string][]string{"": {"name=x", "token=hunter2"}, `["x","hunter2"]`: {"-"}} {
			args := append([]string{"call", "demo1", "count", "--dry-run"}, append(words, flags...)...)
			got := runFake(t, t.Context(), f, func(c *cli) { c.stdin = strings.NewReader(stdin) }, args...)
			if got.code != 0 || strings.Contains(got.stdout+got.stderr, "hunter2") || !strings.Contains(got.stdout, `"token":"***"`) {
				t.Errorf("%q: got %+v", args, got)
			}
		}
	}
}

// More than the procedure's own limit would be refused.
func TestDryRunOfALimit(t *testing.T) {
	f := ended(t, nil)
	f.procedures[0].SilenceTimeout = 60e9
	got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3", "--dry-run", "--timeout", "2m")
	if got.code != exitRefused || !strings.Contains(got.stdout, "timeout of 2m is more than the procedure's own, 1m") || len(f.submitted) > 0 {
		t.Errorf("got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3", "--dry-run", "-o", "json")
	if got.code != 0 || !strings.Contains(got.stdout, `"silence_timeout":"1m0s",`) {
		t.Errorf("got %+v", got)
	}
}

// execDoc is the procedure exec, as agents offer it.
func execDoc() harp.ProcedureDoc {
	return harp.ProcedureDoc{
		Name: execProcedure, Params: []string{"argv", "stdin", "cwd", "env"}, Streams: true, Traits: []string{harp.TraitCommand, harp.TraitDangerous},
		Args: json.RawMessage(`{"type":"object","required":["argv"],"additionalProperties":false,"properties":{
			"argv":{"type":"array","items":{"type":"string"},"minItems":1},"stdin":{"type":"string"},"cwd":{"type":"string"},
			"env":{"type":"object","properties":{"LANG":{"type":"string"}},"additionalProperties":false}}}`),
	}
}

func TestExec(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "exec", "demo1", "--", "ls")
	if got.code != exitNotFound || !strings.Contains(got.stderr, "does not allow it") {
		t.Errorf("where it is not offered: got %+v", got)
	}
	f.procedures = append(f.procedures, execDoc())
	got = runFake(t, t.Context(), f, func(c *cli) { c.stdin = strings.NewReader("in") }, "exec", "demo1", "--stdin", "--cwd", "/tmp", "--env", "LANG=C", "--", "ls", "-l", "; rm x")
	if got.code != 0 || got.stdout != "{\"i\":1}\nout\x1b[2J\nput\n\"a\\u009b text\"\n" {
		t.Errorf("got %+v", got)
	}
	if args := f.submitted[0].Args.String(); args != `{"argv":["ls","-l","; rm x"],"cwd":"/tmp","env":{"LANG":"C"},"stdin":"in"}` {
		t.Errorf("asked for %s", args)
	}
	for _, args := range [][]string{{"--env", "PATH=x", "--", "ls"}, {"--env", "x", "--", "ls"}, {}} {
		if got := runFake(t, t.Context(), f, nil, append([]string{"exec", "demo1"}, args...)...); got.code != exitUsage || len(f.submitted) != 1 {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := runFake(t, t.Context(), f, func(c *cli) { c.stdin = strings.NewReader("\xff") }, "exec", "demo1", "--stdin", "--", "ls"); got.code != exitUsage {
		t.Errorf("of what is no text: got %+v", got)
	}
}

// A dispatcher that does not answer does not keep a shell waiting, and nothing is said.
func TestCompletionIsShort(t *testing.T) {
	begun := time.Now()
	got := runFake(t, t.Context(), ended(t, nil), func(c *cli) {
		c.dial = func(ctx context.Context, _ contexts.Context) (*harp.Caller, error) {
			<-ctx.Done() // at the end of the time a shell waits
			return nil, ctx.Err()
		}
	}, "__complete", "job", "show", "")
	if got.code != 0 || got.stdout != ":4\n" || strings.Contains(got.stderr, "harp:") {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(begun); took < completesWithin {
		t.Errorf("it gave up after %v", took)
	}
}

// Shells are offered the values of a parameter, and nothing that they might run.
func TestCompleteValues(t *testing.T) {
	f := ended(t, nil)
	f.procedures[0].Args = json.RawMessage(`{"type":"object","properties":{
		"mode":{"enum":["restart","reload","$(id)","a b"],"description":"which\u001b[2J"},"force":{"type":"boolean"}}}`)
	f.procedures[0].Params = []string{"mode", "force"}
	for _, test := range []struct {
		begun string
		want  string
	}{
		{"", "mode=\trestart|reload|$(id)|a b: which\\x1b[2J\nforce=\tboolean\n:6\n"},
		{"mode=", "mode=restart\nmode=reload\n:4\n"},
		{"mode=rel", "mode=reload\n:4\n"},
		{"force=", "force=true\nforce=false\n:4\n"},
		{"none=", ":4\n"},
	} {
		got := runFake(t, t.Context(), f, nil, "__complete", "call", "demo1", "count", test.begun)
		if got.stdout != test.want || got.code != 0 {
			t.Errorf("%q: offered %q with exit code %d, want %q", test.begun, got.stdout, got.code, test.want)
		}
	}
}

func TestRemovingAHostIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cli)
		args   string
		want   said
		gone   bool
	}{
		{"sure", nil, "-y", said{stdout: "removed gone; 2 jobs ended\n"}, true},
		{"sure, as JSON", nil, "-y -o json", said{stdout: `{"v":1,"host":"gone","ended":2}` + "\n"}, true},
		{"only to see", nil, "--dry-run", said{stdout: "removing gone cancels 1 job queued for it and gives up 1 job that may be running on it\n"}, false},
		{"yes", typing("yes\n"), "", said{
			stdout: "removed gone; 2 jobs ended\n",
			stderr: "removing gone cancels 1 job queued for it and gives up 1 job that may be running on it. Remove it? [y/N] ",
		}, true},
		{"no", typing("\n"), "", said{
			stderr: "removing gone cancels 1 job queued for it and gives up 1 job that may be running on it. Remove it? [y/N] harp: aborted; nothing was removed\n",
			code:   exitUsage,
		}, false},
		{"nobody to ask", nil, "", said{
			stderr: "harp: removing gone cancels 1 job queued for it and gives up 1 job that may be running on it, and there is no terminal to ask on; pass -y\n",
			code:   exitUsage,
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := ended(t, nil)
			f.hosts = append(f.hosts, harp.HostStatus{Name: "gone"})
			f.jobs = []harp.JobStatus{{ID: firstID, Host: "gone", State: harp.StateQueued}, {ID: harp.NewID(), Host: "gone", State: harp.StateUnknown}}
			got := runFake(t, t.Context(), f, test.change, append([]string{"host", "rm", "gone"}, strings.Fields(test.args)...)...)
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if gone := len(f.hosts) == 1; gone != test.gone {
				t.Errorf("it is gone: %v", gone)
			}
		})
	}
}
