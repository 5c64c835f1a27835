package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// The entries of a batch's log that a commit writes lie many to a row, under the number of the first
// of them, each as five numbers.

// logRowMost is how many bytes of entries a row has that has more than one: so few that an
// engine which keeps what is longer apart has it among the rows of jobs.
const logRowMost = 4000

// batchLogRow is entries of a batch's log on their way into the store.
type batchLogRow struct {
	first   uint64
	entries []byte
}

func logKey(i id, no uint64) []byte {
	return binary.BigEndian.AppendUint64(i.key(prefixBatchLog), no)
}

func (r batchLogRow) write(i id) Write {
	key := logKey(i, r.first)
	first, _ := split(key, r.entries)
	return Write{key, first}
}

// logEntry adds an entry to a batch's log, which gives it its number.
func (t *tx) logEntry(b *batch, e store.BatchEntry) {
	c := t.noteBatch(b)
	const another = 1 + 16 + 8 + crcSize + 1 + WriteCost // key, checksum, number of pieces
	if n := len(c.rows); n == 0 || len(c.rows[n-1].entries) > logRowMost {
		c.rows = append(c.rows, batchLogRow{first: b.log})
		t.size += another
	}
	row := &c.rows[len(c.rows)-1]
	had := len(row.entries)
	row.entries = appendEntry(row.entries, &e)
	t.size += len(row.entries) - had
	b.log += e.Numbers()
	c.log = b.log
}

// stepShift is where in the number of an entry's kind its step is, from 0.
const stepShift = 8

func appendEntry(b []byte, e *store.BatchEntry) []byte {
	kind := uint64(e.Kind) | uint64(max(e.Step, 1)-1)<<stepShift                  //nolint:gosec // none is negative
	for _, n := range []uint64{kind, uint64(e.Index), e.First, uint64(e.Count)} { //nolint:gosec // none is negative
		b = msgpack.AppendUint(b, n)
	}
	return b
}

// entriesIn returns the entries of a row that a scan has met. Errors: ErrDamaged.
func entriesIn(snap Snapshot, item Item) ([]store.BatchEntry, error) {
	payload, err := joinItem(snap, item)
	if err != nil {
		return nil, err
	}
	var out []store.BatchEntry
	no := binary.BigEndian.Uint64(item.Key[len(item.Key)-8:])
	r := msgpack.NewReader(payload)
	for r.OK() && !r.Done() {
		kind := r.Uint()
		e := store.BatchEntry{No: no, Kind: store.BatchEntryKind(kind & (1<<stepShift - 1)), Step: 1 + int(kind>>stepShift), Index: int(r.Uint()), First: r.Uint(), Count: int(r.Uint())} //nolint:gosec // as they were written
		no += e.Numbers()
		out = append(out, e)
	}
	if !r.OK() {
		return nil, fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
	}
	return out, nil
}

// BatchLog implements store.Batches.
func (s *Store) BatchLog(_ context.Context, text string, from uint64, n int) (out store.BatchLog, err error) {
	i, ok := parseID(text)
	if !ok {
		return out, noBatch(text)
	}
	err = s.view(func(snap Snapshot) error {
		b, err := s.readBatch(snap, i)
		if err != nil {
			return err
		}
		var life batchLifeRow
		if _, err := read(snap, i.key(prefixBatchLife), &life); err != nil {
			return err
		}
		if from > life.Log && b.Reason == harp.BatchReasonRestored { // it is of another store, restored by a clock that was ahead
			if from, err = numberRestored(snap, i, from); err != nil {
				return err
			}
		}
		if out.Next = from; n > 0 {
			err = readLog(snap, i, from, life.Log, n, &out)
		}
		isCut := errors.Is(err, ErrDamaged) && len(out.Entries) > 0
		if err != nil && !isCut { // else it is said of the next
			return err
		}
		out.End, out.Ended = life.Log, b.State.Ended() && out.Next >= life.Log
		err = nameHosts(snap, i, out.Entries)
		return err
	})
	return out, err
}

// numberRestored returns the number in a batch's log behind the gap that a restore left in it, or another if there is none.
func numberRestored(snap Snapshot, i id, or uint64) (uint64, error) {
	for item, err := range snap.Scan(i.key(prefixBatchLog), logKey(i, or), true) {
		if err != nil {
			return 0, err
		}
		entries, err := entriesIn(snap, item)
		if err != nil {
			return 0, err
		}
		for _, e := range slices.Backward(entries) {
			if e.Kind == store.BatchGap {
				return e.No + e.Numbers(), nil
			}
		}
	}
	return or, nil
}

// nameHosts puts the names of their hosts into entries of a batch's log, which are not in the order of
// the hosts: each row of names is read once.
func nameHosts(snap Snapshot, i id, entries []store.BatchEntry) error {
	pieces := map[int]*batch{}
	for n := range entries {
		if entries[n].Kind == store.BatchGap {
			continue
		}
		at := entries[n].Index
		b := pieces[at/namesMost]
		if b == nil {
			b = &batch{id: i, piece: -1}
			pieces[at/namesMost] = b
		}
		host, err := b.hostAt(snap, at)
		if err != nil {
			return err
		}
		entries[n].Host = host.Name
	}
	return nil
}

// readLog reads up to n entries of a batch's log that has so many numbers, the first of which has the
// number that is asked for. Errors: ErrDamaged where the next one is missing.
func readLog(snap Snapshot, i id, from, numbers uint64, n int, out *store.BatchLog) error {
	prefix, begin := i.key(prefixBatchLog), logKey(i, from)
	for item, err := range snap.Scan(prefix, begin, true) { // the row that holds it
		if err != nil {
			return err
		}
		begin = bytes.Clone(item.Key)
		break
	}
	out.Next = from
	for item, err := range snap.Scan(prefix, begin, false) {
		if err != nil {
			return err
		}
		entries, err := entriesIn(snap, item)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.No+e.Numbers() <= from {
				continue
			}
			if len(out.Entries) == n {
				return nil
			}
			if e.No > out.Next {
				return entriesMissing(i, out.Next, e.No)
			}
			if e.No < from { // a part of what was told together
				past := int(from - e.No) //nolint:gosec // below Count
				e.No, e.Index, e.Count = from, e.Index+past, e.Count-past
			}
			out.Entries, out.Next = append(out.Entries, e), e.No+e.Numbers()
		}
	}
	if out.Next < numbers {
		return entriesMissing(i, out.Next, numbers)
	}
	return nil
}

func entriesMissing(i id, from, to uint64) error {
	return fmt.Errorf("%w: entries %d to %d of the log of batch %s are missing", ErrDamaged, from, to, i)
}
