package target

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestParse: each rule of the grammar, and how what it reads is written best.
func TestParse(t *testing.T) {
	for _, c := range []struct{ text, best string }{
		// target, or, and, not, term
		{"a or b or c", "a or b or c"},
		{"a or (b or c)", "a or b or c"},
		{"a and (b and c)", "a and b and c"},
		{"a or b and not c", "a or b and not c"},
		{"(a or b) and c", "(a or b) and c"},
		{"not (a or b)", "not (a or b)"},
		{"not not a", "not not a"},
		{"not(a)and(b)or(c)", "not a and b or c"},
		{"((a))", "a"},
		{" \t\na \n", "a"},
		// list
		{"a,b and c", "a,b and c"},
		{"(a,b) and c", "a,b and c"},
		{"a , b,\tc", "a,b,c"},
		{"( a , b )", "a,b"},
		{`a,role=b,c*,@d,~"e",10.0.0.0/8`, `a,role=b,c*,@d,~"e",10.0.0.0/8`},
		// item
		{"@frontend", "@frontend"},
		{"@a.b-c", "@a.b-c"},
		{`@"front end"`, `@"front end"`},
		{`~(web|app)\d+`, `~(web|app)\d+`},
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"2001:DB8::/32", "2001:db8::/32"},
		{`"10.0.0.0/8"`, `"10.0.0.0/8"`},
		{"10.1.2.3", "10.1.2.3"},
		{"a/b", "a/b"},
		{"web*", "web*"},
		{`"web 1"`, `"web 1"`},
		{"'it'", "it"},
		{`"and",'or',"not"`, `"and","or","not"`},
		{`"web01"`, "web01"},
		// comparison, key, op
		{"role=web", "role=web"},
		{"role!=web", "role!=web"},
		{"fact.kernel<6.1", "fact.kernel<6.1"},
		{"fact.kernel<=6.1", "fact.kernel<=6.1"},
		{"fact.kernel>6.1", "fact.kernel>6.1"},
		{"fact.kernel>=6.1", "fact.kernel>=6.1"},
		{"role~we.", "role~we."},
		{"role!~we.", "role!~we."},
		{"label.role=web", "role=web"},
		{"label.fact.os=web", "label.fact.os=web"},
		{"fact=web", "fact=web"},
		{"a.b.c=web", "a.b.c=web"},
		{`label."a.b"=web`, "a.b=web"},
		{`label."a b"=web`, `label."a b"=web`},
		{`"a b"=web`, `label."a b"=web`},
		{`"fact".os=web`, "label.fact.os=web"},
		{"app.kubernetes.io/name=web", "app.kubernetes.io/name=web"},
		{"and=1 and or=2 or not=3", "label.and=1 and label.or=2 or label.not=3"},
		{"fact.os.name=x", "fact.os.name=x"},
		{`fact."a.b".c=x`, `fact."a.b".c=x`},
		{`fact.'os'=x`, "fact.os=x"},
		{"host.name=web*", "host.name=web*"},
		{"host.drift.base=dirty", "host.drift.base=dirty"},
		{`host.drift."a b"=clean`, `host.drift."a b"=clean`},
		{"host.heard<1h30m", "host.heard<1h30m"},
		{"host.heard<30d", "host.heard<30d"},
		{"host.addr=10.1.2.3", "host.addr=10.1.2.3"},
		{"host.addr=::ffff:10.1.2.3", "host.addr=10.1.2.3"},
		{"host.addr!=10.0.0.0/8", "host.addr!=10.0.0.0/8"},
		{"host.addr=10.1.*", "host.addr=10.1.*"},
		// value
		{"role=and", "role=and"},
		{"role=@x", "role=@x"},
		{"role=10.0.0.0/8", "role=10.0.0.0/8"},
		{`role="a b"`, `role="a b"`},
		{`role=""`, `role=""`},
		{`role='"'`, `role="\""`},
		{`role="\\\"\'"`, `role="\\\"'"`},
		{"fact.t<-5.5e3", "fact.t<-5.5e3"},
		// patterns
		{"**a**", "*a*"},
		{`a\*b`, `"a*b"`},
		{`\@a*`, `\@a*`},
		{`G\@a*`, `\G@a*`},
		{`\a\b?`, "ab?"},
		{"{a,b}{,c}", "{a,b}{,c}"},
		{"{a}", "{a}"},
		{"{a{b,c*}d,[ef]}", "{a{b,c*}d,[ef]}"},
		{"{a=b,(c)}", `{a\=b,\(c\)}`},
		{"web[01-20]", "web[01-20]"},
		{"web[00-5]", "web[00-05]"},
		{"[1-5,8]", "[1-5,8]"},
		{"[5-5]", "[5-5]"},
		{"[5-5,7]", "[5,7]"},
		{"[123]", "[123]"},
		{"[a-f]", "[a-f]"},
		{"[!a-f]", "[!a-f]"},
		{`[a\-f]`, `[a\-f]`},
		{"[-a]", `[\-a]`},
		{"[a-]", `[a\-]`},
		{`[\1-5]`, `[\1-5]`},
		{`[\^a]`, `[\^a]`},
		{`[!\^a]`, `[!\^a]`},
		{`[(a]`, `[\(a]`},
		{"é*,?ß", "é*,?ß"},
		// regular expressions
		{"~a,b", "~a,b"},
		{`~"a",b`, `~"a",b`},
		{"~[)(]x", "~[)(]x"},
		{"~[])(]x", "~[])(]x"},
		{"~[^])(]x", "~[^])(]x"},
		{"~[[:alpha:])]x", "~[[:alpha:])]x"},
		{`~[\])]x`, `~[\])]x`},
		{`~\)x`, `~\)x`},
		{`(~\(x)`, `~\(x`},
		{"(~a(b)c and d)", "~a(b)c and d"},
		{`~"a b"`, `~"a b"`},
		{`~'a "b"'`, `~"a \"b\""`},
		{`~'a \"b'`, `~'a \"b'`},
		{`~"a \"b"`, `~"a \"b"`},
		{`~"\d \w"`, `~"\d \w"`},
		{`role~"x y",b`, `role~"x y",b`},
		{"role~x,b", "role~x,b"},
	} {
		e, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if e.String() != c.best {
			t.Errorf("%s is written %s, want %s", c.text, e, c.best)
		}
		checkRoundTrip(t, e)
	}
}

