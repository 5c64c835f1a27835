package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// YAML is the configuration with its defaults filled in, as a file would say it.
func (d *Dispatcher) YAML() ([]byte, error) { return effective(DispatcherKeys(), d) }

// YAML is the configuration with its defaults filled in, as a file would say it.
func (a *Agent) YAML() ([]byte, error) { return effective(AgentKeys(), a) }

// Changed are the keys of which then has another value than d, and that do not change
// in a program that runs.
func (d *Dispatcher) Changed(then *Dispatcher) []string {
	return changed(DispatcherKeys(), d, then, !d.tls.RootCAs.Equal(then.tls.RootCAs))
}

// Changed are the keys of which then has another value than a, and that do not change
// in a program that runs.
func (a *Agent) Changed(then *Agent) []string {
	return changed(AgentKeys(), a, then, !a.tls.RootCAs.Equal(then.tls.RootCAs))
}

// effective writes the fields of a configuration in the order of the keys.
func effective(keys []Key, cfg any) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range keys {
		node, err := nodeOf(k, fieldNamed(reflect.ValueOf(cfg), k.Name))
		if err != nil {
			return nil, err
		}
		if node == nil {
			continue
		}
		at, name := root, k.Name
		for group, rest, ok := strings.Cut(name, "."); ok; group, rest, ok = strings.Cut(name, ".") {
			at, name = groupOf(at, group), rest
		}
		at.Content = append(at.Content, scalar(name), node)
	}
	return yaml.Dump(root)
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// groupOf returns the mapping of a group of keys, made if it is not there.
func groupOf(root *yaml.Node, name string) *yaml.Node {
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value == name {
			root.Content[i+1].Style = 0
			return root.Content[i+1]
		}
	}
	group := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, scalar(name), group)
	return group
}

// nodeOf is a field's value, or its default; nil if there is neither.
func nodeOf(k Key, v reflect.Value) (*yaml.Node, error) {
	if !v.IsValid() || v.IsZero() {
		if k.Default == "" {
			return nil, nil //nolint:nilnil // there is nothing to write
		}
		return scalar(k.Default), nil
	}
	switch value := v.Interface().(type) {
	case yamlfile.Duration:
		return scalar(durationText(time.Duration(value))), nil
	case yamlfile.Bytes:
		return scalar(bytesText(int64(value))), nil
	case Level:
		return scalar(strings.ToLower(value.String())), nil
	case *Exec: // its fields follow
		return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}, nil
	default:
		var n yaml.Node
		err := n.Encode(value)
		return &n, err
	}
}

// fieldNamed finds a field by its path in the file; none behind a pointer that is nil.
func fieldNamed(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return v
		}
		t, found := v.Type(), reflect.Value{}
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("yaml") == name {
				found = v.Field(i)
			}
		}
		if !found.IsValid() {
			return found
		}
		v = found
	}
	return v
}

// changed are the keys that differ and are not live.
func changed(keys []Key, before, then any, ca bool) []string {
	var names []string
	for _, k := range keys {
		if k.Live || k.Name == "exec" && sameExistence(before, then, k.Name) {
			continue
		}
		a, b := fieldNamed(reflect.ValueOf(before), k.Name), fieldNamed(reflect.ValueOf(then), k.Name)
		if !sameValue(a, b) || k.Name == "tls.ca" && ca {
			names = append(names, k.Name)
		}
	}
	return names
}

// sameExistence reports whether a group of keys is there in both, or in neither.
func sameExistence(before, then any, name string) bool {
	a, b := fieldNamed(reflect.ValueOf(before), name), fieldNamed(reflect.ValueOf(then), name)
	return a.IsNil() == b.IsNil()
}

func sameValue(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid() || a.IsValid() && a.IsZero() || b.IsValid() && b.IsZero()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// durationText is a duration as a file says it: 90s, 1h30m, 30d.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == harp.NoLimit:
		return "none"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return duration.Format(d)
}

// bytesText is a number of bytes in the largest unit that fits.
func bytesText(n int64) string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; i < len(units)-1 && n%1024 == 0; i++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + units[i]
}
