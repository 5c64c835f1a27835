// Package tune sets the Go runtime for programs that are a dispatcher or an agent: they take
// less memory than programs in Go do, and run on while a part of them waits for its disk.
package tune

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// percent is by how much what the program has in memory may grow before it is looked
// through, as of the variable GOGC.
const percent = 50

// lookEvery is how often it is looked whether the program has come to rest.
const lookEvery = 10 * time.Second

// SaveMemory has the program collect garbage early, and give back what a busy time needed
// when that is over. A GOGC in the environment holds instead of what it would set. The
// function it returns ends the saving, and waits for it.
func SaveMemory() (stop func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := releaser{read: newReader(), free: debug.FreeOSMemory}
	var work sync.WaitGroup
	work.Go(func() { r.run(ctx) })
	return func() { cancel(); work.Wait() }
}

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

func (r *releaser) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look()
		case <-ctx.Done():
			return
		}
	}
}

// look gives back what there is to give when garbage was not collected since the last
// look: one who is busy does that more often. To do it is to collect, too; a quarter
// more than is needed is not worth it.
func (r *releaser) look() {
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
