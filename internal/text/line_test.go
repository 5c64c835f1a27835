package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/harpcaller/harp/internal/text"
)

func TestLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a b", "a b"},
		{"  a \r\n\tb\x00\x1b[31mc\u0085d\u2028e\u2029", "a b [31mc…"},
		{"a\u0085b\u2028c\u2029", "a b c"},
		{"\u202egpj.exe\u2066a", "gpj.exe a"},
		{"a\xffb", "a\uFFFDb"},
		{"1234567890ab", "1234567890ab"},
		{"1234567890abc", "123456789…"},
		{strings.Repeat("é", 1<<20), "éééé…"},
	} {
		if got := text.Line(c.text, 12); got != c.want {
			t.Errorf("Line(%.40q, 12) = %q, want %q", c.text, got, c.want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\r\nBcc: b", 20)
	f.Add("\u202e\x1b]0;a\x07", 5)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most &= 0xffff
		got := text.Line(s, most)
		if !utf8.ValidString(got) || len(got) > max(most, len("…")) || strings.ContainsFunc(got, unicode.IsControl) || strings.ContainsFunc(got, text.Unprintable) {
			t.Errorf("Line(%q, %d) = %q", s, most, got)
		}
		if again := text.Line(got, max(most, len("…"))); again != strings.TrimSpace(got) {
			t.Errorf("Line(%q, %d) = %q, and once more %q", s, most, got, again)
		}
	})
}
