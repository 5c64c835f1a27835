package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// loadBatches reads the batches that have not ended, before their members are.
func (s *Store) loadBatches(snap Snapshot) error {
	return eachUnended(snap, func(i id) error {
		b, err := openBatch(snap, i)
		if err != nil {
			return fmt.Errorf("store: batch %s: %w", i, err)
		}
		if b == nil {
			return nil
		}
		b.slots = s.sched.OpenBatch(b.row.ID, b.row.Plan.Parallel, b.row.Hosts-b.life.Reached, nanos(b.life.Since), b.row.Member.Principal)
		s.batches[i] = b
		s.jobCache.noteBatch(i, b.life.State)
		if b.life.State != harp.BatchRunning {
			s.sched.Halt(b.slots, math.MinInt64)
		}
		s.sched.RingBatch(b.slots, 1)
		return nil
	})
}

// eachUnended calls f with the ids of the batches that are in no index of what has ended. Nothing is read of the others, which are many
// where schedules make them, and of which something may be damaged. Where the index of all batches is not whole it is all of them.
func eachUnended(snap Snapshot, f func(i id) error) error {
	over, err := endedNumbers(snap)
	if err != nil {
		return err
	}
	listed := 0
	var left []id
	for entry, err := range snap.Keys(indexKey(byBatch)) {
		if err != nil {
			return err
		}
		listed++
		if _, ended := slices.BinarySearch(over, numberIn(entry.Key)); ended {
			continue
		}
		key := bytes.Clone(entry.Key)
		value, err := snap.Get(key)
		if err != nil {
			return err
		}
		i, err := indexed(Item{key, value})
		if errors.Is(err, ErrDamaged) {
			return eachBatch(snap, f)
		}
		if err != nil {
			return err
		}
		left = append(left, i)
	}
	there, err := countBatches(snap)
	if err != nil {
		return err
	}
	if there != listed {
		return eachBatch(snap, f)
	}
	for _, i := range left {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// endedNumbers are the submit numbers of the batches that have ended, in their order.
func endedNumbers(snap Snapshot) (over []uint64, err error) {
	for _, kind := range []byte{byBatchEnd, byClassBatchEnd} {
		for entry, err := range snap.Keys(indexKey(kind)) {
			if err != nil {
				return nil, err
			}
			over = append(over, numberIn(entry.Key))
		}
	}
	slices.Sort(over)
	return over, nil
}

// numberIn is the submit number in the key of an entry of an index.
func numberIn(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// countBatches is how many batches there are.
func countBatches(snap Snapshot) (n int, err error) {
	for entry, err := range snap.Keys([]byte{prefixBatch}) {
		if err != nil {
			return 0, err
		}
		if len(entry.Key) == 1+len(id{}) {
			n++
		}
	}
	return n, nil
}

// eachBatch calls f with the ids of all batches that are not pruned.
func eachBatch(snap Snapshot, f func(i id) error) error {
	for entry, err := range snap.Keys([]byte{prefixBatch}) {
		if err != nil {
			return err
		}
		if len(entry.Key) != 1+len(id{}) {
			continue // names
		}
		i := id(entry.Key[1:])
		if tomb, err := snap.Get(i.key(prefixTomb)); err != nil || tomb != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// openBatch reads a batch that has not ended; nil of one that has. Errors: ErrDamaged.
func openBatch(snap Snapshot, i id) (*batch, error) {
	var life batchLifeRow
	found, err := read(snap, i.key(prefixBatchLife), &life)
	if err == nil && !found {
		err = fmt.Errorf("%w: batch %s has no life", ErrDamaged, i)
	}
	if err != nil || life.State.Ended() {
		return nil, err
	}
	row, err := withLife(snap, i, life.BatchLife)
	if err != nil {
		return nil, err
	}
	return &batch{id: i, row: row, life: row.BatchLife, log: life.Log, piece: -1, asking: row.State == harp.BatchCancelling}, nil
}

// checkBatches compares what batches say of their members with those that were read. Where as many are
// there, in other states, one of both is an older row, and the members are what is heeded: else what
// happens to them next could not be counted. In a store that was restored all of them end.
func (s *Store) checkBatches() error {
	for _, b := range s.batches {
		says := &b.life.Counts
		b.life.Marked = b.marked
		n, are := says.Unended(), b.are.Unended()
		if n != are && !s.opts.restored {
			return fmt.Errorf("%w: %d members of batch %s have not ended, and %d are there", ErrDamaged, n, b.id, are)
		}
		for _, state := range allStates {
			if state.Ended() || says.In(state) == b.are.In(state) {
				continue
			}
			s.log.Error("members of a batch are in other states than it says", "batch", b.id.String(), "state", state, "says", says.In(state), "are", b.are.In(state))
			says.Add(state, b.are.In(state)-says.In(state))
		}
		says.Add(harp.StateLost, n-are) // those that cannot be read
	}
	return nil
}

// restoreBatches ends the batches of a store that was restored, all members of which have.
func (s *Store) restoreBatches(t *tx, now int64) error {
	for _, b := range s.batches {
		if !t.hasRoom(maxStep) {
			return nil
		}
		err := s.changeBatch(t, b, store.BatchEvent{Kind: store.BatchRestored, At: fromNanos(now)})
		if err != nil && !errors.Is(err, store.ErrIllegal) {
			return err
		}
	}
	return nil
}
