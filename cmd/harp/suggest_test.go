package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

func TestWhatWasMeantIsSaid(t *testing.T) {
	f := ended(t, nil)
	f.hosts = append(f.hosts, harp.HostStatus{Name: "web01"})
	f.procedures[1].Args = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},"colour":{"type":"string"}}}`)
	f.procedures[1].Params = []string{"name", "colour"}
	for args, want := range map[string]struct {
		words string
		code  int
	}{
		"jbo ls":                            {`unknown command "jbo"; did you mean job?`, exitUsage},
		"cal demo1 hello":                   {`unknown command "cal"; did you mean call?`, exitUsage},
		"stop last":                         {"did you mean job cancel?", exitUsage},
		"job cancle last":                   {`unknown command "cancle"; did you mean cancel?`, exitUsage},
		"job xyz":                           {"available: cancel, follow, force-lost, get, ls, retry, show, wait", exitUsage},
		"job ls --wacth":                    {"unknown flag: --wacth; did you mean --watch?", exitUsage},
		"help exit-code":                    {"did you mean exit-codes?", exitUsage},
		"call demo2 hello name=Ada":         {"no such host: demo2; did you mean demo1?", exitNotFound},
		"call demo1 helo name=Ada":          {"no such procedure: helo on demo1; did you mean hello?", exitNotFound},
		"call demo1 hello nme=Ada":          {"unknown argument; available: colour, name; did you mean name?", exitUsage},
		"call demo1 hello name=Ada color=x": {"did you mean colour?", exitUsage},
		"host show web1":                    {"did you mean web01?", exitNotFound},
		"proc show hell":                    {"did you mean hello?", exitNotFound},
		"proc ls deno1":                     {"did you mean demo1?", exitNotFound},
	} {
		got := runFake(t, t.Context(), f, nil, strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stderr, want.words) {
			t.Errorf("%s: got %+v, want %q", args, got, want.words)
		}
	}
	if len(f.submitted) > 0 {
		t.Errorf("submitted %+v", f.submitted)
	}
	if got := runFake(t, t.Context(), f, nil, "call", "zzz", "hello"); strings.Contains(got.stderr, "did you mean") {
		t.Errorf("of what is like none: got %+v", got)
	}
}

func TestMissingAndUnexpectedArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"call demo1":                "harp: missing PROCEDURE\nSee: harp call --help\n",
		"call":                      "harp: missing HOST PROCEDURE\n",
		"version extra":             "harp: unexpected argument extra\nSee: harp version --help\n",
		"job show":                  "harp: missing ID\n",
		"job follow last more":      "harp: unexpected argument more\n",
		"proc show a b c":           "harp: unexpected argument c\n",
		"proc show":                 "harp: missing PROCEDURE\n",
		"queue set --concurrency 1": "harp: missing {JSON | NAME=VALUE...}\n",
		"job force-lost --reason x": "harp: missing ID\n",
		"exec":                      "harp: missing HOST\n",
		"exec demo1 --stdin":        "harp: missing COMMAND\n",
		"exec demo1 --stdinn cat":   "harp: unknown flag: --stdinn; did you mean --stdin?\n",
	} {
		got := runFake(t, t.Context(), ended(t, nil), nil, strings.Fields(args)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, want) {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
}

func TestWhatPeopleTypeWorks(t *testing.T) {
	f := ended(t, nil)
	if got := runFake(t, t.Context(), f, nil, "ps", "-o", "id"); got.code != 0 || len(f.filter.States) != 5 {
		t.Errorf("ps: got %+v, asked for %+v", got, f.filter)
	}
	if got := runFake(t, t.Context(), f, nil, "ps", "--state", "lost"); got.code != 0 || len(f.filter.States) != 1 {
		t.Errorf("ps --state: got %+v, asked for %+v", got, f.filter)
	}
	for _, args := range []string{"logs ID", "logs -f ID", "job logs ID", "job follow -f ID"} {
		f.queried = nil
		got := runFake(t, t.Context(), f, nil, strings.Fields(strings.ReplaceAll(args, "ID", firstID))...)
		if got.code != 0 || strings.Count(got.stdout, "\n") != 4 || f.queried[0].Wait != strings.Contains(args, "f") {
			t.Errorf("%s: got %+v, asked for %+v", args, got, f.queried)
		}
	}
	for _, args := range []string{"host list", "job list", "--version"} {
		if got := runFake(t, t.Context(), f, nil, strings.Fields(args)...); got.code != 0 || got.stdout == "" {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	f.procedures = append(f.procedures, execDoc())
	for _, args := range []string{"exec demo1 --cwd /tmp uname -s --cwd x", "exec --cwd /tmp demo1 uname -s --cwd x", "exec demo1 --cwd /tmp -- uname -s --cwd x"} {
		f.submitted = nil
		got := runFake(t, t.Context(), f, nil, strings.Fields(args)...)
		if got.code != 0 || f.submitted[0].Args.String() != `{"argv":["uname","-s","--cwd","x"],"cwd":"/tmp"}` {
			t.Errorf("%s: got %+v, asked for %v", args, got, f.submitted)
		}
	}
	for _, args := range []string{"exec --help", "exec demo1 --help"} {
		if got := runFake(t, t.Context(), f, nil, strings.Fields(args)...); got.code != 0 || !strings.Contains(got.stdout, "There is no shell") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "exec", "demo1", "--exit", "mapped", "false"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

// Shells are offered what the command can use.
func TestCompletionOffersWhatTheCommandCanUse(t *testing.T) {
	f := several(t)
	f.jobs[0].State = harp.StateRunning
	f.filtered = true
	f.hosts = append(f.hosts, harp.HostStatus{Name: "web01", Procedures: []string{execProcedure}})
	f.queues = []harp.QueueStatus{{Name: value(t, map[string]string{"q": "a"}), Paused: true}, {Name: value(t, map[string]string{"q": "b"})}}
	for args, want := range map[string]string{
		"job cancel |":                     "last " + firstID,
		"job cancel " + firstID + " |":     "last",
		"job retry |":                      secondID,
		"job show |":                       "last " + firstID + " " + secondID,
		"job show last |":                  firstID + " " + secondID,
		"job follow last |":                "",
		"exec |":                           "web01",
		"job ls --state |fai":              "failed",
		"job ls --state |failed,ti":        "failed,timed_out",
		"call --retry |lost,":              "lost,timed_out lost,failed",
		"event ls --type |host.away,host.": "host.away,host.online host.away,host.duplicate host.away,host.journal_gone host.away,host.forgot host.away,host.labelled host.away,host.removed host.away,host.paused host.away,host.unpaused host.away,host.drift",
		"queue unpause |":                  "q=a",
		"queue pause |":                    "q=b",
	} {
		before, begun, _ := strings.Cut(args, "|")
		got := runFake(t, t.Context(), f, nil, append(append([]string{"__complete"}, strings.Fields(before)...), begun)...)
		var offered []string
		for line := range strings.Lines(got.stdout) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
				offered = append(offered, word)
			}
		}
		if strings.Join(offered, " ") != want {
			t.Errorf("%s: offered %q, want %s", args, offered, want)
		}
	}
}

// What is longer than any name is meant for none, and is not said whole: a list of thousands of hosts would be compared with each host
// that is known.
func TestAListOfHostsIsMeantForNone(t *testing.T) {
	long := strings.Repeat("web01,", harp.MaxHostName) + "web02"
	known := []string{"web01", "web02", "web03"}
	if n := testing.AllocsPerRun(10, func() {
		if hint := didYouMean(long, known); hint != "" {
			t.Errorf("it says %q", hint)
		}
	}); n > 0 {
		t.Errorf("it compares, with %v allocations", n)
	}
	f := running(t, 3)
	f.every = true
	got := runFake(t, t.Context(), f, typed(strings.Repeat("demo1\n", 1000)), "run", "--hosts-file", "-", "nothing", "-y")
	if got.code != exitNotFound || !strings.Contains(got.stderr, "no such procedure: nothing on demo1,demo1") || len(got.stderr) > 1000 {
		t.Errorf("got exit %d and %d bytes: %.200s", got.code, len(got.stderr), got.stderr)
	}
}
