// Package target selects hosts by an expression:
//
//	web*                                      names like this
//	web[01-20].{eu,us}.example,db1            numbered and listed names
//	role=web and env!=dev                     labels
//	fact.os=debian and fact.kernel>=6.1       what hosts say of themselves, versions in their order
//	10.20.0.0/16 and host.online=true         networks, and what is known of a host
//	@frontend and not (db*,host.paused=true)  groups, and, or, not, parentheses
//
// [Parse] reads one, [Expr.Compile] makes a [Matcher] of it, and that looks at hosts one
// by one ([Matcher.Match]) or at a fleet kept by column ([Matcher.Select]). [FromSalt]
// translates compound targets of Salt. docs/targets.md has the grammar.
//
// What is read may come from anybody: it has bounds, and matching takes time in
// proportion to the text that is looked at and to the expression.
package target

import (
	"slices"
	"strings"
)

// Expr is an expression that was parsed. It never changes.
type Expr struct {
	root *node
	size size
}

// String returns the expression as it is written best: parsed again, it is the same.
func (e *Expr) String() string {
	var b strings.Builder
	e.root.write(&b, nodeOr)
	return b.String()
}

// Groups returns the names of the groups that the expression asks for, sorted.
func (e *Expr) Groups() []string {
	var names []string
	e.root.walk(func(n *node) {
		if n.kind == nodeGroup {
			names = append(names, n.text)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Keys returns what the expression compares, sorted, as in label.role, fact.os.name and
// host.online; a network is host.addr, any other item host.name. What its groups compare
// is not among them.
func (e *Expr) Keys() []string {
	keys := map[string]bool{}
	e.root.walk(func(n *node) {
		switch n.kind {
		case nodeName, nodePattern, nodeRegexp:
			keys["host.name"] = true
		case nodeNetwork:
			keys["host.addr"] = true
		case nodeComparison:
			keys[n.comparison.key.long()] = true
		default:
		}
	})
	sorted := make([]string, 0, len(keys))
	for key := range keys {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	return sorted
}

// nodeKind is what a part of an expression is. The first four have parts, and bind more
// closely in this order.
type nodeKind uint8

const (
	nodeOr nodeKind = iota
	nodeAnd
	nodeNot
	nodeList
	nodeName
	nodePattern
	nodeRegexp
	nodeNetwork
	nodeGroup
	nodeComparison
)

// node is a part of an expression.
type node struct {
	kind       nodeKind
	offset     int    // in the text that was parsed
	text       string // of an item: its name, pattern, regular expression, network or group
	parts      []*node
	comparison *comparison
}

// comparison compares what a host has under a key with an operand.
type comparison struct {
	key     key
	op      operator
	operand nodeKind // nodeName if it is text as it is
	text    string
}

type operator string

const (
	opEqual        operator = "="
	opNotEqual     operator = "!="
	opLess         operator = "<"
	opLessEqual    operator = "<="
	opGreater      operator = ">"
	opGreaterEqual operator = ">="
	opLike         operator = "~"
	opNotLike      operator = "!~"
)

// operators in the order in which they are tried, the longest first.
var operators = []operator{opNotEqual, opNotLike, opLessEqual, opGreaterEqual, opEqual, opLess, opGreater, opLike}

// isOrder reports whether the operator asks which of two comes first.
func (o operator) isOrder() bool { return o[0] == '<' || o[0] == '>' }

// isNot reports whether the operator is the opposite of another one.
func (o operator) isNot() bool { return o[0] == '!' }

// source is where the value of a key comes from.
type source uint8

const (
	fromLabel source = iota
	fromFact
	fromHost
)

var sourceNames = [...]string{"label", "fact", "host"}

// key names what is compared.
type key struct {
	source source
	words  []string // one for a label and for a property of the host, as drift.base
}

// long returns the key with its prefix.
func (k key) long() string {
	var b strings.Builder
	b.WriteString(sourceNames[k.source])
	words := k.words
	if k.source == fromHost {
		words = strings.SplitN(words[0], ".", 2)
	}
	for _, word := range words {
		b.WriteByte('.')
		writeWord(&b, word, k.source != fromFact)
	}
	return b.String()
}

// short returns the key as one writes it: that of a label without its prefix, if it
// needs none.
func (k key) short() string {
	long := k.long()
	if k.source != fromLabel {
		return long
	}
	short := strings.TrimPrefix(long, "label.")
	first, _, more := strings.Cut(short, ".")
	if more && slices.Contains(sourceNames[:], first) || isKeyword(short) || short[0] == '@' || short[0] == '"' || isSalt(short) {
		return long
	}
	return short
}

// writeWord writes a word of a key, quoted if it would be read as something else.
func writeWord(b *strings.Builder, word string, dots bool) {
	for part := range strings.SplitSeq(word, ".") {
		if part == "" || !isPlain(part) || !dots && part != word {
			writeQuoted(b, word)
			return
		}
	}
	b.WriteString(word)
}

// walk calls visit for the node and all below it.
func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, part := range n.parts {
		part.walk(visit)
	}
}

// String returns the canonical text of the node.
func (n *node) String() string {
	var b strings.Builder
	n.write(&b, nodeOr)
	return b.String()
}

// write writes the node, in parentheses if its place binds more closely than it does.
func (n *node) write(b *strings.Builder, place nodeKind) {
	if n.kind < place && n.kind < nodeList {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	switch n.kind {
	case nodeOr:
		n.writeParts(b, " or ", nodeAnd)
	case nodeAnd:
		n.writeParts(b, " and ", nodeNot)
	case nodeNot:
		b.WriteString("not ")
		n.parts[0].write(b, nodeNot)
	case nodeList:
		for i, item := range n.parts {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeItem(b, i+1 < len(n.parts))
		}
	default:
		n.writeItem(b, false)
	}
}

func (n *node) writeParts(b *strings.Builder, between string, place nodeKind) {
	for i, part := range n.parts {
		if i > 0 {
			b.WriteString(between)
		}
		part.write(b, place)
	}
}

// writeItem writes an item. What follows a regular expression in a list would be part of
// it, so that it is quoted there.
func (n *node) writeItem(b *strings.Builder, followed bool) {
	switch n.kind {
	case nodeName:
		writeText(b, n.text, isBareName(n.text))
	case nodePattern:
		if n.text[0] == '@' || isSalt(n.text) {
			b.WriteByte('\\')
		}
		b.WriteString(n.text)
	case nodeRegexp:
		b.WriteByte('~')
		writeRegexp(b, n.text, followed)
	case nodeGroup:
		b.WriteByte('@')
		writeWord(b, n.text, true)
	case nodeComparison:
		n.comparison.write(b, followed)
	default:
		b.WriteString(n.text)
	}
}

func (c *comparison) write(b *strings.Builder, followed bool) {
	b.WriteString(c.key.short())
	b.WriteString(string(c.op))
	switch c.operand {
	case nodeName:
		writeText(b, c.text, isBareText(c.text))
	case nodeRegexp:
		writeRegexp(b, c.text, followed)
	default:
		b.WriteString(c.text)
	}
}
