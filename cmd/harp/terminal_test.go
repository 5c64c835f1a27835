package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
)

// ofSize has a terminal of a size.
func ofSize(columns, lines int) func(*cli) {
	return func(c *cli) {
		c.terminal = true
		c.size = func() (int, int) { return columns, lines }
	}
}

// widest is the width of the widest line.
func widest(printed string) int {
	most := 0
	for line := range strings.SplitSeq(printed, "\n") {
		most = max(most, text.StringWidthWithoutEscSequences(line))
	}
	return most
}

func TestListsFitTheTerminal(t *testing.T) {
	local(t)
	f := several(t)
	f.jobs[0].SubmitTime, f.jobs[0].Procedure = time.Now().Add(-3*time.Hour-time.Minute), "backup.of.something.with.a.long.name"
	f.jobs[1].State, f.jobs[1].Reason = harp.StateQueued, "start_after"
	f.hosts = append(f.hosts, harp.HostStatus{Name: "web02", Labels: map[string]string{"role": "web", "env": "production"}, Error: strings.Repeat("日本", 60)})
	for _, columns := range []int{60, 80, 100, 200} {
		for _, command := range []string{"job ls", "host ls", "proc ls"} {
			got := runFake(t, t.Context(), f, ofSize(columns, 0), strings.Fields(command)...)
			if w := widest(got.stdout); got.code != 0 || w > columns {
				t.Errorf("%s: %d columns of %d:\n%s", command, w, columns, got.stdout)
			}
		}
	}
	got := runFake(t, t.Context(), f, ofSize(60, 0), "job", "ls")
	if !strings.Contains(got.stdout, "\n00000001  ") || !strings.Contains(got.stdout, "3h ago") || !strings.Contains(got.stdout, "…") || !strings.Contains(got.stdout, "succeeded") {
		t.Errorf("got\n%s", got.stdout)
	}
	for name, change := range map[string]func(*cli){"a pipe": nil, "a wide terminal": ofSize(200, 0)} {
		if got := runFake(t, t.Context(), f, change, "job", "ls"); !strings.Contains(got.stdout, firstID) || strings.Contains(got.stdout, "…") {
			t.Errorf("%s: got\n%s", name, got.stdout)
		}
	}
	if got := runFake(t, t.Context(), f, ofSize(60, 0), "job", "ls", "-o", "wide"); !strings.Contains(got.stdout, firstID) {
		t.Errorf("wide: got\n%s", got.stdout)
	}
}

func TestLongListsGoThroughThePager(t *testing.T) {
	needs.Programs(t, "sed")
	f := several(t)
	with := func(pager string, lines int) func(*cli) {
		return func(c *cli) {
			ofSize(0, lines)(c)
			env := c.env
			c.env = func(name string) string {
				if name == "HARP_PAGER" {
					return pager
				}
				return env(name)
			}
		}
	}
	if got := runFake(t, t.Context(), f, with("sed s/^/paged:/", 3), "job", "ls", "-o", "wide"); got.code != 0 || strings.Count(got.stdout, "paged:") != 3 {
		t.Errorf("got %+v", got)
	}
	for name, got := range map[string]said{
		"short":         runFake(t, t.Context(), f, with("sed s/^/paged:/", 4), "job", "ls"),
		"no pager":      runFake(t, t.Context(), f, with("cat", 2), "job", "ls"),
		"not there":     runFake(t, t.Context(), f, with("no-such-pager", 2), "job", "ls"),
		"JSON":          runFake(t, t.Context(), f, with("sed s/^/paged:/", 1), "job", "ls", "-o", "json"),
		"of one object": runFake(t, t.Context(), f, with("sed s/^/paged:/", 40), "job", "show", firstID),
	} {
		if got.code != 0 || strings.Contains(got.stdout, "paged:") || got.stdout == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got := runFake(t, t.Context(), f, with("sed s/^/paged:/", 3), "job", "show", firstID, noID); got.code != exitNotFound || !strings.Contains(got.stdout, "paged:state") || !strings.Contains(got.stderr, "no such job") {
		t.Errorf("what fails, too: got %+v", got)
	}
}

// watched runs a command of which the list is asked for so many times; between happens before each
// but the first.
func watched(t *testing.T, f *fake, change func(*cli), rounds int, between func(round int), args ...string) said {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	round := 0
	f.listing = func() {
		if round++; round > rounds {
			cancel()
		} else if round > 1 {
			between(round)
		}
	}
	return runFake(t, ctx, f, change, args...)
}

func TestWatchPrintsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		f.jobs[0].State = harp.StateRunning
		begun := time.Now()
		got := watched(t, f, nil, 4, func(round int) {
			switch round {
			case 2:
				f.jobs[0].State = harp.StateSucceeded
			case 4:
				f.listErr = harp.ErrUnavailable
			}
		}, "job", "ls", "--watch")
		if took := time.Since(begun); got.code != exitDetached || took != 4*watchEvery {
			t.Errorf("after %v got %+v", took, got)
		}
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "ID ") || !strings.Contains(lines[1], secondID) || !strings.Contains(lines[2], "running") || !strings.Contains(lines[3], firstID+"  succeeded") {
			t.Errorf("got\n%s", got.stdout)
		}
		if !strings.Contains(got.stderr, "does not answer") {
			t.Errorf("said %q", got.stderr)
		}
	})
}

func TestWatchAsLinesOfJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		got := watched(t, f, nil, 3, func(round int) { f.hosts[0].Online = round == 3 }, "host", "ls", "-w", "-o", "jsonl")
		if got.code != exitDetached || strings.Count(got.stdout, `"name":"demo1"`) != 3 || strings.Count(got.stdout, "\n") != 3 {
			t.Errorf("got %+v", got)
		}
		if got := runFake(t, t.Context(), f, nil, "host", "ls", "-w", "-o", "json"); got.code != exitUsage {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWatchRepaintsATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		got := watched(t, f, ofSize(50, 5), 2, func(int) { f.jobs = f.jobs[:1] }, "job", "ls", "--watch")
		first, second, ok := strings.Cut(got.stdout, "\x1b[4A\r\x1b[J")
		if got.code != exitDetached || !ok || widest(first) > 50 {
			t.Fatalf("got %+v", got)
		}
		if lines := strings.Split(first, "\n"); len(lines) != 5 || !strings.Contains(lines[2], "and 1 more") || !strings.Contains(lines[3], "Ctrl-C") {
			t.Errorf("at first\n%s", first)
		}
		if strings.Contains(second, "more") || !strings.Contains(second, "00000001") {
			t.Errorf("then\n%s", second)
		}
	})
}
