// Package frugal has a program take less memory than programs in Go do: it collects
// garbage early, and gives back what a busy time needed when that is over.
package frugal

import (
	"context"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// percent is by how much what the program has in memory may grow before it is looked
// through, as of the variable GOGC.
const percent = 50

// lookEvery is how often it is looked whether the program has come to rest.
const lookEvery = 10 * time.Second

// Start begins to save memory. A GOGC in the environment holds instead of what it would
// set. The function it returns ends the saving, and waits for it.
func Start() (stop func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := keeper{read: newReader(), free: debug.FreeOSMemory}
	var work sync.WaitGroup
	work.Go(func() { k.run(ctx) })
	return func() { cancel(); work.Wait() }
}

// usage is what the runtime says of its memory.
type usage struct {
	cycles uint64 // how often garbage was collected
	held   uint64 // bytes of the heap that are not given back, used or not
}

// keeper gives memory back. Go does so by itself, but keeps as much as it was told that
// the heap may grow by: after a busy time that is as much as it needed then, until as
// much has been used anew.
type keeper struct {
	read func() usage
	free func()
	last usage  // as of the last look
	kept uint64 // bytes held when all else had been given back
}

func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.look()
		case <-ctx.Done():
			return
		}
	}
}

// look gives back what there is to give when garbage was not collected since the last
// look: one who is busy does that more often. To do it is to collect, too; a quarter
// more than is needed is not worth it.
func (k *keeper) look() {
	now := k.read()
	rests := now.cycles == k.last.cycles
	k.last, k.kept = now, min(k.kept, now.held)
	if !rests || now.held <= k.kept+k.kept/4 {
		return
	}
	k.free()
	k.last = k.read()
	k.kept = k.last.held
}
