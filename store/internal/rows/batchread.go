package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// isMember reports whether an id is that of a member of a batch.
func (i id) isMember() bool { return i[6]>>4 == 8 }

// ofBatch is what the id of a member's batch begins with.
func (i id) ofBatch() []byte {
	i[6] = i[6]&0x0f | 7<<4
	return i[:8]
}

// ofMembers is what the ids of a batch's members begin with, and those of others made in the same moment.
func (i id) ofMembers() []byte {
	i[6] = i[6]&0x0f | 8<<4
	return i[:8]
}

// BatchMembers implements store.Batches.
func (s *Store) BatchMembers(_ context.Context, text string, from, n int) (out []*store.Job, err error) {
	i, ok := parseID(text)
	if !ok {
		return nil, noBatch(text)
	}
	err = s.view(func(snap Snapshot) error {
		row, err := s.readBatch(snap, i)
		if err != nil {
			return err
		}
		m := members{Store: s, snap: snap, b: batch{id: i, row: row, life: row.BatchLife, piece: -1}}
		for at := max(from, 0); at < row.Hosts*row.StepCount() && len(out) < n; at++ {
			j, err := m.at(at)
			if err != nil {
				return err
			}
			out = append(out, j)
		}
		return nil
	})
	if err == nil {
		s.explain(out)
	}
	return out, err
}

// readMember reads a member of a batch, or says what it is whose host is not reached.
func (s *Store) readMember(snap Snapshot, b *batch, at int, host store.BatchHost) (*store.Job, error) {
	j, i := b.member(at, host)
	if at >= b.life.Reached {
		early, err := snap.Get(i.key(prefixLife))
		if err != nil {
			return nil, err
		}
		if early == nil {
			j.Life = b.row.UnreachedLife()
			return j, nil
		}
	}
	return s.readStored(snap, b, i, j)
}

// readStored reads a member that is stored; in place of one that cannot be read it returns j.
func (s *Store) readStored(snap Snapshot, b *batch, i id, j *store.Job) (*store.Job, error) {
	is, err := s.readLatest(snap, i)
	if errors.Is(err, ErrDamaged) || errors.Is(err, harp.ErrNotFound) || errors.Is(err, harp.ErrPruned) {
		s.log.Error("a member of a batch cannot be read", "batch", b.id.String(), "job", j.ID, "err", err)
		j.Life = damagedLife(&b.life)
		return j, nil
	}
	return is, err
}

// damagedLife is the life of a member whose rows cannot be read: one that does not keep the others from
// being read.
func damagedLife(l *store.BatchLife) store.Life {
	if !l.State.Ended() {
		return store.Life{State: harp.StateUnknown, Since: l.Since}
	}
	f := failures.New("lost", "what was stored of this job is damaged")
	f.Ran = harp.MayHaveRun
	reason := ""
	if l.Reason == harp.BatchReasonRestored {
		reason = harp.LostRestored
	}
	return store.Life{State: harp.StateLost, Reason: reason, Since: l.EndTime, EndTime: l.EndTime, Started: harp.MayHaveRun, Failure: f}
}

// findUnreached finds the member of a batch that has an id and whose host was not reached: the id of its
// batch begins as its own does. Errors: harp.ErrNotFound, harp.ErrPruned with the batch.
func (s *Store) findUnreached(snap Snapshot, i id) (*store.Job, error) {
	prefix := i.ofBatch()
	for _, kind := range []byte{prefixBatch, prefixTomb} {
		for item, err := range snap.Scan(append([]byte{kind}, prefix...), nil, false) {
			switch {
			case err != nil:
				return nil, err
			case len(item.Key) != 1+len(id{}):
			case kind == prefixTomb:
				return nil, prunedError(i)
			default:
				if j, err := s.findInBatch(snap, id(bytes.Clone(item.Key[1:])), i); j != nil || err != nil {
					return j, err
				}
			}
		}
	}
	return nil, notFound(i.String())
}

// findInBatch looks for a member in a batch; nil if it is none of it.
func (s *Store) findInBatch(snap Snapshot, of, i id) (*store.Job, error) {
	row, err := s.readBatch(snap, of)
	if err != nil {
		return nil, err
	}
	m := members{Store: s, snap: snap, b: batch{id: of, row: row, life: row.BatchLife, piece: -1}}
	place, is, err := s.placeIn(&m, i)
	if !is {
		return nil, err
	}
	return m.at(place)
}

// placesMost is of how many members together it is remembered at which places they are: of four of the longest batches.
const placesMost = 4 * store.MaxBatchHosts

// places is at which places the members of batches are, of which their ids say nothing: of the batches that were asked about last, since
// callers that wait for members ask for each of them, again and again.
type places struct {
	mu      sync.Mutex
	batches []*batchPlaces // guarded by mu: the one asked about last is last
	members int            // guarded by mu: of all of them
}

// batchPlaces is the places of the members of one batch.
type batchPlaces struct {
	no      uint64 // the batch's number: its id may be used again
	members int

	mu sync.Mutex   // held while they are found, as others wait for the same
	at map[id]int32 // guarded by mu; nil: it is not known
}

// of returns what is remembered of a batch, to be filled in if that is nothing yet.
func (p *places) of(b *store.Batch) *batchPlaces {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := slices.IndexFunc(p.batches, func(known *batchPlaces) bool { return known.no == b.No }); n >= 0 {
		known := p.batches[n]
		p.batches = append(slices.Delete(p.batches, n, n+1), known)
		return known
	}
	made := &batchPlaces{no: b.No, members: max(b.Hosts*b.StepCount(), namesMost)} // more: so that there are not many
	p.batches, p.members = append(p.batches, made), p.members+made.members
	for p.members > placesMost {
		p.members -= p.batches[0].members
		p.batches = slices.Delete(p.batches, 0, 1)
	}
	return made
}

