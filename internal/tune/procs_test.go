package tune_test

import (
	"runtime"
	"testing"

	"github.com/harpcaller/harp/internal/tune"
)

func TestRaiseProcs(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	was := runtime.GOMAXPROCS(0)
	undo := tune.RaiseProcs()
	if now := runtime.GOMAXPROCS(0); now <= was {
		t.Errorf("%d, was %d", now, was)
	}
	undo()
	if now := runtime.GOMAXPROCS(0); now != was {
		t.Errorf("undone: %d, was %d", now, was)
	}
}

func TestEnvironmentHolds(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "7")
	undo := tune.RaiseProcs()
	defer undo()
	if now := runtime.GOMAXPROCS(0); now != was {
		t.Errorf("%d, was %d", now, was)
	}
}
