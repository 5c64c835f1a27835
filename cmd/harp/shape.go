package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v4"
)

// shape writes an object, which is JSON, as something else: -o yaml, -o template=TEXT.
type shape func(w io.Writer, encoded []byte) error

// templated begins the format that is a template.
const templated = "template="

// chooseShape makes what -o says one of JSON's formats with a shape. YAML is one document,
// of what goes on one for each object; a template is for each object of a list.
func (c *cli) chooseShape(marks string) (err error) {
	if c.format == formatYAML {
		c.shape, c.format = asYAML, formatJSON
		if marks == streams()[knows] || marks == runs()[knows] {
			c.format = formatLines
		}
		return nil
	}
	text, ok := strings.CutPrefix(string(c.format), templated)
	if !ok {
		return c.format.allowed(marks)
	}
	c.wordless, c.format = true, formatJSON
	if marks != "" && marks != calls()[knows] {
		c.format = formatLines
	}
	c.shape, err = asTemplate(text)
	return err
}

// asTemplate is the shape that a text/template has. The fields are those of the JSON.
// Errors: that it is none.
func asTemplate(text string) (shape, error) {
	t, err := template.New("template").Funcs(template.FuncMap{"json": jsonText}).Parse(text)
	if err != nil {
		return nil, errors.New("must be a Go text/template: " + err.Error())
	}
	return func(w io.Writer, encoded []byte) error {
		fields, err := decodeNumbers(encoded)
		if err != nil {
			return err
		}
		var b strings.Builder
		if err := t.Execute(&b, fields); err != nil {
			return invalid("output", "%s", err)
		}
		_, err = fmt.Fprintln(w, safeText(b.String()))
		return err
	}, nil
}

// jsonText is the function json of templates.
func jsonText(v any) (string, error) {
	encoded, err := compactJSON(v)
	return string(encoded), err
}

// decodeNumbers decodes JSON; a number stays as it is written.
func decodeNumbers(encoded []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(encoded))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// safeText is safeLine for a text of several lines.
func safeText(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		columns := strings.Split(line, "\t")
		for n := range columns {
			columns[n] = safeLine(columns[n])
		}
		lines[i] = strings.Join(columns, "\t")
	}
	return strings.Join(lines, "\n")
}

// asYAML writes a document of YAML. What a terminal must not see is escaped.
func asYAML(w io.Writer, encoded []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(encoded, &document); err != nil {
		return err
	}
	plainStyles(&document)
	text, err := yaml.Marshal(&document)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", safeJSON(text))
	return err
}

// otherInOldYAML matches texts that YAML 1.1, which many still read, takes for a bool, nothing
// or a number: they stay in quotes.
var otherInOldYAML = regexp.MustCompile(`^(?i:y|yes|n|no|on|off|true|false|null|~|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?|[-+]?0[xob][0-9a-f_]+)$`)

// plainStyles makes JSON's nodes look as people write YAML. A text that has to be escaped
// stays in quotes.
func plainStyles(n *yaml.Node) {
	switch {
	case len(n.Content) > 0:
		n.Style = 0
	case n.Kind == yaml.ScalarNode && !strings.ContainsFunc(n.Value, unsafeRune) && (n.Tag != "!!str" || !otherInOldYAML.MatchString(n.Value)):
		n.Style = 0
	}
	for _, inner := range n.Content {
		plainStyles(inner)
	}
}
