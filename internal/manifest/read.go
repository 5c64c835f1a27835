package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/yamlfile"
	"github.com/harpcaller/harp/target"
)

// What a document may have at most, with what its aliases stand for, and what is told of what is wrong.
const (
	maxValues = 100_000
	maxDepth  = 64
	maxField  = 512 // bytes of the name of a field
	maxShown  = 64  // bytes of a value
	maxWrong  = 50  // errors
)

// reader reads one document.
type reader struct {
	yamlfile.Document
	kind  harp.DocumentKind
	left  int // values
	wrong []error
}

// at is where the document begins.
func (r *reader) at() string { return fmt.Sprintf("%s:%d", r.Name(), r.Root.Line) }

// read makes a noun of the document. Errors: *yamlfile.Error, joined if there are several.
func (r *reader) read() (harp.Document, error) {
	if r.Root.Kind != yaml.MappingNode {
		return harp.Document{}, r.Errorf("", "must be a map")
	}
	r.kind = harp.DocumentKind(kindOf(r.Root))
	keys, known := kinds[r.kind]
	if !known {
		return harp.Document{}, r.Errorf("kind", "must be %s", kindWords())
	}
	form := map[string]any{}
	r.readMap(r.Root, keys, "", form)
	if r.kind == harp.ScheduleDocument {
		r.spreadSteps(form)
	}
	if err := joined(r.wrong); err != nil {
		return harp.Document{}, err
	}
	text, err := json.Marshal(form)
	if err != nil {
		return harp.Document{}, r.Errorf("", "%s", err)
	}
	return r.decodeDocument(text)
}

func kindWords() string {
	var words []string
	for kind := range kinds {
		words = append(words, string(kind))
	}
	slices.Sort(words)
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func kindOf(root *yaml.Node) string {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "kind" {
			return root.Content[i+1].Value
		}
	}
	return ""
}

// decodeDocument makes the noun of its JSON form.
func (r *reader) decodeDocument(text []byte) (harp.Document, error) {
	var d harp.Document
	var err error
	switch r.kind {
	case harp.ScheduleDocument:
		d.Schedule = &harp.Schedule{}
		if err = json.Unmarshal(text, d.Schedule); err == nil {
			err = completeRequest(&d.Schedule.Request)
		}
	case harp.GroupDocument:
		d.Group = &harp.Group{}
		err = json.Unmarshal(text, d.Group)
	case harp.WindowDocument:
		d.Window = &harp.Window{}
		err = json.Unmarshal(text, d.Window)
	case harp.NotificationDocument:
		d.Notification = &harp.Notification{}
		err = json.Unmarshal(text, d.Notification)
	case harp.RetentionDocument:
		d.Retention = &harp.RetentionRule{}
		err = json.Unmarshal(text, d.Retention)
	}
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		return harp.Document{}, r.wrap(err)
	}
	return d, nil
}

// completeRequest makes a request what harp.NewBatchRequest makes of the same options.
func completeRequest(q *harp.Request) (err error) {
	if q.Target != "" {
		expr, err := target.Parse(q.Target)
		if err != nil {
			return &harp.FieldError{Field: "target", Message: strings.TrimPrefix(err.Error(), "target: ")}
		}
		q.Target = expr.String()
	}
	if q.DryRun {
		q.Needs = append(q.Needs, harp.NeedDryRun)
	}
	q.Needs = append(q.Needs, harp.NeedBatch)
	if len(q.Batch.Then) > 0 {
		q.Needs = append(q.Needs, harp.NeedChain)
	}
	q.Queue, err = harp.QueueName(q.Queue)
	return err
}

// readMap reads a map with known keys into the JSON form of the noun.
func (r *reader) readMap(n *yaml.Node, keys []key, before string, form map[string]any) {
	for name, value := range r.pairs(n, before) {
		field := nameOf(before, name)
		k, known := findKey(keys, name)
		switch {
		case before == "" && name == "kind":
		case !known:
			r.refuse(field, "is unknown")
		case value.ShortTag() == nullTag:
		case k.keys != nil:
			if value = r.resolve(value, field, yaml.MappingNode, "a map"); value != nil {
				r.readMap(value, k.keys, field+".", form)
			}
		case k.each != nil:
			if v := r.readMaps(value, k.each, field); v != nil {
				setAt(form, k.path, v)
			}
		default:
			if v := r.readValue(value, k.typ, field); v != nil {
				setAt(form, k.path, v)
			}
		}
	}
}

