package target

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// web is a host of which everything is known, bare one of which nothing is but its name.
var (
	web = &testHost{
		name:   "web01.example",
		labels: map[string]string{"role": "web", "env": "prod", "empty": "", "a.b": "c", "version": "1.10"},
		facts: map[string]any{
			"os": map[string]any{"name": "debian", "like": nil}, "kernel": "6.1.0-18-amd64", "cpus": 4, "memory": uint64(math.MaxUint64),
			"load": 0.5, "offset": int8(-3), "virtual": true, "roles": []any{"a", "b", 7}, "ips": []string{"x", "y"}, "none": nil,
			"empty": []any{}, "map": map[string]any{}, "a.b": map[string]any{"c": "d"}, "booted": time.Unix(0, 0), "nan": math.NaN(),
			"nested": []any{[]any{1, 2}, "z"}, "big": int64(math.MinInt64), "release": 12.0,
		},
		addresses:  addresses("10.20.3.4", "2001:db8::1", "::ffff:192.168.1.100", "fe80::1%eth0"),
		procedures: []string{"service.restart", "hello"},
		heard:      ago(5 * time.Minute),
		properties: map[string]string{"online": "true", "paused": "false", "software": "0.4.1", "drift.base": "dirty", "drift.a b": "clean"},
	}
	bare = &testHost{name: "db01"}
)

var testGroups = map[string]string{"web": "web*", "nested": "@web and role=web", "all": "*"}

