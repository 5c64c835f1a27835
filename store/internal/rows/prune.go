package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const (
	maxPruned  = 500     // jobs one Prune deletes
	maxRemoved = 1 << 20 // bytes of writes with which one Prune deletes
)

// Prune implements store.Upkeep.
func (s *Store) Prune(ctx context.Context, r store.Retention, now time.Time) (store.Pruned, error) {
	var p *pruning
	asked := s.asked()
	err := s.doScan(ctx, SpaceCritical, func(t *tx) error {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		p = &pruning{s: s, tx: t, retention: r, now: at, steady: s.sched.Steady(at)}
		return p.pruneAll()
	})
	if err != nil {
		return store.Pruned{}, err
	}
	return p.out, nil
}

// pruning is one Prune on its way. It looks at what is committed, and is the first of
// its group.
type pruning struct {
	*tx
	s         *Store
	retention store.Retention
	now       int64
	steady    int64  // now by a clock that is never set
	ids       []byte // of the jobs deleted
	sought    int    // members of batches
	entries   int    // of ledgers that were looked at
	class     uint32 // that of the job under way, if it is no member
	lost      uint32 // the class of the batch under way, if what that counts there cannot be read
	out       store.Pruned
}

func (p *pruning) pruneAll() error {
	for _, step := range []func() error{p.pruneRests, p.pruneEnded, p.entomb, p.pruneEvents, p.pruneLedgers, p.pruneIdempotency, p.pruneOperations, p.pruneTombstones} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// isFull reports whether it has deleted as much as one may, and notes that there is
// more.
func (p *pruning) isFull() bool {
	if p.size < maxRemoved {
		return false
	}
	p.out.More = true
	return true
}

// A sweep walks an index from its beginning, or, while there is more, from where the
// last Prune stopped: an engine walks slowly over what was deleted. It calls f with
// each entry until that has enough.
func (p *pruning) sweep(kind byte, f func(item Item, at int64) (enough bool, err error)) error {
	prefix := indexKey(kind)
	from := p.s.swept[string(kind)]
	delete(p.s.swept, string(kind))
	for item, err := range p.snap.Scan(prefix, from, false) {
		if err != nil {
			return err
		}
		if p.isFull() {
			p.s.swept[string(kind)] = bytes.Clone(item.Key)
			return nil
		}
		at := int64(binary.BigEndian.Uint64(item.Key[len(prefix):]) ^ 1<<63)
		if enough, err := f(item, at); enough || err != nil {
			return err
		}
	}
	return nil
}

// pruneRests goes on with the records of jobs that had too many for one commit.
func (p *pruning) pruneRests() error {
	for item, err := range p.snap.Scan([]byte{prefixRest}, nil, false) {
		if err != nil {
			return err
		}
		i := id(item.Key[1:])
		if done, err := p.pruneRecords(i); !done || err != nil {
			return err
		}
		p.write(i.key(prefixRest), nil)
	}
	return nil
}

// keptBefore is the time before which what ended of a class has been kept long enough.
func (p *pruning) keptBefore(c *store.RetentionClass) int64 {
	at := p.retention.EndedBefore
	if c.Keep > 0 {
		at = p.retention.RulesAt
	}
	if at.IsZero() || c.Keep == harp.NoLimit {
		return math.MinInt64
	}
	return nanos(at.Add(-c.Keep))
}

// isTooMuch reports whether what ended at a time, first of all, is to be deleted as jobs store more than they may.
// Then the events of that time go with it.
func (p *pruning) isTooMuch(at int64) bool {
	if !p.isOver() {
		return false
	}
	if end := fromNanos(at); end.After(p.retention.EventsBefore) {
		p.retention.EventsBefore = end
	}
	return true
}

// isClassOver reports whether what is of a class stores more than it may.
func (p *pruning) isClassOver(c *store.RetentionClass) bool {
	return c.MaxBytes > 0 && c.Bytes > c.MaxBytes
}

// uncount takes what was deleted from what its class stores.
func (p *pruning) uncount(class uint32, size int64) {
	if c := p.s.classes[class]; c != nil && c.MaxBytes > 0 && size != 0 {
		c.Bytes -= size
		p.noteClass(c)
	}
}

// isOver reports whether jobs store more than they may.
func (p *pruning) isOver() bool {
	return p.retention.MaxBytes > 0 && p.s.stored.Load()+p.usage.grown > p.retention.MaxBytes
}

// pruneJob deletes a job that has ended, all that belongs to it or, where that is too much
// for one commit, all but a rest. Gone says that it is, or was before.
func (p *pruning) pruneJob(i id) (gone bool, err error) {
	j, call, life, err := readRows(p.tx, i)
	switch {
	case errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned):
		return true, nil
	case errors.Is(err, ErrDamaged):
		p.s.log.Error("job cannot be deleted", "job", i.String(), "err", err)
		return false, nil
	case err != nil:
		return false, err
	case !j.State.Ended():
		return false, nil
	}
	for _, key := range append(entries(j), endedKey(j)) {
		p.appendWrite(key, nil)
	}
	p.remove(i.key(prefixCall))
	p.remove(i.key(prefixLife))
	p.jobs[i] = nil
	if j.Class == p.class { // else it has left its class
		p.uncount(j.Class, j.Counted)
	}
	if p.lost != 0 && i.isMember() {
		size, err := p.sizeOf(i, j, life.Value)
		if err != nil {
			return false, err
		}
		p.uncount(p.lost, size)
	}
	p.usage.grown -= footprint(j) + int64(len(life.Value))
	if call.Request != nil {
		p.usage.grown -= int64(requestSize(call.Request))
	} else if err := p.removeWhole(i.key(prefixRequest)); err != nil {
		return false, err
	}
	if life.Value == nil {
		if err := p.removeWhole(i.key(prefixValue)); err != nil {
			return false, err
		}
	}
	done := j.Records == 0
	if !done {
		if done, err = p.pruneRecords(i); err != nil {
			return false, err
		}
	}
	if rest := i.key(prefixRest); !done {
		p.write(rest, seal(rest, nil))
	}
	p.out.Jobs++
	if i.isMember() {
		return true, nil // its batch answers for it
	}
	tomb := i.key(prefixTomb)
	p.write(tomb, seal(tomb, nil))
	p.ids = append(p.ids, i[:]...)
	return true, nil
}

