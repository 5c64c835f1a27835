package command

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hasAll is a machine that has all controllers.
func hasAll(string) error { return nil }
