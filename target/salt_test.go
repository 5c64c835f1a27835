package target

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFromSalt: each of Salt's letters, and what it is here.
func TestFromSalt(t *testing.T) {
	const noteCase, notePillar, noteID = "ignores case", "pillars are labels", "the grain id"
	for _, c := range []struct {
		salt, want string
		notes      []string
	}{
		{"web*", "web*", nil},
		{`E@web\d+`, `~web\d+.*`, nil},
		{`E@web\d+$`, `~web\d+`, nil},
		{`E@^web`, `~web.*`, nil},
		{`E@web.*`, `~web.*`, nil},
		{`E@web\$`, `~web\$.*`, nil},
		{`E@web\\$`, `~web\\`, nil},
		{`E@web\.*`, `~web\.*.*`, nil},
		{`E@web|db$`, `~(?:web|db$).*`, nil},
		{`E@web[|]`, `~web[|].*`, nil},
		{`E@web\|`, `~web\|.*`, nil},
		{`E@(web|db)`, `~(web|db).*`, nil},
		{`E@^$`, `~()`, nil},
		{"L@a,b", "a,b", nil},
		{"L@a,,b*,and", `a,"b*","and"`, nil},
		{"L@G@x", `"G@x"`, nil},
		{"G@os:Debian", "fact.os=Debian", []string{noteCase}},
		{"G@os:name:x", "fact.os.name=x", []string{noteCase}},
		{"G@os:*", "fact.os=*", nil},
		{"G@os:", `fact.os=""`, []string{noteCase}},
		{"G@a.b:c", `fact."a.b"=c`, []string{noteCase}},
		{"G@os:Deb*", "fact.os=Deb*", []string{noteCase}},
		{"G@os:and", "fact.os=and", []string{noteCase}},
		{"G@id:ms-3", "host.name=ms-3", []string{noteID}},
		{"P@id:ms", "host.name~ms.*", []string{noteID}},
		{"P@os:Red", "fact.os~Red.*", []string{noteCase}},
		{"P@os:(RedHat|Fedora|CentOS)", "fact.os~(RedHat|Fedora|CentOS).*", []string{noteCase}},
		{"S@10.0.0.0/8", "10.0.0.0/8", nil},
		{"S@10.1.2.3", "host.addr=10.1.2.3", nil},
		{"S@2001:db8::/32 or S@::1", "2001:db8::/32 or host.addr=::1", nil},
		{"N@frontend", "@frontend", nil},
		{"I@role:web", "role=web", []string{notePillar, noteCase}},
		{"I@foo:bar:baz*", "foo.bar=baz*", []string{notePillar, noteCase}},
		{"I@fact:x:y", "label.fact.x=y", []string{notePillar, noteCase}},
		{"J@role:web", "role~web.*", []string{notePillar, noteCase}},
		{"G|@a|b:c", `fact.a=b:c`, []string{noteCase}},
		{"J!@repo!https://x:y", "repo~https://x:y.*", []string{notePillar, noteCase}},
		{"a and b or not c", "a and b or not c", nil},
		{"not a", "not a", nil},
		{"a not b", "a and not b", nil},
		{"( a or b ) not c", "(a or b) and not c", nil},
		{"(a or b)and c", "(a or b) and c", nil},
		{"(a or (E@b(c|d) and e))", "a or ~b(c|d).* and e", nil},
		// What means something else here than to fnmatch.
		{"web[1-5]", "web[1-5]", nil},
		{"web[0-9]", "web[0-9]", nil},
		{"web[10-20]", "web[1,0-2,0]", nil},
		{"web[1,3]", `web[1\,3]`, nil},
		{"web[!1-5]", "web[!1-5]", nil},
		{"web[]x]", `web[\]x]`, nil},
		{"web[!]x]", `web[!\]x]`, nil},
		{"web[^x]", `web[\^x]`, nil},
		{"web[x", `"web[x"`, nil},
		{"web[a-]", `web[a\-]`, nil},
		{"web[ba-b]", "web[ba-b]", nil},
		{"web[bz-a]", "web[b]", nil},
		{`web{a,b}\*`, `web\{a\,b\}\\*`, nil},
		{"web=a*", `web\=a*`, nil},
		{"X@web", "X@web", nil},
		{"10.0.0.0/8", `"10.0.0.0/8"`, nil},
	} {
		got, notes, err := FromSalt(c.salt)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, error %v, want %s", c.salt, got, err, c.want)
		}
		if len(notes) != len(c.notes) {
			t.Errorf("%s: notes %q, want %q", c.salt, notes, c.notes)
			continue
		}
		for i := range notes {
			if !strings.Contains(notes[i], c.notes[i]) {
				t.Errorf("%s: note %q, want %q", c.salt, notes[i], c.notes[i])
			}
		}
	}
}