// removeWhole deletes a value with its pieces.
func (p *pruning) removeWhole(key []byte) error {
	payload, err := p.get(key)
	if errors.Is(err, ErrDamaged) {
		p.write(key, nil)
		return p.removePieces(key)
	}
	if err != nil || payload == nil {
		return err
	}
	p.remove(key)
	return nil
}

// removePieces deletes what is stored as pieces of a value.
func (p *pruning) removePieces(key []byte) error {
	for entry, err := range p.snap.Keys(appendText([]byte{prefixPiece}, string(key))) {
		if err != nil {
			return err
		}
		p.removeEntry(entry)
	}
	return nil
}

func (p *pruning) removeEntry(e Entry) {
	key := bytes.Clone(e.Key)
	p.usage.noteStored(key, e.Size)
	p.write(key, nil)
}

// pruneRecords deletes the records of a job, as many as one Prune may; true if all.
func (p *pruning) pruneRecords(i id) (bool, error) {
	for entry, err := range p.snap.Keys(i.key(prefixRecords)) {
		if err != nil {
			return false, err
		}
		if p.isFull() {
			return false, nil
		}
		p.removeEntry(entry)
		if entry.Size < pieceSize {
			continue
		}
		if err := p.removePieces(bytes.Clone(entry.Key)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// entomb writes down when the tombstones of the jobs deleted may go, and tells.
func (p *pruning) entomb() error {
	if p.out.Jobs > 0 {
		p.emit(eventRow{At: p.now, Type: harp.EventJobPruned, Reason: strconv.Itoa(p.out.Jobs)})
	}
	if len(p.ids) == 0 {
		return nil
	}
	at := placeOf(p.steady, p.feed.number)
	p.put(slices.Concat(indexKey(byPruned), at[:]), p.ids)
	return nil
}

// forgets reports whether ids may be forgotten, and notes that they are. They are old by
// the clock as it is: else they would be taken for new ones. Should it be set back, those
// that are no younger are refused.
func (p *pruning) forgets(ids ...id) bool {
	var youngest uint64
	for _, i := range ids {
		youngest = max(youngest, i.made())
	}
	if int64(youngest) > (p.now-int64(store.TombstoneTime))/int64(time.Millisecond) { //nolint:gosec // of 48 bits
		return false
	}
	if youngest > p.s.forgotten {
		p.s.forgotten = youngest
		p.putNumber(keyForgotten, youngest)
	}
	return true
}

// isForgotten reports whether an id that is not stored may have been once.
func (s *Store) isForgotten(i id) bool { return i.made() <= s.forgotten }

// pruneTombstones deletes tombstones whose time is over.
func (p *pruning) pruneTombstones() error {
	over := p.steady - int64(store.TombstoneTime)
	return p.sweep(byPruned, func(item Item, at int64) (bool, error) {
		if at > over {
			return true, nil
		}
		list, err := joinItem(p.snap, item)
		switch {
		case errors.Is(err, ErrDamaged): // these tombstones stay: which they are nobody knows
			p.s.log.Error("tombstones cannot be deleted", "err", err)
		case err != nil:
			return true, err
		}
		var ids []id
		for tomb := range slices.Chunk(list, len(id{})) {
			ids = append(ids, id(tomb))
		}
		if !p.forgets(ids...) {
			return false, nil
		}
		for _, i := range ids {
			p.write(i.key(prefixTomb), nil)
		}
		p.write(bytes.Clone(item.Key), nil)
		return false, nil
	})
}

// pruneIdempotency deletes idempotency keys whose time is over.
func (p *pruning) pruneIdempotency() error {
	return p.sweep(byOver, func(item Item, at int64) (bool, error) {
		if at > p.steady {
			return true, nil
		}
		p.write(bytes.Clone(item.Key), nil)
		key := append([]byte{prefixOnce}, item.Key[len(indexKey(byOver))+8:]...)
		var row idempotencyRow
		found, err := read(p.tx, key, &row)
		switch {
		case errors.Is(err, ErrDamaged):
			p.s.log.Error("idempotency key cannot be read and is deleted", "err", err)
		case err != nil || !found || row.Until > p.steady: // it stands for another by now
			return false, err
		}
		p.write(key, nil)
		return false, nil
	})
}

// pruneEvents deletes events that are too old, from the first on, by whole rows.
func (p *pruning) pruneEvents() error {
	before := nanos(p.retention.EventsBefore)
	if p.retention.EventsBefore.IsZero() {
		return nil
	}
	first, err := firstEvent(p.tx)
	switch {
	case errors.Is(err, ErrDamaged):
		p.s.log.Error("the number of the first event cannot be read and is looked for", "err", err)
		first = 1
	case err != nil:
		return err
	}
	kept := first
	for item, err := range p.snap.Scan([]byte{prefixEvent}, eventKey(first), false) {
		if err != nil {
			return err
		}
		events, err := eventsIn(p.snap, item)
		if err == nil && slices.ContainsFunc(events, func(e storedEvent) bool { return e.at() >= before }) || p.isFull() {
			break
		}
		p.write(bytes.Clone(item.Key), nil)
		kept = lastIn(item.Key) + 1
	}
	if kept > first {
		p.out.Events = int(kept - first)
		p.putNumber(keyFirstEvent, kept)
		p.feed.prune(kept)
	}
	return nil
}
