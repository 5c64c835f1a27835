package target

import "slices"

// Compile makes a Matcher. groups may be nil if there are none. The error is a [GroupError],
// or a [SyntaxError] if the target has more than it may together with its groups.
func (e *Expr) Compile(groups *Groups) (*Matcher, error) {
	if groups == nil {
		groups = NewGroups(nil)
	}
	c := compiler{groups: groups, counted: map[string]bool{}}
	root, err := c.compileExpr(e)
	if err != nil {
		return nil, err
	}
	m := Matcher{root: root, only: true, weight: c.size.weight(), cost: c.cost}
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

// What an item of a target weighs that is no name, and each instruction of a regular expression in it.
const (
	ItemWeight   = 100
	regexpWeight = 10
)

func (s size) weight() int { return s.items - s.others + ItemWeight*s.others + regexpWeight*s.regexps }

// maxCost is what a target may weigh with each group as often as it is used, about as much as one without groups can: groups that
// use others many times each would be matched, and explained, billions of times.
const maxCost = 250_000

// Weight says about what the target takes, to be kept and to be matched, with the groups it uses: 1 for each name, ItemWeight
// for any other item, and more for one with a regular expression.
func (m *Matcher) Weight() int { return m.weight }

// Cost is Weight as far as hosts are matched: with each group as often as it is used, and less for long lists of names, which are looked up.
func (m *Matcher) Cost() int { return m.cost }

// compiler makes clauses of nodes.
type compiler struct {
	groups  *Groups
	counted map[string]bool // groups whose size is part of size
	size    size
	cost    int      // what the expression that is being compiled weighs, each group in it as often as it is used
	inner   height   // of these groups
	uses    []string // these groups
}

// height is how many groups, and how much of anything, is within one another.
type height struct{ groups, depth int }

// count adds what an expression has.
func (c *compiler) count(s size) error {
	c.size.items += s.items
	c.size.others += s.others
	c.size.regexps += s.regexps
	switch {
	case c.size.items > maxItems:
		return limitError(0, "at most %d items, those of groups included", maxItems)
	case c.size.others > maxOthers:
		return limitError(0, "at most %d items that are not names, those of groups included", maxOthers)
	case c.size.regexps > maxRegexps:
		return limitError(0, "regular expressions of at most %d instructions together, those of groups included", maxRegexps)
	}
	return nil
}

func (c *compiler) compileExpr(e *Expr) (*clause, error) {
	if err := c.count(e.size); err != nil {
		return nil, err
	}
	c.cost, c.inner, c.uses = e.size.weight(), height{}, nil
	root, err := c.compileNode(e.root)
	c.inner.depth += e.size.depth
	switch {
	case err != nil:
		return nil, err
	case c.inner.depth > maxDepth:
		return nil, limitError(0, "at most %d parentheses, not and groups within one another", maxDepth)
	case c.cost > maxCost:
		return nil, limitError(0, "at most %d items, those of groups as often as these are used, where one that is no name counts as %d", maxCost, ItemWeight)
	}
	return root, nil
}

func (c *compiler) compileNode(n *node) (*clause, error) {
	made := clause{node: n}
	switch n.kind {
	case nodeGroup:
		group, err := c.compileGroup(n)
		made.parts = []*clause{group}
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
	c.cost -= max(0, len(made.names)-maxExplained) // a long list is looked up at once
	return &made, nil
}

// compileGroup compiles the target of a group, once.
func (c *compiler) compileGroup(n *node) (*clause, error) {
	group, known := c.groups.compiled[n.text]
	var err error
	switch {
	case !known:
		group, err = c.loadGroup(n.text)
	case group == nil:
		err = ErrGroupCycle
	default:
		err = c.countGroup(n.text)
	}
	if err == nil && (group.height.groups > maxGroups || group.height.depth > maxDepth) {
		err = ErrTooDeep
	}
	if err != nil {
		return nil, &GroupError{Name: n.text, Offset: n.offset, Err: err}
	}
	c.cost += group.cost
	c.inner = height{max(c.inner.groups, group.height.groups), max(c.inner.depth, group.height.depth)}
	c.uses = append(c.uses, n.text)
	return group.root, nil
}

// loadGroup compiles the target of a group that is not compiled yet.
func (c *compiler) loadGroup(name string) (*compiledGroup, error) {
	e, err := c.groups.Expr(name)
	if err != nil {
		return nil, err
	}
	c.groups.compiled[name], c.counted[name] = nil, true
	cost, outer, uses := c.cost, c.inner, c.uses
	root, err := c.compileExpr(e)
	group := compiledGroup{root, height{c.inner.groups + 1, c.inner.depth + 1}, e.size, c.cost, c.uses}
	if c.cost, c.inner, c.uses = cost, outer, uses; err != nil {
		delete(c.groups.compiled, name)
		return nil, err
	}
	c.groups.compiled[name] = &group
	return &group, nil
}

// countGroup adds what a group that is compiled has, with the groups it uses, once.
func (c *compiler) countGroup(name string) error {
	if c.counted[name] {
		return nil
	}
	c.counted[name] = true
	group := c.groups.compiled[name]
	if err := c.count(group.size); err != nil {
		return err
	}
	for _, used := range group.uses {
		if err := c.countGroup(used); err != nil {
			return err
		}
	}
	return nil
}
