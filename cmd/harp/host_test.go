package main

import (
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

func TestHostsWithProblems(t *testing.T) {
	f := ended(t, nil)
	f.hosts = []harp.HostStatus{{Name: "db01", Error: "dial: refused"}, {Name: "web01", Online: true}}
	for args, want := range map[string]string{
		"":                 "db01 web01",
		"--problems":       "db01",
		"web01":            "web01",
		"web01 --problems": "",
	} {
		got := runFake(t, t.Context(), f, nil, append([]string{"host", "ls", "-o", "id"}, strings.Fields(args)...)...)
		if names := strings.Join(strings.Fields(got.stdout), " "); got.code != 0 || names != want {
			t.Errorf("%s: got %+v, want %s", args, got, want)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "host", "ls", "web01 db01"); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}
