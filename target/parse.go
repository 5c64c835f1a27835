package target

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// What an expression may have at most.
const (
	maxText    = 2 << 20 // bytes
	maxItems   = 100_000
	maxOthers  = 256 // items that are not names
	maxDepth   = 64  // parentheses, not, and groups within one another
	maxGroups  = 8   // groups within one another
	maxRegexp  = 1 << 10
	maxPattern = 1 << 10
)

// size is what of an expression has a limit.
type size struct {
	items, others, regexps, depth int
}

// Parse reads an expression. Its error is a [SyntaxError].
func Parse(text string) (*Expr, error) {
	if len(text) > maxText {
		return nil, limitError(maxText, "at most %d bytes", maxText)
	}
	if !utf8.ValidString(text) {
		return nil, limitError(invalidAt(text), "UTF-8")
	}
	p := parser{text: text}
	root, err := p.parseOr()
	if err == nil && p.pos < len(p.text) {
		err = p.operatorError()
	}
	if err != nil {
		return nil, err
	}
	return &Expr{root: root, size: p.size}, nil
}

func invalidAt(text string) int {
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// parser reads an expression by recursive descent. Each method leaves pos behind what it
// has read and behind white space.
type parser struct {
	text  string
	pos   int
	depth int
	item  int // where the last item began
	size  size
}

func (p *parser) parseOr() (*node, error) { return p.parseChain("or", nodeOr, p.parseAnd) }

func (p *parser) parseAnd() (*node, error) { return p.parseChain("and", nodeAnd, p.parseNot) }

// parseChain reads what is joined by a word. A part that is a chain of the same word
// itself, in parentheses, has its parts in this one.
func (p *parser) parseChain(word string, kind nodeKind, parsePart func() (*node, error)) (*node, error) {
	p.skipSpace()
	chain := node{kind: kind, offset: p.pos}
	for {
		part, err := parsePart()
		switch {
		case err != nil:
			return nil, err
		case part.kind == kind:
			chain.parts = append(chain.parts, part.parts...)
		default:
			chain.parts = append(chain.parts, part)
		}
		if keywordAt(p.text, p.pos) != word {
			break
		}
		p.pos += len(word)
		p.skipSpace()
	}
	if len(chain.parts) == 1 {
		return chain.parts[0], nil
	}
	return &chain, nil
}

func (p *parser) parseNot() (*node, error) {
	if keywordAt(p.text, p.pos) != "not" {
		return p.parseTerm()
	}
	not := node{kind: nodeNot, offset: p.pos}
	if err := p.enter(); err != nil {
		return nil, err
	}
	p.pos += len("not")
	p.skipSpace()
	part, err := p.parseNot()
	not.parts = []*node{part}
	p.depth--
	return &not, err
}

func (p *parser) parseTerm() (*node, error) {
	if p.pos == len(p.text) || p.text[p.pos] != '(' {
		return p.parseList()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	p.pos++
	inner, err := p.parseOr()
	if err != nil {
		return nil, err
	}
	if p.pos == len(p.text) || p.text[p.pos] != ')' {
		return nil, p.operatorError()
	}
	p.pos++
	p.skipSpace()
	p.depth--
	return inner, nil
}

// enter counts what is within one another.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return limitError(p.pos, "at most %d parentheses and not within one another", maxDepth)
	}
	p.size.depth = max(p.size.depth, p.depth)
	return nil
}

func (p *parser) parseList() (*node, error) {
	list := node{kind: nodeList, offset: p.pos}
	for {
		item, err := p.parseItem()
		if err == nil {
			err = p.countItem(item)
		}
		if err != nil {
			return nil, err
		}
		list.parts = append(list.parts, item)
		p.skipSpace()
		if p.pos == len(p.text) || p.text[p.pos] != ',' {
			break
		}
		p.pos++
		p.skipSpace()
	}
	if len(list.parts) == 1 {
		return list.parts[0], nil
	}
	return &list, nil
}

