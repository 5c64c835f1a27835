package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// Write returns the document as YAML; reading that gives the same document again. The calendar of a window that has no URL
// is not in it: file is the name of the file that has it.
func Write(d harp.Document, file string) ([]byte, error) {
	var text []byte
	var err error
	switch d.Kind() {
	case harp.ScheduleDocument:
		text, err = json.Marshal(d.Schedule)
	case harp.GroupDocument:
		text, err = json.Marshal(d.Group)
	case harp.WindowDocument:
		text, err = json.Marshal(d.Window)
	case harp.NotificationDocument:
		text, err = json.Marshal(d.Notification)
	case harp.RetentionDocument:
		text, err = json.Marshal(d.Retention)
	default:
		return nil, fmt.Errorf("a document of kind %q cannot be written", d.Kind())
	}
	var form map[string]any
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		err = dec.Decode(&form)
	}
	if err != nil {
		return nil, err
	}
	if d.Schedule != nil {
		gatherSteps(form)
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	appendPair(root, "kind", scalar("!!str", string(d.Kind())))
	if d.Window != nil && d.Window.Calendar != nil && d.Window.Calendar.URL == "" {
		setAt(form, []string{"calendar", "content"}, file)
	}
	writeMap(root, kinds[d.Kind()], form)
	return yaml.Dump(root)
}

func appendPair(n *yaml.Node, name string, value *yaml.Node) {
	n.Content = append(n.Content, scalar("!!str", name), value)
}

func scalar(tag, value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
	if tag == "!!str" && strings.Contains(value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}

// writeMap adds to a map those keys that the JSON form has, in their order.
func writeMap(n *yaml.Node, keys []key, form map[string]any) {
	for _, k := range keys {
		if k.keys != nil {
			below := &yaml.Node{Kind: yaml.MappingNode}
			if writeMap(below, k.keys, form); len(below.Content) > 0 {
				appendPair(n, k.name, below)
			}
			continue
		}
		if v := at(form, k.path); v != nil {
			if k.each != nil {
				appendPair(n, k.name, listOf(k.each, v))
				continue
			}
			if k.typ == durationType {
				v = shortDuration(v)
			}
			appendPair(n, k.name, nodeOf(v))
		}
	}
}

// listOf makes a node of a list of maps of JSON.
func listOf(keys []key, v any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	list, _ := v.([]any)
	for _, one := range list {
		form, _ := one.(map[string]any)
		below := &yaml.Node{Kind: yaml.MappingNode}
		writeMap(below, keys, form)
		n.Content = append(n.Content, below)
	}
	return n
}

// shortDuration writes a duration without the units of which there are none.
func shortDuration(v any) any {
	text, ok := v.(string)
	if d, err := duration.Parse(text); ok && err == nil {
		return duration.Format(d)
	}
	return v
}

// at is what is where a path leads; nil for nothing.
func at(form map[string]any, path []string) any {
	for _, name := range path[:len(path)-1] {
		below, ok := form[name].(map[string]any)
		if !ok {
			return nil
		}
		form = below
	}
	return form[path[len(path)-1]]
}

// nodeOf makes a node of a value of JSON.
func nodeOf(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			appendPair(n, name, nodeOf(v[name]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v {
			n.Content = append(n.Content, nodeOf(one))
		}
		return n
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	case bool:
		return scalar("!!bool", fmt.Sprint(v))
	case nil:
		return scalar(nullTag, "null")
	default:
		return scalar("!!str", fmt.Sprint(v))
	}
}
