package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/schema"
)

// The patterns are those that an agent makes of a file.
func TestRefusalsAreInWords(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(`
show:
  params:
    text: {}
    word: {}
    any: {type: path}
    etc: {type: path, under: /etc/a.b}
    own: {pattern: '^[a-z]+$'}
  command: [echo, "{{.word}}", "--text={{.text}}", "{{.any}}", "{{.etc}}", "--own={{.own}}"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := agent.New(agent.Config{Name: "a", Logger: quiet})
	if err := a.Load(dir); err != nil {
		t.Fatal(err)
	}
	known, err := schema.Compile(a.Procedures()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, text, want string }{
		{"text", "a\x00b", `invalid args.text: must not contain a NUL character, is "a\u0000b"`},
		{"word", "-x", `invalid args.word: must not begin with -, which the command might take for an option, nor contain a NUL character, is "-x"`},
		{"any", "/a/../b", `invalid args.any: must be an absolute path without .., is "/a/../b"`},
		{"any", "b", `invalid args.any: must be an absolute path without .., is "b"`},
		{"etc", "/etc/x", `invalid args.etc: must be a path under /etc/a.b, without .., is "/etc/x"`},
		{"own", "A", `invalid args.own: must match ^[a-z]+$, is "A"`},
	} {
		v, err := harp.NewValue(map[string]any{test.name: test.text})
		if err != nil {
			t.Fatal(err)
		}
		if got := inWords(known.Check(v)); got == nil || got.Error() != test.want {
			t.Errorf("%s=%q: got %v, want %s", test.name, test.text, got, test.want)
		}
	}
	if got := inWords(nil); got != nil {
		t.Errorf("no error became %v", got)
	}
}
