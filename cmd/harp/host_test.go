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

// Who does not answer makes the exit code that of a host that cannot be reached.
func TestPingsThatAreNotAnswered(t *testing.T) {
	f := ended(t, nil)
	f.hosts = []harp.HostStatus{{Name: "web01", Online: true}, {Name: "web02", Online: true}, {Name: "web03"}}
	f.every = true
	got := runFake(t, t.Context(), f, nil, "host", "ping", "web*", "--time", "unix")
	want := said{
		stdout: "NAME   STATE     RTT    LAST HEARD\nweb01  answered  1.5ms\nweb02  silent\nweb03  away\n",
		stderr: "2 of 3 hosts did not answer\n",
		code:   exitUnreachable,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	f.hosts = f.hosts[:1]
	if got := runFake(t, t.Context(), f, nil, "host", "ping", "web01", "-o", "id"); got != (said{stdout: "web01\n"}) {
		t.Errorf("got %+v", got)
	}
}
