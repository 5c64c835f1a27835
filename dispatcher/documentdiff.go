package dispatcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// What is told of a noun that changes is bounded: a map with more fields below it, or with names that are longer, is one
// value.
const (
	maxShownValue  = 512 // bytes of a value that a change of a field has
	maxShownField  = 128 // bytes of the name of a field
	maxShownFields = 200 // of a noun
)

// scheduleChanges are the fields that a schedule gets anew, without secrets: the arguments of these names are some, and those
// that are known as such of either.
func scheduleChanges(old *scheduled, put *putSchedule, secret ...string) ([]harp.FieldChange, error) {
	secret = slices.Concat(secret, old.SecretArgs, put.SecretArgs)
	before, err := hideSecrets(old.Schedule, secret)
	if err != nil {
		return nil, err
	}
	after, err := hideSecrets(put.Schedule, secret)
	if err != nil {
		return nil, err
	}
	changes, err := fieldChanges(old.Schedule, put.Schedule, before, after)
	if err != nil {
		return nil, err
	}
	for _, v := range []struct {
		field        string
		old, is      harp.Value
		shown, after harp.Value
	}{
		{"request.args", old.Schedule.Request.Args, put.Schedule.Request.Args, before.Request.Args, after.Request.Args},
		{"request.info", old.Schedule.Request.Info, put.Schedule.Request.Info, before.Request.Info, after.Request.Info},
		{"request.queue", old.Schedule.Request.Queue, put.Schedule.Request.Queue, before.Request.Queue, after.Request.Queue},
	} {
		seen := slices.ContainsFunc(changes, func(c harp.FieldChange) bool { return c.Field == v.field || strings.HasPrefix(c.Field, v.field+".") })
		if !seen && !sameValue(v.old, v.is) { // JSON is the same for bytes and their base64, and for all that is sealed
			changes = append(changes, harp.FieldChange{Field: v.field, Old: cutText(v.shown.String()), New: cutText(v.after.String())})
		}
	}
	slices.SortFunc(changes, func(a, b harp.FieldChange) int { return strings.Compare(a.Field, b.Field) })
	return changes, nil
}

// sameValue reports whether two values are equal, in whatever order their maps are.
func sameValue(a, b harp.Value) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := a.Canonical()
	if err != nil {
		return false
	}
	y, err := b.Canonical()
	return err == nil && bytes.Equal(x, y)
}

// windowChanges are the fields that a window gets anew. What is in its calendar is not shown.
func windowChanges(old, is harp.Window) ([]harp.FieldChange, error) {
	changes, err := fieldChanges(old, is, old, is)
	for i := range changes {
		if c := &changes[i]; c.Field == "calendar.content" {
			c.Old, c.New = calendarText(old.Calendar), calendarText(is.Calendar)
		}
	}
	return changes, err
}

func calendarText(c *harp.WindowCalendar) string {
	if c == nil {
		return ""
	}
	return jsonText(fmt.Sprintf("%d bytes", len(c.Content)))
}

func hideSecrets(s harp.Schedule, secret []string) (_ harp.Schedule, err error) {
	err = hideInRequest(&s.Request, secret)
	return s, err
}

// fieldChanges are the fields in which two nouns differ, by their names in JSON. What they have there is shown as of the second
// two, which are the same without secrets.
func fieldChanges(old, is, shownOld, shownIs any) (changes []harp.FieldChange, err error) {
	var forms [4]map[string]string
	for i, noun := range []any{old, is, shownOld, shownIs} {
		if forms[i], err = flatten(noun); err != nil {
			return nil, err
		}
	}
	names := maps.Clone(forms[0])
	maps.Copy(names, forms[1])
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if forms[0][name] != forms[1][name] {
			changes = append(changes, harp.FieldChange{
				Field: name, Old: shownValue(forms[0], forms[2], name), New: shownValue(forms[1], forms[3], name),
			})
		}
	}
	return changes, nil
}

// shownValue is what is shown of a field: what is not there without secrets is part of one.
func shownValue(form, shown map[string]string, name string) string {
	if form[name] == "" {
		return ""
	}
	text, is := shown[name]
	if !is {
		text = jsonText(schema.HiddenArg)
	}
	return cutText(text)
}

// cutText is as much of a text as a change of a field has.
func cutText(text string) string {
	if len(text) > maxShownValue {
		return strings.ToValidUTF8(text[:maxShownValue], "") + "..."
	}
	return text
}

// flatten returns the fields of a noun's JSON form, in maps that are in maps too, as JSON texts.
func flatten(noun any) (map[string]string, error) {
	text, err := json.Marshal(noun)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var form map[string]any
	if err := dec.Decode(&form); err != nil {
		return nil, err
	}
	fields := map[string]string{}
	flattenInto(fields, "", form)
	return fields, nil
}

func flattenInto(fields map[string]string, name string, v any) {
	below, is := v.(map[string]any)
	isWhole := name == "" || name == "request" // it has the fields of nouns
	if !is || !isWhole && (len(below) == 0 || !isShownByField(name, below)) {
		fields[name] = jsonText(v)
		return
	}
	for key, value := range below {
		flattenInto(fields, belowField(name, key), value)
	}
}

// belowField is the name of a field in a map. Keys that could be read as several are quoted.
func belowField(name, key string) string {
	if key == "" || strings.ContainsAny(key, `."`) {
		key = jsonText(key)
	}
	if name == "" {
		return key
	}
	return name + "." + key
}

// isShownByField reports whether the fields of a map are told of one by one.
func isShownByField(name string, below map[string]any) bool {
	for key := range below {
		if len(name)+len(key) > maxShownField {
			return false
		}
	}
	return countFields(below, maxShownFields) <= maxShownFields
}

// countFields is how many fields there are in a value, with those of maps in it; it stops beyond so many.
func countFields(v any, most int) (n int) {
	below, is := v.(map[string]any)
	if !is || len(below) == 0 {
		return 1
	}
	for _, value := range below {
		if n += countFields(value, most-n); n > most {
			break
		}
	}
	return n
}

// jsonText is a value that was made of JSON as JSON.
func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
