package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// ledgerRow is an entry of a ledger, an array of its fields. More may be added at the end. Its schedule, kind and first
// time are in its key.
type ledgerRow struct {
	_msgpack struct{} `msgpack:",as_array,grows"` //nolint:unused // tells msgpack how

	From    int64
	Kind    harp.LedgerKind
	Outcome harp.TimeOutcome
	Reason  string
	Detail  string
	To      int64
	Count   int
	AtLeast bool
	At      int64
	Late    int64
	Batch   []byte // nil: none
	By      *harp.Principal
	Failure *harp.Failure
	After   []byte // nil: none
}

func newLedgerRow(e *harp.LedgerEntry) *ledgerRow {
	row := &ledgerRow{
		From: nanos(e.From), Kind: e.Kind, Outcome: e.Outcome, Reason: e.Reason, Detail: e.Detail, To: nanos(e.To),
		Count: e.Count, AtLeast: e.AtLeast, At: nanos(e.At), Late: int64(e.Late),
	}
	if i, ok := parseID(e.Batch); ok {
		row.Batch = i[:]
	}
	if i, ok := parseID(e.After); ok {
		row.After = i[:]
	}
	if e.By != (harp.Principal{}) {
		by := e.By
		row.By = &by
	}
	if e.Err != nil {
		f := harp.FailureOf(e.Err)
		f.Data = slices.Clone(f.Data)
		row.Failure = &f
	}
	return row
}

// entry is the inverse of newLedgerRow. It shares no memory with the row.
func (r *ledgerRow) entry(schedule string) harp.LedgerEntry {
	e := harp.LedgerEntry{
		Schedule: schedule, Kind: r.Kind, Outcome: r.Outcome, Reason: r.Reason, Detail: r.Detail,
		From: fromNanos(r.From), To: fromNanos(r.To), Count: r.Count, AtLeast: r.AtLeast,
		At: fromNanos(r.At), Late: time.Duration(r.Late),
	}
	if len(r.Batch) == len(id{}) {
		e.Batch = id(r.Batch).String()
	}
	if len(r.After) == len(id{}) {
		e.After = id(r.After).String()
	}
	if r.By != nil {
		e.By = *r.By
	}
	if r.Failure != nil {
		e.Err = r.Failure.Err()
	}
	return e
}

// ledgerOf is what the keys of one ledger begin with.
func ledgerOf(schedule string) []byte { return appendText([]byte{prefixLedger}, schedule) }

// appendTime appends a time so that bytes order as times do.
func appendTime(k []byte, nanos int64) []byte {
	return binary.BigEndian.AppendUint64(k, uint64(nanos)^1<<63)
}

// ledgerKey is the key of the entry of a time, or of a backfill of one, and what the keys of other entries begin with.
func ledgerKey(schedule string, from int64, kind harp.LedgerKind) []byte {
	return append(appendTime(ledgerOf(schedule), from), kind[:1]...)
}

// keyOf is the key of the entry in a ledger. Of a time, and of a backfill of it, there is one. Those of manual runs, and of ends, which may be
// at one time, are told apart by a batch: the one that was made, and the one that ended; those of several times of backfills, which may begin
// with one time, by when they were written.
func (r *ledgerRow) keyOf(schedule string) []byte {
	k := ledgerKey(schedule, r.From, r.Kind)
	switch {
	case r.Kind == harp.LedgerManual:
		return append(k, r.Batch...)
	case r.Kind == harp.LedgerAfter:
		return append(k, r.After...)
	case r.Kind == harp.LedgerBackfill && r.Count > 1:
		return appendTime(k, r.At)
	}
	return k
}

// ledgerEntryKey is the key of the index entry by the first time of an entry with this key.
func ledgerEntryKey(key []byte) []byte {
	name := 3 + int(binary.BigEndian.Uint16(key[1:]))
	return slices.Concat(indexKey(byLedger), key[name:name+8], key[1:])
}

// ledgerName is the schedule in the key of an entry.
func ledgerName(key []byte) string { return string(key[3 : 3+binary.BigEndian.Uint16(key[1:])]) }

