package yamlfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/yamlfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type settings struct {
	Dir  string             `yaml:"dir"`
	Size yamlfile.Bytes     `yaml:"size"`
	Wait yamlfile.Duration  `yaml:"wait"`
	Sub  map[string]*nested `yaml:"sub"`
	List []string           `yaml:"list"`
}

type nested struct {
	On bool `yaml:"on"`
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("# settings\ndir: x\nsize: 2KiB\nwait: 2d\nsub: {a: {on: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s settings
	f, err := yamlfile.Read(path, &s)
	if err != nil {
		t.Fatal(err)
	}
	if s.Size != 2048 || time.Duration(s.Wait) != 48*time.Hour || !s.Sub["a"].On {
		t.Errorf("read %+v", s)
	}
	if want := filepath.Join(filepath.Dir(path), "x"); f.Path(s.Dir) != want || f.Program("./x") != want || f.Program("x") != "x" || f.Name() != path {
		t.Errorf("paths are %s, %s, %s", f.Path(s.Dir), f.Program("./x"), f.Program("x"))
	}
	for field, want := range map[string]string{"size": ":3: size: bad", "sub.a.on": ":5: sub.a.on: bad", "sub.b": ":5: sub.b: bad", "none": ": none: bad"} {
		if got := f.Wrap(&harp.FieldError{Field: field, Message: "bad"}).Error(); got != path+want {
			t.Errorf("of %s the error is %s", field, got)
		}
	}
	if _, err := yamlfile.Read(path+"x", &s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no file the error is %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"# only this\n":             "",
		"dir: x\nodd: 1\n":          "f:2: odd: is unknown",
		"sub:\n  a:\n    of: 1\n":   "f:3: sub.a.of: is unknown",
		"sub: {a: {on: 5}}\n":       "f:1: sub.a.on: must be true or false, is 5",
		"sub: [a]\n":                "f:1: sub: must be a map",
		"list: a\n":                 "f:1: list: must be a list, is a",
		"size: -1\nwait: 1\n":       "f:2: wait: must be a duration",
		"dir: a\ndir: b\n":          `f:2: dir: mapping key "dir" already defined at line 1`,
		"dir: a\n---\ndir: b\n":     "f: must be one document",
		"a: &a [*a, *a]\nb: [*a]\n": "f:1: ",
	} {
		var s settings
		_, err := yamlfile.Parse("f", []byte(text), &s)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