func (p *parser) countItem(item *node) error {
	if p.size.items++; p.size.items > maxItems {
		return limitError(item.offset, "at most %d items", maxItems)
	}
	if item.kind == nodeName {
		return nil
	}
	if p.size.others++; p.size.others > maxOthers {
		return limitError(item.offset, "at most %d items that are not names", maxOthers)
	}
	return nil
}

const (
	wantItem     = "a name, a pattern or a comparison"
	wantOperator = `"and", "or" or the end`
)

func (p *parser) parseItem() (*node, error) {
	p.item = p.pos
	if p.pos == len(p.text) {
		return nil, syntaxError(p.text, p.pos, wantItem)
	}
	if isSalt(p.text[p.pos:]) {
		return nil, saltError(p.text, p.pos)
	}
	switch c := p.text[p.pos]; {
	case c == '@':
		return p.parseGroup()
	case c == '~':
		return p.parseRegexpItem()
	case p.beforeOperator():
		return p.parseComparison()
	case c == '"' || c == '\'':
		return p.parseQuotedName()
	case keywordAt(p.text, p.pos) != "":
		return nil, syntaxError(p.text, p.pos, wantItem+` (in quotes it is a name)`)
	case strings.IndexByte(reserved, c) >= 0:
		return nil, syntaxError(p.text, p.pos, wantItem)
	}
	return p.parseBareItem()
}

// parseBareItem reads a name, a pattern or a network.
func (p *parser) parseBareItem() (*node, error) {
	item := node{offset: p.pos}
	var err error
	item.kind, item.text, err = p.parseBareText()
	if err != nil || item.kind != nodeName || !isNetwork(item.text) || item.text != p.text[item.offset:p.pos] {
		return &item, err
	}
	item.kind = nodeNetwork
	item.text, err = p.parseNetwork(item.text, item.offset)
	return &item, err
}

// parseBareText reads a word or a pattern.
func (p *parser) parseBareText() (nodeKind, string, error) {
	begin := p.pos
	pat, end, err := parsePattern(p.text, begin)
	if err != nil {
		return 0, "", err
	}
	p.pos = end
	if literal, ok := pat.literal(); ok {
		return nodeName, literal, nil
	}
	return nodePattern, pat.String(), nil
}

// parseNetwork returns the network that a text is, written best.
func (p *parser) parseNetwork(text string, at int) (string, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return "", syntaxError(p.text, at, "an address or a network, as in 10.1.2.3 and 10.0.0.0/8")
	}
	if prefix != prefix.Masked() {
		return "", syntaxError(p.text, at, prefix.Masked().String())
	}
	return prefix.String(), nil
}

func (p *parser) parseQuotedName() (*node, error) {
	name, end, err := readQuoted(p.text, p.pos)
	if err == nil && name == "" {
		err = syntaxError(p.text, p.pos, wantItem)
	}
	if err != nil {
		return nil, err
	}
	item := node{kind: nodeName, offset: p.pos, text: name}
	p.pos = end
	return &item, nil
}

func (p *parser) parseGroup() (*node, error) {
	item := node{kind: nodeGroup, offset: p.pos}
	p.pos++
	name, err := p.parseWord(isPlainRune)
	if err == nil && name == "" {
		err = syntaxError(p.text, p.pos, "the name of a group")
	}
	item.text = name
	return &item, err
}

// parseWord reads a word, in quotes or of the characters that may stand in it.
func (p *parser) parseWord(allowed func(rune) bool) (string, error) {
	if p.pos < len(p.text) && (p.text[p.pos] == '"' || p.text[p.pos] == '\'') {
		word, end, err := readQuoted(p.text, p.pos)
		p.pos = max(p.pos, end)
		return word, err
	}
	begin := p.pos
	p.pos = skipRunes(p.text, p.pos, allowed)
	return p.text[begin:p.pos], nil
}

