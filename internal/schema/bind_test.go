package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// service is a procedure as a command file may declare it.
var service = harp.ProcedureDoc{
	Name:   "service.restart",
	Params: []string{"service", "mode", "n", "ratio", "data", "at", "wait", "tags", "opts"},
	Args: json.RawMessage(`{
		"type": "object", "required": ["service"], "additionalProperties": false,
		"properties": {
			"service": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[a-z]+$"},
			"mode": {"enum": ["restart", "reload", 3]},
			"n": {"type": "integer", "minimum": 1, "maximum": 10},
			"ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
			"data": {"type": ["null", "string"], "contentEncoding": "base64"},
			"at": {"type": "string", "format": "date-time"},
			"wait": {"type": "integer", "format": "nanoseconds", "maximum": 86400000000000},
			"waits": {"type": "array", "items": {"type": "integer", "format": "nanoseconds"}},
			"tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
			"opts": {"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}, "odd": {"not": {"type": "null"}}}, "additionalProperties": {"type": "integer"}},
			"on": {"const": "x"},
			"either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
			"both": {"type": "string", "pattern": "a", "allOf": [{"pattern": "^[^-]"}]},
			"pin": {"type": "string", "pattern": "^[0-9]+$", "writeOnly": true}
		}}`),
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		args    any
		field   string // "": good
		message string
	}{
		{harp.Args{"service": "nginx"}, "", ""},
		{harp.Pos("nginx", "reload", 3, 0.5, []byte{1}, time.Now(), time.Minute, []string{"a"}, map[string]any{"a": true, "b": 1}), "", ""},
		{harp.Args{"service": "nginx", "mode": 3.0, "n": 5.0, "data": "AQI=", "at": "2026-01-02T03:04:05Z"}, "", ""},
		{harp.Args{"service": "nginx", "data": nil, "either": true, "on": "x"}, "", ""},
		{nil, "args.service", "is required: a string"},
		{harp.Pos(), "args.service", "is required: a string"},
		{harp.Args{"service": 5}, "args.service", "must be a string, is 5"},
		{harp.Args{"service": nil}, "args.service", "must be a string, is nothing"},
		{harp.Args{"service": []byte{0xff}}, "args.service", "must be a string, is bytes"},
		{harp.Args{"service": time.Now()}, "args.service", "must be a string, is a time"},
		{harp.Args{"service": "x"}, "args.service", "must have at least 2 characters, has 1"},
		{harp.Args{"service": "abcdefghi"}, "args.service", "must have at most 8 characters, has 9"},
		{harp.Args{"service": "Nginx"}, "args.service", `must match ^[a-z]+$, is "Nginx"`},
		{harp.Args{"service": "nginx", "mode": "stop"}, "args.mode", `must be one of restart, reload, 3, is "stop"`},
		{harp.Args{"service": "nginx", "n": "5"}, "args.n", "must be an integer, is a string"},
		{harp.Args{"service": "nginx", "n": 5.5}, "args.n", "must be an integer, is 5.5"},
		{harp.Args{"service": "nginx", "n": 1e300}, "args.n", "must be an integer, is 1e+300"},
		{harp.Args{"service": "nginx", "n": math.NaN()}, "args.n", "must be an integer, is NaN"},
		{harp.Args{"service": "nginx", "n": 0}, "args.n", "must be at least 1, is 0"},
		{harp.Args{"service": "nginx", "n": uint64(math.MaxUint64)}, "args.n", "must be at most 10, is 18446744073709551615"},
		{harp.Args{"service": "nginx", "ratio": 0}, "args.ratio", "must be more than 0, is 0"},
		{harp.Args{"service": "nginx", "ratio": 1.0}, "args.ratio", "must be less than 1, is 1"},
		{harp.Args{"service": "nginx", "ratio": math.Inf(1)}, "args.ratio", "must be a number, is +Inf"},
		{harp.Args{"service": "nginx", "data": "!"}, "args.data", "must be bytes, or their base64, is another text"},
		{harp.Args{"service": "nginx", "at": "noon"}, "args.at", `must be a time, or its RFC 3339 text, is "noon"`},
		{harp.Args{"service": "nginx", "at": []byte("x")}, "args.at", "must be a time, or its RFC 3339 text, is bytes"},
		{harp.Args{"service": "nginx", "wait": "5"}, "args.wait", `must be a duration such as 5s or 1h30m, is "5"`},
		{harp.Args{"service": "nginx", "wait": "1m", "waits": []string{"5s"}}, "", ""},
		{harp.Args{"service": "nginx", "wait": "2d"}, "args.wait", "must be at most 24h0m0s, is 48h0m0s"},
		{harp.Args{"service": "nginx", "wait": true}, "args.wait", "must be a duration such as 5s or 1h30m, is true"},
		{harp.Args{"service": "nginx", "tags": []any{}}, "args.tags", "must have at least 1 elements, has 0"},
		{harp.Args{"service": "nginx", "tags": []any{1, 2, 3, 4}}, "args.tags", "must have at most 3 elements, has 4"},
		{harp.Args{"service": "nginx", "tags": []any{"a", 5}}, "args.tags[1]", "must be a string, is 5"},
		{harp.Args{"service": "nginx", "tags": "a"}, "args.tags", "must be a list, is a string"},
		{harp.Args{"service": "nginx", "opts": map[string]any{}}, "args.opts.a", "is required: true or false"},
		{harp.Args{"service": "nginx", "opts": map[string]any{"a": 1}}, "args.opts.a", "must be true or false, is 1"},
		{harp.Args{"service": "nginx", "opts": map[string]any{"a": true, "b": "x"}}, "args.opts.b", "must be an integer, is a string"},
		{harp.Args{"service": "nginx", "opts": []any{}}, "args.opts", "must be a map, is a list"},
		{harp.Args{"service": "nginx", "on": "y"}, "args.on", `must be "x"`},
		{harp.Args{"service": "nginx", "either": "x"}, "args.either", "anyOf"},
		{harp.Args{"service": "nginx", "both": "b"}, "args.both", `must match a, is "b"`},
		{harp.Args{"service": "nginx", "both": "-a"}, "args.both", `must match ^[^-], is "-a"`},
		{harp.Args{"service": "nginx", "pin": "12x"}, "args.pin", "must be a string, match ^[0-9]+$; the value is a secret"},
		{harp.Args{"service": "nginx", "opts": map[string]any{"a": true, "odd": nil}}, "args.opts.odd", "not"},
		{harp.Args{"service": "nginx", "sevrice": 1}, "args.sevrice", "unknown argument; available: at, both, data, either, mode, n, on, opts, pin, ratio, service, tags, wait"},
		{harp.Pos(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), "args", "takes at most 9 positional arguments, got 10"},
		{"text", "args", "must be a map, is a string"},
		{harp.Value{0x81, 0xa1}, "args", "malformed"},
		{harp.Value("\x81\xa7service\xd4\x53x"), "args.service", "is sealed, and nothing here can open it"},
	} {
		v, ok := c.args.(harp.Value)
		if !ok {
			var err error
			if v, err = harp.NewValue(c.args); err != nil {
				t.Fatal(err)
			}
		}
		err := schema.Check(service, v)
		var e *harp.FieldError
		switch {
		case c.field == "" && err == nil:
		case !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Message, c.message):
			t.Errorf("%v: got %v, want %s: %s", c.args, err, c.field, c.message)
		}
	}
}

