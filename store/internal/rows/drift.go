package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// The marks of hosts lie by the name of the check. What a key begins with is a row of its own, which says that the name is
// in use: so names are few, whatever callers send. It has the number of the batch that made it so: what was submitted before is of the
// name before it was forgotten.

// driftRow is a mark.
type driftRow struct {
	Mark    harp.DriftMark `msgpack:"mark"`
	Since   time.Time      `msgpack:"since"`
	Checked time.Time      `msgpack:"checked"`
	Sent    time.Time      `msgpack:"sent"` // when the check was
	Job     []byte         `msgpack:"job"`
}

// forgetDriftRow is what the digest of an operation that forgets a name is of.
type forgetDriftRow struct {
	By   harp.Principal `msgpack:"by"`
	Name string         `msgpack:"drift"`
}

// driftKey is the key of a mark; without a host that of its name.
func driftKey(name, host string) []byte {
	return append(appendText([]byte{prefixDrift}, name), host...)
}

// driftIn is the inverse of driftKey.
func driftIn(key []byte) (name, host string, ok bool) {
	const head = 1 + 2
	if len(key) < head {
		return "", "", false
	}
	size := int(key[1])<<8 | int(key[2])
	if len(key) < head+size {
		return "", "", false
	}
	return string(key[head : head+size]), string(key[head+size:]), true
}

func (r *driftRow) status(name, host string) harp.DriftStatus {
	out := harp.DriftStatus{Host: host, Name: name, Mark: r.Mark, Since: r.Since, Checked: r.Checked}
	if len(r.Job) == len(id{}) {
		out.Job = id(r.Job).String()
	}
	return out
}

// loadDrifts reads the names under which hosts are marked, past their marks.
func (s *Store) loadDrifts(snap Snapshot) error {
	const afterHosts = 0xff // is in no name of a host
	for from := []byte{prefixDrift}; from != nil; {
		at := from
		from = nil
		for item, err := range snap.Scan([]byte{prefixDrift}, at, false) {
			if err != nil {
				return err
			}
			name, _, ok := driftIn(item.Key)
			if !ok {
				return fmt.Errorf("%w: key %q", ErrDamaged, item.Key)
			}
			first, err := readNumber(snap, driftKey(name, ""))
			if err != nil && !errors.Is(err, ErrDamaged) {
				return err
			}
			s.drifts[name] = first
			from = append(driftKey(name, ""), afterHosts)
			break
		}
	}
	return nil
}

// checkDrift refuses a name under which hosts would be marked, if there are too many. Errors: harp.ErrRefused.
func (s *Store) checkDrift(name string) error {
	if _, used := s.drifts[name]; name == "" || used || len(s.drifts) < harp.MaxDrifts {
		return nil
	}
	return failures.New("refused", fmt.Sprintf("drift: hosts are marked under %d names already, and there are no more: forget one that is not needed", len(s.drifts))).Err()
}

// useDrift makes a name one that is in use, by a batch of this number.
func (s *Store) useDrift(t *tx, name string, no uint64) {
	if _, used := s.drifts[name]; name == "" || used {
		return
	}
	s.drifts[name] = no
	t.putNumber(driftKey(name, ""), no)
}

// noteDrift marks the host of a check that an event has ended, or of which it told late. v is what the procedure returned by it.
// Errors: the engine's.
func (s *Store) noteDrift(t *tx, i id, before, after *store.Job, v harp.Value) error {
	if first, used := s.drifts[after.Drift]; after.Drift == "" || !used || after.No < first || len(after.Attempts) == 0 {
		return nil
	}
	row := driftRow{Mark: harp.DriftUnknown, Sent: after.Attempts[len(after.Attempts)-1].Sent, Job: bytes.Clone(i[:])}
	var state harp.State
	switch {
	case before.Late == nil && after.Late != nil:
		if after.Late.State == harp.StateRejected || after.Reason == harp.LostHostRemoved {
			return nil // it did not run, or the host is another by now
		}
		state, row.Checked = after.Late.State, after.Late.At
	case after.State.Ended() && !before.State.Ended() && after.Started != harp.DidNotRun:
		state, row.Checked = after.State, after.EndTime
	default:
		return nil
	}
	if state == harp.StateSucceeded {
		row.Mark = harp.DriftOf(v)
	}
	return t.putDrift(after, i, &row)
}