// TestMatch: each rule of what a target means, on a host of which everything is known and
// on one of which nothing is.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		target    string
		web, bare bool
	}{
		// Names, lists, operators.
		{"web01.example", true, false},
		{"WEB01.example", false, false},
		{"web*,db01", true, true},
		{"a,db01,b", false, true},
		{"a,~db.*", false, true},
		{"~web", false, false},
		{"~web.*", true, false},
		{`~web|db\d+`, false, true},
		{"web* and role=web", true, false},
		{"web* and db*", false, false},
		{"web* or db*", true, true},
		{"not web*", false, true},
		{"not not web*", true, false},
		{"web* or db* and role=web", true, false},
		{"(web* or db*) and not role=web", false, true},
		{"web*,db* and not role=web", false, true},
		// Groups.
		{"@web", true, false},
		{"@nested", true, false},
		{"not @nested", false, true},
		{"@all,@web", true, true},
		// Absent keys.
		{"role=web", true, false},
		{"role=db", false, false},
		{"role!=web", false, true},
		{"role!=db", true, true},
		{"role~w.b", true, false},
		{"role!~w.b", false, true},
		{"role!~x", true, true},
		{"role=*", true, false},
		{"not role=*", false, true},
		{"role!=*", false, true},
		{"empty=*", true, false},
		{`empty=""`, true, false},
		{"none=*", false, false},
		{"fact.cpus<5", true, false},
		{"fact.cpus>=5", false, false},
		{"not fact.cpus>=5", true, true},
		{"fact.none=*", false, false},
		{"fact.none!=x", true, true},
		{"fact.none~.*", false, false},
		{"fact.os.like=*", false, false},
		// Patterns in values.
		{"role={web,db}", true, false},
		{"role=w?b and env=pr*", true, false},
		{"a.b=c", true, false},
		// Facts by path.
		{"fact.os.name=debian", true, false},
		{"fact.os=*", true, false},
		{"fact.os=debian", false, false},
		{"fact.os~.*", false, false},
		{"fact.os<z", false, false},
		{"fact.map=*", true, false},
		{"fact.empty=*", true, false},
		{"fact.empty=?*", false, false},
		{`fact."a.b".c=d`, true, false},
		{"fact.a.b.c=d", false, false},
		{"fact.cpus.x=1", false, false},
		{"fact.booted=*", true, false},
		{"fact.booted=1970*", false, false},
		// Numbers.
		{"fact.cpus=4", true, false},
		{"fact.cpus=4.0", true, false},
		{"fact.cpus=+4", true, false},
		{"fact.cpus=4e0", true, false},
		{"fact.cpus=04", true, false},
		{"fact.cpus=5", false, false},
		{"fact.cpus=x", false, false},
		{"fact.cpus!=x", true, true},
		{"fact.cpus>3.9", true, false},
		{"fact.cpus>4", false, false},
		{"fact.cpus>=4", true, false},
		{"fact.cpus<=4", true, false},
		{"fact.cpus<4", false, false},
		{"fact.cpus<10", true, false},
		{"fact.cpus=?", true, false},
		{"fact.cpus=[2-4]", true, false},
		{`fact.cpus~\d`, true, false},
		{"fact.cpus<4a", true, false},
		{"fact.offset=-3", true, false},
		{"fact.offset<0", true, false},
		{"fact.offset>-4", true, false},
		{"fact.offset>-2", false, false},
		{"fact.offset=-?", true, false},
		{"fact.load=0.5", true, false},
		{"fact.load=.5", true, false},
		{"fact.load=0.*", true, false},
		{"fact.load<1", true, false},
		{"fact.release=12", true, false},
		{"fact.release=1?", true, false},
		{"fact.memory=18446744073709551615", true, false},
		{"fact.memory=18446744073709551614", false, false},
		{"fact.memory>18446744073709551614", true, false},
		{"fact.memory>1e3", true, false},
		{"fact.memory>-1", true, false},
		{"fact.big=-9223372036854775808", true, false},
		{"fact.big<-9223372036854775807", true, false},
		{"fact.big<18446744073709551615", true, false},
		{"fact.nan=*", true, false},
		{"fact.nan<1", false, false},
		{"fact.nan>=1", false, false},
		{"fact.cpus=0x4", false, false},
		{"fact.cpus<inf", false, false}, // a word comes before a number
		// Versions.
		{"fact.kernel>=6.1", true, false},
		{"fact.kernel<6.1.0-101", true, false},
		{"fact.kernel>6.1.0-9", true, false},
		{"fact.kernel<6", false, false},
		{"version>1.9", true, false},
		{"version>=1.10.0", true, false},
		{"version<=1.10.0", true, false},
		{"version<1.10.0", false, false},
		{"version=1.10.0", false, false},
		// Booleans, lists.
		{"fact.virtual=true", true, false},
		{"fact.virtual=false", false, false},
		{"fact.virtual=t*", true, false},
		{"fact.virtual=1", false, false},
		{"fact.virtual>a", false, false},
		{"fact.virtual~true|false", true, false},
		{"fact.roles=a", true, false},
		{"fact.roles=b", true, false},
		{"fact.roles=c", false, false},
		{"fact.roles!=a", false, true},
		{"fact.roles!=c", true, true},
		{"fact.roles=7", true, false},
		{"fact.roles>6", true, false},
		{"fact.ips=y", true, false},
		{"fact.ips=z", false, false},
		{"fact.nested=2", true, false},
		{"fact.nested=3", false, false},
		// Addresses.
		{"10.20.0.0/16", true, false},
		{"10.0.0.0/16", false, false},
		{"2001:db8::/32", true, false},
		{"192.168.1.0/24", true, false},
		{"fe80::/10", true, false},
		{"0.0.0.0/0", true, false},
		{"not 10.0.0.0/8", false, true},
		{"host.addr=10.20.3.4", true, false},
		{"host.addr=10.20.3.5", false, false},
		{"host.addr=fe80::1", true, false},
		{"host.addr=192.168.1.100", true, false},
		{"host.addr=10.20.0.0/16", true, false},
		{"host.addr!=10.20.0.0/16", false, true},
		{"host.addr=10.20.*", true, false},
		{`host.addr~10\..*`, true, false},
		{"host.addr=*", true, false},
		// What is known of a host.
		{"host.name=web*", true, false},
		{"host.name!=web*", false, true},
		{"host.name<web", false, true},
		{"host.online=true", true, false},
		{"host.online!=true", false, true},
		{"host.paused=false", true, false},
		{"host.heard<10m", true, false},
		{"host.heard<5m", false, false},
		{"host.heard<=5m", true, false},
		{"host.heard>=5m", true, false},
		{"host.heard>1h", false, false},
		{"host.heard<1d", true, false},
		{"host.heard>=2d", false, false},
		{"host.heard=*", true, false},
		{"host.heard!=*", false, true},
		{"host.software<0.4.2", true, false},
		{"host.software=0.4*", true, false},
		{"host.proc=hello", true, false},
		{"host.proc=service.*", true, false},
		{"host.proc=reboot", false, false},
		{"host.proc!=reboot", true, true},
		{"host.proc=*", true, false},
		{`host.proc~hel+o`, true, false},
		{"host.drift.base=dirty", true, false},
		{"host.drift.base={clean,dirty}", true, false},
		{"host.drift.other=dirty", false, false},
		{`host.drift."a b"=clean`, true, false},
	} {
		m := compile(t, c.target, testGroups)
		if got := m.Match(web); got != c.web {
			t.Errorf("%s: Match is %v, want %v", c.target, got, c.web)
		}
		if got := m.Match(bare); got != c.bare {
			t.Errorf("%s of a host of which nothing is known: Match is %v, want %v", c.target, got, c.bare)
		}
		want := []int{}
		for i, selected := range []bool{c.web, c.bare} {
			if selected {
				want = append(want, i)
			}
		}
		if got := m.Select(newTable([]*testHost{web, bare})); !slices.Equal(got, want) {
			t.Errorf("%s: Select is %v, want %v", c.target, got, want)
		}
	}
}

