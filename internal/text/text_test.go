package text_test

import (
	"testing"
	"unicode/utf8"

	"github.com/harpcaller/harp/internal/text"
)

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text, mark string
		most       int
		want       string
	}{
		{"", "…", 0, ""},
		{"abc", "…", 3, "abc"},
		{"abcdef", "…", 5, "ab…"},
		{"aéé", "!", 4, "aé!"},
		{"aéé", "!", 3, "a!"}, // not half a character
		{"a\xffb", "…", 5, "a\uFFFDb"},
		{"\xffa\xff", "!", 4, "\uFFFD!"}, // as long as it is written
		{"abc", " [cut]", 1, " [cut]"},
	} {
		if got := text.Shorten(c.text, c.most, c.mark); got != c.want {
			t.Errorf("Shorten(%q, %d, %q) = %q, want %q", c.text, c.most, c.mark, got, c.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("a\xffé", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		got := text.Shorten(s, most, "…")
		if !utf8.ValidString(got) || len(got) > max(most, len("…")) {
			t.Errorf("Shorten(%q, %d) = %q", s, most, got)
		}
	})
}
