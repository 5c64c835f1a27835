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

// maxShownValue is how many bytes of a value a change of a field has.
const maxShownValue = 512

// scheduleChanges are the fields that a schedule gets anew, without secrets.
func scheduleChanges(old *scheduled, put *putSchedule) ([]harp.FieldChange, error) {
	before, err := hideSecrets(old.Schedule, slices.Concat(old.SecretArgs, put.SecretArgs))
	if err != nil {
		return nil, err
	}
	after, err := hideSecrets(put.Schedule, put.SecretArgs)
	if err != nil {
		return nil, err
	}
	return fieldChanges(old.Schedule, put.Schedule, before, after)
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
	s.Request.Args, err = schema.HideArgs(s.Request.Args, secret)
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
	if below, is := v.(map[string]any); is && (len(below) > 0 || name == "") {
		if name != "" {
			name += "."
		}
		for key, value := range below {
			flattenInto(fields, name+key, value)
		}
		return
	}
	fields[name] = jsonText(v)
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