// checkRoundTrip: what is written of an expression, parsed, is the same expression.
func checkRoundTrip(t interface{ Errorf(string, ...any) }, e *Expr) {
	again, err := Parse(e.String())
	if err != nil {
		t.Errorf("%s is no target: %v", e, err)
		return
	}
	if a, b := withoutPlaces(e.root), withoutPlaces(again.root); !reflect.DeepEqual(a, b) {
		t.Errorf("%s is read as %s", e, again)
	}
}

// withoutPlaces returns a copy of a node that does not know where it stood.
func withoutPlaces(n *node) *node {
	bare := *n
	bare.offset, bare.parts = 0, nil
	for _, part := range n.parts {
		bare.parts = append(bare.parts, withoutPlaces(part))
	}
	return &bare
}

// TestSyntaxError: what is no target is answered with the place and with what was meant.
func TestSyntaxError(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		want   string
	}{
		{"", 0, "a name"},
		{"  ", 2, "a name"},
		{"a and", 5, "a name"},
		{"a or or b", 5, "a name"},
		{"and", 0, "in quotes"},
		{"not", 3, "a name"},
		{"a b", 2, `"and", "or"`},
		{"a AND b", 2, `"and", written so`},
		{"a || b", 2, `"or", written so`},
		{"a and NOT b", 6, `"not", written so`},
		{"(a", 2, `")"`},
		{"a)", 1, `"and", "or"`},
		{"()", 1, "a name"},
		{"a,", 2, "a name"},
		{",a", 0, "a name"},
		{"a,(b)", 2, "a name"},
		{"a(b)", 1, `"and", "or"`},
		{"@", 1, "a group"},
		{`@""`, 3, "a group"},
		{"~", 1, "a regular expression"},
		{"~(a", 1, "missing closing )"},
		{"~a**", 2, "invalid nested repetition"},
		{`~"a`, 1, `closing "`},
		{`~"a)("`, 2, "unexpected )"},
		{`~"\Qa"`, 2, "missing closing )"},
		{"~a\u00a0", 2, "quotes"},
		{`~a\ b`, 1, "trailing backslash"},
		{`~a\`, 1, "trailing backslash"},
		{`~[a\ ]`, 1, "trailing backslash"},
		{"~[a ]", 1, "missing closing ]"},
		{`"a`, 0, `closing "`},
		{`"a\n"`, 2, `\\`},
		{`""`, 0, "a name"},
		{`"a"b`, 3, `"and", "or"`},
		{`a"b"`, 1, `"and", "or"`},
		{"10.1.2.3/8", 0, "10.0.0.0/8"},
		{"a or 2001:db8::1/32", 5, "2001:db8::/32"},
		{"role = web", 5, "white space"},
		{"role =web", 5, "white space"},
		{"role= web", 5, "a value"},
		{"role=", 5, "a value"},
		{"role==web", 4, "one ="},
		{"role=~web", 4, "~ alone"},
		{"role=a=b", 6, "is quoted"},
		{"web*=a", 4, "a key is no pattern"},
		{"=a", 0, "a name"},
		{"a!", 1, "quoted"},
		{".a=b", 0, "a key"},
		{"a.=b", 2, "a key"},
		{"a..b=c", 2, "a key"},
		{`a"b"=c`, 1, "a dot or an operator"},
		{"fact.=b", 5, "a key"},
		{"host.os=b", 0, "host.name"},
		{"host.online.x=true", 0, "host.name"},
		{"host.drift=dirty", 0, "host.drift.NAME"},
		{"host.drift.x=odd", 13, "clean, dirty or unknown"},
		{"host.online=yes", 12, "true or false"},
		{"host.paused!=1", 13, "true or false"},
		{"host.online<true", 11, "neither comes first"},
		{"host.proc<a", 9, "neither comes first"},
		{"host.heard=10m", 10, "an order"},
		{"host.heard<soon", 10, "an order"},
		{"host.heard~1.*", 10, "an order"},
		{"host.heard<1.5d", 10, "an order"},
		{"host.heard<5", 10, "an order"},
		{"host.addr<10.0.0.1", 9, "neither comes first"},
		{"host.addr=web", 10, "an address"},
		{"host.addr=10.1.2.3/8", 10, "10.0.0.0/8"},
		{"fact.kernel<6.*", 12, "without * ? [ {"},
		{"role>{a,b}", 5, "without * ? [ {"},
		{"{a", 0, "closing }"},
		{"x{a,{b}", 1, "closing }"},
		{"{}", 0, "something in braces"},
		{"{a, b}", 3, `\ before`},
		{"a}", 1, "closes nothing"},
		{"a]", 1, "closes nothing"},
		{"{a]}", 2, `\ before`},
		{"[a", 0, "closing ]"},
		{`[a\]`, 0, "closing ]"},
		{"[]", 1, "characters of a class"},
		{"[!]", 1, "characters of a class"},
		{"[^a]", 1, "to negate"},
		{"[f-a]", 1, "smaller character"},
		{"[xf-a]", 2, "smaller character"},
		{"[a b]", 2, `\ before`},
		{"[20-01]", 1, "smaller number"},
		{"[1,20-01]", 3, "smaller number"},
		{"[1-]", 1, "numbers, as in"},
		{"[,1]", 1, "numbers, as in"},
		{"[1--2]", 1, "numbers, as in"},
		{`a\`, 2, "a character after"},
		{"a\rb", 1, "quotes"},
		{"a\u200bb*", 1, "quotes"},
		{"a\xffb", 1, "UTF-8"},
		{"G@os:Debian", 0, "fact.os=Debian"},
		{"a and G@os:Debian", 6, "fact.os=Debian"},
		{"(P@os:(RedHat|Fedora))", 1, "fact.os~(RedHat|Fedora).*"},
		{`a or E@web\d+`, 5, `~web\d+.*`},
		{"G|@a|b", 0, "fact.a=b"},
		{"R@%x", 0, "range server"},
	} {
		_, err := Parse(c.text)
		var wrong *SyntaxError
		if !errors.As(err, &wrong) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if wrong.Offset != c.offset || !strings.Contains(wrong.Want, c.want) {
			t.Errorf("%q: %v, want at byte %d: %s", c.text, err, c.offset, c.want)
		}
		if wrong.Found != "" && !strings.HasPrefix(c.text[wrong.Offset:], wrong.Found) {
			t.Errorf("%q: found %q is not there", c.text, wrong.Found)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("at byte %d", c.offset)) || !strings.Contains(err.Error(), wrong.Want) {
			t.Errorf("%q: the error says %q", c.text, err)
		}
	}
}

// TestBounds: what has too much is refused at its place; what has as much as is allowed is
// not.
func TestBounds(t *testing.T) {
	deep := func(n int, open, close string) string {
		return strings.Repeat(open, n) + "a" + strings.Repeat(close, n)
	}
	names := strings.TrimSuffix(strings.Repeat("a,", maxItems), ",")
	regexps := strings.TrimSuffix(strings.Repeat(`~"a",`, maxOthers), ",")
	for _, c := range []struct {
		what, text string
		offset     int // -1 if it is allowed
	}{
		{"text", strings.Repeat("a", maxText), -1},
		{"text", strings.Repeat("a", maxText+1), maxText},
		{"names", names, -1},
		{"names", names + ",b", 2 * maxItems},
		{"regexps", regexps, -1},
		{"regexps", regexps + ",b*", len(regexps) + 1},
		{"names beside regexps", regexps + ",b", -1},
		{"10,000 regexps", strings.TrimSuffix(strings.Repeat(`~"a",`, 10_000), ","), 5 * maxOthers},
		{"parentheses", deep(maxDepth, "(", ")"), -1},
		{"parentheses", deep(maxDepth+1, "(", ")"), maxDepth},
		{"not", deep(maxDepth, "not ", ""), -1},
		{"not", deep(maxDepth+1, "not ", ""), 4 * maxDepth},
		{"parentheses beside one another", strings.TrimSuffix(strings.Repeat("(a) or ", 1000), " or "), -1},
		{"a million parentheses", deep(1_000_000, "(", ")"), maxDepth},
		{"a regexp", "~" + strings.Repeat("a", maxRegexp), -1},
		{"a regexp", "~" + strings.Repeat("a", maxRegexp+1), 1},
		{"a quoted regexp", `~"` + strings.Repeat("a", maxRegexp+1) + `"`, 2},
		{"repetitions", "~(a{10}){100}", -1},
		{"repetitions", "~(abcdefghij{10}){100}", -1},
		{"repetitions", "~((abcdefghij){10}){100}", 1},
		{"classes", `~\pL{1000}`, 1},
		{"classes", `~(\pL{10}|\pL{10})`, 1},
		{"regexps together", `~"a{900}",~"a{900}",~"a{900}",~"a{900}",~"a{900}",~"a{900}"`, 0},
		{"a pattern", "*" + strings.Repeat("a", maxPattern-1), -1},
		{"a pattern", "*" + strings.Repeat("a", maxPattern), 0},
		{"escapes", strings.Repeat(`\a`, maxText/2), 0},
		{"a pattern", "{" + strings.Repeat("a,", maxPattern) + "}", 0},
		{"a million braces", deep(1_000_000, "{", "}"), maxBraces},
		{"braces", deep(maxBraces, "{", "}"), -1},
		{"braces", deep(maxBraces+1, "{", "}"), maxBraces},
		{"braces beside one another", strings.Repeat("{a}", 20), -1},
		{"an open bracket", "[" + strings.Repeat("a", maxText-1), 0},
		{"numbers", "[1-100000]", -1},
		{"numbers", "[1-100001]", 1},
		{"numbers", "[1-999999999]", 1},
		{"digits", "[1-2,000000000000000001-000000000000000002]", -1},
		{"digits", "[1-2,0000000000000000001-0000000000000000002]", 5},
		{"Salt's list", "G@a:b or L@" + strings.Repeat("a,", maxText/3), 0},
	} {
		before := allocated()
		_, err := Parse(c.text)
		if used := allocated() - before; used > 40<<20 {
			t.Errorf("%s: %d MiB were allocated", c.what, used>>20)
		}
		var wrong *SyntaxError
		switch {
		case c.offset < 0 && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.offset >= 0 && !errors.As(err, &wrong):
			t.Errorf("%s: %v", c.what, err)
		case c.offset > 0 && wrong.Offset != c.offset:
			t.Errorf("%s: %v, want at byte %d", c.what, err, c.offset)
		}
	}
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestKeys: what an expression asks for is told, for those that allow only some of it.
func TestKeys(t *testing.T) {
	e, err := Parse(`a or @g2,@g1 and not (@g1,role=b,fact.os.name=x,host.online=true,10.0.0.0/8) or fact."a.b"~c and role!=d`)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`fact."a.b"`, "fact.os.name", "host.addr", "host.name", "host.online", "label.role"}; !slices.Equal(e.Keys(), want) {
		t.Errorf("keys %q, want %q", e.Keys(), want)
	}
	if want := []string{"g1", "g2"}; !slices.Equal(e.Groups(), want) {
		t.Errorf("groups %q, want %q", e.Groups(), want)
	}
	for _, text := range []string{"~a", "a*", "a"} {
		if e, err := Parse(text); err != nil || !slices.Equal(e.Keys(), []string{"host.name"}) || len(e.Groups()) > 0 {
			t.Errorf("%s: keys %q, groups %q, error %v", text, e.Keys(), e.Groups(), err)
		}
	}
}

// drawText draws a text of characters that mean something somewhere.
func drawText(t *rapid.T) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune(`ab01.-_/@~!=<>(),"' *?[]{}\:G|é `+"\t\n\u00a0\u200b")), 1, 8, -1).Draw(t, "text")
}

// drawPattern draws globs.
func drawPattern(t *rapid.T, depth int) pattern {
	var p pattern
	for range rapid.IntRange(1, 4).Draw(t, "globs") {
		g := glob{kind: rapid.SampledFrom([]globKind{globText, globAny, globStar, globClass, globNumbers, globEither}).Draw(t, "glob")}
		switch g.kind {
		case globText:
			g.text = drawText(t)
		case globClass:
			g.negated = rapid.Bool().Draw(t, "negated")
			for _, r := range drawText(t) {
				g.runes = append(g.runes, span[rune]{r, r + rapid.SampledFrom([]rune{0, 0, 1}).Draw(t, "more")})
			}
		case globNumbers:
			g.width = rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "width")
			first := uint64(rapid.IntRange(1, 9).Draw(t, "first"))
			g.numbers = []span[uint64]{{first, first + uint64(rapid.IntRange(0, 200).Draw(t, "count"))}}
		case globEither:
			if depth == 3 {
				continue
			}
			for range rapid.IntRange(1, 3).Draw(t, "alternatives") {
				g.either = append(g.either, drawPattern(t, depth+1))
			}
		default:
		}
		p = appendGlob(p, g)
	}
	if len(p) == 0 {
		return pattern{{kind: globStar}}
	}
	return p
}

