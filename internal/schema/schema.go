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
// so, and floats without fraction for integers.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// The marks of schemas made here that JSON Schema leaves to its users.
const (
	encodingBase64    = "base64"      // contentEncoding of bytes
	formatTime        = "date-time"   // format of a time
	formatNanoseconds = "nanoseconds" // format of a duration
)

// root is how the arguments are called in the field of an error.
const root = "args"

// maxNesting is how deep a schema's text may nest.
const maxNesting = 64

// Args knows the arguments of one procedure. It is made by [Compile] and safe for
// concurrent use.
type Args struct {
	params   []string
	schema   *jsonschema.Schema // nil: anything goes
	resolved *jsonschema.Resolved
	plain    *plain // nil: arguments must be looked at by the library
}

// Compile prepares the checking of a procedure's arguments. Errors: ErrInvalid for
// a schema that is none, that is too large, or that refers to another; a schema
// may come from anybody who can speak as an agent.
func Compile(doc harp.ProcedureDoc) (*Args, error) {
	a := &Args{params: doc.Params}
	if len(doc.Args) == 0 {
		return a, nil
	}
	s, err := parseSchema(doc.Args)
	if err == nil {
		a.schema = s
		a.resolved, err = resolve(s)
	}
	if err == nil {
		a.plain = plainOf(s)
	}
	if err != nil {
		return nil, &harp.FieldError{Field: "schema of " + doc.Name, Message: err.Error()}
	}
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

// parseSchema reads a schema from a text that may be hostile.
func parseSchema(text []byte) (*jsonschema.Schema, error) {
	if len(text) > wire.MaxControl {
		return nil, fmt.Errorf("is %d bytes, at most %d", len(text), wire.MaxControl)
	}
	if err := checkNesting(text); err != nil {
		return nil, err
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s, nil
}

// checkNesting reads the text once, so that what follows may recurse. References
// are refused: they can lead in circles.
func checkNesting(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	for depth := 0; ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		case "$ref", "$dynamicRef":
			return fmt.Errorf("holds a %s", token)
		}
		if depth > maxNesting {
			return fmt.Errorf("nests deeper than %d", maxNesting)
		}
	}
}

// resolve prepares a schema for validating.
func resolve(s *jsonschema.Schema) (r *jsonschema.Resolved, err error) {
	defer recovered(&err)
	return s.Resolve(nil)
}

// validate asks the library, which may panic on a schema that nobody meant.
func validate(r *jsonschema.Resolved, instance any) (err error) {
	defer recovered(&err)
	return r.Validate(instance)
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}

// isFalse reports whether s is the schema that nothing fits.
func isFalse(s *jsonschema.Schema) bool { return s != nil && s.Not != nil && isTrue(s.Not) }

// isTrue reports whether s is the schema that everything fits.
func isTrue(s *jsonschema.Schema) bool { return reflect.DeepEqual(*s, jsonschema.Schema{}) }

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
