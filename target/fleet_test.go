package target

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// testHost is a host of which all is known that is not nil.
type testHost struct {
	name       string
	labels     map[string]string
	facts      map[string]any
	addresses  []netip.Addr
	procedures []string
	heard      *time.Duration
	properties map[string]string
}

func (h *testHost) Name() string { return h.name }

func (h *testHost) Label(key string) (string, bool) {
	v, ok := h.labels[key]
	return v, ok
}

func (h *testHost) Fact(path []string) (any, bool) {
	facts := h.facts
	for _, key := range path[:len(path)-1] {
		facts, _ = facts[key].(map[string]any)
	}
	v, ok := facts[path[len(path)-1]]
	return v, ok
}

func (h *testHost) Addresses() []netip.Addr { return h.addresses }
func (h *testHost) Procedures() []string    { return h.procedures }

func (h *testHost) Heard() (time.Duration, bool) {
	if h.heard == nil {
		return 0, false
	}
	return *h.heard, true
}

func (h *testHost) Property(name string) (string, bool) {
	v, ok := h.properties[name]
	return v, ok
}

// testTable makes its columns of hosts when it is asked for them, and keeps them.
type testTable struct {
	hosts   []*testHost
	columns map[string]Column
}

func newTable(hosts []*testHost) *testTable { return &testTable{hosts, map[string]Column{}} }

func (t *testTable) Len() int                          { return len(t.hosts) }
func (t *testTable) Name(i int) string                 { return t.hosts[i].name }
func (t *testTable) Addresses(i int) []netip.Addr      { return t.hosts[i].addresses }
func (t *testTable) Heard(i int) (time.Duration, bool) { return t.hosts[i].Heard() }

func (t *testTable) Label(key string) Column {
	return t.column("label "+key, func(h *testHost) (any, bool) { v, ok := h.Label(key); return v, ok })
}

func (t *testTable) Fact(path []string) Column {
	return t.column(fmt.Sprintf("fact %q", path), func(h *testHost) (any, bool) { return h.Fact(path) })
}

func (t *testTable) Property(name string) Column {
	return t.column("property "+name, func(h *testHost) (any, bool) { v, ok := h.Property(name); return v, ok })
}

func (t *testTable) Procedures() Column {
	return t.column("procedures", func(h *testHost) (any, bool) { return h.procedures, h.procedures != nil })
}

func (t *testTable) column(id string, value func(*testHost) (any, bool)) Column {
	if c, ok := t.columns[id]; ok {
		return c
	}
	c := Column{Values: []any{nil}, Of: make([]uint32, len(t.hosts))}
	numbers := map[string]uint32{}
	for i, h := range t.hosts {
		v, ok := value(h)
		if !ok {
			continue
		}
		text := fmt.Sprintf("%T %v", v, v)
		if _, seen := numbers[text]; !seen {
			numbers[text] = uint32(len(c.Values))
			c.Values = append(c.Values, v)
		}
		c.Of[i] = numbers[text]
	}
	t.columns[id] = c
	return c
}

func compile(t testing.TB, text string, groups map[string]string) *Matcher {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m, err := e.Compile(NewGroups(func(name string) (string, error) {
		group, ok := groups[name]
		if !ok {
			return "", fmt.Errorf("no group %s", name)
		}
		return group, nil
	}))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func addresses(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func ago(d time.Duration) *time.Duration { return &d }
