package target

import (
	"net/netip"
	"time"
)

// Host is a host as a [Matcher] looks at it. What its methods return is only read.
type Host interface {
	// Name returns the host's name, which there is once.
	Name() string
	// Label returns false if there is no such label.
	Label(key string) (string, bool)
	// Fact returns the fact that is reached by the keys of path, map by map, false if there
	// is none. Compared are text, booleans, numbers, and the elements of []any and []string;
	// of any other value, and of a map, a target can only say that it is there. Nil counts as
	// none.
	Fact(path []string) (any, bool)
	// Addresses returns what host.addr and networks are compared with.
	Addresses() []netip.Addr
	// Procedures returns the names of what the host offers.
	Procedures() []string
	// Heard returns how long ago the host was heard, false if it never was.
	Heard() (time.Duration, bool)
	// Property returns online and paused (true or false), software (its version), and
	// drift.NAME (clean, dirty or unknown), false for what is not known of the host.
	Property(name string) (string, bool)
}

// Table is a fleet of hosts, kept by column, that are numbered from 0. It has what [Host]
// has; a comparison is made once for each distinct value of a column. What its methods
// return is only read, and must not change while a [Matcher] looks at it.
type Table interface {
	// Len returns how many hosts there are.
	Len() int
	// Name returns the name of a host.
	Name(host int) string
	// Label returns the values of a label, which are strings.
	Label(key string) Column
	// Fact returns what is reached by the keys of path.
	Fact(path []string) Column
	// Addresses returns the addresses of a host.
	Addresses(host int) []netip.Addr
	// Procedures returns what the hosts offer, each value a []string.
	Procedures() Column
	// Heard returns how long ago a host was heard, false if it never was.
	Heard(host int) (time.Duration, bool)
	// Property returns the values of a property, which are strings.
	Property(name string) Column
}

// Column is what the hosts of a table have in one place, as [Host.Fact] returns it. Host
// i has Values[Of[i]]. It has nothing if that is nil, or if either does not go so far.
type Column struct {
	Values []any
	Of     []uint32
}

// value returns the number of what a host has, false if it has nothing.
func (c Column) value(host int) (int, bool) {
	if host >= len(c.Of) || int(c.Of[host]) >= len(c.Values) {
		return 0, false
	}
	return int(c.Of[host]), true
}
