package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestTemplate(t *testing.T) {
	for _, test := range []struct {
		args string // but for the template, which stands for T
		text string
		want said
	}{
		{"job ls -o T", "{{.id}} {{.state}} {{.args.to}}", said{stdout: firstID + " succeeded 3\n"}},
		{"host ls -o T", "{{.name}}\t{{json .procedures}}", said{stdout: "demo1\t[\"count\",\"hello\"]\n"}},
		{"job show last -o T", "{{.v}} {{.host}}", said{stdout: "1 demo1\n"}},
		{"job show last -o T", `{{.labels.role}} {{.error.code}}{{with .labels}}{{index . "role"}}{{end}}`, said{stdout: "<no value> <no value>\n"}},
		{"call demo1 count to=3 -o T", "{{.value.counted}}", said{stdout: "3\n"}},
		{"job follow last --since 0 -o T", "{{.seq}} {{.value}}", said{stdout: "0 map[i:1]\n1 out\\x1b[2J\nput\n\n2 a\\u009b text\n"}},
		{"host show nope -o T", "{{.name}}", said{stderr: "harp: no such host: nope\nSee: harp host ls\n", code: exitNotFound}},
	} {
		args := strings.Fields(test.args)
		for i, arg := range args {
			if arg == "T" {
				args[i] = templated + test.text
			}
		}
		if got := runFake(t, t.Context(), ended(t, nil), nil, args...); got != test.want {
			t.Errorf("%s of %s: got %+v, want %+v", args, test.text, got, test.want)
		}
	}
	for _, bad := range []string{"{{", "{{nope}}", "{{.id.x.y}}", `{{index .labels "role"}}`, "{{len .labels}}"} {
		if got := runFake(t, t.Context(), ended(t, nil), nil, "job", "show", "last", "-o", templated+bad); got.code != exitUsage || got.stdout != "" {
			t.Errorf("template %s: got %+v", bad, got)
		}
	}
}

func TestYAML(t *testing.T) {
	for _, args := range []string{"job show last", "job ls", "host ls", "call demo1 count to=3", "job follow last --since 0", "host show nope", "version"} {
		words := strings.Fields(args)
		asJSON := runFake(t, t.Context(), ended(t, nil), nil, append(words, "-o", "json")...)
		asYAML := runFake(t, t.Context(), ended(t, nil), nil, append(words, "-o", "yaml")...)
		if asYAML.code != asJSON.code || strings.ContainsFunc(asYAML.stdout, unsafeInJSON) {
			t.Errorf("%s: got %+v, as JSON %+v", args, asYAML, asJSON)
		}
		if strings.HasPrefix(args, "job follow") {
			if n := strings.Count(asYAML.stdout, "---\n"); n != 3 {
				t.Errorf("%s: there are %d documents, want 3:\n%s", args, n, asYAML.stdout)
			}
			continue
		}
		var got, want any
		if err := yaml.Unmarshal([]byte(asYAML.stdout), &got); err != nil {
			t.Fatalf("%s: %v in\n%s", args, err, asYAML.stdout)
		}
		if err := yaml.Unmarshal([]byte(asJSON.stdout), &want); err != nil {
			t.Fatal(err)
		}
		if g, w := yamlText(t, got), yamlText(t, want); g != w {
			t.Errorf("%s: got\n%s\nwant\n%s", args, g, w)
		}
	}
}

func yamlText(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What only looks like another type stays a text, and nothing reaches a terminal raw.
func TestYAMLOfHostileText(t *testing.T) {
	texts := []string{"1", "true", "null", "", "~", "- a", "a: b", "# no", "a\nb\n", " x ", "%TAG", "'", `"`, "\\", "0x1f", "2026-01-01", "y", "<<", "=", "!!int 1", "&a", "*a", "\u2028", "\ufeff", "😀"}
	for r := range rune(0x100) {
		texts = append(texts, "a"+string(r)+"b: c", string(r))
	}
	texts = append(texts, "a\u202eb", "\u2066", "---\nx", "...\n")
	encoded, err := compactJSON(map[string]any{"texts": texts, "a\x1b: b": 1})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := asYAML(&b, safeJSON(encoded)); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), unsafeInJSON) {
		t.Errorf("there are control characters in %q", b.String())
	}
	var got struct{ Texts []any }
	if err := yaml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	if len(got.Texts) != len(texts) {
		t.Fatalf("there are %d texts, want %d", len(got.Texts), len(texts))
	}
	for i, text := range texts {
		if got.Texts[i] != text {
			t.Errorf("%q became %#v", text, got.Texts[i])
		}
	}
}

func TestWide(t *testing.T) {
	got := runFake(t, t.Context(), ended(t, nil), nil, "job", "ls", "-o", "wide")
	header, row, _ := strings.Cut(got.stdout, "\n")
	if !strings.HasSuffix(header, "ARGS      ERROR") || !strings.Contains(row, `{"to":3}`) {
		t.Errorf("got %+v", got)
	}
	if got := runFake(t, t.Context(), ended(t, nil), nil, "job", "show", "last", "-o", "wide"); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}

// What is wrong with a command line is said in words that lead on.
func TestWordsThatLeadOn(t *testing.T) {
	for args, want := range map[string]string{
		"help nope":                  "harp: no help on nope; harp help lists all topics\n",
		"help job nope":              "harp: no help on job nope;",
		"job ls --state unreachable": "ask for expired",
	} {
		got := runFake(t, t.Context(), ended(t, nil), nil, strings.Fields(args)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
	for _, args := range []string{"help", "help job", "help job ls", "help exit-codes"} {
		if got := runFake(t, t.Context(), ended(t, nil), nil, strings.Fields(args)...); got.code != 0 || got.stdout == "" {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	if got := runFake(t, t.Context(), ended(t, nil), nil, "__complete", "job", "ls", "-"); strings.Contains(got.stdout, "`") || !strings.Contains(got.stdout, "--host\tonly on this host") {
		t.Errorf("got %+v", got)
	}
}

// What YAML 1.1 reads as something else than a text stays in quotes.
func TestYAMLQuotesWhatOldReadersTakeForOthers(t *testing.T) {
	var b strings.Builder
	if err := asYAML(&b, []byte(`{"started":"no","a":["yes","On","0777","1_000","12:30","y","~"],"id":"0198f0a2-7c11","when":"2026-01-31T12:00:00Z","on":"web01","n":5,"ok":true}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`started: "no"`, `- "yes"`, `- "On"`, `- "0777"`, `- "1_000"`, `- "12:30"`, `- "y"`, `- "~"`, "id: 0198f0a2-7c11", `"on": web01`, `"n": 5`, "ok: true"} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("lacks %s:\n%s", want, b.String())
		}
	}
}
