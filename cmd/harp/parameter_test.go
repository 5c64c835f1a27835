package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// What an argument must be is shown, in words where its pattern is one that every parameter
// of a command has.
func TestParametersAreExplained(t *testing.T) {
	for _, test := range []struct{ schema, need, meaning, example string }{
		{`{"type":"integer","default":4,"minimum":1,"maximum":100}`, "default 4", "1 to 100", "=1"},
		{`{"type":"integer","format":"nanoseconds","default":5000000000,"maximum":3600000000000}`, "default 5s", "at most 1h", "=5s"},
		{`{"type":"string","description":"a name","maxLength":131071,"pattern":"^[a-z]+$"}`, "optional", "a name; matches ^[a-z]+$", "=..."},
		{`{"type":"string","minLength":2,"maxLength":9,"pattern":"^(?:[^-\\x00][^\\x00]*)?$"}`, "optional", "2 to 9 characters; not beginning with -", "=..."},
		{`{"type":"string","maxLength":4095,"pattern":"^/var(?:/(?:\\.|[^/.\\x00][^/\\x00]*)?)*$"}`, "optional", "a path under /var", "=..."},
		{`{"type":"string","pattern":"^(?:/(?:\\.|[^/.\\x00][^/\\x00]*)?)+$"}`, "optional", "an absolute path", "=..."},
		{`{"type":"string","enum":["a","b"],"default":"b"}`, "default b", "", "=a"},
		{`{"type":"array","items":{"type":"string"},"minItems":1}`, "optional", "at least 1 element", ":='[]'"},
		{`{"type":"string","examples":["web01"]}`, "optional", "such as web01", "=web01"},
		{`{"type":["boolean","null"]}`, "optional", "", "=true"},
	} {
		s := parseSchema(json.RawMessage(test.schema))
		if need, meaning, example := s.needText(false), s.meaning(), s.exampleText(); need != test.need || meaning != test.meaning || example != test.example {
			t.Errorf("%s: %q, %q and %q", test.schema, need, meaning, example)
		}
	}
}

// On a narrow terminal what an argument means is wrapped, and nothing of it is left out; where a
// table has no room at all its rows are paragraphs.
func TestMeaningsAreWrapped(t *testing.T) {
	args := `{"type":"object","required":["name"],"properties":{"name":{"type":"string","description":"the name of a thing that is said in many words"}}}`
	p := offered{doc: harp.ProcedureDoc{Name: "greet", Args: json.RawMessage(args)}, hosts: []string{"web01"}}
	for width, want := range map[int]string{
		50: "ARGUMENT  TYPE              MEANING\nname      string  required  the name of a thing\n                            that is said in many\n                            words\n",
		40: "name, string, required, the name of a thing that is said in many words\n",
		0:  "name      string  required  the name of a thing that is said in many words\n",
	} {
		var out strings.Builder
		c := newCLI(nil, &out, nil, func(string) string { return "" })
		c.terminal, c.size = width > 0, func() (int, int) { return width, 0 }
		c.showParameters(p)
		if got := out.String(); !strings.Contains(got, want) || !strings.HasSuffix(got, "\nexample: harp call web01 greet name=...\n") {
			t.Errorf("at %d:\n%s", width, got)
		}
	}
}
