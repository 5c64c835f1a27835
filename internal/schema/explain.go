package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// maxExplained is how long what is said of a value may be.
const maxExplained = 200

// explain finds the field that does not fit and says what was expected. The
// library's verdict stands even where nothing is found; then its words are shown.
func explain(s *jsonschema.Schema, v any, verdict error) error {
	if e := find(root, s, v); e != nil {
		return e
	}
	if holdsSecret(s) { // the library quotes what it looks at
		return explainBeside(s, v)
	}
	return &harp.FieldError{Field: root, Message: shorten(verdict.Error())}
}

// explainBeside is explain for arguments that hold a secret: each is looked at by itself.
func explainBeside(s *jsonschema.Schema, v any) error {
	named, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if p := property(s, name); p != nil && !holdsSecret(p) {
			if err := alone(root+"."+name, p, named[name]); err != nil {
				return err
			}
		}
	}
	return &harp.FieldError{Field: root, Message: "do not fit what the procedure takes, and hold a secret, which is not shown"}
}

// find walks schema and value together.
func find(path string, s *jsonschema.Schema, v any) *harp.FieldError {
	if s == nil {
		return nil
	}
	if isSecret(s) {
		return findSecret(path, s, v)
	}
	if kinds := types(s); len(kinds) > 0 && !isOneOf(v, kinds) {
		return wrong(path, s, kindOf(v))
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return jsonschema.Equal(e, v) }) {
		return &harp.FieldError{Field: path, Message: "must be one of " + words(s.Enum) + ", is " + show(v)}
	}
	if s.Const != nil && !jsonschema.Equal(*s.Const, v) {
		return &harp.FieldError{Field: path, Message: "must be " + show(*s.Const)}
	}
	for _, part := range s.AllOf {
		if e := find(path, part, v); e != nil {
			return e
		}
	}
	switch v := v.(type) {
	case int64, uint64, float64:
		return findNumber(path, s, number(v))
	case string:
		return findText(path, s, v)
	case []any:
		return findList(path, s, v)
	case map[string]any:
		return findMap(path, s, v)
	}
	return nil
}

func findNumber(path string, s *jsonschema.Schema, n *big.Float) *harp.FieldError {
	for _, bound := range []struct {
		limit  *float64
		broken func(cmp int) bool
		words  string
	}{
		{s.Minimum, func(cmp int) bool { return cmp < 0 }, "at least"},
		{s.Maximum, func(cmp int) bool { return cmp > 0 }, "at most"},
		{s.ExclusiveMinimum, func(cmp int) bool { return cmp <= 0 }, "more than"},
		{s.ExclusiveMaximum, func(cmp int) bool { return cmp >= 0 }, "less than"},
	} {
		if bound.limit != nil && n != nil && bound.broken(n.Cmp(big.NewFloat(*bound.limit))) {
			limit := strconv.FormatFloat(*bound.limit, 'f', -1, 64)
			return &harp.FieldError{Field: path, Message: "must be " + bound.words + " " + limit + ", is " + n.Text('g', 20)}
		}
	}
	return nil
}

// number returns a finite number exactly, else nil.
func number(v any) *big.Float {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v)
	case uint64:
		return new(big.Float).SetUint64(v)
	case float64:
		if v-v == 0 {
			return big.NewFloat(v)
		}
	}
	return nil
}

func findText(path string, s *jsonschema.Schema, text string) *harp.FieldError {
	n := utf8.RuneCountInString(text)
	switch {
	case s.MinLength != nil && n < *s.MinLength:
		return &harp.FieldError{Field: path, Message: fmt.Sprintf("must have at least %d characters, has %d", *s.MinLength, n)}
	case s.MaxLength != nil && n > *s.MaxLength:
		return &harp.FieldError{Field: path, Message: fmt.Sprintf("must have at most %d characters, has %d", *s.MaxLength, n)}
	case s.Pattern != "":
		if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(text) {
			return &harp.FieldError{Field: path, Message: "must match " + shorten(s.Pattern) + ", is " + show(text)}
		}
	}
	return nil
}

func findList(path string, s *jsonschema.Schema, list []any) *harp.FieldError {
	switch n := len(list); {
	case s.MinItems != nil && n < *s.MinItems:
		return &harp.FieldError{Field: path, Message: fmt.Sprintf("must have at least %d elements, has %d", *s.MinItems, n)}
	case s.MaxItems != nil && n > *s.MaxItems:
		return &harp.FieldError{Field: path, Message: fmt.Sprintf("must have at most %d elements, has %d", *s.MaxItems, n)}
	}
	for i, v := range list {
		if e := find(index(path, i), item(s, i), v); e != nil {
			return e
		}
	}
	return nil
}

func findMap(path string, s *jsonschema.Schema, m map[string]any) *harp.FieldError {
	for _, name := range s.Required {
		if _, ok := m[name]; !ok {
			return &harp.FieldError{Field: path + "." + name, Message: "is required: " + expected(s.Properties[name])}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p := property(s, name)
		if isFalse(p) {
			return unknown(path, name, s)
		}
		if e := find(path+"."+name, p, m[name]); e != nil {
			return e
		}
	}
	return nil
}

// unknown says which names there are instead.
func unknown(path, name string, s *jsonschema.Schema) *harp.FieldError {
	known := slices.Sorted(maps.Keys(s.Properties))
	message := "is not known; there are no parameters"
	if len(known) > 0 {
		message = "is not known; there is " + shorten(strings.Join(known, ", "))
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
			return "a duration in nanoseconds"
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
		return is("number") || is("integer") && number(v) != nil && number(v).IsInt()
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

func words(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok {
			texts[i] = text
			continue
		}
		texts[i] = show(v)
	}
	return shorten(strings.Join(texts, ", "))
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
