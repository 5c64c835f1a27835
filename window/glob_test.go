package window

import (
	"regexp"
	"strings"
	"testing"
)

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "anything", true},
		{"a*c", "abbc", true},
		{"a*c", "abcb", false},
		{"*b*b", "abab", true},
		{"a?c", "aéc", true},
		{"??", "é", false},
		{"*é", "caffé", true},
		{"a**", "a", true},
		{"[a]", "a", false},
		{"[a]", "[a]", true},
		{"a", "A", false},
	} {
		if got := MatchGlob(c.pattern, c.text); got != c.want {
			t.Errorf("%q and %q: %t", c.pattern, c.text, got)
		}
	}
	if MatchGlob(strings.Repeat("*a", 500)+"b", strings.Repeat("a", 5000)) {
		t.Error("what ends otherwise matches")
	}
}

// FuzzMatchGlob compares with regular expressions.
func FuzzMatchGlob(f *testing.F) {
	f.Add("a*b?c", "aXbYc")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		pattern, text = strings.ToValidUTF8(pattern, "x"), strings.ToValidUTF8(text, "x")
		if len(pattern) > 100 {
			return
		}
		expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
		if want := regexp.MustCompile(`(?s)^` + expression + `$`).MatchString(text); MatchGlob(pattern, text) != want {
			t.Errorf("%q and %q: want %t", pattern, text, want)
		}
	})
}