// putDrift writes a mark, unless there is one of a check that was sent later. What was sent later than the check ends was sent
// before the clock was set back.
func (t *tx) putDrift(j *store.Job, i id, row *driftRow) error {
	key := driftKey(j.Drift, j.Host)
	had := driftRow{}
	_, err := read(t, key, &had)
	if errors.Is(err, ErrDamaged) {
		had, err = driftRow{}, t.readOld(key)
	}
	switch {
	case err != nil:
		return err
	case row.Sent.Before(had.Sent) && !had.Sent.After(row.Checked):
		return nil
	}
	was := had.Mark
	if was == "" {
		was = harp.DriftUnknown
	}
	if row.Since = had.Since; row.Mark != had.Mark {
		row.Since = row.Checked
	}
	t.put(key, encode(row))
	if row.Mark != was {
		batch, _ := parseID(j.Batch)
		t.emit(eventRow{
			At: nanos(row.Checked), Type: harp.EventHostDrift, Job: i[:], Host: j.Host, Procedure: j.Procedure,
			Reason: j.Drift + ": " + string(row.Mark), Labels: j.Labels, Batch: batch[:], Schedule: j.Schedule,
		})
	}
	return nil
}

// dropDrift deletes the marks of a host.
func (s *Store) dropDrift(t *tx, host string) error {
	for name := range s.drifts {
		key := driftKey(name, host)
		value, err := t.getRaw(key)
		if err != nil {
			return err
		}
		if value != nil {
			t.write(key, nil)
		}
	}
	return nil
}

// Drift implements store.Drifts.
func (r *Reader) Drift(_ context.Context, host, name string) (out harp.DriftStatus, err error) {
	err = r.view(func(snap Snapshot) error {
		var row driftRow
		found, err := read(snap, driftKey(name, host), &row)
		if err == nil && !found {
			err = failures.NotFound("drift", name+" of "+host)
		}
		out = row.status(name, host)
		return err
	})
	if err != nil {
		return harp.DriftStatus{}, err
	}
	return out, nil
}

// ListDrift implements store.Drifts.
func (r *Reader) ListDrift(_ context.Context, cursor string, limit int) (page []harp.DriftStatus, next string, err error) {
	after, err := openNameCursor(prefixDrift, cursor)
	if err != nil {
		return nil, "", err
	}
	limit = pageLimit(limit)
	last := ""
	err = r.view(func(snap Snapshot) error {
		for item, err := range snap.Scan([]byte{prefixDrift}, append([]byte{prefixDrift}, after...), false) {
			if err != nil {
				return err
			}
			at := string(item.Key[1:])
			name, host, ok := driftIn(item.Key)
			if at == after && cursor != "" || !ok || host == "" {
				continue
			}
			if len(page) == limit {
				next = nameCursor(prefixDrift, last)
				return nil
			}
			var row driftRow
			switch err := readItem(snap, item, &row); {
			case errors.Is(err, ErrDamaged):
				r.log.Error("mark of a host cannot be listed", "host", host, "drift", name, "err", err)
				continue
			case err != nil:
				return err
			}
			last, page = at, append(page, row.status(name, host))
		}
		return nil
	})
	return page, next, err
}

// ForgetDrift implements store.Drifts. Each commit but the last deletes as many marks as one may.
func (s *Store) ForgetDrift(ctx context.Context, name string, op store.Operation) (int, error) {
	asked := s.asked()
	for {
		var done doneRow
		err := s.doScan(ctx, SpaceCritical, func(t *tx) (err error) {
			op := op
			op.Time = s.sched.Since(asked, op.Time)
			done, err = s.doOnce(t, op, forgetDriftRow{By: op.By, Name: name}, func() (doneRow, error) { return s.forgetSomeDrift(t, name) })
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case done.Missing:
			return 0, failures.NotFound("drift", name)
		case !done.More:
			return done.Count, nil
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// forgetSomeDrift deletes some of the marks under a name, or the name when there are none.
func (s *Store) forgetSomeDrift(t *tx, name string) (done doneRow, err error) {
	if _, used := s.drifts[name]; !used {
		return doneRow{Missing: true}, nil
	}
	own := driftKey(name, "")
	for item, err := range t.snap.Scan(own, nil, false) {
		if err != nil {
			return done, err
		}
		if bytes.Equal(item.Key, own) {
			continue
		}
		if done.Count == maxDue {
			done.More = true
			return done, nil
		}
		done.Count++
		t.write(bytes.Clone(item.Key), nil)
	}
	t.write(own, nil)
	delete(s.drifts, name)
	return done, nil
}
