//go:build linux && !race

package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// insideEnv is set in a test process that has a mount namespace of its own.
const insideEnv = "HARP_FAULTS_INSIDE"

// inNamespace runs the test again in a process that may mount what it likes and
// whose mounts are gone when it is, and reports what that one did. It is true in
// there. Where mounting is not permitted the test is left out. build, if any, builds
// the program that is tested.
func inNamespace(t *testing.T, build ...func(*testing.T) string) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	needs.Root(t)
	needs.Programs(t, "mkfs.ext4", "mount", "umount")
	tested := program
	for _, b := range build {
		tested = b(t)
	}
	figures := filepath.Join(t.TempDir(), "figures.json")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), insideEnv+"=1", programEnv+"="+tested,
		"HARP_FAULTS_REPORT="+figures, "HARP_FAULTS_SEED="+strconv.FormatUint(report.Seed, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("in a mount namespace of its own:\n%s", out)
	takeFigures(t, figures)
	switch {
	case err != nil:
		t.Error(err)
	case strings.Contains(string(out), "--- SKIP"):
		needs.Missing(t, "it was skipped in there")
	}
	return false
}

// takeFigures takes the figures of another process into the report.
func takeFigures(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return // it said why it has none
	}
	var theirs struct{ Tests map[string]map[string]any }
	must(t, json.Unmarshal(data, &theirs))
	for test, figures := range theirs.Tests {
		for figure, value := range figures {
			report.Note(test, figure, value)
		}
	}
}

// command runs a tool.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// mounted mounts something; the test is left out where that is not permitted.
func mounted(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "mount", args...).CombinedOutput(); err != nil {
		needs.Missing(t, "mount ", args, ": ", err, ": ", string(out))
	}
}