// checkEntry reads what putEntry is to take the place of, and refuses to fire a time of the past once more that has fired. Errors:
// harp.ErrConflict, ErrDamaged.
func (t *tx) checkEntry(schedule string, e *ledgerRow) error {
	if err := t.readOld(e.keyOf(schedule)); err != nil {
		return err
	}
	if e.Kind != harp.LedgerBackfill || e.Outcome != harp.TimeFired {
		return nil
	}
	for _, kind := range []harp.LedgerKind{harp.LedgerTime, harp.LedgerBackfill} {
		var is ledgerRow
		found, err := read(t, ledgerKey(schedule, e.From, kind), &is)
		if err != nil {
			return err
		}
		if found && is.Outcome == harp.TimeFired {
			return failures.New("conflict", "this time of schedule "+schedule+" has fired").Err()
		}
	}
	return nil
}

// putEntry writes an entry, over one of the same kind and first time.
func (t *tx) putEntry(schedule string, e *ledgerRow) {
	key := e.keyOf(schedule)
	t.put(key, encode(e))
	index := ledgerEntryKey(key)
	t.write(index, seal(index, nil))
}

// ScheduleLedger implements store.Schedules.
func (r *Reader) ScheduleLedger(_ context.Context, f harp.LedgerFilter, cursor string) (page harp.Page[harp.LedgerEntry], err error) {
	prefix, keyOf := indexKey(byLedger), func(k []byte) []byte {
		return append([]byte{prefixLedger}, k[len(indexKey(byLedger))+8:]...)
	}
	if f.Schedule != "" {
		prefix, keyOf = ledgerOf(f.Schedule), bytes.Clone
	}
	from := PrefixEnd(prefix)
	if !f.To.IsZero() {
		from = appendTime(slices.Clone(prefix), nanos(f.To))
	}
	var after []byte
	if cursor != "" {
		if after, err = openCursor(prefixLedger, cursor); err != nil {
			return page, err
		}
		if !bytes.HasPrefix(after, prefix) {
			return page, badCursor()
		}
		from = after
	}
	err = r.view(func(snap Snapshot) error {
		examined := 0
		for item, err := range snap.Scan(prefix, from, true) {
			if err != nil {
				return err
			}
			if bytes.Equal(item.Key, after) {
				continue
			}
			if examined == store.MaxExamined || len(page.Items) == pageLimit(f.Limit) {
				page.Cursor = makeCursor(prefixLedger, after)
				return nil
			}
			examined++
			after = bytes.Clone(item.Key)
			key := keyOf(item.Key)
			var row ledgerRow
			found, err := read(snap, key, &row)
			switch {
			case errors.Is(err, ErrDamaged):
				r.log.Error("entry of a ledger cannot be listed", "schedule", ledgerName(key), "err", err)
				continue
			case err != nil:
				return err
			case !found:
				continue
			}
			e := row.entry(ledgerName(key))
			if isSelected(&f, &e) {
				page.Items = append(page.Items, e)
			} else if f.Schedule != "" && e.To.Before(f.From) && e.Kind == harp.LedgerTime && e.Outcome == harp.TimeFired {
				return nil // no entry before it reaches beyond it
			}
		}
		return nil
	})
	return page, err
}

// isSelected reports whether a filter selects an entry of the ledger that it is about.
func isSelected(f *harp.LedgerFilter, e *harp.LedgerEntry) bool {
	return (len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, e.Outcome)) && !e.To.Before(f.From)
}

// maxLedgers is how many ledgers one Prune looks at.
const maxLedgers = 200

// pruneLedgers deletes entries that are as old as events that are not kept, but for the last ones of each
// schedule that there is. It goes on where the last Prune stopped.
func (p *pruning) pruneLedgers() error {
	if p.retention.EventsBefore.IsZero() {
		return nil
	}
	before := nanos(p.retention.EventsBefore)
	from := p.s.swept[string(byLedger)]
	delete(p.s.swept, string(byLedger))
	for n := 0; n < maxLedgers && p.entries < store.MaxExamined; n++ {
		name, first, err := p.nextLedger(from)
		if err != nil || name == "" {
			return err
		}
		if first < before {
			if err := p.pruneLedger(name, before); err != nil {
				return err
			}
		}
		from = PrefixEnd(ledgerOf(name))
		if p.isFull() {
			p.s.swept[string(byLedger)] = ledgerOf(name)
			return nil
		}
	}
	p.s.swept[string(byLedger)] = from
	return nil
}

