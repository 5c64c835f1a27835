package needs_test

import (
	"fmt"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// outcome is a test that notes whether it was left out or failed.
type outcome struct {
	testing.TB
	said string
}

func (o *outcome) Helper() {}

func (o *outcome) Skip(what ...any) { o.said = "skipped: " + fmt.Sprint(what...) }

func (o *outcome) Fatal(what ...any) {
	o.said = "failed: " + fmt.Sprint(what...)
	panic(o)
}

func TestMissing(t *testing.T) {
	run := func(test func(t testing.TB)) (said string) {
		o := &outcome{TB: t}
		defer func() {
			_ = recover() // as Fatal ends a test
			said = o.said
		}()
		test(o)
		return o.said
	}
	for ci, want := range map[string]string{"": "skipped: ", "1": "failed: "} {
		t.Setenv("CI", ci)
		if said := run(func(t testing.TB) { needs.Missing(t, "no ", "disk") }); said != want+"no disk" {
			t.Errorf("CI=%q: %s", ci, said)
		}
		const program = "harp-there-is-no-such-program"
		if said := run(func(t testing.TB) { needs.Programs(t, "sh", program) }); said != want+`exec: "`+program+`": executable file not found in $PATH` {
			t.Errorf("CI=%q: %s", ci, said)
		}
		if said := run(func(t testing.TB) { needs.Programs(t, "sh") }); said != "" {
			t.Errorf("CI=%q: %s, and the program is there", ci, said)
		}
	}
}
