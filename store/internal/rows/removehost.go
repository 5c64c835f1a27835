package rows

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// RemoveHost implements store.Hosts. Each commit but the last ends some of the host's jobs.
func (s *Store) RemoveHost(ctx context.Context, name string, op store.Operation) (store.HostRemoved, error) {
	var out store.HostRemoved
	refused := op.Refused
	isKept := errors.Is(refused, harp.ErrConflict) // and stays so: asked again it would be the removal of a host as nobody had seen it
	if isKept {
		op.Refused = nil
	}
	removal := removal{s: s, host: name, by: op.By, damaged: map[schedule.ID]struct{}{}}
	asked := s.asked()
	for more := true; more; {
		var done doneRow
		err := s.do(ctx, SpaceCritical, func(t *tx) (err error) {
			op := op
			op.Time = s.sched.Since(asked, op.Time)
			removal.at = fromNanos(s.sched.NoteTime(op.Time))
			removal.did = store.HostRemoved{}
			done, err = s.doOnce(t, op, removeRow{By: op.By, Host: name}, func() (doneRow, error) {
				if isKept {
					return doneRow{Refused: true}, nil
				}
				return removal.next(t)
			})
			return err
		})
		switch {
		case err != nil:
			return out, err
		case done.Refused && refused != nil:
			return out, refused
		case done.Refused:
			f := failures.New("conflict", "host "+name+" was not to be removed as this was asked first")
			f.Type = "host"
			return out, f.Err()
		}
		out.Ended = append(out.Ended, removal.did.Ended...)
		out.Claimed = append(out.Claimed, removal.did.Claimed...)
		out.Left, out.Over = append(out.Left, removal.did.Left...), append(out.Over, removal.did.Over...)
		if done.Missing && done.Count == 0 {
			return out, failures.NotFound("host", name)
		}
		out.Count, more = done.Count, done.More
		if op.ID == "" { // else that is remembered
			out.Count = len(out.Ended)
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
	return out, nil
}

// removal is a host on its way out.
type removal struct {
	s    *Store
	host string
	by   harp.Principal

	left    []schedule.ID            // of the host's jobs, those that were not looked at
	damaged map[schedule.ID]struct{} // that are left as they are
	at      time.Time
	did     store.HostRemoved // in this commit
}

// next ends as many of the host's jobs as one commit takes; when there are none it forgets the host.
func (r *removal) next(t *tx) (doneRow, error) {
	if len(r.left) == 0 { // also after the last one that was: others may have come
		r.left = r.s.sched.Unended(r.host)
		r.left = slices.DeleteFunc(r.left, func(i schedule.ID) bool { _, is := r.damaged[i]; return is })
	}
	if len(r.left) == 0 {
		return r.forget(t)
	}
	if err := r.endSome(t); err != nil {
		return doneRow{}, err
	}
	started, err := r.s.startFreed(t)
	if err == nil {
		var some []*store.Job
		some, err = r.s.settleBatches(t, nanos(r.at))
		started = append(started, some...)
	}
	r.did.Claimed, r.did.Left, r.did.Over = started, t.left, t.over
	return doneRow{Count: len(r.did.Ended), More: true}, err
}

// forget leaves nothing of the host, its marks included, but its epoch: that of its next session must be higher, as an
// agent that runs still has seen it.
func (r *removal) forget(t *tx) (doneRow, error) {
	key := hostKey(r.host)
	var row store.Host
	switch found, err := read(t, key, &row); {
	case errors.Is(err, ErrDamaged):
		if err := t.readOld(key); err != nil {
			return doneRow{}, err
		}
		row.Epoch = uint64(max(0, r.at.Unix())) //nolint:gosec // as in OpenSession
	case err != nil:
		return doneRow{}, err
	case !found:
		return doneRow{Missing: true}, nil
	case row.Removed: // what was submitted since is of a host that is gone as well
		t.put(key, r.removed(row.Epoch))
		return doneRow{Missing: true}, nil
	}
	if err := r.s.dropDrift(t, r.host); err != nil {
		return doneRow{}, err
	}
	t.put(key, r.removed(row.Epoch))
	t.write(takenKey(r.host), nil)
	t.emit(eventRow{At: nanos(r.at), Type: harp.EventHostRemoved, Host: r.host, By: &r.by})
	return doneRow{}, nil
}

// removed is the row of the host when it is gone.
func (r *removal) removed(epoch uint64) []byte {
	return encode(store.Host{Epoch: epoch, Removed: true, RemovedNo: r.s.sched.Number})
}

// endSome ends jobs. One that cannot be read is left as it is.
func (r *removal) endSome(t *tx) error {
	for n := 0; len(r.left) > 0 && n < maxDue && t.hasRoom(maxEvent+2*maxStep); n++ {
		i := r.left[0]
		r.left = r.left[1:]
		e := r.s.sched.Job(i)
		if e == nil || e.IsCancelled() {
			continue // it has ended meanwhile
		}
		before, err := readJob(t, i)
		var c store.Change
		if err == nil {
			event := store.Event{Kind: store.Lose, At: r.at, Reason: harp.LostHostRemoved, By: r.by}
			if err := r.s.applyEvent(t, i, before, event, &c); err != nil {
				return err
			}
			err = c.Err
		}
		switch {
		case err != nil && !r.s.skipDamaged(e, err):
			return err
		case err != nil:
			r.damaged[i] = struct{}{}
		default:
			r.did.Ended = append(r.did.Ended, c.Job)
		}
	}
	return nil
}
