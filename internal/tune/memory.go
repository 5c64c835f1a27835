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
	Much    int // bytes that it takes from the system from which on it gives back at once what it does not use; 0: it never does
}

// An agent has little in memory, unless those that connect to it fill what there is room for: then memory is dearer than the
// processor's time, since the host is there for others. A dispatcher of many agents has much at all times.
var (
	Agent      = Saving{Floor: 16 << 20, Percent: 25, Much: 128 << 20}
	Dispatcher = Saving{Floor: 64 << 20, Percent: 50, Much: 320 << 20}
)

// Start has the program collect garbage early, but not before there are Floor bytes of
// it, and give back what a busy time needed when that is over. A GOGC in the environment
// holds instead of what it would set, and a GOMEMLIMIT instead of Much. The function it returns ends the saving, and waits for
// it.
//
// Without the floor a small program that is busy collects hundreds of times a second; with 16 MiB
// direct calls take 0.7 of the processor's time. The runtime has no setting for it
// (https://github.com/golang/go/issues/23044).
func (s Saving) Start() (stop func()) {
	c := &collector{Saving: s, percent: os.Getenv("GOGC") == "", limit: s.Much > 0 && os.Getenv("GOMEMLIMIT") == ""}
	if c.percent {
		c.before = debug.SetGCPercent(s.Percent)
	}
	c.adjust()
	ctx, cancel := context.WithCancel(context.Background())
	r := releaser{read: newReader(), free: debug.FreeOSMemory}
	var work sync.WaitGroup
	work.Go(func() { r.releaseLoop(ctx) })
	return func() {
		cancel()
		work.Wait()
		c.end()
	}
}

// collector says when the runtime collects, by what is in memory.
type collector struct {
	Saving
	before int // the percentage that was set before

	mu             sync.Mutex // guards what follows
	percent, limit bool       // whether it sets them
}

// adjust sets the percentage and the limit for what was left by the last collection, and anew after each, in the runtime's goroutine
// for cleanups, until the collector is ended. The heap may grow by the floor, while that is more than Percent of it. The limit is half
// as much again as is in use, or Much if that is more: what was free and not given back came on top of the garbage. With less than
// half a dispatcher of thousands of agents collects nearly all the time.
func (c *collector) adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.percent && !c.limit {
		return
	}
	live, used := readUse()
	if c.percent {
		debug.SetGCPercent(max(c.Percent, c.Floor*100/live))
	}
	if c.limit {
		debug.SetMemoryLimit(int64(max(c.Much, used+used/2)))
	}
	runtime.AddCleanup(&garbage{}, (*collector).adjust, c)
}

// end sets what was set before, and leaves it alone.
func (c *collector) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.percent {
		debug.SetGCPercent(c.before)
	}
	if c.limit {
		debug.SetMemoryLimit(math.MaxInt64)
	}
	c.percent, c.limit = false, false
}

// leastLive is what the runtime takes a smaller heap for.
const leastLive = 4 << 20

// readUse returns how many bytes were left by the last collection: of what the percentage is of, the heap and what else is gone
// through, and of all.
func readUse() (live, used int) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	sum := func(some []metrics.Sample) (n int) {
		for _, s := range some {
			n += int(s.Value.Uint64()) //nolint:gosec // it is memory that there is
		}
		return n
	}
	live, used = sum(samples[:3]), sum(samples[:1])+sum(samples[3:4])-sum(samples[4:])
	return max(live, leastLive), used
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

// newReader returns what reads the usage of this process.
func newReader() func() usage {
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
		return u
	}
}
