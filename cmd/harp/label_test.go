package main

import (
	"strings"
	"testing"

	"github.com/harpcaller/harp"
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