func drawOperand(t *rapid.T) (nodeKind, string) {
	switch rapid.IntRange(0, 2).Draw(t, "operand") {
	case 0:
		return nodeName, drawText(t)
	case 1:
		return nodeRegexp, rapid.SampledFrom([]string{`a.*`, `(a|b),c`, `[)]`, `\)`, `"`, `'a`, `a b`, `\"a'`, `x "`, `[[:alpha:]) ]`, `\\"`, "é\u00a0"}).Draw(t, "regexp")
	}
	p := drawPattern(t, 0)
	if text, ok := p.literal(); ok {
		return nodeName, text
	}
	return nodePattern, p.String()
}

// drawNode draws an expression.
func drawNode(t *rapid.T, depth int) *node {
	kinds := []nodeKind{nodeName, nodePattern, nodeNetwork, nodeGroup, nodeComparison, nodeList, nodeOr, nodeAnd, nodeNot}
	if depth == 4 {
		kinds = kinds[:5]
	}
	n := &node{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch n.kind {
	case nodeName, nodePattern:
		n.kind, n.text = drawOperand(t)
	case nodeNetwork:
		n.text = rapid.SampledFrom([]string{"10.0.0.0/8", "2001:db8::/32"}).Draw(t, "network")
	case nodeGroup:
		n.text = drawText(t)
	case nodeComparison:
		c := comparison{op: rapid.SampledFrom([]operator{opEqual, opNotEqual}).Draw(t, "op")}
		c.key = key{fromLabel, []string{drawText(t)}}
		if rapid.Bool().Draw(t, "fact") {
			c.key = key{fromFact, []string{drawText(t), drawText(t)}}
		}
		if c.operand, c.text = drawOperand(t); c.operand == nodeRegexp {
			c.op = opNotLike
		}
		n.comparison = &c
	case nodeNot:
		n.parts = []*node{drawNode(t, depth+1)}
	default:
		least := 2
		for len(n.parts) < least {
			part := drawNode(t, depth+1)
			switch {
			case n.kind == nodeList && part.kind <= nodeList: // a list has items only
				part = &node{kind: nodeName, text: drawText(t)}
			case part.kind == n.kind: // would be part of this one
				part = &node{kind: nodeNot, parts: []*node{part}}
			}
			n.parts = append(n.parts, part)
		}
	}
	return n
}

// TestRoundTrip: whatever an expression is, what is written of it is read as the same.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := drawNode(t, 0)
		text := root.String()
		e, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(withoutPlaces(e.root), root) {
			t.Fatalf("%s is read as %s", text, e)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"web[01-20].{eu,us}.example", `~(web|app)\d+,db`, "role=web and env!=dev", "10.20.0.0/16 and host.online=true",
		"@frontend and not (db*,host.drift.base=dirty)", `fact."a.b"~"x y" or host.heard<10m`, "G@os:Debian", `[\1-5]{a\,b,[!a-f]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			var wrong *SyntaxError
			if !errors.As(err, &wrong) || wrong.Offset < 0 || wrong.Offset > len(text) || wrong.Want == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		checkRoundTrip(t, e)
		m, err := e.Compile(NewGroups(func(string) (string, error) { return "a*", nil }))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		h := &testHost{name: "web01"}
		if m.Match(h) != (m.Explain(h).Hosts == 1) || m.Match(h) != (len(m.Select(newTable([]*testHost{h}))) == 1) {
			t.Fatalf("%q: Match, Explain and Select do not agree", text)
		}
	})
}
