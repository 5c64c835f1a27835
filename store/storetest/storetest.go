// Package storetest holds the tests that every store.Store passes, yours too:
//
//	func TestStore(t *testing.T) {
//		storetest.Test(t, func(t *testing.T) store.Store { return mystore.New() })
//	}
//
// Each case opens a store of its own and names, when it fails, the rule that was
// broken. The cases run in parallel. Times are made up: a store has no clock.
package storetest

import (
	"slices"
	"testing"

	"github.com/harpcaller/harp/store"
)

// Test runs the rules over stores that open makes; it closes them.
func Test(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range slices.Concat(submitting, claiming, applying, elapsing, cancelling, recording, listing, keeping, documents, scheduling, sharing, feeding, once, pruning, retaining, retrying, silencing, pausing, pausesEnding, quotas, obstacles, holds, holdTimes, batchHolds, clocks, removing, drifting, batching, batchChanges, batchReads, batchCorners, batchStops, batchHalts, chains, batchWalks(0, 8)) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newWorld(t, c.rule, open(t)))
		})
	}
	t.Run("model", func(t *testing.T) { testModel(t, open, nil) })
}

// Reopen runs the rules of stores that outlive their process. Place makes room for
// one store and returns what opens it there, again and again, each time after the
// one before was closed.
func Reopen(t *testing.T, place func(t *testing.T) (open func() (store.Store, error))) {
	for _, c := range slices.Concat(reopening, reopeningWaits, reopeningFeed, reopeningClock, reopeningQuotas, reopeningRemovals, reopeningBatches, reopeningSchedules, reopeningHalts, reopeningStops, reopeningHolds, reopeningPauses, reopeningDrifts, reopeningRetention, reopeningChains, batchWalks(100, 4)) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := place(t) // whose room is taken away after the store was closed
			w := newWorld(t, c.rule, nil)
			w.open = open
			w.reopen()
			c.run(w)
		})
	}
	t.Run("model", func(t *testing.T) { testModel(t, nil, place) })
	t.Run("model/ready", func(t *testing.T) { testModelReady(t, place) })
}

// A rule is one thing that every store does, and how it is seen.
type rule struct {
	name string
	rule string
	run  func(w *world)
}
