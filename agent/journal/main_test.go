package journal

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// mains are the programs that the test binary can be, by its first argument.
var mains = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && mains[os.Args[1]] != nil {
		mains[os.Args[1]](os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m)
}
