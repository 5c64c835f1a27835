package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
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
func runs() map[string]string    { return map[string]string{knows: "jsonl,id"} } // an object, or a job's id, for each host as it ends

// allowed refuses a format that a command does not know. Errors: *harp.FieldError.
func (f format) allowed(marks string) error {
	switch {
	case f == formatText, f == formatJSON, slices.Contains(strings.Split(marks, ","), string(f)):
		return nil
	case f == formatLines:
		return invalid("output", "jsonl is for lists, calls and follow; this command takes text, json, yaml and template=")
	}
	return invalid("output", "%s is for lists; this command takes text, json, yaml and template=", f)
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

// printCollected prints items, as they come, as the list of one object, which then has more fields.
// What there is of it when items end with an error is whole JSON.
func (c *cli) printCollected(name string, items func(add func(any) error) error, more func() object) error {
	out, comma := c.stdout, ""
	fmt.Fprintf(out, `{"v":%d,"%s":[`, version, name) //nolint:errcheck // stdout keeps its error
	failed := items(func(item any) error {
		encoded, err := compactJSON(item)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s%s", comma, safeJSON(encoded))
		}
		comma = ","
		return err
	})
	io.WriteString(out, "]") //nolint:errcheck // stdout keeps its error
	if more != nil {
		encoded, err := more().MarshalJSON()
		if err != nil {
			return cmp.Or(failed, err)
		}
		fmt.Fprintf(out, ",%s", safeJSON(encoded[1:len(encoded)-1])) //nolint:errcheck // stdout keeps its error
	}
	io.WriteString(out, "}\n") //nolint:errcheck // stdout keeps its error
	return failed
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

// table prints rows under a header. Cells are made safe here, and as wide as a terminal has room
// for.
func (c *cli) table(header []string, rows [][]string) {
	lines := make([]table.Row, 0, len(rows)+1)
	for _, row := range append([][]string{header}, rows...) {
		lines = append(lines, cells(row))
	}
	if columns := c.room(); columns > 0 {
		cutColumns(lines, header, columns)
	}
	w := table.NewWriter()
	w.SetOutputMirror(c.stdout)
	w.SetStyle(plainStyle)
	w.SuppressTrailingSpaces()
	w.AppendHeader(lines[0])
	out, _ := c.painters()
	state := slices.Index(header, stateColumn)
	for i, line := range lines[1:] {
		if state >= 0 {
			line[state] = out.paintText(paintOfState(rows[i][state]), fmt.Sprint(line[state]))
		}
		w.AppendRow(line)
	}
	w.Render()
}

// wrappedTable is table, whose last column is wrapped where a terminal has no room for it; if
// there is none at all each row is a paragraph.
func (c *cli) wrappedTable(header []string, rows [][]string) {
	const narrowest = 16
	last := len(header) - 1
	lines := make([]table.Row, 0, len(rows)+1)
	for _, row := range append([][]string{header}, rows...) {
		lines = append(lines, cells(row[:last]))
	}
	_, total := columnWidths(lines)
	left := c.room() - total - 2
	switch {
	case c.room() == 0:
		c.table(header, rows)
	case left < narrowest:
		for _, row := range rows {
			c.say("%s", strings.Join(slices.DeleteFunc(slices.Clone(row), func(cell string) bool { return cell == "" }), ", "))
		}
	default:
		c.table(header, wrapLast(rows, left))
	}
}

// wrapLast continues the last cells of rows in rows of their own.
func wrapLast(rows [][]string, width int) [][]string {
	var all [][]string
	for _, row := range rows {
		last := len(row) - 1
		for i, line := range strings.Split(text.WrapSoft(safeLine(row[last]), width), "\n") {
			part := make([]string, len(row))
			if i == 0 {
				copy(part, row)
			}
			part[last] = strings.TrimSpace(line)
			all = append(all, part)
		}
	}
	return all
}

// room is how many columns a table may have; 0: any number.
func (c *cli) room() int {
	if !c.terminal || c.format == formatWide {
		return 0
	}
	columns, _ := c.size()
	return columns
}

// columnWidths are how wide the columns of a table are, and the table.
func columnWidths(lines []table.Row) (widths []int, total int) {
	const between = 2
	widths = make([]int, len(lines[0]))
	for _, line := range lines {
		for n := range line {
			widths[n] = max(widths[n], text.StringWidth(fmt.Sprint(line[n])))
		}
	}
	for _, width := range widths {
		total += width + between
	}
	return widths, total - between
}

// cutColumns makes a table as narrow as a terminal is, as far as it can: the widest columns are
// cut, but for the first, which has names, states, and ids, of which a part is no use.
func cutColumns(lines []table.Row, header []string, columns int) {
	const narrowest = 4
	widths, total := columnWidths(lines)
	for ; total > columns; total-- {
		widest := 0
		for n := 1; n < len(widths); n++ {
			if header[n] != stateColumn && !hasIDs(lines, n) && widths[n] > narrowest && (widest == 0 || widths[n] > widths[widest]) {
				widest = n
			}
		}
		if widest == 0 {
			break
		}
		widths[widest]--
	}
	for _, line := range lines {
		for n := range line {
			if cell := fmt.Sprint(line[n]); text.StringWidth(cell) > widths[n] {
				line[n] = text.Snip(cell, widths[n], "…")
			}
		}
	}
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
	wraps  bool    // the last column is prose, which a narrow terminal wraps
	exact  bool    // its times are never printed as relative ones

	changes     func(T) string // what --watch prints an item again for; nil: anything of it
	newestFirst bool
}

// watched is what --watch prints an item again for. Errors: of an item that is no JSON.
func (l listing[T]) watched(item T) (string, error) {
	if l.changes != nil {
		return l.changes(item), nil
	}
	encoded, err := compactJSON(item)
	return string(encoded), err
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
	printRows(c, l, items, true)
	return nil
}

// printRows prints items as a table, or without its header as lines. Where a terminal has no room
// for all of it, ids are short and times relative.
func printRows[T any](c *cli, l listing[T], items []T, headed bool) {
	header := l.header
	wide := c.format == formatWide && l.widen != nil
	if wide {
		header = slices.Concat(l.header, l.wider)
	}
	rowsOf := func() [][]string {
		rows := make([][]string, len(items))
		for i, item := range items {
			rows[i] = l.row(item)
			if wide {
				rows[i] = append(rows[i], l.widen(item)...)
			}
		}
		return rows
	}
	rows := rowsOf()
	if !headed {
		for _, row := range rows {
			c.say("%s", strings.TrimRight(strings.Join(row, "  "), " "))
		}
		return
	}
	if !c.fits(header, rows) {
		shorten(rows, l.wraps)
	}
	if !c.fits(header, rows) && !l.exact {
		was := c.times
		c.times = timesRelative
		rows = rowsOf()
		c.times = was
		shorten(rows, l.wraps)
	}
	if l.wraps && !wide && !c.fits(header, rows) {
		header, rows = c.wrapProse(header, rows, l.exact)
	}
	c.table(header, rows)
}

// wrapProse makes a table fit whose last column is prose: the others, unless they are exact, are cut as far
// as that needs a third of the terminal, and it is wrapped.
func (c *cli) wrapProse(header []string, rows [][]string, exact bool) ([]string, [][]string) {
	last := len(header) - 1
	lines := make([]table.Row, 0, len(rows)+1)
	longest := 0
	for _, row := range append([][]string{header}, rows...) {
		lines = append(lines, cells(row[:last]))
		longest = max(longest, text.StringWidth(safeLine(row[last])))
	}
	if !exact {
		cutColumns(lines, header[:last], c.room()-2-min(longest, c.room()/3))
	}
	_, total := columnWidths(lines)
	fitted := make([][]string, len(lines))
	for i, line := range lines {
		for _, cell := range line {
			fitted[i] = append(fitted[i], fmt.Sprint(cell))
		}
	}
	for i, row := range rows {
		fitted[i+1] = append(fitted[i+1], row[last])
	}
	return append(fitted[0], header[last]), wrapLast(fitted[1:], max(c.room()-total-2, len(header[last])))
}

// fits reports whether there is room for a table.
func (c *cli) fits(header []string, rows [][]string) bool {
	lines := []table.Row{cells(header)}
	for _, row := range rows {
		lines = append(lines, cells(row))
	}
	_, total := columnWidths(lines)
	columns := c.room()
	return columns == 0 || total <= columns
}

// shorten leaves of ids what tells them apart, also of those within the last column if that is prose.
func shorten(rows [][]string, prose bool) {
	for _, row := range rows {
		for n, cell := range row {
			if prose && n == len(row)-1 {
				row[n] = idForm.ReplaceAllStringFunc(cell, shortened)
			} else {
				row[n] = shortened(cell)
			}
		}
	}
}

// idForm is what ids look like within a text.
var idForm = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// shortened is what tells an id apart from others; what is no id stays as it is.
func shortened(cell string) string {
	if harp.CheckJobID(cell) != nil {
		return cell
	}
	return cell[len(cell)-shortID:]
}

// hasIDs reports whether the cells of a column are ids, shortened or not, or empty.
func hasIDs(lines []table.Row, column int) bool {
	any := false
	for _, line := range lines[1:] {
		cell := fmt.Sprint(line[column])
		if cell != "" && harp.CheckJobID(cell) != nil && (len(cell) != shortID || strings.Trim(cell, "0123456789abcdef") != "") {
			return false
		}
		any = any || cell != ""
	}
	return any
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
