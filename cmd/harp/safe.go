package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// What procedures return and print is hostile input to a terminal. safeLine is for
// text, safeJSON for JSON; nothing remote reaches a terminal but through them.

// safeLine returns text on one line, with whatever could move a cursor, change a
// title or reorder what is shown written as an escape.
func safeLine(text string) string {
	if !strings.ContainsFunc(text, unsafeRune) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && isInvalid(text[i:]):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unsafeRune(r):
			b.WriteString(escape(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isInvalid(text string) bool {
	_, size := utf8.DecodeRuneInString(text)
	return size == 1
}

func escape(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < 0x80 {
		return fmt.Sprintf(`\x%02x`, r)
	}
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// safeJSON returns the same JSON with such characters escaped as JSON does it.
// encoding/json leaves DEL, C1 and what has no width as they are.
func safeJSON(text []byte) []byte {
	if !strings.ContainsFunc(string(text), unsafeInJSON) {
		return text
	}
	var b strings.Builder
	for _, r := range string(text) {
		if !unsafeInJSON(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return []byte(b.String())
}

// unsafeInJSON leaves alone the whitespace between JSON's tokens; within strings
// there are no such characters.
func unsafeInJSON(r rune) bool { return r != '\n' && r != '\t' && unsafeRune(r) }

// unsafeRune is for what does something, or is not seen: controls, what changes direction
// or has no width, and what separates lines; but for the joiners, which some scripts and
// pictures are written with.
func unsafeRune(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !unicode.Is(unicode.Join_Control, r)
}
