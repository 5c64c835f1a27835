// Package rows holds the rules of a store.Store, written once over an ordered
// key-value engine: keys, codec, indexes, the committer and the listings. What may start
// next package schedule says.
//
// The committer runs every operation that writes, in one goroutine, and commits what
// they wrote in another. An operation is a function that is called with a [tx]: the
// state as committed plus what earlier operations of the group under way and of its own
// have written. It checks first and writes after. A group is what arrived while the one
// before it was being committed; its operations are answered when it is on disk. Reading
// goes past the committer, to a view of what has been committed.
package rows

import (
	"context"
	"iter"

	"github.com/harpcaller/harp/store"
)

// Engine is an ordered key-value store, used by one Store.
type Engine interface {
	// View returns a consistent view of what has been committed.
	View() (Snapshot, error)

	// Commit makes all writes durable, or none. After an error nobody knows
	// which, and the engine is only closed. It is called by one goroutine at a
	// time with at most MaxCommit bytes.
	Commit(writes []Write) error

	// Space says how much room there is for writing. It is asked once a group, so
	// it must be cheap; what it says may be a second old.
	Space() Space

	// Compact and Size are as in store.Upkeep. Close waits for a Compact.
	Compact(ctx context.Context) error
	Size() (int64, error)

	// Close releases the engine. No view is open when it is called. After harp.ErrNoSpace
	// it may be called again.
	Close() error
}

// Snapshot is a view of one moment. Keys and values that it returns must not be
// changed and hold until Close, those of a scan until the next step.
type Snapshot interface {
	// Get returns the value of a key; nil if there is none.
	Get(key []byte) ([]byte, error)

	// Scan yields what has the prefix in the order of keys, or against it, from
	// the key `from` on, itself included; from the first if it is nil. An error
	// is the last thing it yields.
	Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error]

	// Keys yields the keys that have the prefix, in their order, and how long their
	// values are, without reading those. An error is the last thing it yields.
	Keys(prefix []byte) iter.Seq2[Entry, error]

	Close()
}

// Entry is a key and how long its value is.
type Entry struct {
	Key  []byte
	Size int
}

// Item is a key with its value.
type Item struct{ Key, Value []byte }

// Write sets a key, or deletes it if Value is nil; of two of one key the later holds.
// Both are the engine's from then on.
type Write struct{ Key, Value []byte }

// Space is how much room there is for writing.
type Space = store.Space

// The spaces, each including what the one before allows.
const (
	SpaceFull     = store.SpaceFull     // nothing
	SpaceCritical = store.SpaceCritical // cancels and deletes
	SpaceLow      = store.SpaceLow      // all but new jobs
	SpacePlenty   = store.SpacePlenty   // all
)

const (
	maxGroup = 1 << 20 // bytes from which on a group takes no more operations
	maxOp    = 3 << 20 // bytes an operation writes at most

	// maxEvent is how many bytes an event brings into the life of its job at most: a
	// value, or what its procedure said of a failure.
	maxEvent = 2<<20 + 128<<10

	// maxStep is more than what one change of a job writes beside that: its life with all
	// its attempts, events with all its labels, and the same of two jobs that it lets start.
	maxStep = 256 << 10

	// MaxCommit is how many bytes a commit holds at most: a group that is
	// almost full and one more operation.
	MaxCommit = maxGroup + maxOp

	// WriteCost is what a write counts beside the bytes of its key and value, so
	// that MaxCommit bounds the number of writes as well.
	WriteCost = 100
)

// PrefixEnd is a key behind all that have the prefix, where a scan against the
// order begins.
func PrefixEnd(prefix []byte) []byte {
	end := make([]byte, len(prefix), len(prefix)+endRun)
	copy(end, prefix)
	for range endRun {
		end = append(end, 0xff)
	}
	return end
}

// endRun is longer than any run of the byte 0xff in a key: there is none in a text,
// and numbers take 16 bytes.
const endRun = 32
