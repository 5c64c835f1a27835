package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/harpcaller/harp/internal/wire"
)

// A schema may come from any peer with an agent's certificate, and the values that are
// checked by it from any caller. What follows bounds what both cost.
const (
	maxText    = wire.MaxControl // bytes of a schema
	maxNesting = 32              // of objects and lists, as each is read once for each that it stands in
	maxSchemas = 1024            // within one another; each takes about 1 KiB when read
	maxName    = 256             // bytes of a property's name
	maxPattern = 8 << 10         // what all patterns may cost to parse, see patternCost
	maxProgram = 10_000          // instructions of all patterns together
	maxWork    = 16 << 20        // steps of one check, each 5 to 30 ns: see checker
)

// What stands behind a keyword.
type operand int

const (
	operandData operand = iota // a value, which is no schema
	operandSchema
	operandSchemas // a list of schemas
	operandNamed   // a map of schemas
)

// keywords are those that a schema may use. There is no $ref, which could lead in circles;
// what is an annotation only is let through.
var keywords = map[string]operand{
	"type": operandData, "enum": operandData, "const": operandData,
	"multipleOf": operandData, "minimum": operandData, "maximum": operandData,
	"exclusiveMinimum": operandData, "exclusiveMaximum": operandData,
	"minLength": operandData, "maxLength": operandData, "pattern": operandData,
	"format": operandData, "contentEncoding": operandData, "contentMediaType": operandData,
	"items": operandSchema, "prefixItems": operandSchemas,
	"minItems": operandData, "maxItems": operandData, "uniqueItems": operandData,
	"properties": operandNamed, "patternProperties": operandNamed, "additionalProperties": operandSchema,
	"required": operandData, "minProperties": operandData, "maxProperties": operandData,
	"allOf": operandSchemas, "anyOf": operandSchemas, "oneOf": operandSchemas, "not": operandSchema,
	"$schema": operandData, "$comment": operandData, "title": operandData, "description": operandData,
	"default": operandData, "examples": operandData, "deprecated": operandData,
	"readOnly": operandData, "writeOnly": operandData,
}

// reader reads the text of a schema before anything is made of it, so that what follows
// may recurse and may trust its keys.
type reader struct {
	dec     *json.Decoder
	nesting int
	schemas int
}

// checkText reports what of the bounds a schema's text does not keep.
func checkText(text []byte) error {
	if len(text) > maxText {
		return fmt.Errorf("is %d bytes, at most %d", len(text), maxText)
	}
	r := reader{dec: json.NewDecoder(bytes.NewReader(text))}
	return r.readSchema()
}

// readSchema reads a schema: an object, or whether everything fits.
func (r *reader) readSchema() error {
	if r.schemas++; r.schemas > maxSchemas {
		return fmt.Errorf("holds more than %d schemas", maxSchemas)
	}
	token, err := r.dec.Token()
	if err != nil {
		return err
	}
	if _, ok := token.(bool); ok {
		return nil
	}
	if token != json.Delim('{') {
		return fmt.Errorf("holds %v where a schema should be", token)
	}
	return r.readObject(func(key string) error {
		kind, ok := keywords[key]
		switch {
		case !ok:
			return fmt.Errorf("uses %q, which is not known", shorten(key))
		case kind == operandSchema:
			return r.readSchema()
		case kind == operandSchemas:
			return r.readSchemas(key)
		case kind == operandNamed:
			return r.readNamed(key)
		}
		return r.readData()
	})
}

func (r *reader) readSchemas(keyword string) error {
	token, err := r.dec.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("has no list behind %s", keyword)
	}
	return r.readUntilEnd(r.readSchema)
}

func (r *reader) readNamed(keyword string) error {
	token, err := r.dec.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		return fmt.Errorf("has no object behind %s", keyword)
	}
	return r.readObject(func(string) error { return r.readSchema() })
}

// readData reads a value that is no schema.
func (r *reader) readData() error {
	token, err := r.dec.Token()
	switch {
	case err != nil:
		return err
	case token == json.Delim('{'):
		return r.readObject(func(string) error { return r.readData() })
	case token == json.Delim('['):
		return r.readUntilEnd(r.readData)
	}
	return nil
}

// readObject reads an object from behind its brace; read reads what stands behind a key.
func (r *reader) readObject(read func(key string) error) error {
	keys := map[string]bool{}
	return r.readUntilEnd(func() error {
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // the decoder lets nothing else stand there
		if keys[key] {
			return fmt.Errorf("holds %q twice", shorten(key))
		}
		if len(key) > maxName {
			return fmt.Errorf("holds a name of %d bytes, at most %d", len(key), maxName)
		}
		keys[key] = true
		return read(key)
	})
}

// readUntilEnd reads an object or a list from behind its beginning; read reads one of what it holds.
func (r *reader) readUntilEnd(read func() error) error {
	if r.nesting++; r.nesting > maxNesting {
		return fmt.Errorf("nests deeper than %d", maxNesting)
	}
	for r.dec.More() {
		if err := read(); err != nil {
			return err
		}
	}
	r.nesting--
	_, err := r.dec.Token()
	return err
}

// program is a pattern that is ready to be matched.
type program struct {
	*regexp.Regexp
	size int // instructions, which is how many steps a byte of text takes at most
}

// compiler makes ready what one schema holds, within its bounds.
type compiler struct {
	patterns map[string]program
	cost     int // of parsing them
	size     int // their instructions
	weight   int // bytes that all of it takes in memory, about
}

// compilePattern compiles a pattern, once.
func (c *compiler) compilePattern(pattern string) error {
	if _, ok := c.patterns[pattern]; ok {
		return nil
	}
	if c.cost += patternCost(pattern); c.cost > maxPattern {
		return fmt.Errorf("has patterns that are too long together, at %q", shorten(pattern))
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	size, runes := programSize(parsed)
	if c.size += size; c.size > maxProgram {
		return fmt.Errorf("has patterns that are too large together, at %q", shorten(pattern))
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if c.patterns == nil {
		c.patterns = map[string]program{}
	}
	c.patterns[pattern] = program{re, size}
	c.weight += 200*size + 8*runes
	return nil
}

var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z-]*i`)

// patternCost is what parsing a pattern costs, in bytes of an ordinary one. A class of Unicode
// is a table of some hundred ranges; a range of characters whose case does not count is
// looked at character by character.
func patternCost(pattern string) int {
	cost := len(pattern) + 32*strings.Count(strings.ToLower(pattern), `\p`)
	if foldsCase.MatchString(pattern) {
		cost *= 24
	}
	return cost
}

// programSize is how many instructions a parsed pattern takes, or a little more, and how
// many characters and ends of ranges these hold.
func programSize(re *syntax.Regexp) (size, runes int) {
	size, runes = 2, len(re.Rune)
	if re.Op == syntax.OpLiteral {
		size += runes
	}
	for _, sub := range re.Sub {
		s, r := programSize(sub)
		size, runes = size+s, runes+r
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Max, re.Min+1, 1)
	}
	return min(size, maxProgram+1), runes
}
