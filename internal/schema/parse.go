package schema

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// Parse reads the argument called name of a procedure from a text, as it stands on
// a command line: typed by the schema, so that 5 is a number where one is wanted
// and a text where a text is. Lists, maps and what may be anything are JSON; what
// may be anything and is no JSON is a text. Times are RFC 3339, durations also as
// 1m30s, bytes base64. The name of an element of a list is "".
//
// The value is what harp.Args or harp.Pos takes. Errors: ErrInvalid with the
// field and what was expected.
func Parse(doc harp.ProcedureDoc, name, text string) (any, error) {
	a, err := Compile(doc)
	if err != nil {
		return nil, err
	}
	return a.Parse(name, text)
}

// Parse is the function Parse. Errors: as that.
func (a *Args) Parse(name, text string) (any, error) {
	path, s, err := a.parameter(name)
	if err != nil {
		return nil, err
	}
	v, ok := parseText(s, text)
	if !ok && isSecret(s) {
		return nil, secretError(path, s)
	}
	if !ok {
		return nil, wrong(path, s, strconv.Quote(text))
	}
	if s == nil {
		return v, nil
	}
	typed, plain, err := convert(s, v)
	if err != nil {
		return nil, withinPath(path, err)
	}
	return typed, a.newChecker().checkValue(path, s, plain)
}

// parameter finds the schema of one argument, nil for anything.
func (a *Args) parameter(name string) (path string, s *jsonschema.Schema, err error) {
	switch {
	case name == "" && len(types(a.schema)) == 0:
		return root, nil, nil
	case name == "" && slices.Contains(types(a.schema), "array"):
		return root, item(a.schema, len(a.schema.PrefixItems)), nil
	case name == "":
		return "", nil, &harp.FieldError{Field: root, Message: "must have a name"}
	}
	s = property(a.schema, name)
	if isFalse(s) {
		return "", nil, unknown(root, name, a.schema)
	}
	return root + "." + name, s, nil
}

// parseText turns a text into the first type of the schema that it can be.
func parseText(s *jsonschema.Schema, text string) (any, bool) {
	kinds := types(s)
	if len(kinds) == 0 {
		return readAny(s, text), true
	}
	for _, kind := range []string{"null", "integer", "number", "boolean", "array", "object", "string"} {
		if !slices.Contains(kinds, kind) {
			continue
		}
		if v, ok := readAs(s, kind, text); ok {
			return v, true
		}
	}
	return nil, false
}

func readAs(s *jsonschema.Schema, kind, text string) (any, bool) {
	switch kind {
	case "null":
		return nil, text == "null" && !slices.Contains(types(s), "string")
	case "integer":
		return readInteger(s, text)
	case "number":
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil
	case "boolean":
		b, err := strconv.ParseBool(text)
		return b, err == nil
	case "array", "object":
		v, err := readJSON(text)
		return v, err == nil && isOneOf(v, []string{kind})
	}
	return text, true
}

func readInteger(s *jsonschema.Schema, text string) (any, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, true
	}
	if s.Format != formatNanoseconds {
		return nil, false
	}
	d, err := time.ParseDuration(text)
	return int64(d), err == nil
}

// readAny reads JSON or, failing that, a text. An enum's text counts as it is.
func readAny(s *jsonschema.Schema, text string) any {
	if s != nil && slices.Contains(s.Enum, any(text)) {
		return text
	}
	if v, err := readJSON(text); err == nil {
		return v
	}
	return text
}

func readJSON(text string) (any, error) {
	var v harp.Value
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	return v.Any()
}
