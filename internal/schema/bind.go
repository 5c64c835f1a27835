package schema

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// Bind returns the arguments as they are decoded for the procedure's function:
// positional ones by name, none as an empty map, base64, RFC 3339 and texts such as
// 1m30s as the bytes, times and durations they stand for. What it returns was made from what was checked,
// so that no trick of the encoding comes between; args themselves, if they have none.
//
// Errors: ErrInvalid with the field, as "args.count", and what was expected.
func (a *Args) Bind(args harp.Value) (harp.Value, error) {
	switch {
	case len(args) == 0 && a.typesOnly.acceptsNone():
		return harp.Value{emptyMap}, nil
	case a.typesOnly.accepts(args):
		return args, nil
	}
	return a.bindValue(args, nil)
}

// bindValue is Bind for arguments that the check of types alone does not settle. While it checks them it asks pace.
func (a *Args) bindValue(args harp.Value, pace func() error) (harp.Value, error) {
	got, err := args.Any()
	if err != nil {
		return nil, inArgs(err)
	}
	if got, err = a.nameArgs(got); err != nil {
		return nil, err
	}
	if a.schema == nil {
		return harp.NewValue(got)
	}
	typed, plain, err := convert(a.schema, got)
	if err != nil {
		return nil, withinPath(root, err)
	}
	if err := a.newChecker(pace).checkValue(root, a.schema, plain); err != nil {
		return nil, err
	}
	v, err := harp.NewValue(typed)
	return v, inArgs(err)
}

// nameArgs makes positional arguments named where the schema wants a map.
func (a *Args) nameArgs(args any) (any, error) {
	if a.schema == nil || a.schema.Type != "object" {
		return args, nil
	}
	switch args := args.(type) {
	case nil:
		return map[string]any{}, nil
	case []any:
		return nameList(a.params, args)
	}
	return args, nil
}

func nameList(params []string, list []any) (map[string]any, error) {
	if len(list) > len(params) {
		return nil, tooMany(params, len(list))
	}
	named := make(map[string]any, len(list))
	for i, arg := range list {
		named[params[i]] = arg
	}
	return named, nil
}

func tooMany(params []string, given int) error {
	takes := "takes no positional arguments"
	if n := len(params); n > 0 {
		takes = fmt.Sprintf("takes at most %d positional arguments", n)
	}
	return &harp.FieldError{Field: root, Message: fmt.Sprintf("%s, got %d", takes, given)}
}

// Named returns positional arguments by the names of the parameters; others as
// they are. Errors: ErrInvalid for more arguments than parameters.
func Named(params []string, args harp.Value) (harp.Value, error) {
	got, err := args.Any()
	if err != nil {
		return nil, inArgs(err)
	}
	list, ok := got.([]any)
	if !ok {
		return slices.Clone(args), nil
	}
	named, err := nameList(params, list)
	if err != nil {
		return nil, err
	}
	v, err := harp.NewValue(named)
	return v, inArgs(err)
}

// inArgs makes an error of a value one of the arguments.
func inArgs(err error) error {
	if e, ok := err.(*harp.FieldError); ok { //nolint:errorlint // Value's own error, never wrapped
		return &harp.FieldError{Field: root, Message: e.Message}
	}
	return err
}

// convert returns v twice: typed, as the function gets it, and plain, as JSON
// would have it, which is what schemas speak of. The field of an error begins behind v,
// so that no path is made for what is good.
func convert(s *jsonschema.Schema, v any) (typed, plain any, err error) {
	typed, plain, err = convertOpen(s, v)
	if err != nil && isSecret(s) {
		err = secretError("", s)
	}
	return typed, plain, err
}