// TestNames: the names that are written out are told apart from what is matched.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		target string
		names  []string
		only   bool
	}{
		{"web02,web01", []string{"web01", "web02"}, true},
		{"a or b,c or (a)", []string{"a", "b", "c"}, true},
		{`"web*"`, []string{"web*"}, true},
		{"a,b*", []string{"a"}, false},
		{"a and b", []string{"a", "b"}, false},
		{"a and not b", []string{"a"}, false},
		{"not not a", nil, false},
		{"not (a and (b or c))", nil, false},
		{"@web,a", []string{"a"}, false},
		{"role=a", nil, false},
		{"*", nil, false},
		{"host.name=a", nil, false},
	} {
		names, only := compile(t, c.target, map[string]string{"web": "x"}).Names()
		if !slices.Equal(names, c.names) || only != c.only {
			t.Errorf("%s: %q, only them: %v, want %q, %v", c.target, names, only, c.names, c.only)
		}
	}
	m := compile(t, "a,b", nil)
	names, _ := m.Names()
	names[0] = "x"
	if again, _ := m.Names(); again[0] != "a" {
		t.Error("the names were changed by who asked for them")
	}
}

// TestCompileGroups: a group that cannot be used is named, with why.
func TestCompileGroups(t *testing.T) {
	errGone := errors.New("gone")
	groups := map[string]string{
		"self": "@self", "a": "x or @b", "b": "@c", "c": "not @a", "wrong": "role =x",
		"deep8": "x", "twice": "@web,@web", "web": "web*", "names": strings.Repeat("n,", maxItems-1) + "n",
		"many": strings.TrimSuffix(strings.Repeat("x*,", maxOthers), ","), "within": strings.Repeat("(", maxDepth) + "a" + strings.Repeat(")", maxDepth),
		"nearly": strings.Repeat("(", maxDepth-1) + "a" + strings.Repeat(")", maxDepth-1),
		"regexp": "~a{900} or ~b{900}", "regexp2": "~c{900} or ~d{900}",
	}
	for i := range 8 {
		groups[fmt.Sprint("deep", i)] = fmt.Sprint("@deep", i+1)
		groups[fmt.Sprint("often", i)] = strings.TrimSuffix(strings.Repeat(fmt.Sprintf("@often%d,", i+1), 10), ",")
	}
	groups["often8"] = "no*"
	calls := map[string]int{}
	group := func(name string) (string, error) {
		calls[name]++
		text, ok := groups[name]
		if !ok {
			return "", errGone
		}
		return text, nil
	}
	errSyntax := errors.New("a SyntaxError")
	for _, c := range []struct {
		target, name string
		offset       int
		want         error // nil if it compiles
	}{
		{"a,@gone", "gone", 2, errGone},
		{"@self", "self", 0, ErrGroupCycle},
		{"y and @a", "a", 6, ErrGroupCycle},
		{"@wrong", "wrong", 0, errSyntax},
		{"@deep1", "", 0, nil},
		{"@deep0", "deep0", 0, ErrTooDeep},
		{"@deep8 or @deep7 or @deep6 or @deep5 or @deep4 or @deep3 or @deep2 or @deep1 or @deep0", "deep0", 80, ErrTooDeep},
		{"@within", "within", 0, ErrTooDeep},
		{"@nearly", "", 0, nil},
		{"@nearly or @web", "", 0, nil},
		{"(a and (@web))", "", 0, nil},
		{"not @nearly", "", 0, errSyntax},
		{"@twice and @web or not @twice", "", 0, nil},
		{"@names", "", 0, errSyntax},
		{"@many", "", 0, errSyntax},
		{"@regexp", "", 0, nil},
		{"@regexp,@regexp2", "", 0, errSyntax},
		{"@often5", "", 0, nil},
		{"@often5 or @often6", "", 0, nil},
		{"@often5 or @often6 and not @often5", "", 0, errSyntax},
		{"@often1", "often1", 0, errSyntax},
	} {
		e, err := Parse(c.target)
		if err != nil {
			t.Fatal(err)
		}
		clear(calls)
		_, err = e.Compile(NewGroups(group))
		for name, n := range calls {
			if n > 1 {
				t.Errorf("%s: group %s was asked for %d times", c.target, name, n)
			}
		}
		var wrong *GroupError
		var syntax *SyntaxError
		switch {
		case c.want == nil:
			if err != nil {
				t.Errorf("%s: %v", c.target, err)
			}
		case !errors.Is(err, c.want) && (!errors.Is(c.want, errSyntax) || !errors.As(err, &syntax)):
			t.Errorf("%s: %v, want %v", c.target, err, c.want)
		case c.name != "" && (!errors.As(err, &wrong) || wrong.Name != c.name || wrong.Offset != c.offset || !strings.Contains(err.Error(), c.name)):
			t.Errorf("%s: %v, want one of group %s at byte %d", c.target, err, c.name, c.offset)
		}
	}
	e, err := Parse("@web")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Compile(nil); !errors.Is(err, ErrNoGroup) {
		t.Errorf("without groups: %v", err)
	}
}