func (p *parser) parseRegexpItem() (*node, error) {
	item := node{kind: nodeRegexp, offset: p.pos}
	p.pos++
	var err error
	item.text, err = p.parseRegexp()
	return &item, err
}

// parseRegexp reads a regular expression, and checks it.
func (p *parser) parseRegexp() (text string, err error) {
	begin, end := p.pos, 0
	if begin < len(p.text) && (p.text[begin] == '"' || p.text[begin] == '\'') {
		text, end, err = readQuotedRegexp(p.text, begin)
		begin++
	} else {
		end = regexpEnd(p.text, begin)
		text = p.text[begin:end]
		if i := skipRunes(text, 0, isVisible); i < len(text) {
			err = syntaxError(p.text, begin+i, "quotes around a regular expression with such a character")
		}
	}
	if err != nil {
		return "", err
	}
	if text == "" {
		return "", syntaxError(p.text, p.pos, "a regular expression")
	}
	cost, err := checkRegexp(text, p.text, begin)
	if err != nil {
		return "", err
	}
	if p.size.regexps += cost; p.size.regexps > maxRegexps {
		return "", limitError(begin, "regular expressions of at most %d instructions together", maxRegexps)
	}
	p.pos = end
	return text, nil
}

// beforeOperator reports whether a key stands at the place, with an operator behind it.
func (p *parser) beforeOperator() bool {
	at := p.pos
	for at < len(p.text) {
		if c := p.text[at]; c == '"' || c == '\'' {
			_, end, err := readQuoted(p.text, at)
			if err != nil {
				return false
			}
			at = end
		}
		end := skipRunes(p.text, at, isPlainRune)
		if end == at {
			break
		}
		at = end
	}
	return at > p.pos && operatorAt(p.text, at) != ""
}

func operatorAt(text string, at int) operator {
	for _, op := range operators {
		if strings.HasPrefix(text[at:], string(op)) {
			return op
		}
	}
	return ""
}

func (p *parser) parseComparison() (*node, error) {
	item := node{kind: nodeComparison, offset: p.pos}
	k, err := p.parseKey()
	if err != nil {
		return nil, err
	}
	c := comparison{key: k, op: operatorAt(p.text, p.pos)}
	if c.op == "" {
		return nil, syntaxError(p.text, p.pos, "a dot or an operator")
	}
	p.pos += len(c.op)
	begin := p.pos
	if c.op == opLike || c.op == opNotLike {
		c.operand = nodeRegexp
		c.text, err = p.parseRegexp()
	} else {
		c.operand, c.text, err = p.parseOperand()
	}
	if err == nil {
		err = p.checkComparison(&c, item.offset, begin)
	}
	item.comparison = &c
	return &item, err
}

func (p *parser) parseKey() (key, error) {
	begin := p.pos
	var words []string
	for {
		at := p.pos
		word, err := p.parseWord(isKeyRune)
		if err == nil && word == "" {
			err = syntaxError(p.text, at, "a key, as in role, fact.os and host.addr")
		}
		if err != nil {
			return key{}, err
		}
		words = append(words, word)
		if p.pos == len(p.text) || p.text[p.pos] != '.' {
			break
		}
		p.pos++
	}
	i := -1
	if len(words) > 1 && p.text[begin] != '"' && p.text[begin] != '\'' {
		i = slices.Index(sourceNames[:], words[0])
	}
	switch {
	case i == int(fromFact):
		return key{fromFact, words[1:]}, nil
	case i >= 0:
		return key{source(i), []string{strings.Join(words[1:], ".")}}, nil
	}
	return key{fromLabel, []string{strings.Join(words, ".")}}, nil
}

