package target

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What a pattern may have at most.
const (
	maxBraces  = 16      // within one another
	maxNumbers = 100_000 // of one range
	maxDigits  = 18      // of a number
)

// pattern is globs one after the other.
type pattern []glob

type globKind uint8

const (
	globText    globKind = iota // the text itself
	globAny                     // any one character
	globStar                    // any text
	globClass                   // one of some characters
	globNumbers                 // a number
	globEither                  // one of some patterns
)

// glob is a part of a pattern.
type glob struct {
	kind    globKind
	text    string
	negated bool // of a class
	runes   []span[rune]
	numbers []span[uint64]
	width   int // to which numbers are filled with zeros
	either  []pattern
}

// span is from its first to its last, both included.
type span[T rune | uint64] struct{ first, last T }

func contains[T rune | uint64](spans []span[T], v T) bool {
	for _, s := range spans {
		if s.first <= v && v <= s.last {
			return true
		}
	}
	return false
}

// literal returns the text that the pattern is, if nothing in it is wild.
func (p pattern) literal() (string, bool) {
	if len(p) == 1 && p[0].kind == globText {
		return p[0].text, true
	}
	return "", false
}

// isAll reports whether the pattern is *.
func (p pattern) isAll() bool { return len(p) == 1 && p[0].kind == globStar }

// String returns the pattern as it is written best.
func (p pattern) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

func (p pattern) write(b *strings.Builder) {
	for _, g := range p {
		g.write(b)
	}
}

func (g glob) write(b *strings.Builder) {
	switch g.kind {
	case globText:
		for _, r := range g.text {
			writeRune(b, r)
		}
	case globAny:
		b.WriteByte('?')
	case globStar:
		b.WriteByte('*')
	case globClass:
		g.writeClass(b)
	case globNumbers:
		g.writeNumbers(b)
	case globEither:
		for i, p := range g.either {
			b.WriteByte("{,"[min(i, 1)])
			p.write(b)
		}
		b.WriteByte('}')
	}
}

// writeRune writes a character so that it stands for itself.
func writeRune(b *strings.Builder, r rune) {
	if !isPlainRune(r) {
		b.WriteByte('\\')
	}
	b.WriteRune(r)
}

func (g glob) writeClass(b *strings.Builder) {
	b.WriteByte('[')
	if g.negated {
		b.WriteByte('!')
	}
	for i, s := range g.runes {
		// A class of digits and commas would be numbers; a ^ would be taken for a !.
		if s.first == '-' || i == 0 && (s.first == '^' || g.looksNumeric()) {
			b.WriteByte('\\')
			b.WriteRune(s.first)
		} else {
			writeRune(b, s.first)
		}
		if s.last != s.first {
			b.WriteByte('-')
			if s.last == '-' {
				b.WriteByte('\\')
			}
			writeRune(b, s.last)
		}
	}
	b.WriteByte(']')
}

// looksNumeric reports whether the class, as it is written, could be read as numbers.
func (g glob) looksNumeric() bool {
	ranges := false
	for _, s := range g.runes {
		if !isDigit(s.first) || !isDigit(s.last) {
			return false
		}
		ranges = ranges || s.first != s.last
	}
	return ranges && !g.negated
}

func isDigit[T rune | byte](c T) bool { return '0' <= c && c <= '9' }

func (g glob) writeNumbers(b *strings.Builder) {
	b.WriteByte('[')
	for i, s := range g.numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "%0*d", g.width, s.first)
		if s.last != s.first || len(g.numbers) == 1 {
			fmt.Fprintf(b, "-%0*d", g.width, s.last)
		}
	}
	b.WriteByte(']')
}

// parsePattern reads the pattern that begins at a place of a text, up to where it ends,
// which it returns too. There must be one.
func parsePattern(text string, at int) (pattern, int, error) {
	p := patternParser{text: text, begin: at, pos: at}
	parsed, err := p.parse()
	if err == nil && p.pos < len(text) && strings.IndexByte("]}", text[p.pos]) >= 0 {
		err = syntaxError(text, p.pos, `\ before a bracket or brace that closes nothing`)
	}
	if err == nil && len(parsed) == 0 {
		err = syntaxError(text, at, wantItem)
	}
	return parsed, p.pos, err
}

type patternParser struct {
	text       string
	begin, pos int
	depth      int
}

// parse reads globs up to what is none: a reserved character or white space, within
// braces a comma or the closing one.
func (p *patternParser) parse() (pattern, error) {
	var globs pattern
	for n := 0; p.pos < len(p.text); n++ {
		r, size := utf8.DecodeRuneInString(p.text[p.pos:])
		if p.ends(r) {
			break
		}
		g, err := p.parseGlob(r, size)
		if err != nil {
			return nil, err
		}
		// A name may be longer.
		if (n > 0 || g.kind != globText) && p.pos-p.begin > maxPattern {
			return nil, limitError(p.begin, "a pattern of at most %d bytes", maxPattern)
		}
		globs = appendGlob(globs, g)
	}
	return globs, nil
}

