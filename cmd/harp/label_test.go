package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

// Who is there is asked before several hosts are labelled.
func TestLabellingSeveralHostsIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name   string
		hosts  int
		change func(*cli)
		flag   string
		code   int
		asked  bool
	}{
		{"yes", 2, typing("y\n"), "-q", exitOK, true},
		{"no", 2, typing("n\n"), "-q", exitUsage, true},
		{"sure", 2, typing("n\n"), "-y", exitOK, false},
		{"one host", 1, typing("n\n"), "-q", exitOK, false},
		{"nobody to ask", 2, nil, "-q", exitOK, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{hosts: []harp.HostStatus{{Name: "web01"}, {Name: "web02"}}[:test.hosts], every: true}
			got := runFake(t, t.Context(), f, test.change, "host", "label", "web*", "role=web", "rack-", test.flag)
			if asked := strings.Contains(got.stderr, "Label 2 hosts?"); got.code != test.code || asked != test.asked || (len(f.labelled) == 1) != (test.code == exitOK) {
				t.Errorf("got %+v, and labelled %v", got, f.labelled)
			}
		})
	}
}

// Only hosts that were asked about are changed, though the target selects more by the answer, and the one for which nobody is
// asked is that one.
func TestHostsThatWereAskedAboutAreChanged(t *testing.T) {
	several, one := []harp.HostStatus{{Name: "web01"}, {Name: "web,02"}}, []harp.HostStatus{{Name: "web01"}}
	for _, test := range []struct {
		hosts  []harp.HostStatus
		change func(*cli)
		want   string
	}{
		{several, typing("y\n"), `web01,"web,02"`},
		{one, typing(""), "web01"},
		{several, nil, "web*"},
	} {
		for _, words := range []string{"label web* role=web", "pause web*", "unpause web*"} {
			f := &fake{hosts: test.hosts, every: true}
			got := runFake(t, t.Context(), f, test.change, append([]string{"host"}, strings.Fields(words)...)...)
			if did := slices.Concat(f.labelling, f.maintenance.paused); got.code != exitOK || !slices.Equal(did, []string{test.want}) {
				t.Errorf("%s: got %+v, and it changed %q, want %q", words, got, did, test.want)
			}
		}
	}
}

// Where hosts are so many that they are changed some at a time, and some of them are refused, it is told how many were changed before.
func TestHostsThatWereChangedBeforeARefusalAreTold(t *testing.T) {
	f := &fake{every: true}
	for n := range 2000 {
		f.hosts = append(f.hosts, harp.HostStatus{Name: fmt.Sprintf("web%04d.eu.example", n)})
	}
	f.changing = func(expr string) (int, error) {
		if strings.Contains(expr, "web1999") {
			return 0, failures.NotFound("host", "web1999.eu.example")
		}
		return strings.Count(expr, ",") + 1, nil
	}
	for _, words := range []string{"label web* role=web", "pause web*", "unpause web*"} {
		got := runFake(t, t.Context(), f, typing("y\n"), append([]string{"host"}, strings.Fields(words)...)...)
		if got.code != exitNotFound || !regexp.MustCompile(`harp: 1\d{3} of 2000 hosts were changed before it failed: .*web1999\.eu\.example`).MatchString(got.stderr) {
			t.Errorf("%s: got %+v", words, got)
		}
	}
}

// A long list of hosts is several targets, each of which a dispatcher takes.
func TestListsOfHostsAreTargets(t *testing.T) {
	var all, got []string
	for n := range 5000 {
		all = append(all, fmt.Sprintf("web%04d.eu.example", n))
	}
	for _, text := range listTargets(all) {
		e, err := target.Parse(text)
		if err != nil || len(text) > 60<<10 {
			t.Fatalf("a target of %d bytes: %v", len(text), err)
		}
		m, err := e.Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		names, only := m.Names()
		if got = append(got, names...); !only {
			t.Error("it looks at hosts")
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("they select %d hosts of %d", len(got), len(all))
	}
}
