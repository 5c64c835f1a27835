package rows

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

func hostKey(name string) []byte { return nameKey(prefixHost, name) }

func takenKey(host string) []byte { return nameKey(prefixTaken, host) }

// takenRow is how many calls of the store the journal of a host's agent has taken. It has a row of its own, as each end may
// tell of it and the host's row is long; and no backup gives it to another store.
type takenRow struct{ said, told uint64 } // as its session began; by ends since

// putTaken changes the row of a host.
func (s *Store) putTaken(t *tx, host string, change func(row *takenRow)) error {
	had, err := s.readTaken(t, host)
	row := had
	if change(&row); err == nil && row != had {
		key := takenKey(host)
		t.write(key, sealNumbers(key, row.said, row.told))
	}
	return err
}

// noteTaken keeps what an end tells.
func (s *Store) noteTaken(t *tx, host string, taken uint64) error {
	if taken == 0 {
		return nil
	}
	return s.putTaken(t, host, func(row *takenRow) { row.told = max(row.told, taken) })
}

// readTaken reads the row of a host. What cannot be read is nothing: else the host's row would count for nothing, too.
func (r *Reader) readTaken(from getter, host string) (takenRow, error) {
	payload, _, err := loadValue(takenKey(host), from.Get)
	if errors.Is(err, ErrDamaged) {
		r.log.Error("how many calls the journal of a host has taken is lost", "host", host, "err", err)
		err = nil
	}
	if err != nil || len(payload) != 16 {
		return takenRow{}, err
	}
	return takenRow{binary.BigEndian.Uint64(payload), binary.BigEndian.Uint64(payload[8:])}, nil
}

// withTaken completes the row of a host.
func (r *Reader) withTaken(snap Snapshot, name string, row *store.Host) error {
	taken, err := r.readTaken(snap, name)
	row.Name, row.Taken = name, max(taken.said, taken.told)
	return err
}

// OpenSession implements store.Hosts.
func (s *Store) OpenSession(ctx context.Context, in store.Session) (uint64, error) {
	var epoch uint64
	err := s.doAhead(ctx, SpaceLow, func(t *tx) error {
		row, isLost, err := s.hostRow(t, in.Host)
		if err != nil {
			return err
		}
		if isLost && in.Journal == "" {
			in.Journal = lostJournal
		}
		row.Removed, row.RemovedNo = false, 0
		if row.Epoch++; isLost {
			row.Epoch = max(row.Epoch, uint64(max(0, in.At.Unix()))) //nolint:gosec // no session takes less than a second
		}
		row.Fingerprint, row.Owner, row.Instance, row.Boot = in.Fingerprint, in.Owner, in.Instance, in.Boot
		row.Journal, row.Software, row.Labels = in.Journal, in.Software, in.Labels
		row.LastHeard = in.At
		epoch = row.Epoch
		t.put(hostKey(in.Host), encode(row))
		return s.putTaken(t, in.Host, func(row *takenRow) { *row = takenRow{said: in.Taken} })
	})
	return epoch, err
}

// lostJournal is the id of the journal of a host of which it is lost which it was: no journal has it, so that the
// agent's is taken for another.
const lostJournal = "lost"

// hostRow reads the row of a host, and whether there was one that is lost: it cannot be read, or is not
// there and the host has attempts.
func (s *Store) hostRow(t *tx, name string) (row store.Host, isLost bool, err error) {
	key := hostKey(name)
	found, err := read(t, key, &row)
	switch {
	case errors.Is(err, ErrDamaged):
	case err != nil || found || len(s.sched.Active(name))+len(s.sched.Returning(name)) == 0:
		return row, false, err
	}
	s.log.Error("what was stored of a host is lost", "host", name, "err", err)
	return store.Host{}, true, t.readOld(key)
}

// PutHost implements store.Hosts.
func (s *Store) PutHost(ctx context.Context, h store.Host) error {
	row := h
	if size, most := len(encode(row)), maxOp-maxStep; size > most {
		return tooMuch("facts and procedures", size, most)
	}
	return s.doAhead(ctx, SpaceLow, func(t *tx) error {
		var had store.Host
		found, err := read(t, hostKey(h.Name), &had)
		if err != nil {
			return err
		}
		if !found || had.Removed {
			return failures.NotFound("host", h.Name)
		}
		row.Epoch = had.Epoch
		t.put(hostKey(h.Name), encode(row))
		if err := s.putTaken(t, h.Name, func(row *takenRow) { row.said = h.Taken }); err != nil {
			return err
		}
		if what := harp.EventHostAway; had.Connected != row.Connected {
			if row.Connected {
				what = harp.EventHostOnline
			}
			t.emitHost(what, h.Name, max(s.sched.Latest, nanos(row.LastHeard), nanos(row.At)))
		}
		return nil
	})
}

// Host implements store.Hosts.
func (r *Reader) Host(_ context.Context, name string) (store.Host, error) {
	var row store.Host
	err := r.view(func(snap Snapshot) error {
		found, err := read(snap, hostKey(name), &row)
		switch {
		case err != nil:
			return err
		case !found || row.Removed:
			row = store.Host{}
			return failures.NotFound("host", name)
		}
		return r.withTaken(snap, name, &row)
	})
	row.Name = name
	return row, err
}

// ListHosts implements store.Hosts.
func (r *Reader) ListHosts(_ context.Context, cursor string, limit int) ([]store.Host, string, error) {
	after, err := openNameCursor(prefixHost, cursor)
	if err != nil {
		return nil, "", err
	}
	limit = pageLimit(limit)
	var page []store.Host
	var next string
	err = r.view(func(snap Snapshot) error {
		for item, err := range snap.Scan([]byte{prefixHost}, hostKey(after), false) {
			if err != nil {
				return err
			}
			name := string(item.Key[1:])
			if name == after && cursor != "" {
				continue
			}
			var row store.Host
			switch err := readItem(snap, item, &row); {
			case errors.Is(err, ErrDamaged):
				r.log.Error("host cannot be listed", "host", name, "err", err)
				continue
			case err != nil:
				return err
			case row.Removed:
				continue
			}
			if len(page) == limit {
				next = nameCursor(prefixHost, page[limit-1].Name)
				return nil
			}
			if err := r.withTaken(snap, name, &row); err != nil {
				return err
			}
			page = append(page, row)
		}
		return nil
	})
	return page, next, err
}
