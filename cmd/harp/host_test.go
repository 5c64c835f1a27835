package main

import (
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

func TestHostsAreFiltered(t *testing.T) {
	f := ended(t, nil)
	f.hosts = []harp.HostStatus{
		{Name: "db01", Labels: map[string]string{"role": "db"}, Error: "dial: refused"},
		{Name: "web01", Online: true, Labels: map[string]string{"role": "web", "env": "prod"}, Procedures: []string{"count"}},
		{Name: "web02", Labels: map[string]string{"role": "web"}, Procedures: []string{"count", "hello"}},
	}
	for flags, want := range map[string]string{
		"":                                  "db01 web01 web02",
		"--online":                          "web01",
		"--away":                            "db01 web02",
		"--problems":                        "db01",
		"--label role=web":                  "web01 web02",
		"--label role=web --label env=prod": "web01",
		"--label role=":                     "",
		"--proc hello":                      "web02",
		"--match web*":                      "web01 web02",
		"--match *01 --away":                "db01",
	} {
		got := runFake(t, t.Context(), f, nil, append([]string{"host", "ls", "-o", "id"}, strings.Fields(flags)...)...)
		if names := strings.Join(strings.Fields(got.stdout), " "); got.code != 0 || names != want {
			t.Errorf("%s: got %+v, want %s", flags, got, want)
		}
	}
	for _, flags := range []string{"--match [", "--label role", "--online --away", "--proc a,b"} {
		if got := runFake(t, t.Context(), f, nil, append([]string{"host", "ls"}, strings.Fields(flags)...)...); got.code != exitUsage {
			t.Errorf("%s: got %+v", flags, got)
		}
	}
}
