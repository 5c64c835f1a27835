package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// checker looks whether one value fits a schema. It stops when it has taken too many
// steps: a schema with many branches, or a pattern, and a long value can ask for hours. A
// step is a byte that is compared, or an instruction of a pattern on a byte.
type checker struct {
	patterns map[string]program
	left     int          // steps
	pace     func() error // is asked each time that so many steps are left; nil: it goes on
	pauseAt  int
	stopped  error // what pace has returned
}

// stepsOfSchema is what looking at a value by one schema takes, the words of an error
// included.
const stepsOfSchema = 32

// stepsAPace is how many steps, of some nanoseconds each, are taken before pace is asked.
const stepsAPace = 1 << 17

func (a *Args) newChecker(pace func() error) *checker {
	return &checker{patterns: a.patterns, left: maxWork, pace: pace, pauseAt: maxWork - stepsAPace}
}

// errTooMuchWork is for a check that was given up.
var errTooMuchWork = &harp.FieldError{Field: root, Message: "would take too long to check against the procedure's schema"}

// checkValue looks whether a value fits, which path names in errors.
func (c *checker) checkValue(path string, s *jsonschema.Schema, v any) error {
	e := c.checkBySchema(s, v)
	switch {
	case c.stopped != nil:
		return c.stopped
	case c.left < 0:
		return errTooMuchWork
	case e == nil:
		return nil
	}
	e.Field = path + e.Field
	return e
}

// spendSteps takes steps. It reports whether there are any left.
func (c *checker) spendSteps(steps int) bool {
	c.left -= steps
	if c.left >= 0 && c.left < c.pauseAt && c.pace != nil {
		c.pauseAt = c.left - stepsAPace
		if c.stopped = c.pace(); c.stopped != nil {
			c.left = -1
		}
	}
	return c.left >= 0
}

// checkBySchema returns nil if v fits, or if there are no steps left. The field of the error begins
// behind v, so that no path is made for what fits.
func (c *checker) checkBySchema(s *jsonschema.Schema, v any) *harp.FieldError {
	if s == nil || !c.spendSteps(stepsOfSchema) {
		return nil
	}
	e := c.checkOpen(s, v)
	if e != nil && isSecret(s) {
		return secretError("", s)
	}
	return e
}

// checkOpen is check for what may be quoted.
func (c *checker) checkOpen(s *jsonschema.Schema, v any) *harp.FieldError {
	if kinds := types(s); len(kinds) > 0 && !isOneOf(v, kinds) {
		return wrong("", s, kindOf(v))
	}
	if s.Enum != nil && !c.isAmong(s.Enum, v) {
		return &harp.FieldError{Message: "must be one of " + words(s.Enum) + ", is " + quote(v)}
	}
	if s.Const != nil && !c.isSame(*s.Const, v) {
		return &harp.FieldError{Message: "must be " + show(*s.Const)}
	}
	if e := c.checkBranches(s, v); e != nil {
		return e
	}
	switch v := v.(type) {
	case int64, uint64, float64:
		return checkNumber(s, v)
	case string:
		return c.checkText(s, v)
	case []any:
		return c.checkList(s, v)
	case map[string]any:
		return c.checkMap(s, v)
	}
	return nil
}

// checkBranches looks at the schemas that v has to fit besides.
func (c *checker) checkBranches(s *jsonschema.Schema, v any) *harp.FieldError {
	for _, part := range s.AllOf {
		if e := c.checkBySchema(part, v); e != nil {
			return e
		}
	}
	if s.AnyOf != nil && !slices.ContainsFunc(s.AnyOf, func(b *jsonschema.Schema) bool { return c.checkBySchema(b, v) == nil }) {
		return &harp.FieldError{Message: fmt.Sprintf("must fit one of the %d schemas of its anyOf, is %s", len(s.AnyOf), kindOf(v))}
	}
	if s.OneOf != nil {
		fit := 0
		for _, b := range s.OneOf {
			if c.checkBySchema(b, v) == nil {
				fit++
			}
		}
		if fit != 1 {
			return &harp.FieldError{Message: fmt.Sprintf("must fit exactly one of the %d schemas of its oneOf, fits %d", len(s.OneOf), fit)}
		}
	}
	if s.Not != nil && c.checkBySchema(s.Not, v) == nil {
		return &harp.FieldError{Message: "must not fit the schema of its not"}
	}
	return nil
}

func (c *checker) isSame(want, v any) bool {
	return c.spendSteps(8+sizeOf(want)) && isSame(want, v)
}

func (c *checker) isAmong(list []any, v any) bool {
	return slices.ContainsFunc(list, func(want any) bool { return c.isSame(want, v) })
}

// sizeOf is about how many bytes a value has.
func sizeOf(v any) int {
	size := 1
	switch v := v.(type) {
	case string:
		size += len(v)
	case []any:
		for _, part := range v {
			size += sizeOf(part)
		}
	case map[string]any:
		for name, part := range v {
			size += len(name) + sizeOf(part)
		}
	}
	return size
}

