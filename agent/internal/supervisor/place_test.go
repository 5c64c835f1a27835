package supervisor

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
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

// TestBoundsOfSpecs checks the last that a Spec may have, and the first that it may not.
func TestBoundsOfSpecs(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		ok   bool
	}{
		"the longest record":         {Spec{Key: Key{"job", 1}, MaxRecord: maxValue}, true},
		"a longer record":            {Spec{Key: Key{"job", 1}, MaxRecord: maxValue + 1}, false},
		"the largest result":         {Spec{Key: Key{"job", 1}, Result: Result{Max: maxResult}}, true},
		"a larger result":            {Spec{Key: Key{"job", 1}, Result: Result{Max: maxResult + 1}}, false},
		"an empty result":            {Spec{Key: Key{"job", 1}}, true},
		"a result of less than none": {Spec{Key: Key{"job", 1}, Result: Result{Max: -1}}, false},
		"the longest name":           {Spec{Key: Key{strings.Repeat("x", 128), 1}}, true},
		"a longer name":              {Spec{Key: Key{strings.Repeat("x", 129), 1}}, false},
		"no name":                    {Spec{}, false},
	} {
		checked, err := c.spec.checked()
		var invalid *harp.FieldError
		if (err == nil) != c.ok || errors.As(err, &invalid) == c.ok {
			t.Errorf("%s: the error is %v", name, err)
		}
		if c.ok && (checked.MaxRecord != cmp.Or(c.spec.MaxRecord, defaultMaxRecord) || checked.MaxSpool != defaultMaxSpool || checked.Records != SplitLines) {
			t.Errorf("%s: it becomes %+v", name, checked)
		}
	}
}