// TestSelectAsMatch: a table and its hosts one by one say the same, and so does an
// explanation.
func TestSelectAsMatch(t *testing.T) {
	texts := []string{"web01", "web02", "db01", "1.10", "1.9", "prod", "", "a b"}
	rapid.Check(t, func(t *rapid.T) {
		var hosts []*testHost
		for i := range rapid.IntRange(0, 130).Draw(t, "hosts") {
			h := &testHost{name: fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"web", "db"}).Draw(t, "name"), i), labels: map[string]string{}, facts: map[string]any{}}
			if rapid.Bool().Draw(t, "labelled") {
				h.labels["a"] = rapid.SampledFrom(texts).Draw(t, "label")
			}
			h.facts["b"] = rapid.SampledFrom([]any{nil, 1, 2.5, "1.10", true, []any{"prod", 3}, map[string]any{"c": "prod"}}).Draw(t, "fact")
			if rapid.Bool().Draw(t, "addressed") {
				h.addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 2).Draw(t, "addr")), 0, 1})}
			}
			hosts = append(hosts, h)
		}
		leaf := rapid.SampledFrom([]string{
			"web*", "db1,web2,db3", "~web[0-9]", "a=prod", "a!=prod", "a>1.9", "a=*", "fact.b=1", "fact.b<2.7", "fact.b=prod,a=*", "fact.b.c=prod",
			"fact.b!=*", "10.1.0.0/16", "host.addr!=10.2.0.1", "@g", "*", "nothing*",
		})
		var draw func(depth int) string
		draw = func(depth int) string {
			if depth == 3 {
				return leaf.Draw(t, "item")
			}
			switch rapid.IntRange(0, 3).Draw(t, "operator") {
			case 0:
				return "(" + draw(depth+1) + " and " + draw(depth+1) + ")"
			case 1:
				return "(" + draw(depth+1) + " or " + draw(depth+1) + ")"
			case 2:
				return "not " + draw(depth+1)
			}
			return leaf.Draw(t, "item")
		}
		text := draw(0)
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(NewGroups(func(string) (string, error) { return "web* and not a=prod", nil }))
		if err != nil {
			t.Fatal(err)
		}
		want := []int{}
		for i, h := range hosts {
			if m.Match(h) {
				want = append(want, i)
			}
		}
		table := newTable(hosts)
		if got := m.Select(table); !slices.Equal(got, want) {
			t.Fatalf("%s: Select is %v, want %v", text, got, want)
		}
		if got := m.Count(table).Hosts; got != len(want) {
			t.Fatalf("%s: Count is %d, want %d", text, got, len(want))
		}
	})
}

// TestColumnsThatAreShort: hosts for which a column has no value have none.
func TestColumnsThatAreShort(t *testing.T) {
	m := compile(t, "role=web", nil)
	hosts := []*testHost{web, web, web}
	for _, c := range []struct {
		column Column
		want   []int
	}{
		{Column{}, []int{}},
		{Column{Values: []any{"web"}}, []int{}},
		{Column{Values: []any{"web"}, Of: []uint32{0}}, []int{0}},
		{Column{Values: []any{"web"}, Of: []uint32{0, 7, 0}}, []int{0, 2}},
		{Column{Of: []uint32{0, 0, 0}}, []int{}},
		{Column{Values: []any{nil, "db", "web"}, Of: []uint32{0, 1, 2, 2}}, []int{2}},
	} {
		table := newTable(hosts)
		table.columns["label role"] = c.column
		if got := m.Select(table); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.column, got, c.want)
		}
	}
}

