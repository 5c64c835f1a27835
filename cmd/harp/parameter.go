package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// showParameters prints a table of what the procedure takes, and a call of it.
func (c *cli) showParameters(p offered) {
	args := parseSchema(p.doc.Args)
	names := parameterNames(p.doc)
	if len(names) == 0 {
		return
	}
	rows := make([][]string, 0, len(names))
	for _, name := range names {
		s := args.Properties[name]
		rows = append(rows, []string{name, typeText(s), s.needText(slices.Contains(args.Required, name)), s.meaning()})
	}
	c.say("")
	c.wrappedTable([]string{"argument", "type", "", "meaning"}, rows)
	c.say("")
	c.say("example: harp call %s %s%s", p.hosts[0], p.doc.Name, exampleArguments(args, names))
}

// parameterNames are the names of what a procedure takes, in its own order if it has
// one.
func parameterNames(doc harp.ProcedureDoc) []string {
	names := slices.Sorted(maps.Keys(parseSchema(doc.Args).Properties))
	if len(doc.Params) == len(names) {
		return doc.Params
	}
	return names
}

// schemaText is as much of a JSON Schema as is shown to people.
type schemaText struct {
	Type        any                   `json:"type"`
	Format      string                `json:"format"`
	Description string                `json:"description"`
	WriteOnly   bool                  `json:"writeOnly"` // a secret
	Enum        []any                 `json:"enum"`
	Required    []string              `json:"required"`
	Properties  map[string]schemaText `json:"properties"`
	Items       *schemaText           `json:"items"`
	Default     json.RawMessage       `json:"default"`
	Examples    []json.RawMessage     `json:"examples"`
	Pattern     string                `json:"pattern"`
	MinLength   int                   `json:"minLength"`
	MaxLength   int                   `json:"maxLength"`
	MinItems    int                   `json:"minItems"`
	MaxItems    int                   `json:"maxItems"`
	Minimum     json.Number           `json:"minimum"`
	Maximum     json.Number           `json:"maximum"`
}

// parseSchema reads a schema; what it cannot read it leaves empty.
func parseSchema(text json.RawMessage) schemaText {
	var s schemaText
	if len(text) > 0 {
		_ = json.Unmarshal(text, &s) // what cannot be read is not shown; -o json has all of it
	}
	return s
}

// typeText is a schema's type in a few words.
func typeText(s schemaText) string {
	if s.WriteOnly {
		return "secret"
	}
	if len(s.Enum) > 0 {
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			word, err := compactJSON(e)
			if err == nil {
				words[i] = strings.Trim(string(word), `"`)
			}
		}
		return strings.Join(words, "|")
	}
	kinds := s.kinds()
	switch {
	case s.Format == "nanoseconds":
		return "duration"
	case s.Format == "date-time":
		return "time"
	case len(s.Properties) > 0:
		words := make([]string, 0, len(s.Properties))
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			words = append(words, name+": "+typeText(s.Properties[name]))
		}
		return "{" + strings.Join(words, ", ") + "}"
	case slices.Contains(kinds, "array") && s.Items != nil:
		return "list of " + typeText(*s.Items)
	case len(kinds) == 0:
		return "anything"
	}
	return strings.Join(kinds, "|")
}

// kinds are the JSON types of a schema, without null.
func (s schemaText) kinds() []string {
	var kinds []string
	switch t := s.Type.(type) {
	case string:
		kinds = append(kinds, t)
	case []any:
		for _, k := range t {
			if k, ok := k.(string); ok && k != "null" {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// needText says whether an argument must be given, or what it is otherwise.
func (s schemaText) needText(required bool) string {
	switch {
	case required:
		return "required"
	case len(s.Default) > 0:
		return "default " + s.valueText(string(s.Default))
	}
	return "optional"
}

// meaning is what an argument is for, and what it must be beyond its type.
func (s schemaText) meaning() string {
	words := []string{s.Description}
	words = append(words, rangeText(s.valueText(s.Minimum.String()), s.valueText(s.Maximum.String()), ""))
	words = append(words, rangeText(lengthText(s.MinLength), lengthText(s.MaxLength), " characters"))
	words = append(words, rangeText(lengthText(s.MinItems), lengthText(s.MaxItems), " elements"), patternText(s.Pattern))
	if len(s.Examples) > 0 {
		words = append(words, "such as "+s.valueText(string(s.Examples[0])))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "; ")
}

// valueText is JSON of the schema as it is written on a command line.
func (s schemaText) valueText(text string) string {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && s.Format == "nanoseconds" {
		return duration.Format(time.Duration(n))
	}
	var word string
	if json.Unmarshal([]byte(text), &word) == nil {
		return word
	}
	return text
}

// rangeText says from what to what something may be; an empty end is none.
func rangeText(from, to, what string) string {
	switch {
	case from != "" && from == to:
		return from + what
	case from != "" && to != "":
		return from + " to " + to + what
	case from == "1" || from == "" && to == "1":
		what = strings.TrimSuffix(what, "s")
	}
	switch {
	case from != "":
		return "at least " + from + what
	case to != "":
		return "at most " + to + what
	}
	return ""
}

// lengthText is a bound of a length, without those that every argument of a command has.
func lengthText(n int) string {
	if n == 0 || n == longestPath || n == longestElement {
		return ""
	}
	return strconv.Itoa(n)
}

// What Linux takes at most, less a NUL, of a path and of an element of a command.
const (
	longestPath    = 4<<10 - 1
	longestElement = 128<<10 - 1
)

// patternText is a pattern in words where it is one that every parameter of a type has.
func patternText(pattern string) string {
	switch under, _, isPath := strings.Cut(pattern, `(?:/(?:\.|[^/.\x00]`); {
	case isPath && under == "^":
		return "an absolute path"
	case isPath:
		return "a path under " + strings.ReplaceAll(under[1:], `\`, "")
	}
	switch pattern {
	case "", `^[^\x00]*$`:
		return ""
	case `^(?:[^-\x00][^\x00]*)?$`:
		return "not beginning with -"
	}
	return "matches " + pattern
}

// exampleArguments are the required arguments, as they could be written.
func exampleArguments(args schemaText, names []string) string {
	var b strings.Builder
	for _, name := range names {
		if slices.Contains(args.Required, name) {
			b.WriteString(" " + name + args.Properties[name].exampleText())
		}
	}
	return b.String()
}

// exampleText is = or := and a value that could be given.
func (s schemaText) exampleText() string {
	kinds := s.kinds()
	switch {
	case len(s.Examples) > 0:
		return "=" + s.valueText(string(s.Examples[0]))
	case len(s.Enum) > 0:
		return "=" + typeText(schemaText{Enum: s.Enum[:1]})
	case s.Minimum != "":
		return "=" + s.valueText(s.Minimum.String())
	case s.Format == "nanoseconds":
		return "=5s"
	case s.Format == "date-time":
		return "=2026-01-31T12:00:00Z"
	case slices.Contains(kinds, "array"):
		return ":='[]'"
	case slices.Contains(kinds, "object"):
		return ":='{}'"
	case slices.Contains(kinds, "integer"), slices.Contains(kinds, "number"):
		return "=1"
	case slices.Contains(kinds, "boolean"):
		return "=true"
	}
	return "=..."
}
