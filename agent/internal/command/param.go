package command

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/schema"
)

// The types of parameters.
const (
	typeString   = "string"
	typeInt      = "int"
	typeNumber   = "number"
	typeBool     = "bool"
	typeEnum     = "enum"
	typeList     = "list"
	typePath     = "path"
	typeSecret   = "secret"
	typeJSON     = "json"
	typeDuration = "duration"
)

// typeTime is the type of fireTime, which no file can give to a parameter.
const typeTime = "time"

// fireTime is what the time that a call is the run of is called in templates.
const fireTime = "fire_time"

var types = []string{typeString, typeInt, typeNumber, typeBool, typeEnum, typeList, typePath, typeSecret, typeJSON, typeDuration}

// maxElement is how many bytes Linux takes in one element of a command, or in one
// variable of its environment.
const maxElement = 131_071

// What a text in a command may be: it has no NUL, for there it would end, and it does
// not begin with -, for then the program might read an option.
const (
	patternPlain  = `^[^\x00]*$`
	patternNoDash = `^(?:[^-\x00][^\x00]*)?$`
)

// parameter is a parameter that was checked.
type parameter struct {
	name  string
	kind  string // one of the types
	dash  bool   // may begin with - wherever it stands
	under string // the directory that a path must be in
	items *parameter
	value any // the default, nil if there is none
}

// usage is what a parameter is used for.
type usage struct {
	argv  bool // as it is, in an element of a command or in a variable
	first bool // at the begin of an element, where - would be an option's
	stdin bool
}

// declare checks a parameter and makes its schema.
func (b *builder) declare(name string, p *param, use usage) (*parameter, *jsonschema.Schema) {
	field, before := "params."+name, len(b.wrong)
	kind := p.kind()
	if !slices.Contains(types, kind) {
		b.errorf(field+".type", "must be one of %s, is %s", strings.Join(types, ", "), clip(kind))
		return nil, nil
	}
	b.fits(field, kind, p)
	one := &parameter{name: name, kind: kind, dash: p.Dash || kind == typeEnum || len(p.Enum) > 0, under: p.Under}
	use.first = use.first && !one.dash
	s := &jsonschema.Schema{Description: p.Doc}
	switch kind {
	case typeString, typeEnum, typeSecret:
		b.texts(field, kind, p, use, s)
	case typePath:
		b.path(field, p, s)
	case typeInt, typeNumber, typeDuration:
		b.numbers(field, kind, p, use, s)
	case typeBool:
		s.Type = "boolean"
	case typeList:
		one.items = b.list(field, p, use, s)
	}
	if p.Required && p.Default != nil {
		b.errorf(field+".default", "is never used: the parameter is required")
	}
	if p.Default != nil && len(b.wrong) == before {
		one.value = b.standard(field+".default", kind, p, s)
	}
	return one, s
}

// kind is the type, which is not always written.
func (p *param) kind() string {
	switch {
	case p.Type != "":
		return p.Type
	case len(p.Enum) > 0:
		return typeEnum
	}
	return typeString
}

// fits refuses what says nothing about a parameter of its type.
func (b *builder) fits(field, kind string, p *param) {
	for _, only := range []struct {
		field string
		set   bool
		kinds []string
	}{
		{"pattern", p.Pattern != "", []string{typeString, typeSecret}},
		{"min", p.Min != nil, []string{typeInt, typeNumber, typeDuration}},
		{"max", p.Max != nil, []string{typeInt, typeNumber, typeDuration}},
		{"min_length", p.MinLength != nil, []string{typeString, typeSecret, typeList}},
		{"max_length", p.MaxLength != nil, []string{typeString, typeSecret, typeList}},
		{"enum", p.Enum != nil, []string{typeEnum, typeString}},
		{"items", p.Items != nil, []string{typeList}},
		{"under", p.Under != "", []string{typePath}},
		{"dash", p.Dash, []string{typeString, typeInt, typeNumber, typeDuration, typeJSON, typeList}},
	} {
		if only.set && !slices.Contains(only.kinds, kind) {
			b.errorf(field+"."+only.field, "is for %s, not for %s", strings.Join(only.kinds, ", "), kind)
		}
	}
	if kind == typeSecret && p.Default != nil {
		b.errorf(field+".default", "must not be given: everybody could read the secret")
	}
}