// TestFromSaltRefuses: what cannot be said here is refused, at its place in Salt's text.
func TestFromSaltRefuses(t *testing.T) {
	for _, c := range []struct {
		salt   string
		offset int
		want   string
	}{
		{"", 0, "a name"},
		{"a and R@%x", 6, "range server"},
		{"D@key:value", 0, "data store"},
		{"T@ssh and a", 0, "resources"},
		{"a or M@x", 5, "resources"},
		{"G@os", 0, "a key and a value"},
		{"a or G@ipv6:2001:db8::1", 5, "another delimiter"},
		{"G@*:x", 0, "keys written out"},
		{"E@(a", 2, "missing closing )"},
		{"a or P@os:(a", 10, "missing closing )"},
		{"E@(?=a)b", 2, "invalid or unsupported Perl syntax"},
		{"S@10.1.2.3/8", 2, "10.0.0.0/8"},
		{"S@web", 2, "an address"},
		{"L@", 2, "names"},
		{"N@", 0, "nodegroup"},
		{"web[z-a]", 3, "smaller character"},
		{"a b", 2, `"and", "or"`},
		{"a and G@os:x G@os:y", 13, `"and", "or"`},
		{"( a", 3, `")"`},
		{"a )", 2, `"and", "or"`},
		{"a and", 5, "a name"},
		{"and a", 0, "a name"},
		{"a\xff", 1, "UTF-8"},
		{"E@" + strings.Repeat("a", maxRegexp+1), 0, "at most"},
		{strings.Repeat("E@a or ", maxOthers+1) + "b", 7 * maxOthers, "at most"},
		{strings.Repeat("a", maxText+1), maxText, "at most"},
	} {
		_, _, err := FromSalt(c.salt)
		var wrong *SyntaxError
		if !errors.As(err, &wrong) || wrong.Offset != c.offset || !strings.Contains(wrong.Want, c.want) {
			t.Errorf("%.60q: %v, want at byte %d: %s", c.salt, err, c.offset, c.want)
		}
		if wrong != nil && !strings.HasPrefix(c.salt[wrong.Offset:], wrong.Found) {
			t.Errorf("%.60q: found %q is not there", c.salt, wrong.Found)
		}
	}
}

// The compound targets of Salt's documentation (compound matchers, node groups, grains,
// resources), but for R@ and T@, which ask for what is not here.
var saltDocs = []string{
	"G@os:Ubuntu",
	`E@web\d+\.(dev|qa|prod)\.loc`,
	"P@os:(RedHat|Fedora|CentOS)",
	"L@minion1.example.com,minion3.domain.com or bl*.domain.com",
	"I@pdata:foobar",
	"J@pdata:^(foo|bar)$",
	"S@192.168.1.0/24 or S@192.168.1.100",
	"S@192.168.1.0/24",
	"S@192.168.1.100",
	"N@group1",
	"webserv* and G@os:Debian or E@web-dc1-srv.*",
	"not web-dc1-srv",
	"* and not G@kernel:Darwin",
	"* and not web-dc1-srv",
	"( ms-1 or G@id:ms-3 ) and G@id:ms-3",
	"J|@foo|bar|^foo:bar$ or J!@gitrepo!https://github.com:example/project.git",
	"L@foo.domain.com,bar.domain.com,baz.domain.com or bl*.domain.com",
	"G@os:Debian and foo.domain.com",
	"G@os:Debian and N@group1",
	"G@foo:bar or G@foo:baz",
	"L@host1,host2,host3",
	"L@cheese,foo and *",
	"webserv* and G@os:Debian or E@db*",
	"G@environment:prod and G@role:web",
	"P@environment:^production-.*",
	"G@ec2_tags:environment:*production*",
	"G@cpuarch:x86_64 and web?.example.net",
	"web[1-5] or web[1,3] or web-[x-z]",
}

// saltGroups are the node groups of the documentation.
var saltGroups = map[string]string{"group1": "L@foo.domain.com,bar.domain.com,baz.domain.com or bl*.domain.com"}

// saltFleet is a fleet of minions whose pillars are labels. Some are meant by a target of
// the documentation, some nearly.
func saltFleet() (fleet []*testHost) {
	for i, name := range []string{
		"web1", "web3", "web5", "web6", "web,", "web-x", "web-a", "web1.example.net", "web12.dev.loc", "web12.dev.local", "web.dev.loc", "webserv1", "xwebserv1",
		"web-dc1-srv", "web-dc1-srv2", "minion1.example.com", "minion3.domain.com", "bl1.domain.com", "foo.domain.com", "bar.domain.com", "ms-1", "ms-3",
		"host1", "host2", "cheese", "foo", "d", "db", "dbb1", "lone",
	} {
		for j, os := range []string{"Debian", "Ubuntu", "RedHat", "Fedora Linux", "CentOS"} {
			h := &testHost{name: name, labels: map[string]string{}, facts: map[string]any{"id": name, "os": os, "kernel": "Linux"}}
			switch (i + j) % 5 {
			case 0:
				h.labels = map[string]string{"pdata": "foobar", "foo.bar": "foo:bar"}
				h.facts["foo"] = []any{"x", "bar"}
				h.addresses = addresses("192.168.1.100")
			case 1:
				h.labels = map[string]string{"pdata": "foo", "gitrepo": "https://github.com:example/project.git"}
				h.facts["kernel"] = "Darwin"
				h.addresses = addresses("10.0.0.1", "192.168.1.7")
			case 2:
				h.labels = map[string]string{"pdata": "bar", "gitrepo": "http://github.com:example/project.git"}
				h.facts["environment"], h.facts["role"] = "prod", "web"
				h.addresses = addresses("192.168.2.100")
			case 3:
				h.labels["foo.bar"] = "foo:bars"
				h.facts["environment"], h.facts["foo"] = "production-eu", "baz"
				h.facts["ec2_tags"] = map[string]any{"environment": "my-production-1"}
			case 4:
				h.facts["cpuarch"], h.facts["role"] = "x86_64", "web"
			}
			fleet = append(fleet, h)
		}
	}
	return fleet
}