const nullTag = "!!null"

// setAt puts a value where a path leads.
func setAt(form map[string]any, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		below, ok := form[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			form[name] = below
		}
		form = below
	}
	form[path[len(path)-1]] = v
}

func (r *reader) refuse(field, format string, a ...any) {
	r.note(r.Errorf(field, format, a...))
}

func (r *reader) note(wrong error) {
	if len(r.wrong) < maxWrong {
		r.wrong = append(r.wrong, wrong)
	}
}

// nameOf is the name of a field in another. Where it would be long it is that of the other.
func nameOf(before, name string) string {
	if len(before)+len(name) > maxField {
		return strings.TrimSuffix(before, ".")
	}
	return before + name
}

// shown is as much of a value as an error shows.
func shown(value string) string {
	if len(value) > maxShown {
		return strings.ToValidUTF8(value[:maxShown], "") + "..."
	}
	return value
}

// pairs yields the keys of a map and their values.
func (r *reader) pairs(n *yaml.Node, before string) func(func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			switch {
			case n.Content[i].Kind != yaml.ScalarNode:
				r.refuse(strings.TrimSuffix(before, "."), "has a key that is no text")
			case seen[name]:
				r.note(&yamlfile.Error{File: r.Name(), Line: n.Content[i].Line, Field: nameOf(before, name), Message: "is there twice"})
			case !yield(name, n.Content[i+1]):
				return
			}
			seen[name] = true
		}
	}
}

