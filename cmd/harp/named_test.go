package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// TestUnknownNamesAreHinted: of every noun that has a name, a name that is typed wrongly is answered
// by the one that may have been meant, by where to look, and by exit code 5.
func TestUnknownNamesAreHinted(t *testing.T) {
	f := windows(t)
	addMadrid(t, f, "30 2 * * *")
	f.schedules.all[0].Name = "nightly"
	for args, want := range map[string]string{
		"schedule show nightl":            "no such schedule: nightl; did you mean nightly?\nSee: harp schedule ls\n",
		"schedule next nightl":            "did you mean nightly?",
		"schedule rm nightl --dry-run":    "did you mean nightly?",
		"schedule pause nightl --dry-run": "did you mean nightly?",
		"schedule history nightl":         "did you mean nightly?",
		"maint show hour":                 "no such window: hour; did you mean hours?\nSee: harp maint ls\n",
		"maint rm hour --dry-run":         "did you mean hours?",
		"maint spans hour":                "did you mean hours?",
	} {
		got := runFake(t, t.Context(), f, nil, strings.Fields(args)...)
		if got.code != exitNotFound || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	if len(f.schedules.deleted)+len(f.maintenance.deleted)+len(f.schedules.changes) > 0 {
		t.Error(f.schedules.deleted, f.maintenance.deleted, f.schedules.changes)
	}
}

// TestSeveralNames: what is done to one is done to each of several, also to those on stdin; one that
// is not there does not keep the others, and the exit code is the worst.
func TestSeveralNames(t *testing.T) {
	f := windows(t)
	got := runFake(t, t.Context(), f, nil, "maint", "rm", "db", "hous", "later", "db")
	if want := "deleted window db\nharp: no such window: hous; did you mean hours?\nSee: harp maint ls\ndeleted window later\n"; got.code != exitNotFound || got.stderr != want {
		t.Errorf("%d\n%s", got.code, got.stderr)
	}
	got = runFake(t, t.Context(), f, typed("hours\nopen\n"), "maint", "rm", "-", "-o", "json")
	if want := "{\"v\":1,\"name\":\"hours\"}\n{\"v\":1,\"name\":\"open\"}\n"; got.code != exitOK || got.stdout != want {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(f.maintenance.deleted, []string{"db", "hous", "later", "hours", "open"}) {
		t.Error(f.maintenance.deleted)
	}
	got = runFake(t, t.Context(), f, nil, "maint", "rm", "odd", "never", "--dry-run")
	if got.code != exitOK || got.stdout != "would delete window odd\nwould delete window never\n" || len(f.maintenance.deleted) != 5 {
		t.Errorf("%+v %v", got, f.maintenance.deleted)
	}
	if got = runFake(t, t.Context(), f, typed(""), "maint", "rm", "-"); got.code != exitUsage || !strings.Contains(got.stderr, "invalid name: no names on stdin") {
		t.Errorf("%+v", got)
	}
}

// TestEveryNamedNounHasAList: what an error calls a noun leads to the command that lists them.
func TestEveryNamedNounHasAList(t *testing.T) {
	for noun := range namesOf {
		if next := nextStep(failures.NotFound(noun, "x")); !strings.HasPrefix(next, "harp ") || !strings.HasSuffix(next, " ls") {
			t.Errorf("%s: %q", noun, next)
		}
	}
}

// TestCommandsOfOtherProgramsBelowAGroup: a word that is no command of a group is answered by the one
// that may be meant, whatever flags stand behind it.
func TestCommandsOfOtherProgramsBelowAGroup(t *testing.T) {
	for args, want := range map[string]string{
		"schedule trigger nightly":      `unknown command "trigger"; did you mean schedule run?`,
		"schedule resume nightly":       "did you mean schedule unpause?",
		"schedule edit nightly":         "did you mean schedule add --replace?",
		"schedule logs nightly":         "did you mean schedule history?",
		"schedule describe nightly":     "did you mean schedule show?",
		"retain add x --keep 1d":        `unknown command "add"; did you mean retain set?`,
		"group create x 'role=web'":     "did you mean group set?",
		"batch wait last":               "did you mean batch results?",
		"batch logs last":               "did you mean batch follow?",
		"notify disable x":              "did you mean notify pause?",
		"maint start":                   "did you mean maint on?",
		"drift show base --name x":      "did you mean drift ls?",
		"job status last":               "did you mean job show?",
		"job kill last":                 "did you mean job cancel --now?",
		"schedule nonsense --replace x": `unknown command "nonsense"; available: add, `,
	} {
		got := runFake(t, t.Context(), ended(t, nil), nil, strings.Fields(args)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	root := newCLI(nil, nil, nil, func(string) string { return "" }).rootCommand()
	for group, words := range meantBelow {
		for word, name := range words {
			cmd, rest, err := root.Find(append([]string{group}, strings.Fields(name)...))
			if group != "*" && (err != nil || cmd.Name() != strings.Fields(name)[0] || cmd.HasAlias(word)) {
				t.Errorf("%s %s: %s is no command: %v %v", group, word, name, rest, err)
			}
		}
	}
}

// TestNobodyToAsk: that -y is missing is an error of its own, not an invalid flag.
func TestNobodyToAsk(t *testing.T) {
	got := runFake(t, t.Context(), offering(t, harp.TraitDangerous), nil, "call", "demo1", "count", "to=3", "-d")
	if want := "harp: count is marked dangerous, and there is no terminal to ask on; pass -y\n"; got.code != exitUsage || got.stderr != want {
		t.Errorf("%+v", got)
	}
	if !errors.Is(&unaskedError{"x"}, harp.ErrInvalid) {
		t.Error("not harp.ErrInvalid")
	}
}
