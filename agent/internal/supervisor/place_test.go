package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestList(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	for _, name := range []string{"a.1", "a.2", "b-_C.10", "a.01", "a", ".new-1", ".new-2", ".old-1", "a b.1"} {
		if err := os.Mkdir(filepath.Join(o.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * leftOverAge)
	for _, name := range []string{".new-2", ".old-1", "a b.1"} {
		if err := os.Chtimes(filepath.Join(o.Dir, name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := List(o)
	if want := []Key{{"a", 1}, {"a", 2}, {"b-_C", 10}}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("the attempts are %v, %v; want %v", keys, err, want)
	}
	for name, want := range map[string]bool{".new-1": true, ".new-2": false, ".old-1": false, "a b.1": true} {
		if _, err := os.Stat(filepath.Join(o.Dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if keys, err := List(Options{Dir: o.Dir + "/no"}); err != nil || keys != nil {
		t.Errorf("of no directory: %v, %v", keys, err)
	}
}

func TestAppear(t *testing.T) {
	p, err := placeOf(Options{Dir: t.TempDir()}, Key{"job", 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		prepared, err := p.prepare()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(prepared.spool(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err = prepared.appear(p)
		if i == 0 && err != nil || i == 1 && !errors.Is(err, ErrExists) {
			t.Errorf("the error is %v", err)
		}
	}
	if err := p.remove(); err != nil || p.exists() {
		t.Errorf("it is still there: %v", err)
	}
}