func (b *builder) texts(field, kind string, p *param, use usage, s *jsonschema.Schema) {
	s.Type = "string"
	s.WriteOnly = kind == typeSecret
	s.MinLength, s.MaxLength = b.lengths(field, p)
	switch {
	case kind == typeEnum && len(p.Enum) == 0:
		b.errorf(field+".enum", "is missing: must list the choices")
	case p.Enum != nil:
		b.choices(field, p.Enum, s)
		return
	}
	if use.argv {
		if s.MaxLength == nil {
			s.MaxLength = new(maxElement)
		} else if *s.MaxLength > maxElement {
			b.errorf(field+".max_length", "must be at most %d, the most that Linux takes in an element of a command; stdin takes more", maxElement)
		}
	}
	if p.Pattern != "" {
		if _, err := regexp.Compile(p.Pattern); err != nil {
			b.errorf(field+".pattern", "%v", err)
		}
	}
	if kind == typeSecret {
		s.Pattern = p.Pattern
		return
	}
	guard := patternPlain
	if use.first {
		guard = patternNoDash
	}
	s.Pattern = guard
	if p.Pattern != "" {
		s.Pattern, s.AllOf = p.Pattern, []*jsonschema.Schema{{Pattern: guard}}
	}
}

func (b *builder) choices(field string, enum []*word, s *jsonschema.Schema) {
	for i, w := range enum {
		at := fmt.Sprintf("%s.enum[%d]", field, i)
		switch {
		case w == nil:
			b.errorf(at, "must be a text")
			continue
		case slices.Contains(s.Enum, any(string(*w))):
			b.errorf(at, "is a duplicate")
		case strings.Contains(string(*w), "\x00"):
			b.errorf(at, "must not contain NUL")
		}
		s.Enum = append(s.Enum, string(*w))
	}
}

func (b *builder) lengths(field string, p *param) (shortest, longest *int) {
	switch least, most := p.MinLength, p.MaxLength; {
	case least != nil && *least < 0:
		b.errorf(field+".min_length", "must not be negative")
	case most != nil && *most < 0:
		b.errorf(field+".max_length", "must not be negative")
	case least != nil && most != nil && *least > *most:
		b.errorf(field+".min_length", "must not be more than max_length")
	}
	return p.MinLength, p.MaxLength
}

// numbers lets a number that an element begins with not be negative.
func (b *builder) numbers(field, kind string, p *param, use usage, s *jsonschema.Schema) {
	switch kind {
	case typeInt:
		s.Type = "integer"
	case typeNumber:
		s.Type = "number"
	case typeDuration:
		s.Type, s.Format = "integer", "nanoseconds"
	}
	s.Minimum, s.Maximum = b.bound(field+".min", kind, p.Min), b.bound(field+".max", kind, p.Max)
	if use.first {
		if s.Minimum != nil && *s.Minimum < 0 {
			b.errorf(field+".min", "is negative, and begins an element of the command, which might take it for an option; allow that with dash: true")
		}
		if s.Minimum == nil {
			s.Minimum = new(0.0)
		}
	}
	if s.Minimum != nil && s.Maximum != nil && *s.Minimum > *s.Maximum {
		b.errorf(field+".max", "must not be less than %v", *s.Minimum)
	}
}

// maxBound is how far numbers are exact in a schema.
const maxBound = 1 << 53

