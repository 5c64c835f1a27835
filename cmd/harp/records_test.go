package main

import (
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// printed is a job that printed the records that a test gives.
func printed(t *testing.T, records ...harp.Record) *fake {
	t.Helper()
	f := ended(t, nil)
	for i := range records {
		records[i].Seq, records[i].Attempt, records[i].Time = uint64(i), 1, noon
	}
	f.records[firstID] = records
	f.results[firstID] = harp.Result{State: harp.StateSucceeded, Value: value(t, 0)}
	return f
}

// record is one that a command printed.
func record(t *testing.T, kind harp.RecordKind, text any, partial bool) harp.Record {
	t.Helper()
	return harp.Record{Kind: kind, Value: value(t, text), Partial: partial}
}

// Where records are missing a person is told how many; JSON says so in the record itself.
func TestMissingRecordsAreTold(t *testing.T) {
	f := printed(t, record(t, harp.KindStdout, "one", false), harp.Record{Kind: harp.KindLog, Missing: 4})
	got := runFake(t, t.Context(), f, nil, "job", "follow", firstID, "--since", "0")
	want := said{stdout: "one\n", stderr: "4 records from #1 on are missing: this dispatcher was restored from a backup made before they arrived\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got = runFake(t, t.Context(), f, nil, "job", "follow", firstID, "--since", "0", "-o", "jsonl"); !strings.Contains(got.stdout, `"kind":"log","value":null,"missing":4}`) {
		t.Errorf("got %+v", got)
	}
}

// What a command printed is copied as it was: parts of a line are put together, and
// what it said on stderr does not come between.
func TestOutputIsCopied(t *testing.T) {
	f := printed(t,
		record(t, harp.KindStdout, "one", false),
		record(t, harp.KindStdout, []byte("t\x00w"), true),
		record(t, harp.KindStderr, "warning", false),
		record(t, harp.KindStdout, "o\x1b[2J", false),
		record(t, harp.KindStdout, "10%\r", true),
		record(t, harp.KindStdout, "20%\r", true),
		record(t, harp.KindLog, "a line of the log", false),
		record(t, harp.KindStdout, "no end", true),
	)
	const out = "one\nt\x00wo\x1b[2J\n10%\r20%\rno end"
	got := runFake(t, t.Context(), f, nil, "job", "follow", firstID, "--since", "0")
	if want := (said{stdout: out, stderr: "warning\na line of the log\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = runFake(t, t.Context(), f, func(c *cli) { c.terminal, c.errTerminal = true, true }, "job", "follow", firstID, "--since", "0", "--raw")
	if got.stdout != out {
		t.Errorf("raw on a terminal: %q, want %q", got.stdout, out)
	}
	// The result stands on a line of its own.
	got = runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3")
	if want := out + "\n0\n"; got.stdout != want {
		t.Errorf("printed %q, want %q", got.stdout, want)
	}
}

// What was dropped is said on stderr. A record that says nothing else, as the last one of
// output for which there was no room, is no output.
func TestDroppedOutputIsSaid(t *testing.T) {
	for name, terminal := range map[string]bool{"copied": false, "on a terminal": true} {
		t.Run(name, func(t *testing.T) {
			local(t)
			after := record(t, harp.KindStdout, "after", false)
			after.Truncated = 12
			f := printed(t, record(t, harp.KindStdout, "first", false), after, harp.Record{Kind: harp.KindData, Truncated: 3456789})
			var change func(*cli)
			want := said{stdout: "first\nafter\n", stderr: "12 bytes were dropped before #1\n3456789 bytes were dropped at #2\n"}
			if terminal {
				change = onTerminal
				want.stdout = "12:00:00.000 #0 out first\n12:00:00.000 #1 out after\n"
			}
			if got := runFake(t, t.Context(), f, change, "job", "follow", firstID, "--since", "0"); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// On a terminal nothing remote moves the cursor, and a progress bar is one line.
func TestOutputOnATerminal(t *testing.T) {
	local(t)
	const stamp = "12:00:00.000 #"
	for _, test := range []struct {
		name    string
		records []harp.Record
		want    string
	}{
		{"a line in parts", []harp.Record{
			record(t, harp.KindStdout, "a", true), record(t, harp.KindStdout, "b\x1b[2J", false),
		}, stamp + "0 out ab\\x1b[2J\n"},
		{"another kind ends the line", []harp.Record{
			record(t, harp.KindStdout, "a", true), record(t, harp.KindStderr, "e", false), record(t, harp.KindStdout, "b", false),
		}, stamp + "0 out a\n" + stamp + "1 err \x1b[31me\x1b[0m\n" + stamp + "2 out b\n"},
		{"progress", []harp.Record{
			record(t, harp.KindStdout, "1%\r", true), record(t, harp.KindStdout, "2%\r", true), record(t, harp.KindStdout, "", false),
		}, stamp + "0 out 1%" + overwrite + stamp + "1 out 2%\n"},
		{"progress that another kind ends", []harp.Record{
			record(t, harp.KindStdout, "1%\r", true), record(t, harp.KindData, 5, false),
		}, stamp + "0 out 1%\n" + stamp + "1 5\n"},
		{"chunks", []harp.Record{
			record(t, harp.KindStdout, "a\nb", true), record(t, harp.KindStdout, "c\n", true), record(t, harp.KindStdout, "d\n", true),
		}, stamp + "0 out a\n" + stamp + "0 out bc\n" + stamp + "2 out d\n"},
		{"no end", []harp.Record{record(t, harp.KindStdout, "a", true)}, stamp + "0 out a\n"},
		{"an empty line", []harp.Record{record(t, harp.KindStdout, "", false)}, stamp + "0 out \n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := runFake(t, t.Context(), printed(t, test.records...), onTerminal, "job", "follow", firstID, "--since", "0")
			if got.stdout != test.want || got.stderr != "" {
				t.Errorf("printed %q and %q, want %q", got.stdout, got.stderr, test.want)
			}
		})
	}
}

// What stderr says in colour is safe, too, where stderr alone is a terminal.
func TestStderrOnATerminal(t *testing.T) {
	f := printed(t, record(t, harp.KindStderr, "a\x1b[2J\nb", false))
	got := runFake(t, t.Context(), f, func(c *cli) { c.errTerminal = true }, "job", "follow", firstID, "--since", "0")
	if want := (said{stderr: "\x1b[31ma\\x1b[2J\x1b[0m\n\x1b[31mb\x1b[0m\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestColours(t *testing.T) {
	for _, test := range []struct {
		flag     colours
		env      string
		terminal bool
		want     painter
	}{
		{coloursAuto, "", true, true},
		{coloursAuto, "", false, false},
		{coloursAuto, "NO_COLOR=1", true, false},
		{coloursAuto, "CLICOLOR_FORCE=1", false, true},
		{coloursAuto, "CLICOLOR_FORCE=0", false, false},
		{coloursAuto, "NO_COLOR=1 CLICOLOR_FORCE=1", true, false},
		{coloursAuto, "TERM=dumb", true, false},
		{coloursAlways, "NO_COLOR=1", false, true},
		{coloursNever, "CLICOLOR_FORCE=1", true, false},
	} {
		env := func(name string) string {
			for word := range strings.FieldsSeq(test.env) {
				if text, ok := strings.CutPrefix(word, name+"="); ok {
					return text
				}
			}
			return ""
		}
		if got := test.flag.decide(env, test.terminal); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

// A result that a command printed as the last of its output is not printed again; any other is.
func TestResultOfStdoutIsPrintedOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		records []harp.Record
		result  any
		want    string
	}{
		{"all of stdout", []harp.Record{record(t, harp.KindStdout, "one", false), record(t, harp.KindStdout, "two", false)}, "one\ntwo\n", "one\ntwo\n"},
		{"its last line as JSON", []harp.Record{record(t, harp.KindStdout, "one", false), record(t, harp.KindStdout, `{"b": 1, "a": 2}`, false)}, map[string]int{"a": 2, "b": 1}, "one\n{\"b\": 1, \"a\": 2}\n"},
		{"in parts", []harp.Record{record(t, harp.KindStdout, `{"b": `, true), record(t, harp.KindStdout, `1}`, false)}, map[string]int{"b": 1}, "{\"b\": 1}\n"},
		{"another", []harp.Record{record(t, harp.KindStdout, "one", false)}, "two", "one\n\"two\"\n"},
		{"of what was said on stderr", []harp.Record{record(t, harp.KindStderr, "5", false)}, 5, "5\n"},
		{"of a record", []harp.Record{record(t, harp.KindData, 5, false)}, 5, "5\n5\n"},
		{"of nothing", nil, "", "\"\"\n"},
	} {
		f := printed(t, test.records...)
		f.results[firstID] = harp.Result{State: harp.StateSucceeded, Value: value(t, test.result)}
		if got := runFake(t, t.Context(), f, nil, "call", "demo1", "count", "to=3"); got.stdout != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got.stdout, test.want)
		}
	}
}

// As lines of JSON a call prints its records and then the job; exec as JSON has what was printed.
func TestCallAsLines(t *testing.T) {
	f := printed(t, record(t, harp.KindStdout, "one", false), record(t, harp.KindStderr, "warning", false), record(t, harp.KindStdout, "no end", true))
	f.procedures = append(f.procedures, execDoc())
	for _, words := range [][]string{{"call", "demo1", "count", "to=3"}, {"exec", "demo1", "--", "ls"}} {
		got := runFake(t, t.Context(), f, nil, append([]string{words[0], "-o", "jsonl"}, words[1:]...)...)
		lines := strings.Split(got.stdout, "\n")
		if got.code != 0 || len(lines) != 5 || !strings.HasPrefix(lines[0], `{"seq":0,`) || !strings.HasPrefix(lines[3], `{"v":1,"id":`) || !strings.HasSuffix(lines[3], `"value":0}`) {
			t.Errorf("%q: got %+v", words, got)
		}
	}
	got := runFake(t, t.Context(), f, nil, "exec", "-o", "json", "demo1", "--", "ls")
	if got.code != 0 || !strings.HasSuffix(got.stdout, `"value":0,"stdout":"one\nno end","stderr":"warning\n"}`+"\n") {
		t.Errorf("exec: got %+v", got)
	}
	f.results[firstID] = harp.Result{State: harp.StateFailed, Err: &harp.RemoteError{Type: "exit", Message: "exit code 2"}}
	got = runFake(t, t.Context(), f, nil, "exec", "-o", "json", "demo1", "--", "ls")
	if got.code != 1 || strings.Count(got.stdout, "\n") != 1 || !strings.Contains(got.stdout, `"stdout":"one\nno end"`) {
		t.Errorf("exec that failed: got %+v", got)
	}
}
