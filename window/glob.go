package window

import "unicode/utf8"

// MatchGlob reports whether a text is like a pattern: * is any text, ? any character. It takes time in proportion to
// the product of their lengths.
func MatchGlob(pattern, text string) bool {
	// Where to go on behind the last star if what follows it does not fit.
	star, from := -1, 0
	p, t := 0, 0
	for t < len(text) {
		_, size := utf8.DecodeRuneInString(text[t:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			t += size
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			_, size = utf8.DecodeRuneInString(text[from:])
			from += size
			p, t = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
