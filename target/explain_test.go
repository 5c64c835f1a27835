package target

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// outline writes an explanation, a line for each part.
func outline(n Node, indent string) string {
	text := fmt.Sprintf("%s%s: %d", indent, n.Text, n.Hosts)
	if n.Value != "" {
		text += " (" + n.Value + ")"
	}
	text += "\n"
	for _, part := range n.Parts {
		text += outline(part, indent+"  ")
	}
	return text
}

// TestExplain: each part says whether it selects the host, and what that has there.
func TestExplain(t *testing.T) {
	want := `role=web and not fact.kernel<6.1,10.0.0.0/8 or @nested and ~"x",db01,host.addr=::1,role!=x: 1
  role=web and not fact.kernel<6.1,10.0.0.0/8: 0
    role=web: 1 (web)
    not fact.kernel<6.1,10.0.0.0/8: 0
      fact.kernel<6.1,10.0.0.0/8: 1
        fact.kernel<6.1: 0 (6.1.0-18-amd64)
        10.0.0.0/8: 1 (10.20.3.4, 2001:db8::1, ::ffff:192.168.1.100, fe80::1%eth0)
  @nested and ~"x",db01,host.addr=::1,role!=x: 1
    @nested: 1
      @web and role=web: 1
        @web: 1
          web*: 1 (web01.example)
        role=web: 1 (web)
    ~"x",db01,host.addr=::1,role!=x: 1
      ~x: 0 (web01.example)
      db01: 0 (web01.example)
      host.addr=::1: 0 (10.20.3.4, 2001:db8::1, ::ffff:192.168.1.100, fe80::1%eth0)
      role!=x: 1 (web)
`
	m := compile(t, `role=web and not (fact.kernel<6.1,10.0.0.0/8) or @nested and (~"x",db01,host.addr=::1,role!=x)`, testGroups)
	if got := outline(m.Explain(web), ""); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

// TestExplainValues: what a host has is shown as a target sees it.
func TestExplainValues(t *testing.T) {
	for key, want := range map[string]string{
		"role": "web", "other": "", "fact.os.name": "debian", "fact.os": "", "fact.cpus": "4", "fact.load": "0.5", "fact.offset": "-3",
		"fact.virtual": "true", "fact.roles": "a, b, 7", "fact.ips": "x, y", "fact.other": "", "fact.none": "", "host.name": "web01.example", "host.heard": "5m0s",
		"host.proc": "service.restart, hello", "host.online": "true", "host.drift.base": "dirty", "host.drift.x": "",
	} {
		if got := compile(t, key+"=*", nil).Explain(web).Value; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := compile(t, "host.heard=*", nil).Explain(bare).Value; got != "" {
		t.Errorf("one that was never heard was heard %s ago", got)
	}
}

// TestCount: each part says how many hosts it selects by itself.
func TestCount(t *testing.T) {
	table := newTable([]*testHost{web, bare, {name: "web02", labels: map[string]string{"role": "web"}}})
	want := `role=web and not @web: 0
  role=web: 2
  not @web: 1
    @web: 2
      web*: 2
`
	if got := outline(compile(t, "role=web and not @web", testGroups).Count(table), ""); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

// TestExplainIsBounded: an explanation of much is not itself as much.
func TestExplainIsBounded(t *testing.T) {
	name := strings.Repeat("é", 1000)
	m := compile(t, "a,b,c or "+strings.Repeat("x,", maxExplained)+name, nil)
	n := m.Explain(&testHost{name: name})
	if len(n.Text) > maxExplainedText+3 || !strings.HasSuffix(n.Text, "…") || !strings.HasPrefix(n.Text, "a,b,c or x,") {
		t.Errorf("the text has %d bytes", len(n.Text))
	}
	if len(n.Parts) != 2 || len(n.Parts[0].Parts) != 3 || n.Parts[1].Parts != nil || n.Parts[1].Hosts != 1 {
		t.Errorf("it has the parts %v", n.Parts)
	}
	if v := n.Parts[0].Parts[0].Value; len(v) > maxExplainedText+3 || !strings.HasPrefix(name, strings.TrimSuffix(v, "…")) {
		t.Errorf("a value has %d bytes", len(v))
	}
	if full := compile(t, strings.Repeat("x,", maxExplained-1)+"y", nil).Explain(bare); len(full.Parts) != maxExplained {
		t.Errorf("a list of %d items has %d parts", maxExplained, len(full.Parts))
	}
	if one := compile(t, "x", nil).Explain(bare); !reflect.DeepEqual(one, Node{Text: "x", Value: "db01"}) {
		t.Errorf("%#v", one)
	}
}
