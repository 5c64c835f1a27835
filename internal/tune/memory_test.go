package tune

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaser looks again and again, and gives back once a busy time is over.
func TestReleaser(t *testing.T) {
	var now usage
	freed := 0
	r := releaser{
		read: func() usage { return now },
		free: func() { freed++; now.cycles++; now.held = 100 },
	}
	for n, step := range []struct {
		what         string
		cycles, held uint64 // since the step before
		freed        int    // in all
	}{
		{what: "the program begins", cycles: 2, held: 150},
		{what: "it has begun", freed: 1},
		{what: "it rests", freed: 1},
		{what: "it is busy", cycles: 7, held: 900, freed: 1},
		{what: "it still is", cycles: 1, held: 50, freed: 1},
		{what: "it rests", freed: 2},
		{what: "it rests on", freed: 2},
		{what: "a little is used", held: 25, freed: 2},
		{what: "and more", held: 1, freed: 3},
	} {
		now.cycles += step.cycles
		now.held += step.held
		r.releaseSpare()
		if freed != step.freed {
			t.Fatalf("step %d, %s: gave back %d times, want %d", n, step.what, freed, step.freed)
		}
	}
}

// TestReleaserShrinks takes what is needed now for what is needed, if that is less.
func TestReleaserShrinks(t *testing.T) {
	now := usage{held: 1000}
	freed := 0
	r := releaser{read: func() usage { return now }, free: func() { freed++ }}
	r.releaseSpare()
	now.held = 100 // by the runtime itself
	r.releaseSpare()
	now.held = 200
	if r.releaseSpare(); freed != 2 {
		t.Errorf("gave back %d times, want 2: twice as much as the least is held", freed)
	}
}

// TestRun looks until it is stopped.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		r := releaser{read: func() usage { looks++; return usage{} }, free: func() {}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookEvery+time.Second)
		defer cancel()
		r.releaseLoop(ctx)
		if looks != 3 {
			t.Errorf("looked %d times in three intervals", looks)
		}
	})
}

// TestReader sees what is taken, collected and given back.
func TestReader(t *testing.T) {
	const size = 64 << 20
	read := newReader()
	debug.FreeOSMemory() // what tests before have left would be given back meanwhile
	before := read()
	piece := make([]byte, size)
	if got := read(); got.held < before.held+size/2 {
		t.Errorf("%d bytes are held after %d were taken, %d before", got.held, size, before.held)
	}
	runtime.KeepAlive(piece)
	debug.FreeOSMemory()
	after := read()
	if after.held > before.held+size/2 {
		t.Errorf("%d bytes are held after they were given back, %d before", after.held, before.held)
	}
	if after.cycles <= before.cycles {
		t.Errorf("%d cycles after a collection, %d before", after.cycles, before.cycles)
	}
}

// TestSaving collects early where GOGC does not say otherwise.
func TestSaving(t *testing.T) {
	const mine = 123
	was := debug.SetGCPercent(mine)
	defer debug.SetGCPercent(was)
	for env, want := range map[string]int{"": 25, "123": mine} {
		t.Setenv("GOGC", env)
		stop := Saving{Percent: 25}.Start()
		if got := debug.SetGCPercent(mine); got != want {
			t.Errorf("with GOGC=%q the heap may grow by %d %%, want %d", env, got, want)
		}
		stop()
	}
}

// TestFloor checks that a small program does not collect before there is as much garbage as the floor says.
func TestFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	const percent = 50
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	const floor, garbage = 32 << 20, 128 << 20
	collections := func(floor int) uint64 {
		debug.FreeOSMemory()
		defer Saving{Floor: floor, Percent: percent}.Start()()
		read := newReader()
		before := read()
		for range garbage >> 10 {
			kept = make([]byte, 1<<10)
		}
		return read().cycles - before.cycles
	}
	if without, with := collections(0), collections(floor); with > 2*garbage/floor || without <= with {
		t.Errorf("%d collections of %d bytes, %d without a floor", with, garbage, without)
	}
}

// TestFloorOfMuch: the floor came on top of what the percentage allows. A program that holds much has nothing of it, one that holds
// little again has it again, and none has it when the saving is over.
func TestFloorOfMuch(t *testing.T) {
	t.Setenv("GOGC", "")
	const percent = 50
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	const floor = 32 << 20
	runtime.GC()
	stop := Saving{Floor: floor, Percent: percent}.Start()
	await(t, readPercent, func(got int) bool { return got > 2*percent })
	much := make([]byte, 4*floor)
	await(t, readPercent, func(got int) bool { return got == percent })
	runtime.KeepAlive(much)
	await(t, readPercent, func(got int) bool { return got > 2*percent })
	stop()
	runtime.GC()
	if got := readPercent(); got != percent {
		t.Errorf("when all is over the heap may grow by %d %%, want %d", got, percent)
	}
}

// TestLimit: what peers made a program hold became more than half as much again by garbage and by what was free and not given back.
// The more a program needs the more it may take, so that it never does nothing else than collect; and the limit ends with the saving.
func TestLimit(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	limit := func() int { return int(debug.SetMemoryLimit(-1)) }
	runtime.GC()
	before := limit()
	const much = 64 << 20
	stop := Saving{Percent: 50, Much: much}.Start()
	if got := limit(); got < much || got > 2*much {
		t.Errorf("the limit is %d, much is %d", got, much)
	}
	held := make([]byte, 4*much)
	await(t, limit, func(got int) bool { return got > 6*much && got < 9*much })
	runtime.KeepAlive(held)
	await(t, limit, func(got int) bool { return got < 2*much })
	stop()
	runtime.GC()
	if got := limit(); got != before {
		t.Errorf("when all is over the limit is %d, before it was %d", got, before)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	defer Saving{Percent: 50, Much: much}.Start()()
	if got := limit(); got != before {
		t.Errorf("the limit of the environment is taken for none: %d", got)
	}
}

// await collects until what is set is as it should be: that is set by a goroutine of the runtime's.
func await(t *testing.T, read func() int, isGood func(int) bool) {
	t.Helper()
	for range 1000 {
		runtime.GC()
		if isGood(read()) {
			return
		}
	}
	t.Errorf("it stays at %d", read())
}

func readPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// kept keeps what it holds out of the stack.
var kept []byte
