package target

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// reserved characters end a bare word; wild ones mean something in a pattern.
const (
	reserved = "(),=!<>~\"'"
	wild     = "*?[]{}\\"
)

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// isVisible reports whether a character may stand anywhere without quotes.
func isVisible(r rune) bool { return r > ' ' && unicode.IsPrint(r) }

// isBare reports whether a character may stand in a bare word, or with a meaning of its
// own in a pattern.
func isBare(r rune) bool { return isVisible(r) && !strings.ContainsRune(reserved, r) }

// isPlainRune reports whether a character stands for itself wherever a word may be.
func isPlainRune(r rune) bool { return isBare(r) && !strings.ContainsRune(wild, r) }

// isKeyRune reports whether a character may stand in a bare word of a key.
func isKeyRune(r rune) bool { return isPlainRune(r) && r != '.' }

// isPlain reports whether a text, quoted or not, is the same.
func isPlain(text string) bool { return skipRunes(text, 0, isPlainRune) == len(text) }

// skipRunes returns where the first character stands from a place on that is not allowed.
func skipRunes(text string, at int, allowed func(rune) bool) int {
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		if !allowed(r) {
			break
		}
		at += n
	}
	return at
}

// isBareText reports whether a value needs no quotes.
func isBareText(text string) bool { return text != "" && isPlain(text) }

// isBareName reports whether a name needs no quotes.
func isBareName(name string) bool {
	return isBareText(name) && name[0] != '@' && !isKeyword(name) && !isSalt(name) && !isNetwork(name)
}

func isKeyword(word string) bool { return word == "and" || word == "or" || word == "not" }

func isNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}

// keywordAt returns the keyword that stands at a place as a word of its own, or "".
func keywordAt(text string, at int) string {
	for _, word := range []string{"and", "or", "not"} {
		if !strings.HasPrefix(text[at:], word) {
			continue
		}
		r, _ := utf8.DecodeRuneInString(text[at+len(word):])
		if at+len(word) == len(text) || r <= ' ' || strings.ContainsRune("(),\"'", r) {
			return word
		}
	}
	return ""
}

// writeText writes a text, in quotes unless it may stand bare.
func writeText(b *strings.Builder, text string, bare bool) {
	if bare {
		b.WriteString(text)
	} else {
		writeQuoted(b, text)
	}
}

// QuoteName returns the target that selects the host of this name only, whatever is in it.
func QuoteName(name string) string {
	var b strings.Builder
	writeText(&b, name, isBareName(name))
	return b.String()
}

// writeQuoted writes a text in quotes.
func writeQuoted(b *strings.Builder, text string) {
	b.WriteByte('"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteByte('"')
}

// readQuoted reads the quoted text that begins at a place, and returns where it ends.
func readQuoted(text string, at int) (string, int, error) {
	quote := text[at]
	var b strings.Builder
	for i := at + 1; i < len(text); i++ {
		switch c := text[i]; c {
		case quote:
			return b.String(), i + 1, nil
		case '\\':
			if i++; i == len(text) || !strings.ContainsRune(`\"'`, rune(text[i])) {
				return "", 0, syntaxError(text, i-1, `\\, \" or \' (in quotes a backslash takes nothing else)`)
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, syntaxError(text, at, "a closing "+string(quote))
}

// misspelt is what people write for and, or and not.
var misspelt = map[string]string{"AND": "and", "And": "and", "&": "and", "&&": "and", "OR": "or", "Or": "or", "|": "or", "||": "or", "NOT": "not", "Not": "not", "!": "not"}

// wordAt returns the text at a place up to white space or a parenthesis, at most 40
// bytes of it.
func wordAt(text string, at int) string {
	end := at
	for end < len(text) && end < at+40 && !isSpace(text[end]) && !slices.Contains([]byte("()"), text[end]) {
		end++
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	if end == at && at < len(text) {
		_, n := utf8.DecodeRuneInString(text[at:])
		end += n
	}
	return text[at:end]
}