// TestMatchAllocatesNothing: hosts are looked at while their rows are locked. Regular
// expressions are left out here and below: they take memory from a pool, which the race
// detector empties at random.
func TestMatchAllocatesNothing(t *testing.T) {
	for _, text := range []string{
		"web* and not db[01-20]", "a,b,c,web01.example", "role=web and env!=dev", "fact.kernel>=6.1 and fact.cpus<5", "10.20.0.0/16 and not @web",
		"host.online=true and host.heard<10m", "host.proc=service.* and host.software<0.5",
	} {
		m := compile(t, text, testGroups)
		if n := testing.AllocsPerRun(100, func() { m.Match(web) }); n > 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// fleetTable is a fleet kept by column, as a dispatcher does.
type fleetTable struct {
	names     []string
	addresses [][]netip.Addr
	columns   map[string]Column
}

func (f *fleetTable) Len() int                        { return len(f.names) }
func (f *fleetTable) Name(i int) string               { return f.names[i] }
func (f *fleetTable) Addresses(i int) []netip.Addr    { return f.addresses[i] }
func (f *fleetTable) Heard(int) (time.Duration, bool) { return 0, false }
func (f *fleetTable) Label(key string) Column         { return f.columns["label."+key] }
func (f *fleetTable) Fact(path []string) Column       { return f.columns["fact."+strings.Join(path, ".")] }
func (f *fleetTable) Procedures() Column              { return Column{} }
func (f *fleetTable) Property(string) Column          { return Column{} }

func newFleet(hosts int) *fleetTable {
	f := &fleetTable{columns: map[string]Column{}}
	for i := range hosts {
		f.names = append(f.names, fmt.Sprintf("%s%05d.%s.example", []string{"web", "db", "app"}[i%3], i, []string{"eu", "us"}[i%2]))
		f.addresses = append(f.addresses, []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
	}
	column := func(name string, distinct int, value func(i int) any) {
		c := Column{Of: make([]uint32, hosts)}
		for i := range distinct {
			c.Values = append(c.Values, value(i))
		}
		for i := range c.Of {
			c.Of[i] = uint32(i*7919) % uint32(distinct)
		}
		f.columns[name] = c
	}
	for i := range 8 {
		column(fmt.Sprintf("label.l%d", i), 4<<i, func(v int) any { return fmt.Sprintf("v%d", v) })
	}
	for i := range 39 {
		column(fmt.Sprintf("fact.f%d", i), 50, func(v int) any { return v })
	}
	column("fact.kernel", 300, func(v int) any { return fmt.Sprintf("6.%d.0-%d-amd64", v%12, v) })
	return f
}

// benchTargets are those whose passes over a fleet are measured.
var benchTargets = []string{
	"web*.eu.example",
	"l3=v1 and fact.kernel>=6.1",
	`~(web|app)\d+\.us\.example`,
	"10.0.0.0/17 and not @frontend",
}

func BenchmarkMatch(b *testing.B) {
	fleet := newFleet(100_000)
	for _, text := range benchTargets {
		m := compile(b, text, map[string]string{"frontend": "web* or l2=v3"})
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Select(fleet)
			}
		})
	}
}

// TestSelectAllocations: what a pass allocates does not grow by an allocation for each
// host.
func TestSelectAllocations(t *testing.T) {
	fleet := newFleet(10_000)
	for _, text := range benchTargets {
		if strings.HasPrefix(text, "~") {
			continue
		}
		m := compile(t, text, map[string]string{"frontend": "web* or l2=v3"})
		if n := testing.AllocsPerRun(5, func() { m.Select(fleet) }); n > 30 {
			t.Errorf("%s: %v allocations for %d hosts", text, n, len(fleet.names))
		}
	}
}

// TestMatcherIsShared: goroutines may use one matcher at the same time.
func TestMatcherIsShared(t *testing.T) {
	m := compile(t, "~web.* and @nested or 10.0.0.0/8", testGroups)
	table := newFleet(1000)
	want := m.Select(table)
	results := make(chan []int)
	for range 4 {
		go func() {
			m.Match(web)
			m.Explain(web)
			results <- m.Select(table)
		}()
	}
	for range 4 {
		if got := <-results; !reflect.DeepEqual(got, want) {
			t.Error("a goroutine selects others")
		}
	}
}
