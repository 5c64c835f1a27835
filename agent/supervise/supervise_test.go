package supervise_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/supervise"
)

func TestMain(m *testing.M) {
	if supervisor.Available() {
		panic("supervisors can be had before Main was called")
	}
	supervise.Main()
	os.Exit(m.Run())
}

func TestMainMakesSupervisorsAvailable(t *testing.T) {
	if got, want := supervisor.Available(), runtime.GOOS == "linux"; got != want {
		t.Errorf("available: %v, want %v", got, want)
	}
}