// TestBindIsWhatWasChecked checks that a map that says a key twice, differently,
// cannot carry past the check what was not checked.
func TestBindIsWhatWasChecked(t *testing.T) {
	doc := harp.ProcedureDoc{Args: json.RawMessage(`{"type":"object","properties":{"o":{"type":"object",
		"properties":{"a":{"enum":["safe"]},"b":{"type":"integer"}},"additionalProperties":false}}}`)}
	a, err := schema.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Bind(harp.Value("\x82\xa1o\x81\xa1a\xa4evil\xa1o\x81\xa1b\x01")); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestBindTypes(t *testing.T) {
	a, err := schema.Compile(service)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := harp.NewValue(harp.Args{"service": "nginx", "n": 5.0, "data": "AQI=", "at": "2026-01-02T03:04:05+02:00"})
	bound, err := a.Bind(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := bound.Any()
	want := map[string]any{
		"service": "nginx", "n": int64(5), "data": []byte{1, 2}, "at": time.Date(2026, 1, 2, 1, 4, 5, 0, time.UTC),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v", got, err)
	}
}

func TestNoSchemaNoCheck(t *testing.T) {
	for _, v := range []any{nil, harp.Pos(1, "x"), harp.Args{"a": []byte{1}}} {
		in, _ := harp.NewValue(v)
		if err := schema.Check(harp.ProcedureDoc{}, in); err != nil {
			t.Error(err)
		}
	}
}

func TestNamed(t *testing.T) {
	for _, c := range []struct{ args, want any }{
		{nil, nil},
		{harp.Args{"b": 1}, map[string]any{"b": int64(1)}},
		{harp.Pos(), nil},
		{harp.Pos("x", []int{1}), map[string]any{"a": "x", "b": []any{int64(1)}}},
	} {
		in, _ := harp.NewValue(c.args)
		v, err := schema.Named([]string{"a", "b"}, in)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := v.Any(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v", c.args, got)
		}
	}
	in, _ := harp.NewValue(harp.Pos(1))
	if _, err := schema.Named(nil, in); !errors.Is(err, harp.ErrInvalid) {
		t.Error(err)
	}
	if v, err := schema.Named([]string{"a"}, harp.Value("\x91\xd4\x53x")); err != nil || string(v) != "\x81\xa1a\xd4\x53x" {
		t.Errorf("a sealed value: %x, %v", []byte(v), err)
	}
	if _, err := schema.Named(nil, harp.Value{0x91}); !errors.Is(err, harp.ErrInvalid) {
		t.Error(err)
	}
}

// TestOddSchemas checks by schemas that nobody would write.
func TestOddSchemas(t *testing.T) {
	for name, text := range map[string]string{
		"multipleOf zero":  `{"properties":{"n":{"multipleOf":0}}}`,
		"no items":         `{"properties":{"n":{"items":null}}}`,
		"unique":           `{"properties":{"n":{"uniqueItems":true}}}`,
		"another draft":    `{"$schema":"http://example.com/"}`,
		"nothing may be":   `false`,
		"names":            `{"propertyNames":{"maxLength":0}}`,
		"required unknown": `{"required":["zz"]}`,
	} {
		a, err := schema.Compile(harp.ProcedureDoc{Name: "p", Args: json.RawMessage(text)})
		if err != nil {
			continue
		}
		for _, v := range []any{nil, harp.Args{"n": 5}, harp.Args{"n": []any{math.NaN(), math.NaN(), nil, "x", []any{}}}, harp.Pos(1)} {
			in, _ := harp.NewValue(v)
			if err := a.Check(in); err != nil && !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(string(service.Args), []byte("\x81\xa7service\xa1x"))
	f.Add(`{"anyOf":[{"type":"array"},{"enum":[1,"a"]}]}`, []byte{0x91, 0x01})
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		doc := harp.ProcedureDoc{Params: []string{"a", "b"}, Args: json.RawMessage(text)}
		a, err := schema.Compile(doc)
		if err != nil {
			return
		}
		bound, err := a.Bind(raw)
		if err != nil {
			if !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := a.Bind(bound); err != nil {
			t.Errorf("what was bound does not fit: %v", err)
		}
		_, _ = a.Parse("a", string(raw)) // must not panic
	})
}

func TestCache(t *testing.T) {
	var c schema.Cache
	get := func(doc harp.ProcedureDoc) (*schema.Args, error) { return c.Get(schema.KeyOf(doc), doc) }
	a, err := get(service)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := get(service); b != a {
		t.Error("compiled twice")
	}
	other := service
	other.Params = []string{"service"}
	if b, _ := get(other); b == a {
		t.Error("other parameters, same Args")
	}
	bad := harp.ProcedureDoc{Args: json.RawMessage(`{`)}
	for range 2 {
		if _, err := get(bad); !errors.Is(err, harp.ErrInvalid) {
			t.Error(err)
		}
	}
}
