// Package schema makes the JSON Schemas of procedures from Go types, and names,
// checks and reads the arguments of calls by them.
//
// What a Go value is on the wire and in its schema:
//
//	Go                            msgpack        JSON Schema
//	bool, string, numbers         the same       boolean, string, integer, number
//	struct                        map            object, no other keys; not omitempty: required
//	map with string keys          map            object or null
//	slice, array                  array          array (a slice: or null)
//	pointer                       as pointed to  as pointed to, or null
//	[]byte, [n]byte               bin            string, contentEncoding base64
//	encoding.BinaryMarshaler      bin            string, contentEncoding base64
//	encoding.TextMarshaler        bin            string
//	time.Time                     time ext       string, format date-time
//	time.Duration                 integer        integer, format nanoseconds
//	any, harp.Value, own encoding what it is     anything
//
// Arguments may also come from JSON or a command line, where there are no bytes
// and no times: base64 and RFC 3339 texts are taken for them where the schema says
// so, texts such as 1m30s for durations, and floats without fraction for integers.
package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// The marks of schemas made here that JSON Schema leaves to its users.
const (
	encodingBase64    = "base64"      // contentEncoding of bytes
	formatTime        = "date-time"   // format of a time
	formatNanoseconds = "nanoseconds" // format of a duration
)

// root is how the arguments are called in the field of an error.
const root = "args"

// Args knows the arguments of one procedure. It is made by [Compile] and safe for
// concurrent use.
type Args struct {
	params    []string
	schema    *jsonschema.Schema // nil: anything goes
	patterns  map[string]program
	typesOnly *typesOnly // nil: a checker must look at the arguments
	weight    int        // bytes that this takes in memory, or a little more
}

// Compile prepares the checking of a procedure's arguments, in some 50 ms and 16 MiB at
// most. Errors: ErrInvalid for a schema that is none, that is too large, that has patterns which are,
// or that uses a keyword that is not known here, as $ref.
func Compile(doc harp.ProcedureDoc) (*Args, error) {
	a := &Args{params: doc.Params, weight: 1024 + 4*len(doc.Args)}
	if len(doc.Args) == 0 {
		return a, nil
	}
	s, c, err := parseSchema(doc.Args)
	if err != nil {
		return nil, &harp.FieldError{Field: "schema of " + doc.Name, Message: shorten(err.Error())}
	}
	a.schema, a.patterns, a.typesOnly = s, c.patterns, typesOnlyOf(s)
	a.weight += c.weight
	return a, nil
}

// Check is Compile and Bind for who needs no more than the verdict. Errors:
// ErrInvalid with the field, as "args.count", and what was expected.
func Check(doc harp.ProcedureDoc, args harp.Value) error {
	a, err := Compile(doc)
	if err != nil {
		return err
	}
	return a.Check(args)
}

// Check reports whether args fit, named or positional. Errors: as Bind.
func (a *Args) Check(args harp.Value) error {
	_, err := a.Bind(args)
	return err
}

// FitTypes reports whether types are all that has to be looked at, and args have them. It never takes long.
func (a *Args) FitTypes(args harp.Value) bool {
	return len(args) == 0 && a.typesOnly.acceptsNone() || a.typesOnly.accepts(args)
}

// CheckPaced is Check, of args that do not [Args.FitTypes], which asks pace now and then, before it goes on, if it takes long. It
// returns pace's error.
func (a *Args) CheckPaced(args harp.Value, pace func() error) error {
	_, err := a.bindValue(args, pace)
	return err
}

// parseSchema reads a schema from a text that may be hostile, and makes ready what it holds.
func parseSchema(text []byte) (*jsonschema.Schema, *compiler, error) {
	if err := checkText(text); err != nil {
		return nil, nil, err
	}
	s, c := new(jsonschema.Schema), new(compiler)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, nil, err
	}
	return s, c, c.compile(s)
}

// compile looks at what stands behind the keywords of a schema and of those within, and
// compiles the patterns.
func (c *compiler) compile(s *jsonschema.Schema) error {
	c.weight += 1200
	for _, name := range types(s) {
		if !slices.Contains(typeNames, name) {
			return fmt.Errorf("has the type %q, not one of %s", shorten(name), strings.Join(typeNames, ", "))
		}
	}
	if s.MultipleOf != nil && !(*s.MultipleOf > 0) {
		return fmt.Errorf("has a multipleOf of %v, not above 0", *s.MultipleOf)
	}
	if s.Pattern != "" {
		if err := c.compilePattern(s.Pattern); err != nil {
			return err
		}
	}
	for pattern := range s.PatternProperties {
		if err := c.compilePattern(pattern); err != nil {
			return err
		}
	}
	for _, part := range partsOf(s) {
		if err := c.compile(part); err != nil {
			return err
		}
	}
	return nil
}

// typeNames are the types of JSON Schema.
var typeNames = []string{"null", "boolean", "integer", "number", "string", "array", "object"}

// partsOf returns the schemas within a schema.
func partsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	parts := slices.Concat(s.PrefixItems, s.AllOf, s.AnyOf, s.OneOf)
	for _, part := range []*jsonschema.Schema{s.Items, s.AdditionalProperties, s.Not} {
		if part != nil {
			parts = append(parts, part)
		}
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.PatternProperties} {
		parts = slices.AppendSeq(parts, maps.Values(named))
	}
	return parts
}

// isFalse reports whether s is the schema that nothing fits.
func isFalse(s *jsonschema.Schema) bool { return s != nil && s.Not != nil && isTrue(s.Not) }

// isTrue reports whether s is the schema that everything fits.
func isTrue(s *jsonschema.Schema) bool { return reflect.DeepEqual(*s, jsonschema.Schema{}) }

// isDuration reports whether a value is a duration.
func isDuration(s *jsonschema.Schema) bool {
	return s != nil && s.Format == formatNanoseconds && slices.Contains(types(s), "integer") && !slices.Contains(types(s), "string")
}

// types returns the JSON types a schema names; none: any.
func types(s *jsonschema.Schema) []string {
	switch {
	case s == nil:
		return nil
	case s.Type != "":
		return []string{s.Type}
	}
	return s.Types
}
