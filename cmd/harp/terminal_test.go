package main

import (
	"context"
	"io"
	"slices"
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
	f := ofEachNoun(t)
	f.jobs[0].SubmitTime, f.jobs[0].Procedure = time.Now().Add(-3*time.Hour-time.Minute), "backup.of.something.with.a.long.name"
	f.jobs[1].State, f.jobs[1].Reason = harp.StateQueued, "start_after"
	long := strings.Repeat("web-and-more ", 12)
	f.groups[0].Target, f.schedules.all[0].Request.Target, f.maintenance.all[0].Target, f.notifications.all[0].On = long, long, long, []string{long}
	f.notifications.messages[0].Answer, f.rules[0].Procedure = long, long
	f.hosts = append(f.hosts, harp.HostStatus{Name: "web02", Labels: map[string]string{"role": "web", "env": "production"}, Error: strings.Repeat("日本", 60)})
	for _, columns := range []int{60, 80, 100, 200} {
		for _, command := range []string{
			"job ls", "host ls", "proc ls", "batch ls", "queue ls", "group ls", "retain ls", "schedule ls", "maint ls", "notify ls", "notify pending", "drift ls",
		} {
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

// Where a terminal is narrow, a note is all there in further lines, and the spans of a window keep their times: "in 120d" is no
// beginning of anything.
func TestNotesAreWrappedInNarrowTerminals(t *testing.T) {
	local(t)
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *")
	f.hosts[0].Pause = &harp.HostPause{By: harp.Principal{Kind: "caller", Name: "ada"}, Since: beforeDST, Reason: "a new disk, and then another one", Until: time.Now().Add(3*time.Hour - time.Minute)}
	if got := maintain(t, f, "add", "w", "--target", "*", "--cron", "0 2 * * *", "--for", "2h", "--tz", "Europe/Madrid"); got.code != 0 {
		t.Fatal(got)
	}
	f.schedules.ledger = []harp.LedgerEntry{{
		Schedule: "s", Kind: harp.LedgerAfter, Outcome: harp.TimeSkipped, Reason: harp.TimeDependency, From: beforeDST, To: beforeDST, Count: 1, Detail: "nightly " + firstID + " succeeded at last",
	}}
	for command, want := range map[string][]string{
		"maint spans w --from 2027-03-28 --to 2027-03-29": {"2027-03-28 01:00:00Z  2027-03-28 03:00:00Z", "02:00 does", "end of the gap"},
		"schedule next s --from 2027-03-28 -n 1":          {"02:30 does not", "end of the gap"},
		"schedule history s":                              {"condition", "succeeded at last"},
		"host ls":                                         {"paused by caller", "another one"},
	} {
		for _, columns := range []int{60, 200} {
			got := runFake(t, t.Context(), f, ofSize(columns, 0), strings.Fields(command)...)
			one := strings.Join(strings.Fields(got.stdout), " ")
			awkward := strings.Contains(one, "until in ") || command == "host ls" && columns == 60 && !strings.Contains(one, "; for another 2h")
			if w := widest(got.stdout); got.code != 0 || w > columns || awkward || strings.Contains(one, "…") && columns > 60 {
				t.Errorf("%s: %d columns of %d:\n%s%s", command, w, columns, got.stdout, got.stderr)
			}
			for _, part := range want {
				if !strings.Contains(one, strings.Join(strings.Fields(part), " ")) {
					t.Errorf("%s at %d columns lacks %q:\n%s", command, columns, part, got.stdout)
				}
			}
		}
	}
}

// An id within a note is not broken: where there is no room for all of it, it is as short as elsewhere.
func TestIDsInNotesAreNotBroken(t *testing.T) {
	local(t)
	f := scheduling(t)
	addMadrid(t, f, "30 2 * * *")
	f.schedules.ledger = []harp.LedgerEntry{{
		Schedule: "s", Kind: harp.LedgerTime, Outcome: harp.TimeSkipped, Reason: harp.TimeOverlap, From: beforeDST, To: beforeDST, Count: 1,
		Detail: firstID + ", whose job " + secondID + " runs on web01",
	}}
	for columns, ids := range map[int][]string{
		200: {firstID + ",", secondID}, 80: {shortened(firstID) + ",", shortened(secondID)}, 60: {shortened(firstID) + ",", shortened(secondID)}, 40: {shortened(firstID) + ",", shortened(secondID)},
	} {
		got := runFake(t, t.Context(), f, ofSize(columns, 0), "schedule", "history", "s")
		words := strings.Fields(got.stdout)
		for _, id := range ids {
			if got.code != 0 || widest(got.stdout) > columns || !slices.Contains(words, id) {
				t.Errorf("at %d columns it lacks %s:\n%s%s", columns, id, got.stdout, got.stderr)
			}
		}
	}
}

// What a procedure's own words say of it is wrapped, and the bars of a measurement keep their proportions.
func TestNarrowTerminalsCutNoDocsAndNoBars(t *testing.T) {
	f := several(t)
	f.procedures[0].Doc = strings.Repeat("It counts up to a number. ", 8)
	if got := runFake(t, t.Context(), f, ofSize(60, 0), "proc", "show", f.procedures[0].Name); got.code != 0 || widest(got.stdout) > 60 || strings.Count(strings.Join(strings.Fields(got.stdout), " "), "counts up to a number") != 8 {
		t.Errorf("got %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	var l latencies
	for range 30 {
		l.addLatency(time.Millisecond)
	}
	for range 15 {
		l.addLatency(time.Second)
	}
	for room, longest := range map[int]int{0: barLength, 200: barLength, 60: 39, 40: 19, 20: 4} {
		rows := l.histogram(room)
		if got := [2]int{len(rows[0][2]), len(rows[len(rows)-1][2])}; got != [2]int{longest, (longest + 1) / 2} {
			t.Errorf("in %d columns the bars are %v long, want %d and half of it", room, got, longest)
		}
	}
}

// That there are more jobs is said below those that are printed, where it is read.
func TestMoreIsSaidBelowTheList(t *testing.T) {
	f := several(t)
	var both strings.Builder
	got := runFake(t, t.Context(), f, func(c *cli) { c.stdout, c.stderr = &output{w: &both}, &both }, "job", "ls", "-n", "1")
	if list, more, found := strings.Cut(both.String(), "there are more"); got.code != 0 || !found || !strings.Contains(list, firstID) || strings.Contains(more, firstID) {
		t.Errorf("got %d:\n%s", got.code, both.String())
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

// ofEachNoun is a fake that has one of each noun that is listed.
func ofEachNoun(t *testing.T) *fake {
	t.Helper()
	f := several(t)
	f.queues = []harp.QueueStatus{{Name: value(t, harp.Args{"db": "main"}), Concurrency: 1}}
	f.groups = []harp.Group{{Name: "frontend", Target: "role=web"}}
	f.rules = []harp.RetentionStatus{{RetentionRule: harp.RetentionRule{Name: "audit", Keep: time.Hour}}}
	f.schedules.all = []harp.ScheduleStatus{{Schedule: harp.Schedule{Name: "nightly", Cron: "@daily"}}}
	f.maintenance.all = []harp.WindowStatus{{Window: harp.Window{Name: "night", Target: "*", Cron: "@daily", For: time.Hour}}}
	f.notifications.all = []harp.NotificationStatus{{Notification: harp.Notification{Name: "failures", On: []string{"job.failed"}}}}
	f.notifications.messages = []harp.MessageStatus{{Notification: "failures", ID: "m", Subject: "job failed"}}
	f.hosts[0].Drift = []harp.DriftStatus{{Host: "demo1", Name: "base", Mark: harp.DriftClean}, {Host: "demo1", Name: "ssh", Mark: harp.DriftClean}}
	return f
}

// An item of each kind of list is printed again when it has changed, and only then.
func TestEachListIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := ofEachNoun(t)
		for args, c := range map[string]struct {
			at     string // the beginning of the line that is printed again
			change func()
		}{
			"queue ls":       {`{"db":"main"}`, func() { f.queues[0].Running = 1 }},
			"group ls":       {"frontend", func() { f.groups[0].Target = "role=app" }},
			"retain ls":      {"audit", func() { f.rules[0].Keep = time.Minute }},
			"schedule ls":    {"nightly", func() { f.schedules.all[0].LastBatch = firstID }},
			"maint ls":       {"night", func() { f.maintenance.all[0].Open = true }},
			"notify ls":      {"failures", func() { f.notifications.all[0].Pending = 1 }},
			"notify pending": {"failures", func() { f.notifications.messages[0].Tries = 3 }},
			"drift ls":       {"demo1  ssh", func() { f.hosts[0].Drift[1].Mark = harp.DriftDirty }},
			"proc ls":        {"count", func() { f.procedures[0].Summary = "Counts" }},
		} {
			before := runFake(t, t.Context(), f, nil, strings.Fields(args)...)
			got := watched(t, f, nil, 4, func(round int) {
				if round == 3 {
					c.change()
				}
			}, append(strings.Fields(args), "--watch")...)
			first, again, ok := strings.Cut(got.stdout, before.stdout)
			if got.code != exitDetached || !ok || first != "" || !strings.HasPrefix(again, c.at) || strings.Count(again, "\n") != 1 {
				t.Errorf("%s: got %+v, the list is %q", args, got, before.stdout)
			}
			f.listing = nil
		}
	})
}

// What lists the dispatcher's nouns takes --watch.
func TestEachListTakesWatch(t *testing.T) {
	root := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" }).rootCommand()
	found := 0
	for _, noun := range root.Commands() {
		for _, cmd := range noun.Commands() {
			if cmd.Name() != "ls" || noun.Name() == "ctx" || noun.Name() == "event" { // a file, and what has follow
				continue
			}
			if found++; cmd.Flags().Lookup("watch") == nil {
				t.Errorf("%s has no --watch", cmd.CommandPath())
			}
		}
	}
	if found < 10 {
		t.Errorf("there are %d lists", found)
	}
}

// A job that goes on takes longer each time that its list is printed.
func TestWatchPrintsHowLongAJobTakesByNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		f.jobs = f.jobs[:1]
		f.jobs[0].State, f.jobs[0].StartTime, f.jobs[0].EndTime = harp.StateRunning, time.Now(), time.Time{}
		got := watched(t, f, ofSize(150, 20), 3, func(int) {}, "job", "ls", "--watch")
		if !strings.Contains(got.stdout, "  4s\n") {
			t.Errorf("after 4 s got\n%s", got.stdout)
		}
	})
}

// The hosts of a batch are watched as lists are: each is printed again when its job comes into another state,
// with the step of a chain that this is.
func TestHostsOfABatchAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		f.batches = batchOf(batchID, 2)
		status := f.batches.status(1)
		status.Steps = []string{"install", "check"}
		f.batches.status = func(int) harp.BatchStatus { return status }
		f.jobs = f.jobs[:2]
		f.jobs[0].State, f.jobs[0].Step, f.jobs[0].StartTime = harp.StateRunning, 1, time.Now()
		f.jobs[0].EndTime = time.Time{}
		got := watched(t, f, nil, 4, func(round int) {
			if round == 3 {
				f.jobs[0].State, f.jobs[0].EndTime = harp.StateSucceeded, time.Now()
			}
		}, "batch", "hosts", batchID, "--watch")
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		if got.code != exitDetached || f.filter.Batch != batchID || len(lines) != 4 || !strings.HasPrefix(lines[0], "HOST ") || !strings.Contains(lines[0], "STEP") {
			t.Fatalf("got %+v", got)
		}
		if !strings.Contains(lines[1], "running") || !strings.Contains(lines[3], "succeeded") || !strings.Contains(lines[3], firstID) || !strings.Contains(lines[3], "4s") {
			t.Errorf("got\n%s", got.stdout)
		}
		f.listing = nil
		f.jobs[0].State, f.jobs[0].EndTime = harp.StateRunning, time.Time{}
		begun := time.Now()
		f.jobs[0].StartTime = begun
		got = watched(t, f, ofSize(150, 20), 3, func(int) {}, "batch", "hosts", batchID, "-w")
		if !strings.Contains(got.stdout, "  4s") {
			t.Errorf("after 4 s got\n%s", got.stdout)
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
