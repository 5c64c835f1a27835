package schema_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

func TestParse(t *testing.T) {
	doc := service
	for _, c := range []struct {
		name, text string
		want       any
		message    string // of an error
	}{
		{"service", "nginx", "nginx", ""},
		{"service", "5", nil, "must have at least 2 characters"},
		{"service", "Nginx", nil, "must match"},
		{"mode", "reload", "reload", ""},
		{"mode", "3", int64(3), ""},
		{"mode", "stop", nil, `must be one of restart, reload, 3, is "stop"`},
		{"n", "5", int64(5), ""},
		{"n", "5.5", nil, `must be an integer, is "5.5"`},
		{"n", "five", nil, `must be an integer, is "five"`},
		{"n", "11", nil, "must be at most 10, is 11"},
		{"ratio", "0.5", 0.5, ""},
		{"ratio", "half", nil, "must be a number"},
		{"data", "AQI=", []byte{1, 2}, ""},
		{"data", "null", nil, "must be bytes"}, // not the text of nothing: n-u-l-l is base64 of three bytes
		{"at", "2026-01-02T03:04:05Z", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ""},
		{"at", "noon", nil, "must be a time, or its RFC 3339 text"},
		{"wait", "90s", "90s", ""}, // as it was given
		{"wait", "1d", "1d", ""},
		{"wait", "5", nil, `must be a duration such as 5s or 1h30m, is "5"`},
		{"wait", "0", "0", ""},
		{"waits", `["5s"]`, []any{"5s"}, ""},
		{"waits", `[5]`, nil, "must be a duration such as 5s or 1h30m, is 5"},
		{"wait", "soon", nil, "must be a duration such as 5s"},
		{"tags", `["a","b"]`, []any{"a", "b"}, ""},
		{"tags", `a,b`, nil, "must be a list"},
		{"tags", `["a",5]`, nil, "must be a string, is 5"},
		{"opts", `{"a":true,"n":5}`, map[string]any{"a": true, "n": int64(5)}, ""},
		{"opts", `{"n":5}`, nil, "is required"},
		{"either", "5", int64(5), ""},
		{"either", "x", nil, "anyOf"},
		{"sevrice", "x", nil, "unknown argument; available: "},
		{"", "x", nil, "must have a name"},
	} {
		if c.name == "data" && c.text == "null" {
			c.want, c.message = []byte{0x9e, 0xe9, 0x65}, ""
		}
		got, err := schema.Parse(doc, c.name, c.text)
		var e *harp.FieldError
		switch {
		case c.message == "" && err == nil && reflect.DeepEqual(got, c.want):
		case c.message != "" && errors.As(err, &e) && strings.HasPrefix(e.Field, "args") && strings.Contains(e.Message, c.message):
		default:
			t.Errorf("%s=%s: got %#v, %v", c.name, c.text, got, err)
		}
	}
}

func TestParseElsewhere(t *testing.T) {
	for _, c := range []struct {
		of         reflect.Type
		name, text string
		want       any
	}{
		{reflect.TypeFor[[]int](), "", "5", int64(5)},
		{reflect.TypeFor[map[string]bool](), "x", "true", true},
		{reflect.TypeFor[any](), "x", "5", int64(5)},
		{reflect.TypeFor[any](), "x", "five", "five"},
		{reflect.TypeFor[any](), "", "[1]", []any{int64(1)}},
		{reflect.TypeFor[uint64](), "value", "18446744073709551615", uint64(18446744073709551615)},
		{reflect.TypeFor[*int](), "value", "null", nil},
		{reflect.TypeFor[*string](), "value", "null", "null"},
		{reflect.TypeFor[float64](), "value", "5", 5.0},
	} {
		sig, err := schema.SignatureOf(c.of)
		if err != nil {
			t.Fatal(err)
		}
		got, err := schema.Parse(harp.ProcedureDoc{Params: sig.Params, Args: sig.Args}, c.name, c.text)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v %s=%s: got %#v, %v", c.of, c.name, c.text, got, err)
		}
	}
	if _, err := schema.Parse(harp.ProcedureDoc{Args: json.RawMessage(`{`)}, "a", "b"); !errors.Is(err, harp.ErrInvalid) {
		t.Error(err)
	}
	if got, err := schema.Parse(harp.ProcedureDoc{}, "a", "5"); err != nil || got != int64(5) {
		t.Error(got, err)
	}
}
