package target

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FromSalt translates a compound target of Salt, as in
//
//	G@os:Debian and not E@db.*    fact.os=Debian and not ~db.*
//
// Grains are facts here, pillars labels, and nodegroups groups. The notes say in
// sentences where a translation may select other hosts than Salt would. The error is a
// [SyntaxError] of Salt's text, for what cannot be said here too.
func FromSalt(text string) (expr string, notes []string, err error) {
	if len(text) > maxText || !utf8.ValidString(text) {
		_, err = Parse(text)
		return "", nil, err
	}
	s := saltTranslator{text: text}
	if err := s.translate(); err != nil {
		return "", nil, err
	}
	e, err := Parse(s.out.String())
	if err != nil {
		return "", nil, s.inSalt(err.(*SyntaxError)) //nolint:errorlint // Parse's own error, never wrapped
	}
	return e.String(), s.notes, nil
}

// saltLetters are those that Salt puts before an @; saltKeyed those that have a key and a
// value, and may have the character that parts them before the @ too.
const (
	saltLetters = "GEPLSIJNRDTM"
	saltKeyed   = "GPIJ"
)

// isSalt reports whether a text begins as a term of Salt does.
func isSalt(text string) bool {
	switch {
	case len(text) < 2 || strings.IndexByte(saltLetters, text[0]) < 0:
		return false
	case text[1] == '@':
		return true
	}
	r, n := utf8.DecodeRuneInString(text[1:])
	return strings.IndexByte(saltKeyed, text[0]) >= 0 && r != '\\' && (unicode.IsPunct(r) || unicode.IsSymbol(r)) && strings.HasPrefix(text[1+n:], "@")
}

// saltError answers a term of Salt with what it is here.
func saltError(text string, at int) error {
	s := saltTranslator{text: text, pos: at}
	word, err := s.readWord()
	if err == nil {
		var item string
		if item, err = s.translateTerm(word, at); err == nil {
			err = &SyntaxError{Offset: at, Found: wordAt(text, at), Want: item}
		}
	}
	return err
}

type saltTranslator struct {
	text    string
	pos     int
	out     strings.Builder
	origins []origin
	notes   []string
}

// origin is where in Salt's text something comes from.
type origin struct{ out, in int }

func (s *saltTranslator) translate() error {
	afterTerm := false
	for s.skipSpace(); s.pos < len(s.text); s.skipSpace() {
		at := s.pos
		word, err := s.readWord()
		if err != nil {
			return err
		}
		item := word
		switch word {
		case "not":
			if afterTerm {
				item = "and not"
			}
			fallthrough
		case "and", "or", "(", ")":
			afterTerm = word == ")"
		default:
			if item, err = s.translateTerm(word, at); err != nil {
				return err
			}
			afterTerm = true
		}
		s.origins = append(s.origins, origin{s.out.Len(), at})
		s.out.WriteString(item)
		s.out.WriteByte(' ')
	}
	s.origins = append(s.origins, origin{s.out.Len(), s.pos})
	return nil
}

// inSalt makes an error of what was translated one of Salt's text.
func (s *saltTranslator) inSalt(err *SyntaxError) *SyntaxError {
	at := 0
	for _, o := range s.origins {
		if o.out <= err.Offset {
			at = o.in
		}
	}
	if err.Found == "" {
		return limitError(at, "%s", err.Want)
	}
	return syntaxError(s.text, at, err.Want)
}

func (s *saltTranslator) skipSpace() {
	for s.pos < len(s.text) && isSpace(s.text[s.pos]) {
		s.pos++
	}
}

