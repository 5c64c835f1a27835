package badger

import (
	"time"

	"github.com/harpcaller/harp/store"
)

// What part of a file of the value log must be of values that were deleted for the
// file to be collected, which writes the others again.
const (
	usually   = 0.5
	compactly = 0.15 // Compact leaves a directory at most 1.2 times as large as need be
	critical  = 0.95 // where there is hardly space for those others
)

// collectEvery is how often the value log is asked for space.
const collectEvery = 10 * time.Minute

func (e *engine) collectLoop() {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.collect(usually)
		case <-e.open.Done():
			return
		}
	}
}

// collect frees files of the value log of which so much was deleted, those with the
// most first, until there is none. It stops before one that is damaged and holds what is in
// use.
func (e *engine) collect(deleted float64) {
	e.collecting.Lock()
	defer e.collecting.Unlock()
	for {
		if e.Space() <= store.SpaceCritical {
			deleted = critical
		}
		if err := e.checkCollected(deleted); err != nil {
			e.opts.Logger.Error("long values that were deleted keep their space", "dir", e.dir, "err", err)
			return
		}
		if e.log.unless(&e.log.broken, func() error { return e.db.RunValueLogGC(deleted) }, nil) != nil {
			return
		}
		select {
		case <-e.open.Done():
			return
		default:
		}
	}
}
