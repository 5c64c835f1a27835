// Package tune sets the Go runtime for programs that are a dispatcher or an agent: they take
// less memory than programs in Go do, and run on while a part of them waits for its disk.
package tune

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// lookEvery is how often it is looked whether the program has come to rest.
const lookEvery = 10 * time.Second

// Saving is how a program saves memory.
type Saving struct {
	Floor   int // bytes of garbage that it lets come together before it collects, at least
	Percent int // by how much what it has in memory may grow before that, as of the variable GOGC
	Much    int // bytes that it takes from the system from which on it collects earlier, and gives back at once; 0: it never does
}

// An agent has little in memory, unless those that connect to it fill what there is room for: then memory is dearer than the
// processor's time, since the host is there for others. A dispatcher of many agents has much at all times.
var (
	Agent      = Saving{Floor: 16 << 20, Percent: 25, Much: 128 << 20}
	Dispatcher = Saving{Floor: 64 << 20, Percent: 50, Much: 320 << 20}
)

// Start has the program collect garbage early, but not before there are Floor bytes of
// it, and give back what a busy time needed when that is over. A GOGC in the environment
// holds instead of what it would set. The function it returns ends the saving, and waits for
// it.
//
// The floor is memory that is allocated and never touched, so that the system gives none: the
// collector counts it as used. (https://github.com/golang/go/issues/23044 asks for a setting
// of the runtime.) Without one a small program that is busy collects hundreds of times a
// second; with 16 MiB direct calls take 0.7 of the processor's time.
//
// A program that holds much, as when many peers fill what there is room for, collects before there is
// half as much garbage. A GOMEMLIMIT in the environment holds instead of that.
func (s Saving) Start() (stop func()) {
	var ballast []byte
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(s.Percent)
		ballast = make([]byte, s.Floor*100/s.Percent)
	}
	l := &limiter{ballast: int64(len(ballast)), much: int64(s.Much), ended: s.Much == 0 || os.Getenv("GOMEMLIMIT") != ""}
	l.setLimit()
	ctx, cancel := context.WithCancel(context.Background())
	r := releaser{read: newReader(len(ballast)), free: debug.FreeOSMemory}
	var work sync.WaitGroup
	work.Go(func() {
		r.releaseLoop(ctx)
		runtime.KeepAlive(ballast)
	})
	return func() {
		cancel()
		work.Wait()
		l.end()
	}
}

// limiter sets how much memory the runtime takes from the system before it collects all the time and gives back what
// it can. Without one, what peers make a program hold becomes half as much again by garbage, and stays taken for a while.
type limiter struct {
	ballast, much int64

	mu    sync.Mutex // guards what follows
	ended bool
}

// setLimit sets what is much, or a quarter more than is in use, whichever is more: near the limit the runtime would do
// nothing else than collect. It does so anew after each collection, in the runtime's goroutine for cleanups, until the limiter is ended.
func (l *limiter) setLimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	used := readNeeded() - l.ballast
	debug.SetMemoryLimit(l.ballast + max(l.much, used+used/4))
	runtime.AddCleanup(&garbage{}, (*limiter).setLimit, l)
}

// end takes the limit away.
func (l *limiter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		debug.SetMemoryLimit(math.MaxInt64)
	}
	l.ended = true
}

// readNeeded returns how many bytes were in use after the last collection, on the heap and for all else, as stacks.
func readNeeded() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	needed := samples[0].Value.Uint64() + samples[1].Value.Uint64()
	for _, s := range samples[2:] {
		needed -= s.Value.Uint64()
	}
	return int64(needed) //nolint:gosec // it is memory that there is
}

// garbage is what a collection finds. It is no part of a block with others, which would have to go as well.
type garbage struct{ _ [64]byte }

// usage is what the runtime says of its memory.
type usage struct {
	cycles uint64 // how often garbage was collected
	held   uint64 // bytes of the heap that are not given back, used or not
}

// releaser gives memory back. Go does so by itself, but keeps as much as it was told that
// the heap may grow by: after a busy time that is as much as it needed then, until as
// much has been used anew.
type releaser struct {
	read func() usage
	free func()
	last usage  // as of the last look
	kept uint64 // bytes held when all else had been given back
}

func (r *releaser) releaseLoop(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.releaseSpare()
		case <-ctx.Done():
			return
		}
	}
}

// releaseSpare gives back what there is to give when garbage was not collected since the last
// look: one who is busy does that more often. To do it is to collect, too; a quarter
// more than is needed is not worth it.
func (r *releaser) releaseSpare() {
	now := r.read()
	rests := now.cycles == r.last.cycles
	r.last, r.kept = now, min(r.kept, now.held)
	if !rests || now.held <= r.kept+r.kept/4 {
		return
	}
	r.free()
	r.last = r.read()
	r.kept = r.last.held
}

// newReader returns what reads the usage of this process, but for its ballast.
func newReader(ballast int) func() usage {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	return func() usage {
		metrics.Read(samples)
		u := usage{cycles: samples[0].Value.Uint64()}
		for _, s := range samples[1:] {
			u.held += s.Value.Uint64()
		}
		u.held -= uint64(ballast)
		return u
	}
}
