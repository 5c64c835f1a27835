package window

import (
	"fmt"
	"strings"
)

// property is a line of an iCalendar file: NAME;PARAMETER=value,"value":value.
type property struct {
	line int    // of the file, from 1
	name string // in capitals
	rest string // from the first ; or : on
}

// contentLines returns the lines of a file, joined where they were folded. A line that is a property of no kind ends it with an error.
type contentLines struct {
	text string
	line int
}

// next returns the next property, and false at the end.
func (c *contentLines) next() (property, bool, error) {
	for {
		first := c.line + 1
		text, ok := c.nextUnfolded()
		switch {
		case !ok:
			return property{}, false, nil
		case strings.TrimSpace(text) == "":
			continue
		}
		end := 0
		for end < len(text) && isNameByte(text[end]) {
			end++
		}
		if end == 0 || end == len(text) || text[end] != ';' && text[end] != ':' {
			return property{}, false, lineError(first, "", "%q is no line of an iCalendar file, such as SUMMARY:text", shorten(text))
		}
		return property{line: first, name: strings.ToUpper(text[:end]), rest: text[end:]}, true, nil
	}
}

// nextUnfolded returns the next line with those that continue it, which begin with a space or a tab.
func (c *contentLines) nextUnfolded() (string, bool) {
	line, ok := c.cutLine()
	if !ok || !c.isFolded() {
		return line, ok
	}
	var b strings.Builder
	b.WriteString(line)
	for c.isFolded() {
		line, _ = c.cutLine()
		b.WriteString(line[1:])
	}
	return b.String(), true
}

func (c *contentLines) isFolded() bool {
	return c.text != "" && (c.text[0] == ' ' || c.text[0] == '\t')
}

func (c *contentLines) cutLine() (string, bool) {
	if c.text == "" {
		return "", false
	}
	line, rest, _ := strings.Cut(c.text, "\n")
	c.text = rest
	c.line++
	return strings.TrimSuffix(line, "\r"), true
}

func isNameByte(b byte) bool {
	return b == '-' || b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
}

// value is a property that was taken apart: its value, and the parameters that matter.
type value struct {
	property
	text  string
	zone  string // TZID
	kind  string // VALUE, in capitals
	scope string // RANGE, in capitals
}

// parse reads the parameters and the value.
func (p property) parse() (value, error) {
	v := value{property: p}
	rest := p.rest
	for rest[0] == ';' {
		end := 1
		for end < len(rest) && isNameByte(rest[end]) {
			end++
		}
		name := strings.ToUpper(rest[1:end])
		if name == "" || end == len(rest) || rest[end] != '=' {
			return value{}, p.errorf("a parameter must be written as in ;TZID=Europe/Madrid")
		}
		text, behind, ok := cutParameter(rest[end+1:])
		if !ok {
			return value{}, p.errorf("parameter %s has no end", name)
		}
		switch rest = behind; name {
		case "TZID":
			v.zone = text
		case "VALUE":
			v.kind = strings.ToUpper(text)
		case "RANGE":
			v.scope = strings.ToUpper(text)
		}
	}
	v.text = rest[1:]
	return v, nil
}

// cutParameter returns the value of a parameter, of a list the first, and what is behind it from ; or : on.
func cutParameter(text string) (first, rest string, ok bool) {
	for i := 0; ; i++ {
		item, behind := "", ""
		if strings.HasPrefix(text, `"`) {
			item, behind, ok = strings.Cut(text[1:], `"`)
		} else {
			end := strings.IndexAny(text, `;:,"`)
			if ok = end >= 0; ok {
				item, behind = text[:end], text[end:]
			}
		}
		if !ok || behind == "" {
			return "", "", false
		}
		if i == 0 {
			first = item
		}
		switch behind[0] {
		case ';', ':':
			return first, behind, true
		case ',':
			text = behind[1:]
		default:
			return "", "", false
		}
	}
}

// unescape returns a text as it was before it was written into the file.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	return escaped.Replace(text)
}

var escaped = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";")

// CalendarError says what is wrong with an iCalendar file, and where.
type CalendarError struct {
	Line     int    // from 1; 0: the file as a whole
	Property string // the line's, in capitals: DTSTART, RRULE; empty if it is about none
	Message  string // what is wrong, or was expected
}

// Error names the line and the property, and says what was expected.
func (e *CalendarError) Error() string {
	text := "window: calendar: "
	if e.Line > 0 {
		text += fmt.Sprintf("line %d: ", e.Line)
	}
	if e.Property != "" {
		text += e.Property + ": "
	}
	return text + e.Message
}

func lineError(line int, name, format string, args ...any) error {
	return &CalendarError{Line: line, Property: name, Message: fmt.Sprintf(format, args...)}
}

func (p property) errorf(format string, args ...any) error {
	return lineError(p.line, p.name, format, args...)
}

// shorten returns the beginning of a text from a file, for an error.
func shorten(text string) string {
	const most = 60
	text = strings.ToValidUTF8(text, "\uFFFD")
	if runes := []rune(text[:min(len(text), 4*most)]); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