// convertOpen is convert for what may be quoted.
func convertOpen(s *jsonschema.Schema, v any) (typed, plain any, err error) {
	switch v := v.(type) {
	case nil, bool:
		return v, v, nil
	case int64, uint64:
		return v, v, nil
	case float64:
		return convertFloat(s, v)
	case string:
		return convertText(s, v)
	case []byte:
		return convertBytes(s, v)
	case time.Time:
		if len(types(s)) > 0 && s.Format != formatTime {
			return nil, nil, wrong("", s, "a time")
		}
		return v, v.Format(time.RFC3339Nano), nil
	case []any:
		return convertList(s, v)
	case map[string]any:
		return convertMap(s, v)
	}
	if len(types(s)) > 0 {
		return nil, nil, &harp.FieldError{Message: "is sealed, and nothing here can open it"}
	}
	return v, "***", nil // where anything goes it passes as it is
}

// convertFloat makes a float an integer where one is wanted, if it is one.
func convertFloat(s *jsonschema.Schema, f float64) (typed, plain any, err error) {
	kinds := types(s)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		if len(kinds) > 0 && (bounded(s) || !slices.Contains(kinds, "number")) {
			return nil, nil, wrong("", s, strconv.FormatFloat(f, 'g', -1, 64))
		}
		return f, f, nil
	case !slices.Contains(kinds, "integer") || slices.Contains(kinds, "number"):
		return f, f, nil
	case f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64:
		return int64(f), int64(f), nil
	case f == math.Trunc(f) && f > 0 && f < math.MaxUint64:
		return uint64(f), uint64(f), nil
	}
	return nil, nil, wrong("", s, strconv.FormatFloat(f, 'g', -1, 64))
}

// bounded reports whether a number must be compared.
func bounded(s *jsonschema.Schema) bool {
	return s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil
}

// convertText reads the texts that stand for bytes, times and durations.
func convertText(s *jsonschema.Schema, text string) (typed, plain any, err error) {
	switch {
	case s == nil:
		return text, text, nil
	case s.ContentEncoding == encodingBase64:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, nil, wrong("", s, "another text")
		}
		return b, text, nil
	case isDuration(s):
		d, err := duration.Parse(text)
		if err != nil {
			return nil, nil, wrong("", s, strconv.Quote(text))
		}
		return int64(d), int64(d), nil
	case s.Format == formatTime:
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, nil, wrong("", s, strconv.Quote(text))
		}
		return t, text, nil
	}
	return text, text, nil
}

// convertBytes lets bytes be what a schema can speak of: base64, or the text that
// encoding.TextMarshaler wrote.
func convertBytes(s *jsonschema.Schema, b []byte) (typed, plain any, err error) {
	switch kinds := types(s); {
	case len(kinds) == 0, s.ContentEncoding == encodingBase64:
		return b, base64.StdEncoding.EncodeToString(b), nil
	case slices.Contains(kinds, "string") && s.Format != formatTime && utf8.Valid(b):
		return string(b), string(b), nil
	}
	return nil, nil, wrong("", s, "bytes")
}

func convertList(s *jsonschema.Schema, list []any) (any, any, error) {
	typed, plain := make([]any, len(list)), make([]any, len(list))
	var err error
	for i, v := range list {
		if typed[i], plain[i], err = convert(item(s, i), v); err != nil {
			return nil, nil, withinPath(index(i), err)
		}
	}
	return typed, plain, nil
}

func convertMap(s *jsonschema.Schema, m map[string]any) (any, any, error) {
	typed, plain := make(map[string]any, len(m)), make(map[string]any, len(m))
	var err error
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if typed[k], plain[k], err = convert(property(s, k), m[k]); err != nil {
			return nil, nil, withinPath("."+shorten(k), err)
		}
	}
	return typed, plain, nil
}

// withinPath puts what holds the field of an error before it.
func withinPath(path string, err error) error {
	if e, ok := err.(*harp.FieldError); ok { //nolint:errorlint // convert's own error, never wrapped
		e.Field = path + e.Field
	}
	return err
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// item returns the schema of a list's element, nil for anything.
func item(s *jsonschema.Schema, i int) *jsonschema.Schema {
	switch {
	case s == nil:
		return nil
	case i < len(s.PrefixItems):
		return s.PrefixItems[i]
	}
	return s.Items
}

// property returns the schema of a map's value, nil for anything.
func property(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if p, ok := s.Properties[name]; ok {
		return p
	}
	return s.AdditionalProperties
}
