package inventory

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/target"
)

// Host is a host at one moment.
type Host struct {
	Name       string
	Attributes Attributes
	Addresses  []netip.Addr
	Procedures []string // what it offers; hosts that offer the same should share it; nil: not known
	Online     bool
	Paused     bool
	Ever       bool                        // it was heard
	Heard      time.Duration               // how long ago, if ever
	Software   string                      // of its agent, as harp/1.2.3
	Drift      map[string]harp.DriftStatus // its marks, by name
}

// Table is some hosts as a target is matched with them. It is for one goroutine.
type Table struct {
	hosts  []Host
	places map[unique.Handle[string]]int // of the key that a column is made of, by the keys of hosts

	columns map[string]target.Column // of labels and facts, by their keys: many targets ask for the same
}

// NewTable makes a table of hosts, which must not change afterwards.
func NewTable(hosts []Host) *Table {
	return &Table{hosts: hosts, places: map[unique.Handle[string]]int{}, columns: map[string]target.Column{}}
}

// Len implements target.Table.
func (t *Table) Len() int { return len(t.hosts) }

// Name implements target.Table.
func (t *Table) Name(i int) string { return t.hosts[i].Name }

// Addresses implements target.Table.
func (t *Table) Addresses(i int) []netip.Addr { return t.hosts[i].Addresses }

// Heard implements target.Table.
func (t *Table) Heard(i int) (time.Duration, bool) { return t.hosts[i].Heard, t.hosts[i].Ever }

// Label implements target.Table.
func (t *Table) Label(key string) target.Column { return t.attribute(labelKey(key)) }

// Fact implements target.Table.
func (t *Table) Fact(path []string) target.Column { return t.attribute(factKey(path)) }

// Procedures implements target.Table.
func (t *Table) Procedures() target.Column {
	return newColumn(t.hosts, func(h *Host) (*string, bool) {
		if len(h.Procedures) == 0 {
			return nil, h.Procedures != nil
		}
		return &h.Procedures[0], true
	}, func(h *Host) any { return h.Procedures })
}

// Property implements target.Table.
func (t *Table) Property(name string) target.Column {
	drift, isDrift := strings.CutPrefix(name, "drift.")
	value := func(h *Host) (text string, known bool) {
		if isDrift {
			return cmp.Or(string(h.Drift[drift].Mark), string(harp.DriftUnknown)), true // of a host that was never checked
		}
		switch name {
		case "online":
			return strconv.FormatBool(h.Online), true
		case "paused":
			return strconv.FormatBool(h.Paused), true
		case "software":
			_, version, known := strings.Cut(h.Software, "/")
			return version, known
		}
		return "", false
	}
	return newColumn(t.hosts, value, func(h *Host) any {
		text, _ := value(h)
		return text
	})
}

// attribute is the column of a key of labels or facts.
func (t *Table) attribute(key string) target.Column {
	column, known := t.columns[key]
	if !known {
		column = t.newAttribute(key)
		t.columns[key] = column
	}
	return column
}

func (t *Table) newAttribute(key string) target.Column {
	clear(t.places)
	handle := func(h *Host) (unique.Handle[any], bool) {
		keys := h.Attributes.keys
		if len(h.Attributes.values) == 0 {
			return unique.Handle[any]{}, false
		}
		at, known := t.places[keys]
		if !known {
			at = find(keys.Value(), key)
			t.places[keys] = at
		}
		if at < 0 {
			return unique.Handle[any]{}, false
		}
		return h.Attributes.values[at], true
	}
	return newColumn(t.hosts, handle, func(h *Host) any {
		found, _ := handle(h)
		value := found.Value()
		if encoded, ok := value.(list); ok {
			value, _ = harp.Value(encoded).Any()
		}
		return value
	})
}

// newColumn makes a column of what each host has. Values with the same id are the same.
func newColumn[ID comparable](hosts []Host, id func(*Host) (ID, bool), value func(*Host) any) target.Column {
	column := target.Column{Values: []any{nil}, Of: make([]uint32, len(hosts))}
	numbers := map[ID]uint32{}
	for i := range hosts {
		key, ok := id(&hosts[i])
		if !ok {
			continue
		}
		n := numbers[key]
		if n == 0 {
			n = uint32(len(column.Values))
			numbers[key] = n
			column.Values = append(column.Values, value(&hosts[i]))
		}
		column.Of[i] = n
	}
	return column
}

// Host returns one host of the table by itself.
func (t *Table) Host(i int) target.Host { return one{NewTable(t.hosts[i : i+1])} }

// one is the only host of a table.
type one struct{ table *Table }

func (o one) Name() string                 { return o.table.Name(0) }
func (o one) Addresses() []netip.Addr      { return o.table.Addresses(0) }
func (o one) Heard() (time.Duration, bool) { return o.table.Heard(0) }
func (o one) Procedures() []string         { return o.table.hosts[0].Procedures }

func (o one) Label(key string) (string, bool)     { return only[string](o.table.Label(key)) }
func (o one) Property(name string) (string, bool) { return only[string](o.table.Property(name)) }
func (o one) Fact(path []string) (any, bool)      { return only[any](o.table.Fact(path)) }

// only returns the value of a column's only host.
func only[V any](c target.Column) (v V, ok bool) {
	if c.Of[0] == 0 {
		return v, false
	}
	v, ok = c.Values[c.Of[0]].(V)
	return v, ok
}