// readWord reads a parenthesis, an operator or a term. A term has the parentheses that it
// opens itself.
func (s *saltTranslator) readWord() (string, error) {
	begin := s.pos
	switch c := s.text[begin]; {
	case c == '(' || c == ')':
		s.pos++
	case strings.HasPrefix(s.text[begin:], "L@"):
		s.pos = skipRunes(s.text, begin, func(r rune) bool { return !isSpaceRune(r) && r != ')' })
	default:
		s.pos = regexpEnd(s.text, begin)
		if s.pos < len(s.text) && !isSpace(s.text[s.pos]) && s.text[s.pos] != ')' {
			return "", limitError(begin, "a term of at most %d bytes", maxRegexp)
		}
	}
	return s.text[begin:s.pos], nil
}

// note adds a sentence, once.
func (s *saltTranslator) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// translateTerm returns what a term is here; it stands at a place of Salt's text.
func (s *saltTranslator) translateTerm(term string, at int) (string, error) {
	if !isSalt(term) {
		kind, text, err := s.translateGlob(term, at)
		return (&node{kind: kind, text: text}).String(), err
	}
	letter, rest := term[0], term[2:]
	var err error
	item := &node{text: rest}
	switch letter {
	case 'E':
		item.kind = nodeRegexp
		item.text, err = s.translateRegexp(rest, at+2)
	case 'L':
		return s.translateList(rest, at+2)
	case 'S':
		return s.translateSubnet(rest, at+2)
	case 'N':
		item.kind = nodeGroup
		if rest == "" {
			err = syntaxError(s.text, at, "the name of a nodegroup")
		}
	case 'R':
		err = syntaxError(s.text, at, "hosts named here (R@ asks a range server, and there is none)")
	case 'D':
		err = syntaxError(s.text, at, "a fact or a label (D@ asks a data store of minions, and there is none)")
	case 'T', 'M':
		err = syntaxError(s.text, at, "hosts (T@ and M@ ask for resources of minions, and there are none)")
	default:
		item, err = s.translateKeyed(term, at)
	}
	if err != nil {
		return "", err
	}
	return item.String(), nil
}

// translateKeyed translates a grain or a pillar.
func (s *saltTranslator) translateKeyed(term string, at int) (*node, error) {
	delimiter, rest, _ := strings.Cut(term[1:], "@")
	if delimiter == "" {
		delimiter = ":"
	}
	words := strings.Split(rest, delimiter)
	path, value := words[:len(words)-1], words[len(words)-1]
	if len(path) == 0 {
		return nil, syntaxError(s.text, at, "a key and a value, as in G@os:Debian")
	}
	for _, word := range path {
		if word == "" {
			return nil, syntaxError(s.text, at, "keys that are not empty (with another delimiter a value may hold this one, as in G|@ipv6|::1)")
		}
		if strings.ContainsAny(word, "*?[") {
			return nil, syntaxError(s.text, at, "keys written out")
		}
	}
	c := comparison{key: s.translateKey(term[0], path), op: opEqual}
	begin := at + len(term) - len(value)
	var err error
	if term[0] == 'P' || term[0] == 'J' {
		c.op, c.operand = opLike, nodeRegexp
		c.text, err = s.translateRegexp(value, begin)
	} else if value == "" {
		c.operand = nodeName
	} else {
		c.operand, c.text, err = s.translateGlob(value, begin)
	}
	if c.key.source != fromHost && c.text != "*" {
		s.note("Salt ignores case in grains and pillars; here a regular expression does that begins with (?i), as in fact.os~(?i)debian")
	}
	return &node{kind: nodeComparison, comparison: &c}, err
}

func (s *saltTranslator) translateKey(letter byte, path []string) key {
	switch {
	case letter == 'I' || letter == 'J':
		s.note("pillars are labels here")
		return key{fromLabel, []string{strings.Join(path, ".")}}
	case len(path) == 1 && path[0] == "id":
		s.note("the grain id is the name of the host here")
		return key{fromHost, []string{"name"}}
	}
	return key{fromFact, path}
}

