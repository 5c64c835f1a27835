//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnits checks the units of contrib/systemd: what keeps commands alive is in the
// agent's, their commands are this program's, and systemd takes them, where there is
// one.
func TestUnits(t *testing.T) {
	must := map[string][]string{
		"harp-dispatcher.service": {
			"ExecStart=/usr/local/bin/harp dispatcher --config /etc/harp/dispatcher.yaml", "ExecReload=/bin/kill -HUP $MAINPID",
			"StateDirectory=harp", "ProtectSystem=strict", "NoNewPrivileges=yes",
		},
		"harp-agent.service": {
			"ExecStart=/usr/local/bin/harp agent --config /etc/harp/agent.yaml", "ExecReload=/bin/kill -HUP $MAINPID",
			"KillMode=process", "Delegate=yes", "DelegateSubgroup=harp-agent", "StateDirectory=harp-agent",
		},
	}
	var units []string
	for name, lines := range must {
		text, err := os.ReadFile(filepath.Join("../../contrib/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		has := strings.Split(string(text), "\n")
		for _, line := range lines {
			if !slices.Contains(has, line) {
				t.Errorf("%s has no %s", name, line)
			}
		}
		units = append(units, verifiable(t, name, string(text)))
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd's own opinion is not asked:", err)
		return
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify"}, units...)...).CombinedOutput()
	// It also speaks of units of the machine's own; and of unknown words with success.
	for line := range strings.Lines(string(out)) {
		old := strings.Contains(line, "Unknown key") && strings.Contains(line, "'DelegateSubgroup'") // before 254
		if strings.Contains(line, "harp-") && !old {
			t.Error("systemd:", line)
		}
	}
	if err != nil {
		t.Errorf("systemd: %v\n%s", err, out)
	}
}

// verifiable writes a unit for which the program is there.
func verifiable(t *testing.T, name, text string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/local/bin/harp", self)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