// placeIn returns at which place of a batch the member is that has an id; false if it is none of it. Errors: ErrDamaged where it may be
// one on a host whose name cannot be read.
func (s *Store) placeIn(m *members, i id) (place int, is bool, err error) {
	known := s.places.of(m.b.row)
	known.mu.Lock()
	defer known.mu.Unlock()
	at := known.at
	if at == nil {
		at, err = m.findPlaces()
		if err != nil && !errors.Is(err, ErrDamaged) {
			return 0, false, err
		}
		if err == nil {
			known.at = at
		}
	}
	found, is := at[i]
	if is {
		err = nil
	}
	return int(found), is, err
}

// findPlaces returns the places of a batch's members. With ErrDamaged they are those on hosts whose names can be read.
func (m *members) findPlaces() (map[id]int32, error) {
	row := m.b.row
	found := make(map[id]int32, row.Hosts*row.StepCount())
	var damaged error
	for at := 0; at < row.Hosts; at++ {
		host, err := m.b.hostAt(m.snap, at)
		if errors.Is(err, ErrDamaged) {
			damaged = err
			at += namesMost - 1 - at%namesMost // the others of its row
			continue
		}
		if err != nil {
			return nil, err
		}
		for step := 1; step <= row.StepCount(); step++ {
			i, _ := parseID(harp.MemberID(row.ID, host.Name, step))
			found[i] = int32(at*row.StepCount() + step - 1) //nolint:gosec // of store.MaxBatchHosts at most
		}
	}
	return found, damaged
}

// ListBatches implements store.Batches.
func (s *Store) ListBatches(_ context.Context, f store.BatchFilter, cursor string) (page store.BatchPage, err error) {
	prefix := indexKey(byBatch)
	begin := append(slices.Clone(prefix), lastPlace[:]...)
	if cursor != "" {
		says, err := openCursor(prefixBatch, cursor)
		if err != nil || len(says) != len(place{}) {
			return page, badCursor()
		}
		begin = append(slices.Clone(prefix), says...)
	}
	err = s.view(func(snap Snapshot) error {
		examined := 0
		for item, err := range snap.Scan(prefix, begin, true) {
			if err != nil {
				return err
			}
			if examined++; examined > store.MaxExamined || len(page.Batches) == pageLimit(f.Limit) {
				page.Cursor = makeCursor(prefixBatch, bytes.Clone(item.Key[len(prefix):]))
				return nil
			}
			b, err := s.listed(snap, item)
			if err != nil {
				return err
			}
			if b != nil && f.Matches(b) {
				page.Batches = append(page.Batches, b)
			}
		}
		return nil
	})
	return page, err
}

// listed is the batch of an entry of the index; nil of one that was pruned or cannot be read.
func (s *Store) listed(snap Snapshot, item Item) (*store.Batch, error) {
	i, err := indexed(item)
	var b *store.Batch
	if err == nil {
		b, err = s.readBatch(snap, i)
	}
	switch {
	case errors.Is(err, ErrDamaged):
		s.log.Error("batch cannot be listed", "err", err)
		return nil, nil
	case errors.Is(err, harp.ErrPruned):
		return nil, nil
	}
	return b, err
}

// Request implements store.Jobs.
func (s *Store) Request(ctx context.Context, text string) (harp.Submission, error) {
	out, err := s.Reader.Request(ctx, text)
	if i, _ := parseID(text); !i.isMember() || !errors.Is(err, harp.ErrNotFound) {
		return out, err
	}
	err = s.viewJob(text, func(snap Snapshot, i id) error {
		j, err := s.findUnreached(snap, i)
		if err == nil {
			out, err = s.batchRequest(snap, j.Batch)
		}
		return err
	})
	return out, err
}

// Read implements store.Records.
func (s *Store) Read(ctx context.Context, text string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	out, err := s.Reader.Read(ctx, text, from, most)
	return out, s.prunedWith(text, err)
}

// Value implements store.Jobs.
func (s *Store) Value(ctx context.Context, text string) (harp.Value, error) {
	out, err := s.Reader.Value(ctx, text)
	return out, s.prunedWith(text, err)
}

// prunedWith is err, but harp.ErrPruned of a member that is not there as its batch was pruned.
func (s *Store) prunedWith(text string, err error) error {
	if i, _ := parseID(text); !i.isMember() || !errors.Is(err, harp.ErrNotFound) {
		return err
	}
	gone := s.viewJob(text, func(snap Snapshot, i id) error {
		_, err := s.findUnreached(snap, i)
		return err
	})
	if errors.Is(gone, harp.ErrPruned) {
		return gone
	}
	return err
}

// batchRequest reads the request of a batch, which is that of its members, too.
func (r *Reader) batchRequest(snap Snapshot, text string) (out harp.Submission, err error) {
	i, ok := parseID(text)
	if !ok {
		return out, fmt.Errorf("%w: no batch has the id %q", ErrDamaged, text)
	}
	found, err := read(snap, i.key(prefixRequest), &out)
	if err == nil && !found {
		err = fmt.Errorf("%w: batch %s has no request", ErrDamaged, i)
	}
	return out, err
}
