package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/harpcaller/harp"
)

// output is stdout. It remembers its first error, so that a full disk is not taken
// for success.
type output struct {
	w       io.Writer
	written bool
	within  bool // a line that has no end yet
	err     error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.written = true
	if len(b) > 0 {
		o.within = b[len(b)-1] != '\n'
	}
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("write to stdout: %w", err)
	}
	return n, err
}

// format is how stdout is written.
type format string

const (
	formatText  format = "" // for people
	formatJSON  format = "json"
	formatLines format = "jsonl" // an object a line
	formatID    format = "id"    // a name a line
	formatWide  format = "wide"  // for people, with more columns
	formatYAML  format = "yaml"  // until settle made it another one with a shape
)

// knows marks the commands that know other formats than text and json.
const knows = "formats"

// streams are the marks of a command that prints records or events, calls those of one that
// prints records and then the job, lists those of one that prints a list.
func streams() map[string]string { return map[string]string{knows: "jsonl"} }
func calls() map[string]string   { return map[string]string{knows: "jsonl,records"} } // -o yaml and template= are of the job
func lists() map[string]string   { return map[string]string{knows: "jsonl,id,wide"} }

// allowed refuses a format that a command does not know. Errors: *harp.FieldError.
func (f format) allowed(marks string) error {
	switch {
	case f == formatText, f == formatJSON, slices.Contains(strings.Split(marks, ","), string(f)):
		return nil
	case f == formatLines:
		return invalid("output", "jsonl is for lists, calls and follow; this command knows text, json, yaml and template=")
	}
	return invalid("output", "%s is for lists; this command knows text, json, yaml and template=", f)
}

// String returns the flag's value.
func (f *format) String() string {
	if *f == formatText {
		return "text"
	}
	return string(*f)
}

// Set reads the flag.
func (f *format) Set(word string) error {
	switch format(word) {
	case "text":
		*f = formatText
	case formatJSON, formatLines, formatID, formatWide, formatYAML:
		*f = format(word)
	default:
		pattern, ok := strings.CutPrefix(word, templated)
		if !ok {
			return errors.New("must be text, wide, json, jsonl, yaml, id or template=TEXT")
		}
		*f = format(word)
		_, err := asTemplate(pattern)
		return err
	}
	return nil
}

// Type names the flag's type in the help.
func (f *format) Type() string { return "format" }

// object is a JSON object with its fields in order.
type object []field

type field struct {
	name  string
	value any
}

// version is that of the JSON that is printed. A field may be added within a
// version, none is taken away or changed.
const version = 1

// fieldsOf returns the fields of v, which encodes to an object, in their order.
func fieldsOf(v any) (object, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(encoded))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var o object
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		o = append(o, field{fmt.Sprint(name), value})
	}
	return o, nil
}

// MarshalJSON writes the fields in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := compactJSON(f.name)
		if err != nil {
			return nil, err
		}
		value, err := compactJSON(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// compactJSON is JSON on one line, without the escapes that only HTML needs.
func compactJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// printLine prints v as one line of JSON.
func (c *cli) printLine(v any) error {
	encoded, err := compactJSON(v)
	if err != nil {
		return err
	}
	if c.shape != nil {
		return c.shape(c.stdout, encoded)
	}
	_, err = fmt.Fprintf(c.stdout, "%s\n", safeJSON(encoded))
	return err
}

// printObject prints the one object of a command.
func (c *cli) printObject(o object) error {
	return c.printLine(append(object{{"v", version}}, o...))
}

// printNoun prints a noun of harp as the one object of a command, with more fields
// behind its own.
func (c *cli) printNoun(noun any, more ...field) error {
	o, err := fieldsOf(noun)
	if err != nil {
		return err
	}
	return c.printObject(append(o, more...))
}

// say prints one line of text for people on stdout.
func (c *cli) say(format string, a ...any) {
	fmt.Fprintln(c.stdout, safeLine(fmt.Sprintf(format, a...))) //nolint:errcheck // stdout keeps its error
}

// plainStyle is a table without lines, as people can cut and grep it.
var plainStyle = table.Style{
	Name:    "plain",
	Box:     table.BoxStyle{PaddingRight: "  "},
	Format:  table.FormatOptions{Header: text.FormatUpper},
	Options: table.OptionsNoBordersAndSeparators,
}

// table prints rows under a header. Cells are made safe here.
func (c *cli) table(header []string, rows [][]string) {
	w := table.NewWriter()
	w.SetOutputMirror(c.stdout)
	w.SetStyle(plainStyle)
	w.SuppressTrailingSpaces()
	w.AppendHeader(cells(header))
	out, _ := c.painters()
	state := slices.Index(header, stateColumn)
	for _, row := range rows {
		cells := cells(row)
		if state >= 0 {
			cells[state] = out.paintText(paintOfState(row[state]), safeLine(row[state]))
		}
		w.AppendRow(cells)
	}
	w.Render()
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = safeLine(t)
	}
	return row
}

// listing is a list that a command prints: in JSON as one object, or as an object a
// line; by name; or as a table.
type listing[T any] struct {
	name   string // of the field in JSON
	header []string
	row    func(T) []string
	wider  []string // the columns that -o wide has behind them
	widen  func(T) []string
	id     func(T) string
	more   []field // of the JSON object, beside the list
}

// printList prints a list in the format that was asked for.
func printList[T any](c *cli, l listing[T], items []T) error {
	switch c.format {
	case formatJSON:
		return c.printObject(append(object{{l.name, items}}, l.more...))
	case formatLines:
		for _, item := range items {
			if err := c.printLine(item); err != nil {
				return err
			}
		}
		return nil
	case formatID:
		for _, item := range items {
			c.say("%s", l.id(item))
		}
		return nil
	case formatText, formatWide, formatYAML:
	}
	wide := c.format == formatWide && l.widen != nil
	if wide {
		l.header = append(l.header, l.wider...)
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		rows[i] = l.row(item)
		if wide {
			rows[i] = append(rows[i], l.widen(item)...)
		}
	}
	c.table(l.header, rows)
	return nil
}

// pairs prints names and values under each other; those without a value are left
// out.
func (c *cli) pairs(rows [][2]string) {
	w := table.NewWriter()
	w.SetOutputMirror(c.stdout)
	w.SetStyle(plainStyle)
	w.SuppressTrailingSpaces()
	out, _ := c.painters()
	for _, row := range rows {
		if row[1] == "" {
			continue
		}
		cells := cells(row[:])
		if row[0] == stateColumn {
			cells[1] = out.paintText(paintOfState(row[1]), safeLine(row[1]))
		}
		w.AppendRow(cells)
	}
	w.Render()
}

// valueText is a value for people; "" if there is none.
func valueText(v harp.Value) string {
	if v.IsNil() {
		return ""
	}
	return v.String()
}
