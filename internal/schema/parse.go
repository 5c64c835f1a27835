package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// Parse reads the argument called name of a procedure from a text, as it stands on
// a command line: typed by the schema, so that 5 is a number where one is wanted
// and a text where a text is. Lists, maps and what may be anything are JSON; what
// may be anything and is no JSON is a text. Times are RFC 3339, bytes
// base64. A duration must have a unit, as 1m30s, and stays the text that it is. The name
// of an element of a list is "".
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
	if err := checkUnits(path, s, v); err != nil {
		return nil, err
	}
	typed, plain, err := convert(s, v)
	if err != nil {
		return nil, withinPath(path, err)
	}
	if holdsDuration(s) {
		typed = v // nobody gave nanoseconds
	}
	return typed, a.newChecker(nil).checkValue(path, s, plain)
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
		if isDuration(s) {
			_, err := duration.Parse(text)
			return text, err == nil
		}
		return readInteger(text)
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

func readInteger(text string) (any, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, true
	}
	return nil, false
}

// CheckUnits refuses durations that are numbers in what Parse returned or JSON holds: a
// person who writes 5 means no five nanoseconds. Errors: ErrInvalid with the field.
func (a *Args) CheckUnits(args any) error {
	named, err := a.nameArgs(args)
	if err != nil {
		return err
	}
	return checkUnits(root, a.schema, named)
}

// holdsDuration reports whether there may be a duration in a value.
func holdsDuration(s *jsonschema.Schema) bool {
	return isDuration(s) || slices.ContainsFunc(partsOf(s), holdsDuration)
}

func checkUnits(path string, s *jsonschema.Schema, v any) error {
	switch v := v.(type) {
	case int64, uint64, float64:
		if isDuration(s) && v != int64(0) && isSecret(s) {
			return secretError(path, s)
		}
		if isDuration(s) && v != int64(0) {
			return wrong(path, s, show(v))
		}
	case []any:
		for i, part := range v {
			if err := checkUnits(path+index(i), item(s, i), part); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := checkUnits(path+"."+shorten(k), property(s, k), v[k]); err != nil {
				return err
			}
		}
	}
	return nil
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
