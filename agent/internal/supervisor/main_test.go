//go:build unix

package supervisor_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// mains are the programs that the test binary can be, by its first argument.
var mains = map[string]func(args []string) int{agentArg: agentMain}

// TestMain lets the test be its own supervisors, launchers and agents.
func TestMain(m *testing.M) {
	supervisor.Main()
	if len(os.Args) > 1 && mains[os.Args[1]] != nil {
		os.Exit(mains[os.Args[1]](os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
