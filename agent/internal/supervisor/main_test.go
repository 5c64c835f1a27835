//go:build unix

package supervisor_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// TestMain lets the test be its own supervisors, launchers and agents.
func TestMain(m *testing.M) {
	supervisor.Main()
	if len(os.Args) > 1 && os.Args[1] == agentArg {
		os.Exit(agentMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
