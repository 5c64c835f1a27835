package target

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxRegexps is how many instructions all regular expressions together may have.
const maxRegexps = 10_000

// checkRegexp returns how many instructions a regular expression takes, which stands at
// a place of a text.
func checkRegexp(expr, text string, at int) (int, error) {
	if len(expr) > maxRegexp {
		return 0, limitError(at, "a regular expression of at most %d bytes", maxRegexp)
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err == nil {
		_, err = syntax.Parse(wholeText(expr), syntax.Perl)
	}
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return 0, syntaxError(text, at+max(strings.Index(expr, wrong.Expr), 0), "a regular expression of RE2: "+wrong.Code.String())
	}
	return instructions(tree), nil
}

// compileRegexp compiles one that was checked.
func compileRegexp(expr string) *regexp.Regexp { return regexp.MustCompile(wholeText(expr)) }

func wholeText(expr string) string { return "^(?:" + expr + ")$" }

// instructions returns how many instructions a regular expression takes at most, the ends
// of ranges in its classes included, or a number above the limit.
func instructions(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Max, re.Min+1)
	}
	return min(2+len(re.Rune)+n, maxRegexps+1)
}

// regexpEnd returns where the regular expression ends that begins at a place and is not
// quoted: at white space, or at a parenthesis that it does not open.
// It does not look further than a regular expression may go.
func regexpEnd(text string, at int) int {
	text = text[:min(len(text), at+maxRegexp+1)]
	open := 0
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case isSpace(c):
			return i
		case c == '\\' && i+1 < len(text) && !isSpace(text[i+1]):
			i++
		case c == '[':
			i = classEnd(text, i)
		case c == '(':
			open++
		case c == ')':
			if open--; open < 0 {
				return i
			}
		}
	}
	return len(text)
}

// classEnd returns where the closing bracket of a class is that begins at a place, which
// is that of the opening one if there is none.
func classEnd(text string, at int) int {
	first := at + 1
	if strings.HasPrefix(text[first:], "^") {
		first++
	}
	for i := first; i < len(text) && !isSpace(text[i]); i++ {
		switch {
		case text[i] == ']' && i > first:
			return i
		case text[i] == '\\' && i+1 < len(text) && !isSpace(text[i+1]):
			i++
		case strings.HasPrefix(text[i:], "[:"):
			if n := strings.Index(text[i:], ":]"); n > 0 && strings.IndexByte(text[i:i+n], ' ') < 0 {
				i += n + 1
			}
		}
	}
	return at
}

// readQuotedRegexp reads the regular expression whose quotes begin at a place: only the
// backslash before a quote is taken away.
func readQuotedRegexp(text string, at int) (string, int, error) {
	quote := text[at]
	var b strings.Builder
	for i := at + 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return b.String(), i + 1, nil
		case text[i] == '\\' && i+1 < len(text):
			if i++; text[i] != quote {
				b.WriteByte('\\')
			}
		}
		b.WriteByte(text[i])
	}
	return "", 0, syntaxError(text, at, "a closing "+string(quote))
}

// writeRegexp writes a regular expression, in quotes if it would end too early.
func writeRegexp(b *strings.Builder, text string, followed bool) {
	if !followed && text != "" && text[0] != '"' && text[0] != '\'' && regexpEnd(text, 0) == len(text) &&
		skipRunes(text, 0, isVisible) == len(text) {
		b.WriteString(text)
		return
	}
	quote := byte('"')
	if hasEscaped(text, '"') {
		quote = '\''
	}
	b.WriteByte(quote)
	for i := 0; i < len(text); i++ {
		if text[i] == quote {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
		if text[i] == '\\' && i+1 < len(text) {
			i++
			b.WriteByte(text[i])
		}
	}
	b.WriteByte(quote)
}

// hasEscaped reports whether a character stands after a backslash.
func hasEscaped(text string, c byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == '\\' {
			if i++; text[i] == c {
				return true
			}
		}
	}
	return false
}
