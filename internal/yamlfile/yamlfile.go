// Package yamlfile reads files of YAML, strictly: what is not known is refused, and an
// error names the file, the line and the field.
package yamlfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
)

// Error is something wrong in a file. It is harp.ErrInvalid.
type Error struct {
	File    string
	Line    int    // 0: the file as a whole
	Field   string // as tls.cert or hosts[2].name; "" if it is not about one
	Message string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File + ":")
	if e.Line > 0 {
		b.WriteString(strconv.Itoa(e.Line) + ":")
	}
	if e.Field != "" {
		b.WriteString(" " + e.Field + ":")
	}
	return b.String() + " " + e.Message
}

// Is reports whether target is harp.ErrInvalid.
func (e *Error) Is(target error) bool { return target == harp.ErrInvalid }

// File is a file that was read: where each of its fields stands.
type File struct {
	path   string
	lines  map[string]int       // by field
	fields map[yaml.Mark]string // by the place of key and value
}

// Read reads a file into a struct. Errors: os's for a file that cannot be read;
// else as Parse.
func Read(path string, into any) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text, into)
}

// Parse is Read for a file of which the text is known. Errors: *Error, joined if
// there are several; what could be read is in into nevertheless.
func Parse(path string, text []byte, into any) (*File, error) {
	f := &File{path: path, lines: map[string]int{}, fields: map[yaml.Mark]string{}}
	if strings.TrimSpace(string(text)) == "" {
		return f, nil
	}
	doc, err := parseDocument(text)
	if errors.Is(err, io.EOF) {
		return f, nil // there are but comments
	}
	if err != nil {
		return f, f.explain(err)
	}
	f.index("", doc)
	return f, f.explain(doc.Load(into, yaml.WithKnownFields()))
}

// Document is one of the documents of a file.
type Document struct {
	*File
	Root *yaml.Node // its one value
}

// ParseAll reads the documents of a file of which the text is known, without those that are empty. Errors: *Error.
func ParseAll(path string, text []byte) (all []Document, err error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	for err == nil {
		f := &File{path: path, lines: map[string]int{}, fields: map[yaml.Mark]string{}}
		var doc yaml.Node
		if err = loader.Load(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			return nil, f.explain(err)
		}
		if root := doc.Content[0]; root.ShortTag() != "!!null" {
			f.lines[""] = root.Line
			f.index("", root)
			all = append(all, Document{f, root})
		}
	}
	return nil, err
}

// Has reports whether the file has a field.
func (f *File) Has(field string) bool { return f.lines[field] > 0 }

var errSecond = errors.New("must be one document, and has a second")

// parseDocument reads the one document of a text.
func parseDocument(text []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); err != nil {
		return nil, err
	}
	if err := loader.Load(&second); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, errSecond)
	}
	return &doc, nil
}

// maxField is how many bytes the name of a field has for which it is noted where it stands. Each has those of all it is in: without
// a bound they would be far more than the file. A field with a longer one stands where the one stands that it is in.
const maxField = 512

// index notes where each field stands.
func (f *File) index(path string, n *yaml.Node) {
	if len(path) > maxField {
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, c := range n.Content {
			f.index("", c)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if len(path)+len(key.Value) > maxField {
				continue
			}
			name := strings.TrimPrefix(path+"."+key.Value, ".")
			f.noteNode(name, key)
			f.noteNode(name, value)
			f.index(name, value)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			name := path + "[" + strconv.Itoa(i) + "]"
			f.noteNode(name, c)
			f.index(name, c)
		}
	default: // there is nothing in it
	}
}

func (f *File) noteNode(field string, n *yaml.Node) {
	if len(field) > maxField {
		return
	}
	if _, ok := f.lines[field]; !ok {
		f.lines[field] = n.Line
	}
	if at := (yaml.Mark{Line: n.Line, Column: n.Column}); f.fields[at] == "" || n.Kind != yaml.MappingNode {
		f.fields[at] = field
	}
}

// Errorf is something wrong with a field of the file, which may be missing.
func (f *File) Errorf(field, format string, a ...any) error {
	line := f.lines[field]
	for parent := field; line == 0 && parent != ""; line = f.lines[parent] {
		cut := strings.LastIndexAny(parent, ".[")
		parent = parent[:max(cut, 0)]
	}
	return &Error{File: f.path, Line: line, Field: field, Message: fmt.Sprintf(format, a...)}
}

// Wrap makes a *harp.FieldError one that names the file and the line.
func (f *File) Wrap(err error) error {
	var wrong *harp.FieldError
	if errors.As(err, &wrong) {
		return f.Errorf(wrong.Field, "%s", wrong.Message)
	}
	return err
}

// Path returns a path of the file's, which is relative to the file.
func (f *File) Path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

// Name is the path of the file as it was given.
func (f *File) Name() string { return f.path }

// Program is the path of a program: a name without a slash is looked for in $PATH,
// anything else is the file's.
func (f *File) Program(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	if path, err := filepath.Abs(f.Path(name)); err == nil {
		return path // a relative one might lose the slash that keeps it from $PATH
	}
	return f.Path(name)
}

// explain turns the errors of yaml into *Errors.
func (f *File) explain(err error) error {
	var several *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several):
		all := make([]error, len(several.Errors))
		for i, e := range several.Errors {
			all[i] = f.wrong(e)
		}
		return errors.Join(all...)
	case errors.As(err, &one):
		return f.wrong(one)
	}
	return &Error{File: f.path, Message: err.Error()}
}

func (f *File) wrong(e *yaml.LoadError) *Error {
	message := e.Message
	for _, w := range wordings {
		message = w.of.ReplaceAllString(message, w.to)
	}
	return &Error{File: f.path, Line: e.Mark.Line, Field: f.fields[yaml.Mark{Line: e.Mark.Line, Column: e.Mark.Column}], Message: message}
}

// wordings say in the words of a file what yaml says in those of Go.
var wordings = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`^field .* not found in type .*$`), "is unknown"},
	{regexp.MustCompile("^cannot construct !!(?:map|seq|null) into (.*)$"), "must be $1"},
	{regexp.MustCompile("^cannot construct !!\\w+ `(.*)` into (.*)$"), "must be $2, is $1"},
	{regexp.MustCompile(`must be struct \{.*\}|must be \w+\.\w+`), "must be a map"},
	{regexp.MustCompile(`must be map\[.*?\][\w.*]+`), "must be a map"},
	{regexp.MustCompile(`must be \[\][^,\s]+`), "must be a list"},
	{regexp.MustCompile(`must be u?int\d*\b`), "must be a whole number"},
	{regexp.MustCompile(`must be bool\b`), "must be true or false"},
	{regexp.MustCompile(`must be string\b`), "must be a text"},
}