// parseOperand reads what stands behind an operator other than those of regular
// expressions.
func (p *parser) parseOperand() (nodeKind, string, error) {
	if p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"' || c == '\'':
			text, end, err := readQuoted(p.text, p.pos)
			p.pos = max(p.pos, end)
			return nodeName, text, err
		case c == '=':
			return 0, "", syntaxError(p.text, p.pos-1, "one =")
		case c == '~':
			return 0, "", syntaxError(p.text, p.pos-1, "~ alone, for a regular expression")
		case !isSpace(c) && strings.IndexByte(reserved, c) < 0:
			return p.parseBareText()
		}
	}
	return 0, "", syntaxError(p.text, p.pos, "a value, with no white space before it")
}

// checkComparison refuses what can never be true or false of a host.
func (p *parser) checkComparison(c *comparison, at, operand int) error {
	if c.op.isOrder() && c.operand == nodePattern {
		return syntaxError(p.text, operand, "a value without * ? [ {, since one of them comes first")
	}
	if c.key.source != fromHost {
		return nil
	}
	name, _, more := strings.Cut(c.key.words[0], ".")
	switch {
	case !slices.Contains(properties, name) || more != (name == "drift"):
		return syntaxError(p.text, at, "one of host."+strings.Join(properties, ", host.")+".NAME")
	case c.op.isOrder() && !slices.Contains([]string{"name", "heard", "software"}, name):
		return syntaxError(p.text, operand-len(c.op), "= != ~ or !~, since neither comes first")
	case name == "addr":
		return p.checkAddress(c, operand)
	case name == "heard":
		_, err := parseAge(c.text)
		if c.text != "*" && (err != nil || !c.op.isOrder()) {
			return syntaxError(p.text, operand-len(c.op), "an order and how long ago, as in host.heard<10m")
		}
	case c.operand != nodeName:
		return nil
	case (name == "online" || name == "paused") && c.text != "true" && c.text != "false":
		return syntaxError(p.text, operand, "true or false")
	case name == "drift" && !slices.Contains([]string{"clean", "dirty", "unknown"}, c.text):
		return syntaxError(p.text, operand, "clean, dirty or unknown")
	}
	return nil
}

// parseAge reads how long ago something was: as Go writes durations, or days, as 30d.
func parseAge(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 15)
	return time.Duration(n) * 24 * time.Hour, err
}

// properties are what is known of a host beside its labels and facts.
var properties = []string{"name", "addr", "online", "heard", "software", "proc", "paused", "drift"}

// checkAddress makes the operand of host.addr an address or a network, if it is no
// pattern.
func (p *parser) checkAddress(c *comparison, at int) (err error) {
	if c.operand != nodeName {
		return nil
	}
	if addr, err := netip.ParseAddr(c.text); err == nil {
		c.text = addr.Unmap().WithZone("").String()
		return nil
	}
	c.operand = nodeNetwork
	c.text, err = p.parseNetwork(c.text, at)
	return err
}

// operatorError says what could stand where neither an operator nor the end is.
func (p *parser) operatorError() error {
	if p.pos == len(p.text) {
		return syntaxError(p.text, p.pos, `"and", "or" or ")"`)
	}
	found := wordAt(p.text, p.pos)
	if word := misspelt[found]; word != "" && word != "not" {
		return syntaxError(p.text, p.pos, `"`+word+`", written so`)
	}
	if misspelt[wordAt(p.text, p.item)] == "not" {
		return syntaxError(p.text, p.item, `"not", written so`)
	}
	switch c := p.text[p.pos]; {
	case operatorAt(p.text, p.pos) != "" && isSpace(p.text[p.pos-1]):
		return syntaxError(p.text, p.pos, wantOperator+" (around = and its like there is no white space)")
	case strings.IndexByte("=!<>~", c) >= 0:
		return syntaxError(p.text, p.pos, wantOperator+" (a key is no pattern; a text with such a character is quoted)")
	}
	return syntaxError(p.text, p.pos, wantOperator)
}

func (p *parser) skipSpace() {
	for p.pos < len(p.text) && isSpace(p.text[p.pos]) {
		p.pos++
	}
}
