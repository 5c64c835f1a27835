package contexts_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
)

func TestPutAndGet(t *testing.T) {
	dir := contexts.Dir(filepath.Join(t.TempDir(), "new", "harp"))
	want := contexts.Context{Addr: "harp:7440", Fleet: "prod", Cert: "/c.crt", Key: "/c.key", CA: "/ca.crt"}
	for range 2 {
		if err := dir.Put("prod", want); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := dir.Get("prod"); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	_, err := dir.Get("dev")
	if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "available: prod") {
		t.Errorf("an unknown one is %v", err)
	}
}

func TestUse(t *testing.T) {
	dir := contexts.Dir(t.TempDir())
	if name, err := dir.Current(); name != "" || err != nil {
		t.Errorf("at first the current one is %q, %v", name, err)
	}
	for _, step := range []struct{ use, before string }{{"dev", ""}, {"prod", "dev"}, {"prod", "prod"}} {
		before, err := dir.Use(step.use)
		if err != nil || before != step.before {
			t.Errorf("before %s it was %q, %v, want %q", step.use, before, err, step.before)
		}
		if name, err := dir.Current(); name != step.use || err != nil {
			t.Errorf("now it is %q, %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	dir := contexts.Dir(t.TempDir())
	for _, name := range []string{"", "../x", "a/b", ".hidden", "a b", "é"} {
		if _, err := dir.Get(name); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("get %q: %v", name, err)
		}
		if err := dir.Put(name, contexts.Context{}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("put %q: %v", name, err)
		}
		if _, err := dir.Use(name); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("use %q: %v", name, err)
		}
	}
}

func TestGetOfADamagedFile(t *testing.T) {
	dir := contexts.Dir(t.TempDir())
	if err := dir.Put("dev", contexts.Context{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(string(dir), "contexts", "dev.yaml")
	if err := os.WriteFile(path, []byte("addr: x\nport: 7440\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Get("dev"); err == nil || !strings.Contains(err.Error(), "dev.yaml:2: port: is unknown") {
		t.Errorf("error is %v", err)
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HARP_CONFIG_DIR": "/x", "XDG_CONFIG_HOME": "/y"}, "/x"},
		{map[string]string{"XDG_CONFIG_HOME": "/y"}, "/y/harp"},
	} {
		got, err := contexts.Find(func(name string) string { return test.env[name] })
		if err != nil || string(got) != test.want {
			t.Errorf("with %v it is %s, %v, want %s", test.env, got, err, test.want)
		}
	}
}