// resolve follows an alias, and returns nil for what is not of a kind.
func (r *reader) resolve(n *yaml.Node, field string, kind yaml.Kind, what string) *yaml.Node {
	if r.left--; r.left < 0 {
		if r.left == -1 {
			r.refuse("", "has more than %d values", maxValues)
		}
		return nil
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != kind && kind != 0 {
		r.refuse(field, "must be %s", what)
		return nil
	}
	return n
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	valueType    = reflect.TypeFor[harp.Value]()
	contentType  = reflect.TypeFor[[]byte]()
)

// readValue reads what a field of some type has in JSON; nil: there is none.
func (r *reader) readValue(n *yaml.Node, t reflect.Type, field string) any {
	switch {
	case t == valueType:
		return r.readAny(n, field, maxDepth)
	case t.Kind() == reflect.Map:
		return r.readTexts(n, t.Elem(), field)
	case t.Kind() == reflect.Slice && t != contentType:
		return r.readList(n, t.Elem(), field)
	}
	if n = r.resolve(n, field, yaml.ScalarNode, "one value"); n == nil {
		return nil
	}
	switch {
	case t == timeType:
		at, err := time.Parse(time.RFC3339, n.Value)
		if err != nil {
			r.refuse(field, "must be a time such as 2027-03-01T02:00:00Z, is %q", shown(n.Value))
			return nil
		}
		return at.UTC()
	case t == durationType:
		return r.readDuration(n, field)
	case t == contentType:
		return r.readContent(n, field)
	case t.Kind() == reflect.Bool:
		if n.ShortTag() != "!!bool" {
			r.refuse(field, "must be true or false, is %q", shown(n.Value))
			return nil
		}
		return strings.EqualFold(n.Value, "true")
	case t.Kind() == reflect.Int64:
		v, err := yamlfile.ParseBytes(n.Value)
		if err != nil {
			r.refuse(field, "%s", err)
			return nil
		}
		return int64(v)
	case t.Kind() == reflect.Int:
		v, err := strconv.Atoi(n.Value)
		if err != nil {
			r.refuse(field, "must be a whole number, is %q", shown(n.Value))
			return nil
		}
		return v
	default:
		return n.Value
	}
}

func (r *reader) readDuration(n *yaml.Node, field string) any {
	const none = "none"
	if n.Value == none {
		return none
	}
	d, err := duration.Parse(n.Value)
	if err != nil || d <= 0 {
		r.refuse(field, "must be %s, or %s, is %q", duration.Expected, none, shown(n.Value))
		return nil
	}
	return d.String()
}

// readContent reads a file that stands beside the document.
func (r *reader) readContent(n *yaml.Node, field string) any {
	path := r.Path(n.Value)
	if isOther(path) {
		r.refuse(field, "%s is no file", path)
		return nil
	}
	content, err := readBounded(path, harp.MaxCalendar)
	switch {
	case err != nil:
		r.refuse(field, "%s", err)
		return nil
	case len(content) == 0:
		r.refuse(field, "%s is empty", path)
		return nil
	}
	return content
}

func (r *reader) readTexts(n *yaml.Node, of reflect.Type, field string) any {
	if n = r.resolve(n, field, yaml.MappingNode, "a map"); n == nil {
		return nil
	}
	texts := map[string]any{}
	for name, value := range r.pairs(n, field+".") {
		texts[name] = r.readValue(value, of, nameOf(field+".", name))
	}
	return texts
}

func (r *reader) readList(n *yaml.Node, of reflect.Type, field string) any {
	if n = r.resolve(n, field, yaml.SequenceNode, "a list"); n == nil {
		return nil
	}
	list := []any{}
	for i, value := range n.Content {
		list = append(list, r.readValue(value, of, nameOf(field, fmt.Sprintf("[%d]", i))))
	}
	return list
}

// readMaps reads a list of maps with known keys.
func (r *reader) readMaps(n *yaml.Node, keys []key, field string) any {
	if n = r.resolve(n, field, yaml.SequenceNode, "a list"); n == nil {
		return nil
	}
	list := []any{}
	for i, value := range n.Content {
		name := nameOf(field, fmt.Sprintf("[%d]", i))
		form := map[string]any{}
		if value = r.resolve(value, name, yaml.MappingNode, "a map"); value != nil {
			r.readMap(value, keys, name+".", form)
		}
		list = append(list, form)
	}
	return list
}

// readAny reads a value of any kind.
func (r *reader) readAny(n *yaml.Node, field string, depth int) any {
	if n = r.resolve(n, field, 0, ""); n == nil {
		return nil
	}
	if depth == 0 {
		r.refuse(field, "is more than %d deep", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		values := map[string]any{}
		for name, value := range r.pairs(n, field+".") {
			values[name] = r.readAny(value, nameOf(field+".", name), depth-1)
		}
		return values
	case yaml.SequenceNode:
		list := []any{}
		for i, value := range n.Content {
			list = append(list, r.readAny(value, nameOf(field, fmt.Sprintf("[%d]", i)), depth-1))
		}
		return list
	default:
		return r.readScalar(n, field)
	}
}

func (r *reader) readScalar(n *yaml.Node, field string) any {
	switch n.ShortTag() {
	case nullTag:
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		var v any
		if err := n.Load(&v); err != nil {
			r.refuse(field, "must be a whole number") // what it is may be a secret
			return nil
		}
		return v
	case "!!float":
		var v float64
		if err := n.Load(&v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			r.refuse(field, "must be a number")
			return nil
		}
		return json.RawMessage(floatText(v))
	case "!!binary":
		r.refuse(field, "must be a text")
		return nil
	default: // also what looks like a time
		return n.Value
	}
}

// floatText is a number that JSON does not take for a whole one.
func floatText(v float64) string {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// wrap makes an error about a field of the noun one that names file, line and field of the document.
func (r *reader) wrap(err error) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) {
		return r.Errorf("", "%s", err)
	}
	return r.Errorf(r.place(wrong.Field), "%s", wrong.Message)
}

// place is the name of a field in the document, which the noun may call by its own name alone, as parallel and label env.
func (r *reader) place(field string) string {
	name, rest, _ := strings.Cut(field, ".")
	if label, of, _ := strings.Cut(field, " "); label == "label" {
		name, rest = "labels", of
	}
	path := name
	if _, top := findKey(kinds[r.kind], name); !top || name == "labels" && !r.Has(name+"."+rest) {
		for _, k := range kinds[r.kind] {
			if _, below := findKey(k.keys, name); below {
				path = k.name + "." + name
			}
		}
	}
	if rest != "" {
		path += "." + rest
	}
	return path
}
