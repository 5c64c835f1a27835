package schema_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// secretive has secrets of all kinds, and one thing that is none.
var secretive = harp.ProcedureDoc{
	Params: []string{"text"},
	Args: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{
		"text":{"type":"string","writeOnly":true,"minLength":2,"maxLength":9,"pattern":"^[a-z]+$"},
		"both":{"type":"string","writeOnly":true,"allOf":[{"pattern":"^[a-z]+$"}]},
		"word":{"writeOnly":true,"enum":["a","b"]},
		"const":{"writeOnly":true,"const":5},
		"number":{"type":"number","writeOnly":true,"minimum":1,"maximum":10},
		"int":{"type":"integer","writeOnly":true},
		"bytes":{"type":"string","contentEncoding":"base64","writeOnly":true},
		"time":{"type":"string","format":"date-time","writeOnly":true},
		"list":{"type":"array","writeOnly":true,"items":{"type":"integer"}},
		"map":{"type":"object","writeOnly":true,"properties":{"a":{"type":"boolean"}},"additionalProperties":false},
		"any":{"writeOnly":true,"anyOf":[{"type":"string"},{"type":"boolean"}]},
		"not":{"writeOnly":true,"not":{"type":"integer"}},
		"holder":{"type":"object","properties":{"pin":{"type":"string","writeOnly":true}}}
	}}`),
}

// TestErrorsAboutSecretsQuoteNothing checks that what is wrong with a secret is said
// without any part of it: the error is logged, stored with the job and shown to others.
func TestErrorsAboutSecretsQuoteNothing(t *testing.T) {
	const number, text = 13371337, "Hunter1337"
	for name, values := range map[string][]any{
		"text": {number, 1337.5, true, text, "H", strings.Repeat(text, 3), []any{text}, map[string]any{text: number}},
		"both": {number, text}, "word": {number, text}, "const": {number, text},
		"number": {number, text, 0.1337}, "int": {1337.5, text, 1.337e300}, "bytes": {number, text + "!"}, "time": {number, text},
		"list": {number, text, []any{text}, []any{1, 1337.5}}, "map": {number, text, map[string]any{text: true}, map[string]any{"a": text}, map[string]any{"a": number}},
		"any": {number, 1337.5}, "not": {number}, "holder": {map[string]any{"pin": number}},
	} {
		for _, value := range values {
			v, err := harp.NewValue(harp.Args{name: value})
			if err != nil {
				t.Fatal(err)
			}
			checkSecretError(t, name, value, schema.Check(secretive, v))
		}
	}
	v, err := harp.NewValue(harp.Pos(number))
	if err != nil {
		t.Fatal(err)
	}
	checkSecretError(t, "text", number, schema.Check(secretive, v))
}

// TestWordsOfSecretsAreNotQuoted is the same for the words of a command line.
func TestWordsOfSecretsAreNotQuoted(t *testing.T) {
	for name, texts := range map[string][]string{
		"text": {"Hunter1337", "H"}, "both": {"Hunter1337"}, "word": {"Hunter1337"}, "const": {"1337", "Hunter1337"}, "number": {"Hunter1337", "1337"},
		"int": {"Hunter1337", "13.37"}, "bytes": {"1337!"}, "time": {"Hunter1337"}, "list": {"Hunter1337", `["Hunter1337"]`}, "map": {"Hunter1337", `{"Hunter1337":1}`},
		"any": {"1337"}, "not": {"1337"},
	} {
		for _, text := range texts {
			_, err := schema.Parse(secretive, name, text)
			checkSecretError(t, name, text, err)
		}
	}
}

func checkSecretError(t *testing.T, name string, value any, err error) {
	t.Helper()
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, "args") {
		t.Errorf("%s as %v: %v", name, value, err)
		return
	}
	for _, part := range []string{"1337", "337", "Hunter", "1.3", "has 1", "has 30"} {
		if strings.Contains(err.Error(), part) {
			t.Errorf("%s as %v: the error quotes it: %v", name, value, err)
			return
		}
	}
}

// TestHideArgs: what is shown of arguments holds no secret, wherever the schema says that one is.
func TestHideArgs(t *testing.T) {
	nested := harp.ProcedureDoc{Args: json.RawMessage(`{"type":"object","additionalProperties":{"type":"array","items":{"writeOnly":true}}}`)}
	list := harp.ProcedureDoc{Args: json.RawMessage(`{"type":"array","prefixItems":[{"type":"string"}],"items":{"writeOnly":true}}`)}
	branch := harp.ProcedureDoc{Args: json.RawMessage(`{"type":"object","anyOf":[{"properties":{"pin":{"writeOnly":true}}}]}`)}
	positional := harp.ProcedureDoc{Params: []string{"name", "pin"}, Args: json.RawMessage(`{"type":"object","properties":{"name":{},"pin":{"writeOnly":true}}}`)}
	for _, c := range []struct {
		doc        harp.ProcedureDoc
		args, want string
	}{
		{secretive, `{"text":"abc","holder":{"pin":"x"}}`, `{"holder":"***","text":"***"}`},
		{nested, `{"a":["x"]}`, `{"a":"***"}`},
		{list, `["open","x"]`, `["open","***"]`},
		{branch, `{"pin":"x"}`, `{"pin":"***"}`},
		{positional, `["open","x"]`, `["open","***"]`},
		{positional, `{"name":"open","pin":5}`, `{"name":"open","pin":"***"}`},
		{positional, `{"name":"open"}`, `{"name":"open"}`},
		{harp.ProcedureDoc{}, `{"pin":"x"}`, `{"pin":"x"}`},
		{service, `{"service":"nginx"}`, `{"service":"nginx"}`},
	} {
		known, err := schema.Compile(c.doc)
		if err != nil {
			t.Fatal(err)
		}
		var args harp.Value
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			t.Fatal(err)
		}
		got, err := schema.HideArgs(args, known.SecretArgs(args))
		if err != nil || got.String() != c.want {
			t.Errorf("%s: got %s, %v", c.args, got, err)
		}
	}
}
