package schema

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// FuzzVerdict compares what fits with what the library says fits.
func FuzzVerdict(f *testing.F) {
	f.Add(`{"anyOf":[{"type":"array","uniqueItems":true},{"enum":[1,"a"]}]}`, `[1,2,1.0]`)
	f.Add(`{"oneOf":[{"multipleOf":3},{"minimum":2}],"not":{"const":4}}`, `4`)
	f.Add(`{"patternProperties":{"^x":{"maxLength":2}},"additionalProperties":{"minLength":2},"maxProperties":2}`, `{"xa":"b","a":"bc"}`)
	f.Add(`{"prefixItems":[{"type":"string"}],"items":{"type":"null"},"minItems":1,"maxItems":3}`, `["a",null]`)
	f.Add(`{"properties":{"a":false},"allOf":[{"required":["b"]}],"minProperties":1}`, `{"b":{}}`)
	f.Add(`{"type":["object","null"],"properties":{"n":{"exclusiveMinimum":0,"exclusiveMaximum":1.5}}}`, `{"n":1}`)
	f.Add(`{"items":{"pattern":"^a+$","minLength":2}}`, `["aa","a"]`)
	f.Fuzz(func(t *testing.T, text, value string) {
		s, c, err := parseSchema([]byte(text))
		if err != nil || s.Schema != "" {
			return
		}
		var v harp.Value
		if json.Unmarshal([]byte(value), &v) != nil {
			return
		}
		got, err := v.Any()
		if err != nil {
			return
		}
		_, plain, err := convert(s, got)
		if err != nil {
			return
		}
		want, ok := fitsByLibrary(s, plain)
		check := &checker{patterns: c.patterns, left: maxWork}
		if fits := check.checkValue(root, s, plain) == nil; ok && check.left >= 0 && fits != want {
			t.Errorf("%s by %s: %v, by the library %v", value, text, fits, want)
		}
	})
}

// fitsByLibrary is what the library says. It panics for what it cannot judge.
func fitsByLibrary(s *jsonschema.Schema, v any) (fits, ok bool) {
	defer func() { _ = recover() }()
	r, err := s.CloneSchemas().Resolve(nil)
	if err != nil {
		return false, false
	}
	return r.Validate(v) == nil, true
}
