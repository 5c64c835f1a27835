// Package needs is for tests that need something of the machine: another user, a mount, a
// program. Where that is missing the test is left out; in CI, where nothing may be left
// out, it fails.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// ci is the variable of the environment that says that nothing may be left out.
const ci = "CI"

// Missing leaves the test out, as the machine lacks what it needs. In CI the test fails.
func Missing(t testing.TB, what ...any) {
	t.Helper()
	if os.Getenv(ci) != "" {
		t.Fatal(what...)
	}
	t.Skip(what...)
}

// Root is for a test that only root can run.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "only root can do this")
	}
}

// Programs is for a test that runs these programs.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, err)
		}
	}
}

// NoRaceDetector is for a test that counts what the race detector changes: memory, or allocations where a sync.Pool
// is used, which then forgets a part of what it is given. make test runs it without.
func NoRaceDetector(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("the race detector changes what is counted")
	}
}
