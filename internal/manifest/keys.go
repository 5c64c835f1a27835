package manifest

import (
	"reflect"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
)

// key is one of a document, and where its value is in the JSON form of the noun.
type key struct {
	name string
	path []string
	typ  reflect.Type // that the noun has there
	keys []key        // of a map with keys of its own
	each []key        // of each map of a list
}

// kinds are the keys of documents, by what they are of, in the order in which they are written.
var kinds = map[harp.DocumentKind][]key{
	harp.ScheduleDocument:     scheduleKeys(),
	harp.GroupDocument:        only(keysOf(reflect.TypeFor[harp.Group]()), "name", "target"),
	harp.WindowDocument:       windowKeys(),
	harp.NotificationDocument: keysOf(reflect.TypeFor[harp.Notification]()),
	harp.RetentionDocument:    keysOf(reflect.TypeFor[harp.RetentionRule]()),
}

// scheduleKeys are those of a schedule. What its request has beside target, procedure and arguments are its options, as for
// harp schedule add.
func scheduleKeys() []key {
	request := keysOf(reflect.TypeFor[harp.Request](), "request")
	batch := keysOf(reflect.TypeFor[harp.BatchOptions](), "request", "batch")
	options := without(request, "id", "host", "target", "procedure", "args", "batch", // what is elsewhere, and
		"start_after", "start_before", "trace_parent", "needs", "retry_of", "idempotency_key", "idempotency_ttl", "list") // what a schedule cannot have
	options = append(options, without(batch, "confirmed", "probe", "retry", "then")...)
	return slices.Concat(
		without(keysOf(reflect.TypeFor[harp.Schedule]()), "request"),
		only(request, "target", "procedure", "args"),
		[]key{{name: stepsKey, path: []string{stepsKey}, each: stepKeys}},
		[]key{{name: optionsKey, keys: options}},
	)
}

const optionsKey = "options"

// windowKeys are those of a window. What its calendar has is in a file of its own, which the document names, or at a URL.
func windowKeys() []key {
	keys := keysOf(reflect.TypeFor[harp.Window]())
	for _, k := range keys {
		for i, below := range k.keys {
			if below.typ == contentType {
				k.keys[i].name = "file"
			}
		}
	}
	return keys
}

// keysOf are the keys of a struct as JSON has them.
func keysOf(t reflect.Type, path ...string) (keys []key) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		k := key{name: name, path: append(slices.Clone(path), name), typ: field.Type}
		if k.typ.Kind() == reflect.Pointer {
			k.typ = k.typ.Elem()
		}
		switch {
		case k.typ.Kind() == reflect.Struct && k.typ != timeType:
			k.keys = keysOf(k.typ, k.path...)
		case k.typ.Kind() == reflect.Slice && k.typ.Elem().Kind() == reflect.Struct:
			k.each = keysOf(k.typ.Elem())
		}
		keys = append(keys, k)
	}
	return keys
}

func without(keys []key, names ...string) []key {
	return slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return slices.Contains(names, k.name) })
}

func only(keys []key, names ...string) []key {
	return slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return !slices.Contains(names, k.name) })
}

func findKey(keys []key, name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// FieldOf returns the name that a document has for a field of the JSON form of its noun: options.parallel for
// request.batch.parallel.
func FieldOf(kind harp.DocumentKind, field string) string {
	if name, found := fieldOf(kinds[kind], "", strings.Split(field, ".")); found {
		return name
	}
	return field
}

func fieldOf(keys []key, before string, path []string) (string, bool) {
	if then := []string{"request", "batch", "then"}; len(path) >= len(then) && slices.Equal(path[:len(then)], then) {
		return strings.Join(append([]string{stepsKey}, path[len(then):]...), "."), true
	}
	for _, k := range keys {
		if k.keys != nil {
			if name, found := fieldOf(k.keys, before+k.name+".", path); found {
				return name, true
			}
		}
		if n := len(k.path); n > 0 && n <= len(path) && slices.Equal(k.path, path[:n]) {
			return before + strings.Join(append([]string{k.name}, path[n:]...), "."), true
		}
	}
	return "", false
}
