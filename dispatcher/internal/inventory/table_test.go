package inventory

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/target"
)

// TestTable checks what targets say of hosts, by column and one by one.
func TestTable(t *testing.T) {
	offers := []string{"disk.usage", "service.restart"}
	hosts := []Host{
		{
			Name: "web01", Online: true, Ever: true, Heard: time.Second, Software: "harp/0.4.0", Procedures: offers,
			Addresses: NewAttributes(nil, value(t, map[string]any{"addresses": []any{"10.1.0.7", "fe80::1%eth0", "no address", 7, "::ffff:192.0.2.1"}})).Addresses(),
			Attributes: NewAttributes(map[string]string{"role": "web", "a.b": "dotted"}, value(t, map[string]any{
				"os":       map[string]any{"name": "debian", "release": int64(12), "empty": map[string]any{}},
				"kernel":   "6.1.0-18-amd64",
				"cpus":     8,
				"load":     0.5,
				"big":      uint64(1) << 63,
				"virtual":  true,
				"ssd":      false,
				"nothing":  nil,
				"blob":     []byte("x"),
				"disks":    []any{"sda", "nvme0", 7, nil, map[string]any{"x": 1}},
				"none":     []any{},
				"long":     strings.Repeat("x", maxText+1),
				"longlist": []any{strings.Repeat("x", maxList)},
				"":         "empty key",
			})),
		},
		{Name: "web02", Software: "other", Procedures: []string{}, Attributes: NewAttributes(map[string]string{"role": "web"}, value(t, map[string]any{"cpus": 2}))},
		{Name: "db01", Ever: true, Heard: time.Hour, Procedures: offers, Attributes: NewAttributes(nil, harp.Value{0xc1})},
		{Name: "db02"},
	}
	for text, want := range map[string]string{
		`role=web`:                     "web01 web02",
		`role!=web`:                    "db01 db02",
		`label."a.b"=dotted`:           "web01",
		`fact.os.name=debian`:          "web01",
		`fact.os.release>=9`:           "web01",
		`fact.os=*`:                    "web01",
		`fact.os.empty=*`:              "web01",
		`fact.os=debian`:               "",
		`fact.kernel>=6.1.0-9`:         "web01",
		`fact.cpus>=8`:                 "web01",
		`fact.cpus=*`:                  "web01 web02",
		`fact.cpus<8`:                  "web02",
		`fact.load=0.5`:                "web01",
		`fact.big>9223372036854775807`: "web01",
		`fact.virtual=true`:            "web01",
		`fact.ssd=false`:               "web01",
		`fact.nothing=*`:               "",
		`fact.blob=*`:                  "web01",
		`fact.blob=x`:                  "",
		`fact.disks=sda`:               "web01",
		`fact.disks=7`:                 "web01",
		`fact.disks~nvme.*`:            "web01",
		`fact.none=*`:                  "web01",
		`fact.long=*`:                  "web01",
		`fact.long=x*`:                 "",
		`fact.longlist=*`:              "web01",
		`fact.longlist=x*`:             "",
		`host.online=true`:             "web01",
		`host.online=false`:            "web02 db01 db02",
		`host.heard<10m`:               "web01",
		`host.heard>=10m`:              "db01",
		`host.software>=0.4`:           "web01",
		`host.proc=service.*`:          "web01 db01",
		`host.proc=*`:                  "web01 web02 db01",
		`10.1.0.0/16`:                  "web01",
		`fe80::/10`:                    "web01",
		`host.addr=192.0.2.1`:          "web01",
		`host.paused=true`:             "",
		`db* and not db01`:             "db02",
	} {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		table := NewTable(hosts)
		var byColumn, byHost []string
		for _, i := range m.Select(table) {
			byColumn = append(byColumn, table.Name(i))
		}
		for i := range table.Len() {
			if m.Match(table.Host(i)) {
				byHost = append(byHost, table.Name(i))
			}
		}
		if got := strings.Join(byColumn, " "); got != want {
			t.Errorf("%s selects %q, want %q", text, got, want)
		}
		if got := strings.Join(byHost, " "); got != want {
			t.Errorf("%s matches %q, want %q", text, got, want)
		}
	}
}

// TestFactsWithoutEnd checks that an agent's facts cost no more than their bounds.
func TestFactsWithoutEnd(t *testing.T) {
	many := map[string]any{}
	for i := range 10_000 {
		many[fmt.Sprint("k", i)] = i
	}
	var deep any = "x"
	for range 20 {
		deep = map[string]any{strings.Repeat("k", 100): deep}
	}
	for name, facts := range map[string]any{
		"many":            many,
		"many within one": map[string]any{"a": many},
		"deep":            deep,
		"long keys":       map[string]any{strings.Repeat("k", 1<<20): 1, "short": 1},
		"keys of numbers": map[int]any{1: many, 2: 3},
		"a text":          "x",
		"a list":          []any{many},
	} {
		a := NewAttributes(nil, value(t, facts))
		if len(a.values) == 0 {
			continue // there are no keys then
		}
		if len(a.values) > MaxFacts || len(a.keys.Value()) > MaxFacts*(maxPath+2) {
			t.Errorf("%s: %d paths of %d bytes are kept", name, len(a.values), len(a.keys.Value()))
		}
	}
	a := NewAttributes(nil, value(t, map[string]any{strings.Repeat("k", 1<<20): 1, "short": 1}))
	if len(a.values) != 1 {
		t.Errorf("of a long and a short key %d are kept, want the short one", len(a.values))
	}
}

func value(t testing.TB, v any) harp.Value {
	t.Helper()
	encoded, err := harp.NewValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// BenchmarkMatch is a pass of four targets over a fleet of 100,000 hosts with 8 labels and
// 40 facts each; it tells what the attributes of a host take, too.
func BenchmarkMatch(b *testing.B) {
	const n = 100_000
	hosts := make([]Host, n)
	before := heapInUse()
	for i := range hosts {
		labels := map[string]string{"role": []string{"web", "db", "cache"}[i%3], "env": []string{"prod", "dev"}[i%2]}
		for k := range 6 {
			labels[fmt.Sprint("label", k)] = fmt.Sprint("v", i%(10+k))
		}
		facts := map[string]any{"kernel": fmt.Sprintf("6.1.0-%d-amd64", i%30), "os": map[string]any{"name": "debian"}}
		for k := range 37 {
			facts[fmt.Sprint("fact", k)] = fmt.Sprint("v", i%(5+k))
		}
		hosts[i].Attributes = NewAttributes(labels, value(b, facts))
	}
	perHost := float64(heapInUse()-before) / n
	for i := range hosts {
		hosts[i].Name, hosts[i].Addresses = fmt.Sprintf("web%05d.example", i), []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
	}
	for _, text := range []string{"web0*", "role=web and fact.kernel>=6.1.0-9", `~web\d*7\.example`, "10.0.0.0/16 and not @dev"} {
		e, err := target.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		m, err := e.Compile(target.NewGroups(func(string) (string, error) { return "env=dev or label5=v1", nil }))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				for chunk := range slices.Chunk(hosts, 1000) {
					m.Select(NewTable(chunk))
				}
			}
			b.ReportMetric(perHost, "B/host")
		})
	}
	runtime.KeepAlive(hosts)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