// appendGlob joins texts that follow one another, and stars.
func appendGlob(globs pattern, g glob) pattern {
	if len(globs) > 0 {
		switch last := &globs[len(globs)-1]; {
		case last.kind == globText && g.kind == globText:
			last.text += g.text
			return globs
		case last.kind == globStar && g.kind == globStar:
			return globs
		}
	}
	return append(globs, g)
}

func (p *patternParser) ends(r rune) bool {
	if p.depth > 0 {
		return r == ',' || r == '}'
	}
	return isSpaceRune(r) || strings.ContainsRune(reserved+"]}", r)
}

func isSpaceRune(r rune) bool { return r < utf8.RuneSelf && isSpace(byte(r)) }

func (p *patternParser) parseGlob(r rune, n int) (glob, error) {
	switch r {
	case '*', '?':
		p.pos++
		if r == '*' {
			return glob{kind: globStar}, nil
		}
		return glob{kind: globAny}, nil
	case '[':
		return p.parseBrackets()
	case '{':
		return p.parseBraces()
	case '\\':
		return p.parseEscaped()
	}
	begin := p.pos
	for p.pos < len(p.text) && !p.ends(r) && !strings.ContainsRune(`*?[{\`, r) {
		if !isVisible(r) || r == ']' || r == '}' {
			return glob{}, syntaxError(p.text, p.pos, `quotes around a text with such a character, or \ before it`)
		}
		p.pos += n
		r, n = utf8.DecodeRuneInString(p.text[p.pos:])
	}
	return glob{kind: globText, text: p.text[begin:p.pos]}, nil
}

func (p *patternParser) parseEscaped() (glob, error) {
	p.pos++
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	if n == 0 {
		return glob{}, syntaxError(p.text, p.pos, `a character after \`)
	}
	p.pos += n
	return glob{kind: globText, text: string(r)}, nil
}

func (p *patternParser) parseBraces() (glob, error) {
	begin := p.pos
	if p.depth++; p.depth > maxBraces {
		return glob{}, limitError(begin, "at most %d braces within one another", maxBraces)
	}
	g := glob{kind: globEither}
	for {
		p.pos++
		alternative, err := p.parse()
		if err != nil {
			return glob{}, err
		}
		g.either = append(g.either, alternative)
		if p.pos == len(p.text) {
			return glob{}, syntaxError(p.text, begin, "a closing }")
		}
		if p.text[p.pos] == '}' {
			break
		}
	}
	if len(g.either) == 1 && len(g.either[0]) == 0 {
		return glob{}, syntaxError(p.text, begin, "something in braces, as in {a,b}")
	}
	p.pos++
	p.depth--
	return g, nil
}

func (p *patternParser) parseBrackets() (glob, error) {
	begin := p.pos
	end := begin + 1
	for end < len(p.text) && p.text[end] != ']' && end-begin <= maxPattern {
		if p.text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.text) || p.text[end] != ']' {
		return glob{}, syntaxError(p.text, begin, "a closing ]")
	}
	inner := p.text[begin+1 : end]
	p.pos = end + 1
	if strings.ContainsAny(inner, "-,") && strings.Trim(inner, "0123456789-,") == "" {
		return p.parseNumbers(inner, begin+1)
	}
	return p.parseClass(inner, begin+1)
}

// parseNumbers reads numbers and ranges of them, which stand at a place of the text.
func (p *patternParser) parseNumbers(inner string, at int) (glob, error) {
	g := glob{kind: globNumbers}
	if inner[0] == '0' {
		g.width = len(inner) - len(strings.TrimLeft(inner, "0123456789"))
	}
	for part := range strings.SplitSeq(inner, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		if len(low) > maxDigits || len(high) > maxDigits {
			return glob{}, limitError(at, "numbers of at most %d digits", maxDigits)
		}
		first, err1 := strconv.ParseUint(low, 10, 64)
		last, err2 := strconv.ParseUint(high, 10, 64)
		switch {
		case err1 != nil || err2 != nil:
			return glob{}, syntaxError(p.text, at, `numbers, as in [01-20] and [1-5,8] (a class of one character has \ before its - and ,)`)
		case first > last:
			return glob{}, syntaxError(p.text, at, "the smaller number first")
		case last-first >= maxNumbers:
			return glob{}, limitError(at, "at most %d numbers", maxNumbers)
		}
		g.numbers = append(g.numbers, span[uint64]{first, last})
		at += len(part) + 1
	}
	return g, nil
}

// parseClass reads the characters of a class, which stand at a place of the text.
func (p *patternParser) parseClass(inner string, at int) (glob, error) {
	g := glob{kind: globClass}
	g.negated = strings.HasPrefix(inner, "!")
	rest := strings.TrimPrefix(inner, "!")
	if strings.HasPrefix(rest, "^") {
		return glob{}, syntaxError(p.text, at, `! to negate a class, or \^`)
	}
	if rest == "" {
		return glob{}, syntaxError(p.text, at, "characters of a class, as in [a-f]")
	}
	for rest != "" {
		here := at + len(inner) - len(rest)
		first, more, ok := readClassRune(rest)
		last := first
		if ok && len(more) > 1 && more[0] == '-' {
			last, more, ok = readClassRune(more[1:])
		}
		switch {
		case !ok:
			return glob{}, syntaxError(p.text, here, `\ before such a character`)
		case first > last:
			return glob{}, syntaxError(p.text, here, "the smaller character first")
		}
		g.runes = append(g.runes, span[rune]{first, last})
		rest = more
	}
	return g, nil
}

// readClassRune reads one character of a class, and whether it may stand there.
func readClassRune(text string) (r rune, rest string, ok bool) {
	escaped := text[0] == '\\'
	if escaped {
		text = text[1:]
	}
	r, n := utf8.DecodeRuneInString(text)
	return r, text[n:], n > 0 && (escaped || isVisible(r))
}

// match reports whether the pattern matches all of a text. It takes time in proportion
// to the pattern and to the text, and allocates nothing if the text has less than 320
// bytes.
func (p pattern) match(text string) bool {
	// Most begin or end with text, and many are a star beside that.
	if first := p[0]; first.kind == globText {
		if !strings.HasPrefix(text, first.text) {
			return false
		}
		p, text = p[1:], text[len(first.text):]
	}
	if n := len(p) - 1; n >= 0 && p[n].kind == globText {
		if !strings.HasSuffix(text, p[n].text) {
			return false
		}
		p, text = p[:n], text[:len(text)-len(p[n].text)]
	}
	if p.isAll() {
		return true
	}
	var buf [5]uint64
	at := newPlaces(buf[:], text)
	at.add(0)
	p.advance(text, at)
	return at.has(len(text))
}

// places is a set of places in a text.
type places []uint64

func newPlaces(buf []uint64, text string) places {
	n := len(text)/64 + 1
	if n > len(buf) {
		return make(places, n)
	}
	return places(buf[:n])
}

func (s places) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s places) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// next returns the first place from i on, or -1.
func (s places) next(i int) int {
	for w := i / 64; w < len(s); w++ {
		word := s[w]
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// advance changes the places where the pattern may begin into those where it may end.
func (p pattern) advance(text string, at places) {
	var buf [5]uint64
	to := newPlaces(buf[:], text)
	for i := range p {
		clear(to)
		p[i].step(text, at, to)
		copy(at, to)
	}
}

// step adds to the places in to where the glob ends that begins at one of those in from.
func (g *glob) step(text string, from, to places) {
	switch g.kind {
	case globStar:
		g.stepStar(text, from, to)
		return
	case globEither:
		g.stepEither(text, from, to)
		return
	default:
	}
	for i := from.next(0); i >= 0 && i < len(text); i = from.next(i + 1) {
		switch rest := text[i:]; g.kind {
		case globText:
			if strings.HasPrefix(rest, g.text) {
				to.add(i + len(g.text))
			}
		case globNumbers:
			g.stepNumbers(rest, i, to)
		default:
			r, n := utf8.DecodeRuneInString(rest)
			if g.kind == globAny || contains(g.runes, r) != g.negated {
				to.add(i + n)
			}
		}
	}
}

func (g *glob) stepStar(text string, from, to places) {
	first := from.next(0)
	if first < 0 {
		return
	}
	for w := first / 64; w < len(to); w++ {
		to[w] = ^uint64(0)
	}
	to[first/64] <<= first % 64
	to[len(to)-1] &= ^uint64(0) >> (63 - len(text)%64)
	for i := first; i < len(text); i++ {
		if !utf8.RuneStart(text[i]) {
			to[i/64] &^= 1 << (i % 64)
		}
	}
}

func (g *glob) stepEither(text string, from, to places) {
	var buf [5]uint64
	at := newPlaces(buf[:], text)
	for _, p := range g.either {
		copy(at, from)
		p.advance(text, at)
		for i := range to {
			to[i] |= at[i]
		}
	}
}

func (g *glob) stepNumbers(text string, at int, to places) {
	var v uint64
	for n := 1; n <= min(len(text), maxDigits) && isDigit(text[n-1]); n++ {
		v = v*10 + uint64(text[n-1]-'0')
		written := n == g.width || n > g.width && (n == 1 || text[0] != '0')
		if written && contains(g.numbers, v) {
			to.add(at + n)
		}
	}
}
