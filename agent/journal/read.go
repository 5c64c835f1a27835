package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
)

// State is how far an attempt is.
func (j *Journal) State(k Key) State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stateLocked(k)
}

// Held returns every attempt that the journal holds, tombstones not, by job and
// number. END itself is read with [Journal.Ended].
func (j *Journal) Held() []Held {
	list := j.heldByChance()
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
	})
	return list
}

// heldByChance returns them as they come.
func (j *Journal) heldByChance() []Held {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]Held, 0, len(j.attempts))
	for k, a := range j.attempts {
		list = append(list, a.held(k))
	}
	return list
}

// Get returns what the journal holds of an attempt; false: nothing, or a tombstone.
func (j *Journal) Get(k Key) (Held, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.attempts[k]
	if a == nil {
		return Held{}, false
	}
	return a.held(k), true
}

// Ended returns the END that was journalled of an attempt. ErrState means that it
// has not ended.
func (j *Journal) Ended(k Key) ([]byte, error) {
	var body []byte
	err := j.read(k, func(a *attempt) ([]*extent, error) {
		if a.end == nil {
			return nil, ErrState
		}
		return []*extent{a.end}, nil
	}, func(e entry) { body = bytes.Clone(e.body) })
	return body, err
}

// Records returns spooled records from number from on, or from the first behind it
// that is spooled, and which number the first of them has: about as many as maxBytes
// allows, one at least, or none where there are no more. They are consecutive. The
// error is of the first of them; where another cannot be read there are fewer.
func (j *Journal) Records(k Key, from int64, maxBytes int) (first int64, records [][]byte, err error) {
	err = j.read(k, func(a *attempt) ([]*extent, error) {
		from = max(from, a.acked)
		return a.consecutive(from, int64(maxBytes)), nil
	}, func(e entry) {
		for i, r := range e.records {
			n, last := e.count+int64(i), first+int64(len(records))
			switch {
			case n < from:
			case len(records) == 0:
				first, records = n, [][]byte{bytes.Clone(r)}
				maxBytes -= len(r)
			case n == last && len(r) <= maxBytes:
				records = append(records, bytes.Clone(r))
				maxBytes -= len(r)
			default: // nothing follows
				maxBytes = -1
			}
		}
	})
	return first, records, err
}

// consecutive returns what is spooled from a record on, without gaps.
func (a *attempt) consecutive(from, most int64) []*extent {
	i, _ := slices.BinarySearchFunc(a.spool, from, func(x *extent, n int64) int {
		if x.next() <= n {
			return -1
		}
		return 1
	})
	rest := a.spool[i:]
	n, bytesOf := 0, int64(0)
	for n < len(rest) && (n == 0 || bytesOf < most && rest[n].first == rest[n-1].next()) {
		bytesOf += rest[n].cost
		n++
	}
	return rest[:n]
}

// read reads extents of an attempt in order.
func (j *Journal) read(k Key, choose func(*attempt) ([]*extent, error), visit func(entry)) error {
	for {
		found, err := j.find(k, choose)
		if err != nil {
			return err
		}
		entries, err := j.fetch(found)
		if errors.Is(err, fs.ErrNotExist) && j.removed(found) {
			continue // what is still needed is elsewhere by now
		}
		if err != nil && len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			visit(e)
		}
		return nil
	}
}

// place is an extent as it is at one moment.
type place struct {
	extent
	base int64 // of its segment
}

// find returns where the chosen extents of an attempt are.
func (j *Journal) find(k Key, choose func(*attempt) ([]*extent, error)) ([]place, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return nil, j.broken
	}
	a := j.attempts[k]
	if a == nil {
		return nil, ErrUnknown
	}
	chosen, err := choose(a)
	if err != nil {
		return nil, err
	}
	found := make([]place, len(chosen))
	for i, x := range chosen {
		found[i] = place{extent: *x}
		for _, s := range j.segments {
			if s.number == x.segment {
				found[i].base = s.base
			}
		}
	}
	return found, nil
}

// removed reports whether the segment of one of the extents is gone.
func (j *Journal) removed(found []place) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(found, func(p place) bool {
		return p.pending == nil && p.segment < j.segments[0].number
	})
}

// fetch reads extents, as far as that can be done.
func (j *Journal) fetch(found []place) ([]entry, error) {
	entries := make([]entry, 0, len(found))
	for _, p := range found {
		e, err := j.fetchOne(p)
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (j *Journal) fetchOne(p place) (entry, error) {
	if p.pending != nil {
		return entry{count: p.first, records: p.pending, body: p.pending[0]}, nil
	}
	name := segmentName(p.segment)
	f, err := j.fs.Open(name)
	if err != nil {
		return entry{}, ioError("open", err)
	}
	defer f.Close()
	data := make([]byte, p.size)
	if err := readAt(f, data, p.offset); err != nil {
		return entry{}, ioError("read "+name, err)
	}
	e, _, err := parse(data, p.base+p.offset)
	if err != nil {
		return entry{}, &CorruptError{File: name, Offset: p.offset, Reason: err.Error()}
	}
	return e, nil
}

// entryLen is the size of the entry at the start of b.
func entryLen(b []byte) int { return int(binary.LittleEndian.Uint32(b)) + entrySize }
