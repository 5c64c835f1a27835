package target

import (
	"fmt"
	"strings"
)

// maxExplained is how many items of a list are explained one by one.
const maxExplained = 256

// maxExplainedText is how many bytes of a text are shown.
const maxExplainedText = 1 << 10

// Node is a part of a target, and how many of the hosts that were looked at it selects by
// itself.
type Node struct {
	Text  string `json:"text"`            // the part, as it is written best; at most 1 KiB of it, as of the value
	Hosts int    `json:"hosts"`           // of one host that was looked at, 1 or 0
	Value string `json:"value,omitempty"` // what that host has there, as far as it is text; empty if several were looked at
	Parts []Node `json:"parts,omitempty"` // what it is made of: of a group its target; a list of more than 256 items is not taken apart
}

// Explain says of each part of the target whether it selects a host.
func (m *Matcher) Explain(h Host) Node { return m.root.explain(oneHost{h}) }

// Count says of each part of the target how many hosts of a table it selects by itself.
func (m *Matcher) Count(t Table) Node { return m.root.explain(manyHosts{t, allRows(t.Len())}) }

// lookedAt is what an explanation is of.
type lookedAt interface {
	count(c *clause) int
	value(n *node) string
}

func (c *clause) explain(hosts lookedAt) Node {
	explained := Node{Text: cutText(c.node.String()), Hosts: hosts.count(c), Value: cutText(hosts.value(c.node))}
	if c.node.kind == nodeList {
		if len(c.node.parts) <= maxExplained {
			explained.Parts = c.explainItems(hosts)
		}
		return explained
	}
	for _, part := range c.parts {
		explained.Parts = append(explained.Parts, part.explain(hosts))
	}
	return explained
}

// cutText returns a text, or its beginning if it is long.
func cutText(text string) string {
	if len(text) <= maxExplainedText {
		return text
	}
	return strings.ToValidUTF8(text[:maxExplainedText], "") + "…"
}

// explainItems explains the items of a list in their order, the names among them.
func (c *clause) explainItems(hosts lookedAt) []Node {
	items, others := make([]Node, 0, len(c.node.parts)), c.parts
	for _, n := range c.node.parts {
		if n.kind == nodeName {
			name := clause{node: n, operand: newOperand(nodeName, opEqual, n.text)}
			items = append(items, name.explain(hosts))
			continue
		}
		items = append(items, others[0].explain(hosts))
		others = others[1:]
	}
	return items
}

// oneHost is a host that is looked at alone.
type oneHost struct{ host Host }

func (o oneHost) count(c *clause) int {
	if c.match(o.host) {
		return 1
	}
	return 0
}

// value returns what the host has where a node looks.
func (o oneHost) value(n *node) string {
	switch n.kind {
	case nodeName, nodePattern, nodeRegexp:
		return o.host.Name()
	case nodeNetwork:
		return o.addresses()
	case nodeComparison:
		return o.keyValue(n.comparison.key)
	default:
		return ""
	}
}

func (o oneHost) keyValue(k key) string {
	var text string
	switch k.source {
	case fromLabel:
		text, _ = o.host.Label(k.words[0])
		return text
	case fromFact:
		if fact, ok := o.host.Fact(k.words); ok {
			return valueText(fact)
		}
		return ""
	case fromHost:
	}
	switch k.words[0] {
	case "name":
		return o.host.Name()
	case "addr":
		return o.addresses()
	case "heard":
		if age, ever := o.host.Heard(); ever {
			return age.String()
		}
		return ""
	case "proc":
		return strings.Join(o.host.Procedures(), ", ")
	}
	text, _ = o.host.Property(k.words[0])
	return text
}

func (o oneHost) addresses() string {
	var texts []string
	for _, addr := range o.host.Addresses() {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, ", ")
}

// valueText returns a value as a target sees it.
func valueText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return fmt.Sprint(v)
	case []string:
		return strings.Join(v, ", ")
	case []any:
		texts := make([]string, len(v))
		for i, element := range v {
			texts[i] = valueText(element)
		}
		return strings.Join(texts, ", ")
	}
	if n := numberOf(value); n.ok {
		return n.String()
	}
	return ""
}

// manyHosts is a table whose hosts are looked at together.
type manyHosts struct {
	table Table
	all   rowSet
}

func (m manyHosts) count(c *clause) int { return c.rows(m.table, m.all).count() }

func (m manyHosts) value(*node) string { return "" }
