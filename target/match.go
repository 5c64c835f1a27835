package target

import (
	"math/bits"
	"slices"
)

// Matcher is a target ready to look at hosts. It never changes, and any number of
// goroutines may use it at the same time.
type Matcher struct {
	root  *clause
	names []string
	only  bool

	weight, cost int
}

// clause is a part of a target ready to look at hosts.
type clause struct {
	node    *node
	parts   []*clause           // of a group, what it stands for; of a list, those that are not names
	names   map[string]struct{} // of a list
	operand *operand            // of an item, and of a comparison
}

// Match reports whether the target selects a host. It allocates nothing, unless a number
// is compared as text, or a text of more than 300 bytes with a pattern.
func (m *Matcher) Match(h Host) bool { return m.root.match(h) }

func (c *clause) match(h Host) bool {
	switch c.node.kind {
	case nodeOr:
		return c.matchAny(h)
	case nodeList:
		_, named := c.names[h.Name()]
		return named || c.matchAny(h)
	case nodeAnd:
		for _, part := range c.parts {
			if !part.match(h) {
				return false
			}
		}
		return true
	case nodeNot:
		return !c.parts[0].match(h)
	case nodeGroup:
		return c.parts[0].match(h)
	case nodeNetwork:
		return c.operand.matchAddresses(h.Addresses())
	case nodeComparison:
		return c.compare(h) != c.node.comparison.op.isNot()
	default:
		return c.operand.matchText(h.Name())
	}
}

func (c *clause) matchAny(h Host) bool {
	for _, part := range c.parts {
		if part.match(h) {
			return true
		}
	}
	return false
}

// compare compares what a host has, without regard to whether the operator is negated.
func (c *clause) compare(h Host) bool {
	k := c.node.comparison.key
	switch k.source {
	case fromLabel:
		label, ok := h.Label(k.words[0])
		return ok && c.operand.matchText(label)
	case fromFact:
		fact, ok := h.Fact(k.words)
		return ok && c.operand.matchValue(fact)
	case fromHost:
	}
	switch k.words[0] {
	case "name":
		return c.operand.matchText(h.Name())
	case "addr":
		return c.operand.matchAddresses(h.Addresses())
	case "heard":
		return c.operand.matchAge(h.Heard())
	case "proc":
		return c.operand.matchList(h.Procedures())
	}
	property, ok := h.Property(k.words[0])
	return ok && c.operand.matchText(property)
}

// Select returns the numbers of the hosts in a table that the target selects, ascending.
func (m *Matcher) Select(t Table) []int {
	selected := m.root.rows(t, allRows(t.Len()))
	numbers := make([]int, 0, selected.count())
	for i := range selected.all {
		numbers = append(numbers, i)
	}
	return numbers
}

// rows returns those among some hosts that the clause selects.
func (c *clause) rows(t Table, among rowSet) rowSet {
	switch c.node.kind {
	case nodeOr, nodeList:
		return c.rowsOfAny(t, among)
	case nodeAnd:
		for _, part := range c.parts {
			among = part.rows(t, among)
		}
		return among
	case nodeNot:
		return among.without(c.parts[0].rows(t, among))
	case nodeGroup:
		return c.parts[0].rows(t, among)
	case nodeNetwork:
		return among.where(func(i int) bool { return c.operand.matchAddresses(t.Addresses(i)) })
	case nodeComparison:
		selected := c.comparedRows(t, among)
		if c.node.comparison.op.isNot() {
			return among.without(selected)
		}
		return selected
	default:
		return among.where(func(i int) bool { return c.operand.matchText(t.Name(i)) })
	}
}

// rowsOfAny asks each part only for those that none before it has selected.
func (c *clause) rowsOfAny(t Table, among rowSet) rowSet {
	selected := make(rowSet, len(among))
	if len(c.names) > 0 {
		selected = among.where(func(i int) bool {
			_, named := c.names[t.Name(i)]
			return named
		})
	}
	for _, part := range c.parts {
		selected.addAll(part.rows(t, among.without(selected)))
	}
	return selected
}

// comparedRows returns those for which compare would be true.
func (c *clause) comparedRows(t Table, among rowSet) rowSet {
	k := c.node.comparison.key
	switch k.source {
	case fromLabel:
		return c.columnRows(t.Label(k.words[0]), among)
	case fromFact:
		return c.columnRows(t.Fact(k.words), among)
	case fromHost:
	}
	switch k.words[0] {
	case "name":
		return among.where(func(i int) bool { return c.operand.matchText(t.Name(i)) })
	case "addr":
		return among.where(func(i int) bool { return c.operand.matchAddresses(t.Addresses(i)) })
	case "heard":
		return among.where(func(i int) bool { return c.operand.matchAge(t.Heard(i)) })
	case "proc":
		return c.columnRows(t.Procedures(), among)
	}
	return c.columnRows(t.Property(k.words[0]), among)
}

// columnRows compares each distinct value of a column that is met, once.
func (c *clause) columnRows(column Column, among rowSet) rowSet {
	const yes, no = 1, 2
	verdicts := make([]uint8, len(column.Values))
	return among.where(func(i int) bool {
		v, ok := column.value(i)
		if !ok {
			return false
		}
		if verdicts[v] == 0 {
			verdicts[v] = no
			if c.operand.matchValue(column.Values[v]) {
				verdicts[v] = yes
			}
		}
		return verdicts[v] == yes
	})
}

// rowSet is a set of hosts of a table.
type rowSet []uint64

func allRows(n int) rowSet {
	s := make(rowSet, (n+63)/64)
	for i := range s {
		s[i] = ^uint64(0)
	}
	if n%64 != 0 {
		s[len(s)-1] = 1<<(n%64) - 1
	}
	return s
}

// all gives the members of the set to yield, ascending.
func (s rowSet) all(yield func(int) bool) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

func (s rowSet) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// where returns the members for which a function is true.
func (s rowSet) where(is func(int) bool) rowSet {
	found := make(rowSet, len(s))
	for i := range s.all {
		if is(i) {
			found[i/64] |= 1 << (i % 64)
		}
	}
	return found
}

// without returns the members that are not in other.
func (s rowSet) without(other rowSet) rowSet {
	rest := slices.Clone(s)
	for i := range rest {
		rest[i] &^= other[i]
	}
	return rest
}

// addAll adds the members of other.
func (s rowSet) addAll(other rowSet) {
	for i := range s {
		s[i] |= other[i]
	}
}
