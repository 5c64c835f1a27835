package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/cmd/harp/internal/demo"
)

// demoProcedures describe the demonstration procedures. To make their schemas takes long
// under the race detector.
var demoProcedures = sync.OnceValue(func() []harp.ProcedureDoc {
	a := agent.New(agent.Config{Name: "demo1"})
	demo.Register(a)
	return a.Procedures()
})

// demoProcedure is the description of one of the demonstration procedures.
func demoProcedure(t testing.TB, name string) harp.ProcedureDoc {
	t.Helper()
	docs := demoProcedures()
	i := slices.IndexFunc(docs, func(d harp.ProcedureDoc) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return docs[i]
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + path
	}
	both := file("both.json", `{"to":7,"every":"1us"}`)
	list := file("list.json", `[5, "1ms"]`)
	anything := harp.ProcedureDoc{Name: "anything"}
	for _, test := range []struct {
		name  string
		doc   harp.ProcedureDoc
		stdin string
		words []string
		want  string // JSON
		field string // of the error
	}{
		{name: "typed", doc: demoProcedure(t, "count"), words: []string{"to=20", "every=50ms"}, want: `{"every":"50ms","to":20}`},
		{name: "a text that looks like a number", doc: demoProcedure(t, "hello"), words: []string{"name=5"}, want: `{"name":"5"}`},
		{name: "an equals sign in the value", doc: demoProcedure(t, "hello"), words: []string{"name=a=b"}, want: `{"name":"a=b"}`},
		{name: "JSON", doc: demoProcedure(t, "count"), words: []string{"to:=3"}, want: `{"to":3}`},
		{name: "a file", doc: demoProcedure(t, "count"), words: []string{both}, want: `{"every":"1us","to":7}`},
		{name: "a word before a file", doc: demoProcedure(t, "count"), words: []string{"to=8", both}, want: `{"every":"1us","to":8}`},
		{name: "positional from a file", doc: demoProcedure(t, "count"), words: []string{list}, want: `[5,"1ms"]`},
		{name: "stdin", doc: demoProcedure(t, "count"), stdin: `{"to":1}`, words: []string{"-"}, want: `{"to":1}`},
		{name: "stdin by the other name", doc: demoProcedure(t, "count"), stdin: `{"to":1}`, words: []string{"@-"}, want: `{"to":1}`},
		{name: "without a schema", doc: anything, words: []string{"n=5", "t=text", `l=[1,2]`}, want: `{"l":[1,2],"n":5,"t":"text"}`},
		{name: "a large integer stays one", doc: anything, words: []string{"n:=9007199254740993"}, want: `{"n":9007199254740993}`},
		{name: "none", doc: anything, want: `{}`},

		{name: "not of the type", doc: demoProcedure(t, "count"), words: []string{"to=many"}, field: "args.to"},
		{name: "JSON not of the type", doc: demoProcedure(t, "count"), words: []string{`to:="many"`}, field: "args.to"},
		{name: "a duration without a unit", doc: demoProcedure(t, "count"), words: []string{"to=1", "every=1"}, field: "args.every"},
		{name: "a duration without a unit in JSON", doc: demoProcedure(t, "count"), words: []string{"to=1", "every:=1"}, field: "args.every"},
		{name: "a duration without a unit in a list", doc: demoProcedure(t, "count"), words: []string{file("bare.json", `[5, 1000000]`)}, field: "args.every"},
		{name: "unknown", doc: demoProcedure(t, "count"), words: []string{"to=1", "till=2"}, field: "args.till"},
		{name: "missing", doc: demoProcedure(t, "count"), words: []string{"every=1s"}, field: "args.to"},
		{name: "twice", doc: demoProcedure(t, "count"), words: []string{"to=1", "to=2"}, field: "args.to"},
		{name: "no name", doc: demoProcedure(t, "count"), words: []string{"20"}, field: "args"},
		{name: "an empty name", doc: demoProcedure(t, "count"), words: []string{"=20"}, field: "args"},
		{name: "no JSON", doc: demoProcedure(t, "count"), words: []string{"to:=twenty"}, field: "args.to"},
		{name: "no file", doc: demoProcedure(t, "count"), words: []string{"@" + filepath.Join(dir, "none")}, field: "args"},
		{name: "a file that is no JSON", doc: demoProcedure(t, "count"), words: []string{file("bad", "to=1")}, field: "args"},
		{name: "a file that is no object", doc: demoProcedure(t, "count"), words: []string{file("five", "5")}, field: "args"},
		{name: "named and positional", doc: demoProcedure(t, "count"), words: []string{list, "to=1"}, field: "args"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCLI(strings.NewReader(test.stdin), nil, nil, os.Getenv)
			got, err := c.arguments(test.doc, test.words)
			var wrong *harp.FieldError
			switch {
			case test.field != "":
				if !errors.As(err, &wrong) || wrong.Field != test.field {
					t.Errorf("error is %v, want one of field %s", err, test.field)
				}
			case err != nil:
				t.Error(err)
			default:
				if text, err := json.Marshal(got); err != nil || string(text) != test.want {
					t.Errorf("arguments are %s, %v, want %s", text, err, test.want)
				}
			}
		})
	}
}

func TestDictionary(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  map[string]any // nil: an error
	}{
		{[]string{`{"host":"web01","n":1}`}, map[string]any{"host": "web01", "n": int64(1)}},
		{[]string{"host=web01", "n:=1"}, map[string]any{"host": "web01", "n": int64(1)}},
		{[]string{"n=1"}, map[string]any{"n": "1"}},
		{[]string{"{}"}, map[string]any{}},
		{[]string{"web01"}, nil},
		{[]string{"{"}, nil},
		{[]string{"{}", "{}"}, nil},
	} {
		got, err := dictionary(test.words)
		if test.want == nil {
			if !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("%q is %v, %v, want an error", test.words, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q is %v, %v, want %v", test.words, got, err, test.want)
		}
	}
}

func TestLimitAndMoment(t *testing.T) {
	var l limit
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "none": harp.NoLimit} {
		if err := l.Set(text); err != nil || time.Duration(l) != want {
			t.Errorf("limit %s is %v, %v", text, time.Duration(l), err)
		}
	}
	for _, text := range []string{"0", "0s", "-1s", "ten", ""} {
		if err := l.Set(text); err == nil {
			t.Errorf("limit %q is accepted", text)
		}
	}
	var m moment
	if err := m.Set("2026-01-31T12:00:00Z"); err != nil || m.t.Unix() != 1769860800 {
		t.Errorf("moment is %v, %v", m.t, err)
	}
	past := moment{past: true}
	if err := errors.Join(m.Set("1h"), past.Set("1h")); err != nil || m.t.Sub(past.t).Round(time.Minute) != 2*time.Hour {
		t.Errorf("an hour from now and an hour ago are %v and %v, %v", m.t, past.t, err)
	}
	if err := m.Set("tomorrow"); err == nil {
		t.Error("moment tomorrow is accepted")
	}
}