// translateList translates the names of a list. In Salt it has no patterns.
func (s *saltTranslator) translateList(text string, at int) (string, error) {
	list := node{kind: nodeList}
	for name := range strings.SplitSeq(text, ",") {
		if name != "" {
			list.parts = append(list.parts, &node{kind: nodeName, text: name})
		}
	}
	if len(list.parts) == 0 {
		return "", syntaxError(s.text, at, "names, as in L@web01,web02")
	}
	return list.String(), nil
}

func (s *saltTranslator) translateSubnet(text string, at int) (string, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return "host.addr=" + addr.String(), nil
	}
	p := parser{text: s.text}
	return p.parseNetwork(text, at)
}

// translateRegexp makes an expression that matches a beginning one that matches all.
func (s *saltTranslator) translateRegexp(expr string, at int) (string, error) {
	if _, err := checkRegexp(expr, s.text, at); err != nil {
		return "", err
	}
	switch {
	case hasAlternatives(expr):
		return "(?:" + expr + ").*", nil
	case endsWith(expr, "$"):
		expr = strings.TrimSuffix(expr, "$")
	case !endsWith(expr, ".*"):
		expr += ".*"
	}
	if expr = strings.TrimPrefix(expr, "^"); expr == "" {
		expr = "()"
	}
	return expr, nil
}

// endsWith reports whether a regular expression ends with an operator, rather than with
// characters that stand for themselves.
func endsWith(expr, operator string) bool {
	before, found := strings.CutSuffix(expr, operator)
	return found && (len(before)-len(strings.TrimRight(before, `\`)))%2 == 0
}

// hasAlternatives reports whether a regular expression has a | outside parentheses.
func hasAlternatives(expr string) bool {
	open := 0
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			i++
		case c == '[':
			i = classEnd(expr, i)
		case c == '(':
			open++
		case c == ')':
			open--
		case c == '|' && open == 0:
			return true
		}
	}
	return false
}

// translateGlob translates a pattern of Python's fnmatch, which knows * ? [seq] [!seq] and
// neither braces, numbers nor backslashes.
func (s *saltTranslator) translateGlob(text string, at int) (nodeKind, string, error) {
	var globs pattern
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		g := glob{kind: globText, text: text[i : i+n]}
		switch r {
		case '*':
			g = glob{kind: globStar}
		case '?':
			g = glob{kind: globAny}
		case '[':
			if end := fnmatchEnd(text[i:]); end > 0 {
				n = end + 1
				g = fnmatchClass(text[i+1 : i+end])
			}
			if g.kind == globClass && len(g.runes) == 0 {
				return 0, "", syntaxError(s.text, at+i, "the smaller character first")
			}
		}
		globs = appendGlob(globs, g)
		i += n
	}
	if literal, ok := globs.literal(); ok {
		return nodeName, literal, nil
	}
	return nodePattern, globs.String(), nil
}

// fnmatchEnd returns where the class ends with which a pattern begins, or 0 if it is none.
func fnmatchEnd(text string) int {
	first := 1
	if strings.HasPrefix(text[first:], "!") {
		first++
	}
	if n := strings.IndexByte(text[min(first+1, len(text)):], ']'); n >= 0 {
		return first + 1 + n
	}
	return 0
}

// fnmatchClass reads the inside of a class.
func fnmatchClass(inner string) glob {
	g := glob{kind: globClass}
	rest, negated := strings.CutPrefix(inner, "!")
	g.negated = negated
	runes := []rune(rest)
	for i := 0; i < len(runes); i++ {
		s := span[rune]{runes[i], runes[i]}
		if i+2 < len(runes) && runes[i+1] == '-' {
			s.last = runes[i+2]
			i += 2
		}
		if s.first <= s.last {
			g.runes = append(g.runes, s)
		}
	}
	if g.looksNumeric() {
		// Digits are the same as numbers, and read better.
		g.kind = globNumbers
		for _, s := range g.runes {
			g.numbers = append(g.numbers, span[uint64]{uint64(s.first - '0'), uint64(s.last - '0')})
		}
	}
	return g
}
