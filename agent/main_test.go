package agent_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp/agent/supervise"
)

func TestMain(m *testing.M) {
	supervise.Main() // the test binary is what supervises commands, too
	goleak.VerifyTestMain(m)
}
