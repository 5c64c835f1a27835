package rows

import (
	"context"
	"errors"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

func hostKey(name string) []byte { return nameKey(prefixHost, name) }

func positionKey(host string) []byte { return nameKey(prefixPosition, host) }

// notePosition keeps how far the journal of a host's agent is. It has a row of its own, as each end may tell of it and the
// host's row is long.
func (s *Store) notePosition(t *tx, host string, position uint64) error {
	if position == 0 {
		return nil
	}
	had, err := s.readPosition(t, host)
	if err == nil && position > had {
		t.putNumber(positionKey(host), position)
	}
	return err
}

// readPosition reads how far the journal of a host's agent is by what ends have told; 0: nothing. What cannot be read is
// nothing: else the host's row would count for nothing, too.
func (r *Reader) readPosition(from getter, host string) (uint64, error) {
	position, err := readNumber(from, positionKey(host))
	if errors.Is(err, ErrDamaged) {
		r.log.Error("how far the journal of a host was is lost", "host", host, "err", err)
		return 0, nil
	}
	return position, err
}

// withPosition completes the row of a host.
func (r *Reader) withPosition(snap Snapshot, name string, row *store.Host) error {
	position, err := r.readPosition(snap, name)
	row.Name, row.Position = name, max(row.Position, position)
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
		row.Removed = false
		if row.Epoch++; isLost {
			row.Epoch = max(row.Epoch, uint64(max(0, in.At.Unix()))) //nolint:gosec // no session takes less than a second
		}
		row.Fingerprint, row.Owner, row.Instance, row.Boot = in.Fingerprint, in.Owner, in.Instance, in.Boot
		row.Journal, row.Position, row.Software, row.Labels = in.Journal, in.Position, in.Software, in.Labels
		row.LastHeard = in.At
		epoch = row.Epoch
		t.put(hostKey(in.Host), encode(row))
		t.write(positionKey(in.Host), nil)
		return nil
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
		return r.withPosition(snap, name, &row)
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
			if err := r.withPosition(snap, name, &row); err != nil {
				return err
			}
			page = append(page, row)
		}
		return nil
	})
	return page, next, err
}
