package target

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPattern: what each kind of pattern matches, and what it does not.
func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"web*", []string{"web", "web1", "web\n"}, []string{"we", "xweb", "Web"}},
		{"*", []string{"", "a", "äöü"}, nil},
		{"*b*", []string{"b", "ab", "abc", "bb"}, []string{"", "ac"}},
		{"a?c", []string{"abc", "aéc", "a\nc"}, []string{"ac", "abbc"}},
		{"?", []string{"a", "é", "\xff"}, []string{"", "ab", "éé"}},
		{"*[!é]", []string{"a", "éa"}, []string{"é", "aé"}},
		{"{a,b}", []string{"a", "b"}, []string{"", "ab", "a,b"}},
		{"x{a,b,}y", []string{"xay", "xby", "xy"}, []string{"xaby"}},
		{"{a,ab}{c,bc}", []string{"ac", "abc", "abbc"}, []string{"ab"}},
		{"{a{b,c}d,e*}", []string{"abd", "acd", "e", "ef"}, []string{"ad", "abcd"}},
		{"[01-20]", []string{"01", "09", "10", "20"}, []string{"1", "00", "21", "001", "010"}},
		{"[1-20]", []string{"1", "9", "10", "20"}, []string{"01", "0", "21"}},
		{"[08-11]", []string{"08", "09", "10", "11"}, []string{"8", "12"}},
		{"[098-101]", []string{"098", "100", "101"}, []string{"98", "0100"}},
		{"[01-100]", []string{"01", "99", "100"}, []string{"1", "001", "0100"}},
		{"[0-9]", []string{"0", "9"}, []string{"00", "10", "-"}},
		{"[1-5,8]", []string{"1", "5", "8"}, []string{"6", ",", "-", "58"}},
		{"a[1-12]b", []string{"a1b", "a12b"}, []string{"ab", "a13b", "a1"}},
		{"[1-12]*", []string{"1", "12", "19", "1x"}, []string{"x", "x1"}},
		{"[1-12][0-9]", []string{"10", "129", "99"}, []string{"1", "0"}},
		{"[123]", []string{"1", "2", "3"}, []string{"12", "123", "4"}},
		{"[a-fx]", []string{"a", "f", "x"}, []string{"g", "", "ab", "-"}},
		{"[!a-fx]", []string{"g", "é", "-"}, []string{"a", "x", "", "gg"}},
		{`[\!a]`, []string{"!", "a"}, []string{"b"}},
		{`[a\-c]`, []string{"a", "-", "c"}, []string{"b"}},
		{"[a-]", []string{"a", "-"}, []string{"b"}},
		{`[\1-5]`, []string{"1", "3", "5"}, []string{"-", "6"}},
		{`[10\-20]`, []string{"0", "1", "2", "-"}, []string{"10", "15"}},
		{"[α-ω]", []string{"α", "λ"}, []string{"a"}},
		{`\*a\{`, []string{"*a{"}, []string{"xa{"}},
		{`{a\,b,c}`, []string{"a,b", "c"}, []string{"a", "b"}},
		{`{a\ b}`, []string{"a b"}, []string{"a", "b"}},
		{"*" + strings.Repeat("a*", 30) + "b", []string{strings.Repeat("a", 400) + "b"}, []string{strings.Repeat("a", 400)}},
	} {
		p, end, err := parsePattern(c.pattern, 0)
		if err != nil || end != len(c.pattern) {
			t.Errorf("%s: read up to %d, error %v", c.pattern, end, err)
			continue
		}
		for _, text := range c.yes {
			if !p.match(text) {
				t.Errorf("%s does not match %q", c.pattern, text)
			}
		}
		for _, text := range c.no {
			if p.match(text) {
				t.Errorf("%s matches %q", c.pattern, text)
			}
		}
	}
}

// oracle makes a regular expression of a pattern, its numbers written out.
func oracle(p pattern) string {
	var b strings.Builder
	for _, g := range p {
		switch g.kind {
		case globText:
			b.WriteString(regexp.QuoteMeta(g.text))
		case globAny:
			b.WriteString("(?s:.)")
		case globStar:
			b.WriteString("(?s:.*)")
		case globClass:
			b.WriteString(oracleClass(g))
		case globNumbers:
			b.WriteString("(?:" + oracleNumbers(g) + ")")
		case globEither:
			for i, alternative := range g.either {
				b.WriteString([]string{"(?:", "|"}[min(i, 1)] + oracle(alternative))
			}
			b.WriteString(")")
		}
	}
	return b.String()
}

func oracleClass(g glob) string {
	class := "["
	if g.negated {
		class = "[^"
	}
	for _, s := range g.runes {
		class += `\x{` + strconv.FormatInt(int64(s.first), 16) + `}-\x{` + strconv.FormatInt(int64(s.last), 16) + "}"
	}
	return class + "]"
}

func oracleNumbers(g glob) string {
	var numbers []string
	for _, s := range g.numbers {
		for v := s.first; v <= s.last; v++ {
			text := strconv.FormatUint(v, 10)
			numbers = append(numbers, strings.Repeat("0", max(0, g.width-len(text)))+text)
		}
	}
	return strings.Join(numbers, "|")
}

// manyNumbers is how many numbers a pattern has, up to a thousand.
func manyNumbers(p pattern) (n uint64) {
	for _, g := range p {
		for _, s := range g.numbers {
			n += min(s.last-s.first, 1000) + 1
		}
		for _, alternative := range g.either {
			n += manyNumbers(alternative)
		}
	}
	return n
}

// FuzzPattern: patterns match what regular expressions do that say the same.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"web[01-20].{eu,us}.example", "web07.us.example"},
		{"*a*b?", "aabé"},
		{"[!a-f]{x,[1-3]}", "g2"},
		{"{a,ab}{c,bc}", "abbc"},
		{`[098-101]\*`, "100*"},
		{"{,*}[1-12][0-9]", "a129"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		if !utf8.ValidString(text) || !utf8.ValidString(name) || len(text) > 200 || len(name) > 1000 {
			return
		}
		p, _, err := parsePattern(text, 0)
		if err != nil || manyNumbers(p) > 300 {
			return
		}
		again, _, err := parsePattern(p.String(), 0)
		if err != nil || again.String() != p.String() {
			t.Fatalf("%s is written %s, and that is read as %s, error %v", text, p, again, err)
		}
		re, err := regexp.Compile("^(?:" + oracle(p) + ")$")
		if err != nil {
			t.Fatalf("the oracle of %s: %v", text, err)
		}
		if want := re.MatchString(name); p.match(name) != want || again.match(name) != want {
			t.Fatalf("%s matches %q: %v, want %v", p, name, p.match(name), want)
		}
	})
}

func BenchmarkPattern(b *testing.B) {
	for _, text := range []string{"web*", "web[01-20].{eu,us}.example", "*e*e*"} {
		p, _, err := parsePattern(text, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.match("web07.us.example")
			}
		})
	}
}
