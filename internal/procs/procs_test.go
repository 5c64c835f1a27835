package procs_test

import (
	"runtime"
	"testing"

	"github.com/harpcaller/harp/internal/procs"
)

func TestRaise(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	was := runtime.GOMAXPROCS(0)
	undo := procs.Raise()
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
	undo := procs.Raise()
	defer undo()
	if now := runtime.GOMAXPROCS(0); now != was {
		t.Errorf("%d, was %d", now, was)
	}
}