// saltMatch says what Salt would, term by term. It is a second opinion on what
// translations select, and knows no more than the documented targets need.
func saltMatch(words []string, h *testHost) bool {
	var stack [][]bool // sums of products, by parentheses: each a list of alternatives
	var negated []bool
	push := func() { stack, negated = append(stack, []bool{true}), append(negated, false) }
	value := func(v bool) {
		top := len(stack) - 1
		alternatives := stack[top]
		alternatives[len(alternatives)-1] = alternatives[len(alternatives)-1] && v != negated[top]
		negated[top] = false
	}
	push()
	for _, word := range words {
		switch top := len(stack) - 1; word {
		case "(":
			push()
		case ")":
			inner := slices.Contains(stack[top], true)
			stack, negated = stack[:top], negated[:top]
			value(inner)
		case "and":
		case "or":
			stack[top] = append(stack[top], true)
		case "not":
			negated[top] = true
		default:
			value(saltTerm(word, h))
		}
	}
	return slices.Contains(stack[0], true)
}

func saltTerm(term string, h *testHost) bool {
	letter, rest, found := strings.Cut(term, "@")
	if !found {
		ok, _ := path.Match(term, h.name)
		return ok
	}
	switch letter[0] {
	case 'L':
		return slices.Contains(strings.Split(rest, ","), h.name)
	case 'E':
		return regexp.MustCompile("^(?:" + rest + ")").MatchString(h.name)
	case 'S':
		network, err := netip.ParsePrefix(rest)
		if err != nil {
			network, _ = netip.MustParseAddr(rest).Prefix(32)
		}
		return slices.ContainsFunc(h.addresses, network.Contains)
	case 'N':
		return saltMatch(strings.Fields(saltGroups[rest]), h)
	}
	delimiter := ":"
	if len(letter) > 1 {
		delimiter = letter[1:]
	}
	keys := strings.Split(rest, delimiter)
	want := keys[len(keys)-1]
	keys = keys[:len(keys)-1]
	var has any
	if letter[0] == 'I' || letter[0] == 'J' {
		label, ok := h.labels[strings.Join(keys, ".")]
		if !ok {
			return false
		}
		has = label
	} else {
		has, _ = h.Fact(keys)
	}
	like := func(v any) bool {
		if v == nil {
			return false
		}
		text := strings.ToLower(fmt.Sprint(v))
		if letter[0] == 'P' || letter[0] == 'J' {
			return regexp.MustCompile("(?i)^(?:" + want + ")").MatchString(text)
		}
		ok, _ := path.Match(strings.ToLower(want), text)
		return ok
	}
	if list, ok := has.([]any); ok {
		return slices.ContainsFunc(list, like)
	}
	return like(has)
}

// TestSaltDocs: what Salt's documentation selects is selected by its translation.
func TestSaltDocs(t *testing.T) {
	groups := map[string]string{}
	for name, text := range saltGroups {
		expr, _, err := FromSalt(text)
		if err != nil {
			t.Fatal(err)
		}
		groups[name] = expr
	}
	fleet := saltFleet()
	for _, salt := range saltDocs {
		expr, _, err := FromSalt(salt)
		if err != nil {
			t.Errorf("%s: %v", salt, err)
			continue
		}
		m := compile(t, expr, groups)
		selected := 0
		for _, h := range fleet {
			want := saltMatch(strings.Fields(salt), h)
			if got := m.Match(h); got != want {
				t.Errorf("%s, here %s: %s is selected: %v, by Salt: %v", salt, expr, h.name, got, want)
			}
			if want {
				selected++
			}
		}
		if selected == len(fleet) || selected == 0 {
			t.Errorf("%s: %d of %d hosts are selected, which shows nothing", salt, selected, len(fleet))
		}
	}
}

func FuzzFromSalt(f *testing.F) {
	for _, text := range saltDocs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expr, notes, err := FromSalt(text)
		if err != nil {
			var wrong *SyntaxError
			if !errors.As(err, &wrong) || wrong.Offset < 0 || wrong.Offset > len(text) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if e, err := Parse(expr); err != nil || e.String() != expr {
			t.Fatalf("%q is translated to %s, which is no target: %v; notes %q", text, expr, err, notes)
		}
	})
}