// nextLedger is the schedule of the first entry from a key on, and the first time of that; "": there is none.
func (p *pruning) nextLedger(from []byte) (name string, first int64, err error) {
	for item, err := range p.snap.Scan([]byte{prefixLedger}, from, false) {
		if err != nil {
			return "", 0, err
		}
		name = ledgerName(item.Key)
		return name, timeIn(item.Key[len(ledgerOf(name)):]), nil
	}
	return "", 0, nil
}

// timeIn is the time that appendTime has appended, which the key goes on with.
func timeIn(key []byte) int64 { return int64(binary.BigEndian.Uint64(key) ^ 1<<63) } //nolint:gosec // as it was appended

// pruneLedger deletes what of one ledger is too old. What is of times that are not is younger, but for what was skipped by hand before
// its time, and is not looked at.
func (p *pruning) pruneLedger(name string, before int64) error {
	prefix := ledgerOf(name)
	kept, err := p.firstKept(name, prefix)
	if err != nil {
		return err
	}
	var through int64 // the last time of what is deleted
	examined := 0
	for item, err := range p.snap.Scan(prefix, nil, false) {
		if err != nil {
			return err
		}
		at := timeIn(item.Key[len(prefix):])
		if at >= before || kept != nil && bytes.Compare(item.Key, kept) >= 0 || examined == store.MaxExamined || p.size >= maxRemoved {
			break
		}
		examined++
		p.entries++
		var row ledgerRow
		switch err := readItem(p.snap, item, &row); {
		case errors.Is(err, ErrDamaged):
			p.s.log.Error("entry of a ledger cannot be read and is deleted", "schedule", name, "err", err)
		case err != nil:
			return err
		case row.At >= before:
			continue
		}
		key := bytes.Clone(item.Key)
		p.write(key, nil)
		if err := p.removePieces(key); err != nil {
			return err
		}
		p.write(ledgerEntryKey(key), nil)
		through = max(through, row.To, at)
	}
	if through == 0 {
		return nil
	}
	return p.noteKeptFrom(name, fromNanos(through+1))
}

// firstKept is the key of the first of the last entries of a schedule, which are kept; nil if all are to go by their age.
func (p *pruning) firstKept(name string, prefix []byte) (first []byte, err error) {
	document, err := p.getRaw(documentKey(store.ScheduleKind, name))
	if err != nil || document == nil {
		return nil, err
	}
	n := 0
	for item, err := range p.snap.Scan(prefix, PrefixEnd(prefix), true) {
		if err != nil {
			return nil, err
		}
		first = bytes.Clone(item.Key)
		if n++; n == store.LedgerKept {
			break
		}
	}
	return first, nil
}

// noteKeptFrom notes since when a ledger is whole.
func (p *pruning) noteKeptFrom(name string, at time.Time) error {
	key := scheduleKey(name)
	var row store.Schedule
	found, err := read(p.tx, key, &row)
	switch {
	case errors.Is(err, ErrDamaged):
		return nil // its next step makes it anew
	case err != nil:
		return err
	case !found:
		p.keepKeptFrom(name, at, p.now)
		return nil
	case !at.After(row.KeptFrom):
		return nil
	}
	row.KeptFrom = at
	p.put(key, encode(row))
	return nil
}

// keptFromKey is the key of since when the ledger of a deleted schedule is whole. Schedules with names of one hash have it together, so that
// there are never more than 65,536: the latest is that of all.
func keptFromKey(name string) []byte {
	hash := sha256.Sum256([]byte(name))
	return slices.Concat(keyKeptFrom, hash[:2])
}

// keptFrom is since when the ledger of a schedule that is not there is whole; zero: it always was. Where that cannot be read it is now.
func (t *tx) keptFrom(name string, now int64) time.Time {
	payload, err := t.get(keptFromKey(name))
	switch {
	case err != nil || payload != nil && len(payload) != 8:
		return fromNanos(now)
	case payload == nil:
		return time.Time{}
	}
	return fromNanos(int64(binary.BigEndian.Uint64(payload))) //nolint:gosec // as it was put
}

// keepKeptFrom notes since when the ledger of a schedule that is not there any more is whole.
func (t *tx) keepKeptFrom(name string, at time.Time, now int64) {
	if at.After(t.keptFrom(name, now)) {
		t.putNumber(keptFromKey(name), uint64(nanos(at))) //nolint:gosec // as it is read
	}
}
