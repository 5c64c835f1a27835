package target

import "slices"

// Compile makes a Matcher. The function group returns the text of a group by its name; it
// is called once for each, and may be nil if there are none. The error is a [GroupError],
// or a [SyntaxError] if the target has more than it may together with its groups.
func (e *Expr) Compile(group func(name string) (text string, err error)) (*Matcher, error) {
	c := compiler{group: group, groups: map[string]*clause{}}
	root, err := c.compileExpr(e)
	if err != nil {
		return nil, err
	}
	m := Matcher{root: root, only: true}
	m.collectNames(e.root)
	slices.Sort(m.names)
	m.names = slices.Compact(m.names)
	return &m, nil
}

// collectNames notes the names that are written out under no not.
func (m *Matcher) collectNames(n *node) {
	switch n.kind {
	case nodeName:
		m.names = append(m.names, n.text)
	case nodeOr, nodeList:
	default:
		m.only = false
	}
	if n.kind == nodeNot {
		return
	}
	for _, part := range n.parts {
		m.collectNames(part)
	}
}

// Names returns the names that are written out in the target, sorted: not those within
// not, nor those in groups. If it is made of nothing else, only is true: then it selects
// exactly those hosts, and no host need be looked at.
func (m *Matcher) Names() (names []string, only bool) { return slices.Clone(m.names), m.only }

// compiler makes clauses of nodes.
type compiler struct {
	group  func(string) (string, error)
	groups map[string]*clause // nil while it is being compiled
	within int                // groups within one another
	size   size
}

func (c *compiler) compileExpr(e *Expr) (*clause, error) {
	c.size.items += e.size.items
	c.size.others += e.size.others
	c.size.regexps += e.size.regexps
	switch {
	case c.size.items > maxItems:
		return nil, limitError(0, "at most %d items, those of groups included", maxItems)
	case c.size.others > maxOthers:
		return nil, limitError(0, "at most %d items that are not names, those of groups included", maxOthers)
	case c.size.regexps > maxRegexps:
		return nil, limitError(0, "regular expressions of at most %d instructions together, those of groups included", maxRegexps)
	}
	c.size.depth += e.size.depth
	root, err := c.compileNode(e.root)
	c.size.depth -= e.size.depth
	return root, err
}

func (c *compiler) compileNode(n *node) (*clause, error) {
	made := clause{node: n}
	switch n.kind {
	case nodeGroup:
		inner, err := c.compileGroup(n)
		made.parts = []*clause{inner}
		return &made, err
	case nodeComparison:
		made.operand = newOperand(n.comparison.operand, n.comparison.op, n.comparison.text)
		return &made, nil
	case nodeName, nodePattern, nodeRegexp, nodeNetwork:
		made.operand = newOperand(n.kind, opEqual, n.text)
		return &made, nil
	case nodeList:
		made.names = map[string]struct{}{}
	default:
	}
	for _, part := range n.parts {
		if n.kind == nodeList && part.kind == nodeName {
			made.names[part.text] = struct{}{}
			continue
		}
		inner, err := c.compileNode(part)
		if err != nil {
			return nil, err
		}
		made.parts = append(made.parts, inner)
	}
	return &made, nil
}

// compileGroup compiles the target of a group, once.
func (c *compiler) compileGroup(n *node) (*clause, error) {
	made, known := c.groups[n.text]
	if made != nil {
		return made, nil
	}
	made, err := (*clause)(nil), ErrGroupCycle
	if !known {
		c.groups[n.text] = nil
		c.within++
		c.size.depth++
		made, err = c.loadGroup(n.text)
		c.within--
		c.size.depth--
	}
	if err != nil {
		return nil, &GroupError{Name: n.text, Offset: n.offset, Err: err}
	}
	c.groups[n.text] = made
	return made, nil
}

func (c *compiler) loadGroup(name string) (*clause, error) {
	if c.group == nil {
		return nil, ErrNoGroup
	}
	if c.within > maxGroups {
		return nil, ErrTooDeep
	}
	text, err := c.group(name)
	if err != nil {
		return nil, err
	}
	e, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if c.size.depth+e.size.depth > maxDepth {
		return nil, ErrTooDeep
	}
	return c.compileExpr(e)
}
