package text

import (
	"strings"
	"unicode"
)

// Line returns text as one line of at most most bytes: what is longer ends with an ellipsis. Control characters, those that
// end lines and those that turn the direction of writing become spaces, and several spaces one.
func Line(text string, most int) string {
	if room := 4*most + 64; len(text) > room { // what is far behind the end need not be looked at
		text = text[:room]
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || Unprintable(r)
	}), " ")
	return Shorten(text, most, "…")
}

// Unprintable reports whether a terminal or a reader of mail would do something else with r than show it: control
// characters, ends of lines and paragraphs, and those that turn the direction of writing.
func Unprintable(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\u061c' || r == '\u200e' || r == '\u200f' ||
		r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
