package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// The reference is of every field, and of nothing else.
func TestKeysAreTheFields(t *testing.T) {
	for name, test := range map[string]struct {
		keys []config.Key
		of   any
	}{
		"dispatcher": {config.DispatcherKeys(), config.Dispatcher{}},
		"agent":      {config.AgentKeys(), config.Agent{}},
	} {
		var documented []string
		for _, k := range test.keys {
			documented = append(documented, k.Name)
			if k.Type == "" || k.Meaning == "" {
				t.Errorf("%s: %s has no type or no meaning", name, k.Name)
			}
		}
		fields := fieldsIn(reflect.TypeOf(test.of), "")
		slices.Sort(documented)
		slices.Sort(fields)
		if !slices.Equal(slices.Compact(documented), fields) {
			t.Errorf("%s: the keys are\n%q, the fields\n%q", name, documented, fields)
		}
	}
}

// fieldsIn are the names of a struct's fields; those of structs within it behind a dot.
func fieldsIn(t reflect.Type, before string) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer { // a group that may be there as a whole
			names = append(names, before+name)
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[config.Level]() {
			names = append(names, fieldsIn(inner, before+name+".")...)
			continue
		}
		if f.Type.Kind() != reflect.Pointer {
			names = append(names, before+name)
		}
	}
	return names
}

func TestDocsAreCurrent(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != config.Markdown() {
		t.Error("docs/configuration.md is not that of the keys: go generate ./cmd/harp/internal/config")
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	for _, keys := range [][]config.Key{config.DispatcherKeys(), config.AgentKeys()} {
		for line := range strings.SplitSeq(config.Help(keys), "\n") {
			if len(line) > 88 {
				t.Errorf("%q is long", line)
			}
		}
	}
}

// What is printed is a file that says the same again, with nothing left to defaults.
func TestPrintedConfiguration(t *testing.T) {
	const rest = `
data: data
hosts: [{name: web01, address: "10.0.0.1:7442", labels: {role: web}}]
lost_after: 36h
retain: none
retain_bytes: 1536MiB
limits: {silence_timeout: 90s}
log: {level: warn}
`
	path := write(t, dispatcherTLS+rest)
	d, err := config.ReadDispatcher(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"listen: :7440", "heartbeat: 10s", "lost_after: 36h", "retain: none", "retain_bytes: 1536MiB",
		"silence_timeout: 1m30s", "max_silence_timeout: none", "attempts: 1024", "level: warn", "name: web01",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
	again := filepath.Join(filepath.Dir(path), "again.yaml")
	if err := os.WriteFile(again, text, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := config.ReadDispatcher(again)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got, err := second.YAML(); err != nil || string(got) != string(text) {
		t.Errorf("read and printed again it is\n%s, want\n%s (%v)", got, text, err)
	}
}

// What an agent's file does not say is printed, too.
func TestPrintedConfigurationOfAnAgent(t *testing.T) {
	path := write(t, agentTLS+"listen: 127.0.0.1:0\nexec: {commands: [/bin/ls], grace: 1m}\n")
	a, err := config.ReadAgent(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Attempts    int               `yaml:"max_attempts"`
		MaxJournal  yamlfile.Bytes    `yaml:"max_journal"`
		MaxJobSpool yamlfile.Bytes    `yaml:"max_job_spool"`
		Grace       yamlfile.Duration `yaml:"grace"`
		Exec        config.Exec       `yaml:"exec"`
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got.Attempts != 1024 || got.MaxJournal != 1<<30 || got.MaxJobSpool != 64<<20 || time.Duration(got.Grace) != 5*time.Second {
		t.Errorf("printed\n%s", text)
	}
	if !slices.Equal(got.Exec.Commands, []string{"/bin/ls"}) || time.Duration(got.Exec.Grace) != time.Minute {
		t.Errorf("printed\n%s", text)
	}
}

func TestChanged(t *testing.T) {
	read := func(text string) *config.Agent {
		a, err := config.ReadAgent(write(t, agentTLS+text))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := read("listen: 127.0.0.1:0\nlog: {level: info}\nprocedures: a\n")
	for text, want := range map[string][]string{
		"listen: 127.0.0.1:0\nlog: {level: debug}\nprocedures: b\n":                     nil,
		"listen: 127.0.0.1:1\nlog: {format: json}\n":                                    {"listen", "log.format"},
		"dispatchers: [a]\nlisten: 127.0.0.1:0\nexec: {user: nobody}\nlabels: {a: b}\n": {"dispatchers", "labels", "exec", "exec.user"},
	} {
		then := read(text)
		got := first.Changed(then)
		got = slices.DeleteFunc(got, func(name string) bool { return strings.HasPrefix(name, "tls.") || name == "dir" }) // of another folder
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q changes %q, want %q", text, got, want)
		}
	}
	if got := first.Changed(first); len(got) > 0 {
		t.Errorf("nothing has changed, but %q", got)
	}
}