func checkNumber(s *jsonschema.Schema, v any) *harp.FieldError {
	n := exactNumber(v)
	if n == nil {
		return nil
	}
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
		if bound.limit != nil && bound.broken(n.Cmp(big.NewFloat(*bound.limit))) {
			if isDuration(s) {
				d, _ := n.Int64()
				return &harp.FieldError{Message: "must be " + bound.words + " " + limitText(s, *bound.limit) + ", is " + time.Duration(d).String()}
			}
			return &harp.FieldError{Message: "must be " + bound.words + " " + limitText(s, *bound.limit) + ", is " + n.Text('g', 20)}
		}
	}
	if s.MultipleOf == nil {
		return nil
	}
	f, _ := n.Float64()
	if _, part := math.Modf(f / *s.MultipleOf); part != 0 {
		return &harp.FieldError{Message: "must be a multiple of " + strconv.FormatFloat(*s.MultipleOf, 'f', -1, 64) + ", is " + n.Text('g', 20)}
	}
	return nil
}

// limitText is a bound of a number, or of a duration.
func limitText(s *jsonschema.Schema, limit float64) string {
	if isDuration(s) {
		return time.Duration(limit).String()
	}
	return strconv.FormatFloat(limit, 'f', -1, 64)
}

// exactNumber returns a finite number exactly, else nil.
func exactNumber(v any) *big.Float {
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

func (c *checker) checkText(s *jsonschema.Schema, text string) *harp.FieldError {
	if s.MinLength != nil || s.MaxLength != nil {
		if !c.spendSteps(len(text)) {
			return nil
		}
		n := utf8.RuneCountInString(text)
		switch {
		case s.MinLength != nil && n < *s.MinLength:
			return &harp.FieldError{Message: fmt.Sprintf("must have at least %d characters, has %d", *s.MinLength, n)}
		case s.MaxLength != nil && n > *s.MaxLength:
			return &harp.FieldError{Message: fmt.Sprintf("must have at most %d characters, has %d", *s.MaxLength, n)}
		}
	}
	if s.Pattern != "" && !c.matches(s.Pattern, text) {
		return &harp.FieldError{Message: "must match " + shorten(s.Pattern) + ", is " + quote(text)}
	}
	return nil
}

// matches reports whether a text matches, or that there are no steps left.
func (c *checker) matches(pattern, text string) bool {
	p := c.patterns[pattern]
	return !c.spendSteps(p.size*len(text)) || p.MatchString(text)
}

func (c *checker) checkList(s *jsonschema.Schema, list []any) *harp.FieldError {
	switch n := len(list); {
	case s.MinItems != nil && n < *s.MinItems:
		return &harp.FieldError{Message: fmt.Sprintf("must have at least %d elements, has %d", *s.MinItems, n)}
	case s.MaxItems != nil && n > *s.MaxItems:
		return &harp.FieldError{Message: fmt.Sprintf("must have at most %d elements, has %d", *s.MaxItems, n)}
	}
	for i, v := range list {
		if e := c.checkBySchema(item(s, i), v); e != nil {
			e.Field = index(i) + e.Field
			return e
		}
		if c.left < 0 {
			return nil
		}
	}
	if s.UniqueItems {
		return c.checkUnique(list)
	}
	return nil
}

// checkUnique compares elements by their JSON, in which equal numbers are equal.
func (c *checker) checkUnique(list []any) *harp.FieldError {
	first := make(map[string]int, len(list))
	for i, v := range list {
		if !c.spendSteps(16 * sizeOf(v)) {
			return nil
		}
		text, err := json.Marshal(v)
		if err != nil {
			continue // no number: it is like no other
		}
		if at, ok := first[string(text)]; ok {
			return &harp.FieldError{Field: index(i), Message: fmt.Sprintf("must not be a duplicate, is also %d", at)}
		}
		first[string(text)] = i
	}
	return nil
}

func (c *checker) checkMap(s *jsonschema.Schema, m map[string]any) *harp.FieldError {
	switch n := len(m); {
	case !c.spendSteps(len(s.Required)):
		return nil
	case s.MinProperties != nil && n < *s.MinProperties:
		return &harp.FieldError{Message: fmt.Sprintf("must have at least %d entries, has %d", *s.MinProperties, n)}
	case s.MaxProperties != nil && n > *s.MaxProperties:
		return &harp.FieldError{Message: fmt.Sprintf("must have at most %d entries, has %d", *s.MaxProperties, n)}
	}
	for _, name := range s.Required {
		if _, ok := m[name]; !ok {
			return &harp.FieldError{Field: "." + name, Message: "is required: " + expected(s.Properties[name])}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) { // so that the same value has the same error
		if !c.spendSteps(len(name)) {
			return nil
		}
		if e := c.checkEntry(s, name, m[name]); e != nil {
			return e
		}
	}
	return nil
}

// checkEntry looks at the value of a name by each schema that is for it.
func (c *checker) checkEntry(s *jsonschema.Schema, name string, v any) *harp.FieldError {
	p, known := s.Properties[name]
	e := c.checkBySchema(p, v)
	for pattern, other := range s.PatternProperties {
		if e == nil && c.matches(pattern, name) {
			known = true
			e = c.checkBySchema(other, v)
		}
	}
	if !known && e == nil {
		p = s.AdditionalProperties
		e = c.checkBySchema(p, v)
	}
	switch {
	case e == nil:
		return nil
	case isFalse(p):
		return unknown("", name, s)
	}
	e.Field = "." + shorten(name) + e.Field
	return e
}