func (b *builder) bound(field, kind string, n *literal) *float64 {
	if n == nil {
		return nil
	}
	v, err := constant(kind, n.node)
	if err != nil {
		b.errorf(field, "%v", err)
		return nil
	}
	var f float64
	switch v := v.(type) {
	case int64:
		f = float64(v)
	case float64:
		f = v
	}
	if math.IsNaN(f) || math.IsInf(f, 0) || math.Abs(f) > maxBound && kind == typeInt {
		b.errorf(field, "must be at most 2^53 either way")
		return nil
	}
	return &f
}

func (b *builder) list(field string, p *param, use usage, s *jsonschema.Schema) *parameter {
	s.Type = "array"
	s.MinItems, s.MaxItems = b.lengths(field, p)
	of := p.Items
	if of == nil {
		of = &param{}
	}
	switch {
	case of.kind() == typeList, of.kind() == typeSecret, of.kind() == typeJSON:
		b.errorf(field+".items.type", "must not be %s", of.kind())
		return nil
	case of.Required, of.Default != nil:
		b.errorf(field+".items", "cannot have required or default")
		return nil
	}
	of.Dash = of.Dash || p.Dash && of.kind() != typeBool && of.kind() != typeEnum && of.kind() != typePath
	items, itemSchema := b.declare(strings.TrimPrefix(field, "params.")+".items", of, use)
	s.Items = itemSchema
	return items
}

// standard reads the default of a parameter, which must fit it as any argument.
func (b *builder) standard(field, kind string, p *param, s *jsonschema.Schema) any {
	v, err := b.constants(kind, p)
	if err != nil {
		b.errorf(field, "%v", err)
		return nil
	}
	object := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"default": s}}
	text, err := json.Marshal(object)
	if err != nil {
		b.errorf(field, "%v", err)
		return nil
	}
	args, err := harp.NewValue(map[string]any{"default": v})
	if err == nil {
		err = schema.Check(harp.ProcedureDoc{Args: text}, args)
	}
	if err != nil {
		b.errorf(field, "does not fit: %s", message(err))
		return nil
	}
	if s.Default, err = json.Marshal(v); err != nil {
		b.errorf(field, "%v", err)
	}
	return v
}

// message is what an error says of a field that is named otherwise.
func message(err error) string {
	if wrong, ok := err.(*harp.FieldError); ok { //nolint:errorlint // schema returns it as it is
		return wrong.Message
	}
	return err.Error()
}

func (b *builder) constants(kind string, p *param) (any, error) {
	n := p.Default.node
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if kind != typeList {
		return constant(kind, n)
	}
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("must be a list")
	}
	of := typeString
	if p.Items != nil {
		of = p.Items.kind()
	}
	list := make([]any, len(n.Content))
	for i, c := range n.Content {
		var err error
		if list[i], err = constant(of, c); err != nil {
			return nil, fmt.Errorf("element %d %w", i, err)
		}
	}
	return list, nil
}

// constant reads a value of a type from a file.
func constant(kind string, n *yaml.Node) (any, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch kind {
	case typeInt:
		return load[int64](n, "an integer")
	case typeNumber:
		return load[float64](n, "a number")
	case typeBool:
		return load[bool](n, "true or false")
	case typeJSON:
		return loadJSON(n)
	case typeDuration:
		d, err := duration.Parse(n.Value)
		if err != nil {
			return nil, fmt.Errorf("must be %s, is %q", duration.Expected, n.Value)
		}
		return int64(d / time.Nanosecond), nil
	}
	return textOf(n)
}

func load[T any](n *yaml.Node, what string) (any, error) {
	var v T
	if err := n.Load(&v); err != nil {
		return nil, fmt.Errorf("must be %s, is %q", what, clip(n.Value))
	}
	return v, nil
}

func loadJSON(n *yaml.Node) (any, error) {
	var v any
	if err := n.Load(&v); err != nil {
		return nil, fmt.Errorf("must be what JSON can hold")
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("must be what JSON can hold")
	}
	var value harp.Value
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return value.Any()
}
