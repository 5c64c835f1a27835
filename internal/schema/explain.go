package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// maxExplained is how long what is said of a value may be.
const maxExplained = 200

// unknown says which names there are instead.
func unknown(path, name string, s *jsonschema.Schema) *harp.FieldError {
	known := slices.Sorted(maps.Keys(s.Properties))
	message := "unknown argument; there are none"
	if len(known) > 0 {
		message = "unknown argument; available: " + shorten(strings.Join(known, ", "))
	}
	return &harp.FieldError{Field: path + "." + shorten(name), Message: message}
}

// wrong says what was expected and what came.
func wrong(path string, s *jsonschema.Schema, is string) *harp.FieldError {
	return &harp.FieldError{Field: path, Message: "must be " + expected(s) + ", is " + shorten(is)}
}

// expected says what a schema wants, in words.
func expected(s *jsonschema.Schema) string {
	var options []string
	null := false
	for _, kind := range types(s) {
		if kind == "null" {
			null = true
			continue
		}
		options = append(options, kindWords(s, kind))
	}
	switch {
	case s != nil && s.Enum != nil:
		return "one of " + words(s.Enum)
	case len(options) == 0 && null:
		return "nothing"
	case len(options) == 0:
		return "a value"
	}
	return strings.Join(options, " or ")
}

func kindWords(s *jsonschema.Schema, kind string) string {
	switch kind {
	case "integer":
		if s.Format == formatNanoseconds {
			return duration.Expected
		}
		return "an integer"
	case "number":
		return "a number"
	case "boolean":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "a map"
	}
	switch {
	case s.ContentEncoding == encodingBase64:
		return "bytes, or their base64"
	case s.Format == formatTime:
		return "a time, or its RFC 3339 text"
	}
	return "a string"
}

// isOneOf reports whether v is of one of the JSON types.
func isOneOf(v any, kinds []string) bool {
	is := func(kind string) bool { return slices.Contains(kinds, kind) }
	switch v := v.(type) {
	case nil:
		return is("null")
	case bool:
		return is("boolean")
	case int64, uint64:
		return is("integer") || is("number")
	case float64:
		return is("number") || is("integer") && exactNumber(v) != nil && exactNumber(v).IsInt()
	case string:
		return is("string")
	case []any:
		return is("array")
	}
	return is("object")
}

// kindOf says what v is, in words.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	default:
		return show(v)
	}
}

// words lists values, as many as are shown.
func words(values []any) string {
	var list strings.Builder
	for i, v := range values {
		if i > 0 {
			list.WriteString(", ")
		}
		if text, ok := v.(string); ok {
			list.WriteString(shorten(text))
		} else {
			list.WriteString(show(v))
		}
		if list.Len() > maxExplained {
			break
		}
	}
	return shorten(list.String())
}

// quote shows a value that has no parts, one of which may be a secret.
func quote(v any) string {
	switch v.(type) {
	case []any, map[string]any:
		return kindOf(v)
	}
	return show(v)
}

// show returns v as JSON, shortened.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return shorten(fmt.Sprint(v))
	}
	return shorten(string(text))
}

// shorten cuts a text that is too long to be shown, between characters.
func shorten(text string) string {
	if len(text) <= maxExplained {
		return text
	}
	cut := maxExplained
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
