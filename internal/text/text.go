// Package text shortens what others wrote to what there is room for.
package text

import (
	"strings"
	"unicode/utf8"
)

// Shorten returns text as UTF-8 of at most most bytes, whole characters. What is
// longer ends with mark, which counts. Bytes that are no UTF-8 become U+FFFD.
func Shorten(text string, most int, mark string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
