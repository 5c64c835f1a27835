package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Restore fills an empty engine, which it owns from then on and closes, with a backup,
// as a store with a new id, and ends every job that had not ended as lost(restored):
// it may have run since. A job that had not ended and cannot be read is left as it is, and its
// id is never taken for a new one; nothing is left of a queue's row that cannot be read. With
// an error the engine holds nothing that is to be opened. Errors: harp.ErrNoSpace, of what is
// no complete backup, as Open's.
func Restore(e Engine, r io.Reader, at time.Time, opts Options) (store.Restored, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	did, err := fill(e, r)
	if err == nil {
		err = replaceDamagedNumbers(e, at, opts.Logger)
	}
	if err == nil {
		err = dropDamagedQueues(e, opts.Logger)
	}
	if err == nil {
		err = leaveDamaged(e, opts.Logger)
	}
	if err == nil {
		err = mendBatches(e, at, opts.Logger)
	}
	if err == nil {
		err = recount(e)
	}
	if err != nil {
		return did, closing(e, err)
	}
	opts.restored = true
	s, err := Open(e, opts)
	if err != nil {
		return did, err
	}
	if did.Lost, err = s.loseAll(at); err == nil {
		err = s.restoreSchedules(context.Background(), at)
	}
	if also := s.Close(); err == nil {
		err = also
	}
	return did, err
}

// fill writes the rows of a backup, and when they are complete the new format.
func fill(e Engine, r io.Reader) (store.Restored, error) {
	var did store.Restored
	if err := isEmpty(e); err != nil {
		return did, err
	}
	in, head, err := openBackup(r)
	if err != nil {
		return did, err
	}
	did.From = head.Store
	did.Rows, err = in.each(func(rows []Write) error {
		if e.Space() <= SpaceCritical {
			return noSpace()
		}
		for n := range rows {
			if key := rows[n].Key; bytes.Equal(key, keyFormat) || bytes.HasPrefix(key, []byte{prefixTaken}) { // both are of that store alone
				rows[n].Value = nil
			}
		}
		return e.Commit(rows)
	})
	if err != nil {
		return did, err
	}
	var format []Write
	did.ID, format = newFormat()
	return did, e.Commit(format)
}

// replaceDamagedNumbers puts others in the place of numbers that cannot be read and without which the store is
// not opened. By how much the clock was set is lost: idempotency keys may be over earlier or later by that.
// Which ids were forgotten is lost: all are refused that are so old.
func replaceDamagedNumbers(e Engine, at time.Time, log *slog.Logger) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	for _, number := range []struct {
		key     []byte
		instead uint64
	}{
		{keyAhead, 0},
		{keyForgotten, uint64(at.Add(-store.TombstoneTime).UnixMilli())}, //nolint:gosec // after 1970
	} {
		_, err := readNumber(snap, number.key)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, ErrDamaged):
			return err
		}
		log.Error("a number is replaced", "key", string(number.key), "is", number.instead, "err", err)
		if err := e.Commit([]Write{{number.key, sealNumbers(number.key, number.instead)}}); err != nil {
			return err
		}
	}
	return nil
}

// dropDamagedQueues deletes the rows of queues that cannot be read. No job will need them: what
// is lost is what an operator has said of the queue, and that jobs were cancelled with it.
func dropDamagedQueues(e Engine, log *slog.Logger) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	for item, err := range snap.Scan([]byte{prefixQueue}, nil, false) {
		if err != nil {
			return err
		}
		var row queueRow
		if err = readItem(snap, item, &row); err == nil {
			continue
		}
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		name := string(item.Key[1:])
		log.Error("queue cannot be restored", "queue", harp.Value(name).String(), "err", err)
		if err := e.Commit([]Write{{nameKey(prefixQueue, name), nil}, {nameKey(prefixMarked, name), nil}}); err != nil {
			return err
		}
	}
	return nil
}

// leaveDamaged sees that jobs which had not ended and cannot be read are not looked for when
// the store is opened, and that all others are found. They get a tombstone: even of their id nothing else may be left.
func leaveDamaged(e Engine, log *slog.Logger) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	known := map[id]bool{}
	for item, err := range snap.Scan([]byte{prefixUnended}, nil, false) {
		if err != nil {
			return err
		}
		key := bytes.Clone(item.Key)
		c, err := openCohort(item)
		if err != nil {
			log.Error("which jobs had not ended cannot be read", "err", err)
			if err := e.Commit([]Write{{key, nil}}); err != nil {
				return err
			}
			continue
		}
		var writes []Write
		for _, i := range slices.Clone(c.ids[:c.n]) {
			known[i] = true
			_, err := readJob(snap, i)
			switch {
			case err == nil:
				continue
			case !errors.Is(err, ErrDamaged) && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, harp.ErrPruned):
				return err
			}
			log.Error("job cannot be restored", "job", i.String(), "err", err)
			c.removeJob(i)
			tomb := i.key(prefixTomb)
			writes = append(writes, Write{tomb, seal(tomb, nil)})
		}
		if len(writes) == 0 {
			continue
		}
		if err := e.Commit(append(writes, c.write())); err != nil {
			return err
		}
	}
	_, err = findUnended(e, snap, known, log)
	return err
}

// mendBatches gives batches that had not ended, and whose lives cannot be read, one that their members make, or, where nothing else
// of them can be read, that of one which was restored.
func mendBatches(e Engine, at time.Time, log *slog.Logger) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	return eachUnended(snap, func(i id) error {
		_, err := openBatch(snap, i)
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		log.Error("what is stored of the life of a batch is damaged", "batch", i.String(), "err", err)
		at = fromNanos(nanos(at))
		life, err := lifeByMembers(snap, i, at)
		if errors.Is(err, ErrDamaged) {
			log.Error("batch cannot be restored", "batch", i.String(), "err", err)
			life.State, life.Reason, life.Stopped, life.EndTime = harp.BatchFailed, harp.BatchReasonRestored, harp.BatchReasonRestored, at
		} else if err != nil {
			return err
		}
		key := i.key(prefixBatchLife)
		first, _ := split(key, encode(life))
		return e.Commit([]Write{{key, first}})
	})
}

// lifeByMembers is the life of a batch as its log and members say it, all of which end by the restore.
// Errors: ErrDamaged.
func lifeByMembers(snap Snapshot, i id, at time.Time) (*batchLifeRow, error) {
	life := &batchLifeRow{BatchLife: store.BeginBatch(&store.BatchPlan{}, at)}
	for item, err := range snap.Scan(i.key(prefixBatchLog), nil, true) {
		if err != nil {
			return life, err
		}
		entries, err := entriesIn(snap, item)
		if err != nil {
			return life, err
		}
		for _, e := range entries {
			life.Log = e.No + e.Numbers()
		}
		break
	}
	row, err := withLife(snap, i, life.BatchLife)
	if err != nil {
		return life, err
	}
	b := batch{id: i, row: row, piece: -1}
	for index := range row.Hosts {
		host, err := b.hostAt(snap, index)
		if err != nil {
			return life, err
		}
		j, err := readHost(snap, row, index, host)
		switch {
		case errors.Is(err, harp.ErrNotFound):
			continue // its host was not reached
		case err == nil && j.State == harp.StateCancelled && j.Attempt == 0:
			life.Early++ // it was cancelled before its turn, unless one behind it had its own
			continue
		case errors.Is(err, ErrDamaged), errors.Is(err, harp.ErrPruned):
			j = &store.Job{Life: store.Life{State: harp.StateLost}}
		case err != nil:
			return life, err
		}
		life.countMember(row, j, index)
	}
	life.Counts.Add(harp.StateCancelled, life.Early)
	return life, nil
}

// readHost reads the member that says how a host stands: of a chain the step that began last there, its state what the
// host has come to if it has ended. Errors: those of readJob.
func readHost(snap Snapshot, b *store.Batch, index int, host store.BatchHost) (*store.Job, error) {
	for step := b.StepCount(); ; step-- {
		_, i := stepOf(b, index, host, step)
		j, err := readJob(snap, i)
		switch {
		case step > 1 && errors.Is(err, harp.ErrNotFound):
			continue
		case err != nil || j.Chain == nil || !j.State.Ended():
			return j, err
		}
		is := *j
		_, is.State = j.Decision()
		is.Attempt = max(is.Attempt, step-1) // a chain that has begun was not left out
		return &is, nil
	}
}

// countMember counts a member that was reached, and with it those before it.
func (l *batchLifeRow) countMember(b *store.Batch, j *store.Job, index int) {
	l.Counts.Add(harp.StateCancelled, index-l.Reached)
	l.Reached, l.Early = index+1, 0
	isOut := j.State == harp.StateRejected || b.SkipAway && j.State == harp.StateExpired && j.Reason == harp.ReasonOffline
	if !isOut || j.Attempt > 0 {
		l.Counts.Add(j.State, 1)
		return
	}
	if l.Skipped == nil {
		l.Skipped = map[string]int{}
	}
	l.Skipped[j.Reason]++
}

// findUnended looks at all jobs for those that have not ended and are in no row that says so, and
// writes that. Of one that cannot be read nobody can know.
func findUnended(e Engine, snap Snapshot, known map[id]bool, log *slog.Logger) (found []*cohort, err error) {
	for item, err := range snap.Scan([]byte{prefixCall}, nil, false) {
		if err != nil {
			return nil, err
		}
		i := id(item.Key[1:])
		if known[i] {
			continue
		}
		j, err := readJob(snap, i)
		switch {
		case errors.Is(err, ErrDamaged):
			log.Error("job is left out, if it had not ended: it cannot be read", "job", i.String(), "err", err)
			continue
		case err != nil:
			return nil, err
		case j.State.Ended():
			continue
		}
		if gone, err := dropOlderLife(e, snap, i, j, log); err != nil {
			return nil, err
		} else if gone {
			continue
		}
		c := &cohort{first: j.No}
		c.addJob(i)
		if err := e.Commit([]Write{c.write()}); err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// recount writes how many jobs have not ended, as far as they can be read, and a row of each of their
// queues that has none.
func recount(e Engine) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	are, found, err := readCounts(snap)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	unended := 0
	queues := map[string]bool{}
	for item, err := range snap.Scan([]byte{prefixUnended}, nil, false) {
		if err != nil {
			return err
		}
		c, err := openCohort(item)
		if err != nil {
			return err
		}
		for _, i := range c.ids[:c.n] {
			j, err := readJob(snap, i)
			if err != nil {
				return err
			}
			if j.State.Ended() {
				continue
			}
			unended++
			if j.Queue == nil || queues[string(j.Queue)] {
				continue
			}
			queues[string(j.Queue)] = true
			key := nameKey(prefixQueue, string(j.Queue))
			if row, err := snap.Get(key); err != nil {
				return err
			} else if row != nil {
				continue
			}
			first, _ := split(key, encode(queueRow{Concurrency: j.Concurrency}))
			if err := e.Commit([]Write{{key, first}, {nameKey(prefixMarked, string(j.Queue)), nil}}); err != nil {
				return err
			}
		}
	}
	if are.unended = unended; !found { // the store that is opened looks for what is lost
		return e.Commit([]Write{{keyNumber, nil}})
	}
	return e.Commit([]Write{are.write()})
}

// isEmpty returns an error for an engine that is not.
func isEmpty(e Engine) error {
	snap, err := e.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	for _, err := range snap.Scan(nil, nil, false) {
		if err == nil {
			err = fmt.Errorf("store: the store is not empty")
		}
		return err
	}
	return nil
}

// loseAll ends all jobs that have not ended, as many at a time as one commit takes,
// and returns how many it lost. Those that their queue's mark has cancelled are that.
func (s *Store) loseAll(at time.Time) (int, error) {
	ctx := context.Background()
	if err := s.skipNumbers(ctx, at); err != nil {
		return 0, err
	}
	for more := true; more; {
		err := s.do(ctx, SpaceCritical, func(t *tx) error {
			var did store.Advanced
			err := s.rewriteCancelled(t, &did)
			more = len(did.Ended) > 0
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	for more := true; more; {
		err := s.do(ctx, SpaceCritical, func(t *tx) error {
			var did store.Advanced
			err := s.askAll(t, nanos(at), &did)
			more = s.isAsking()
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	lost, err := s.loseJobs(ctx, at)
	if err != nil {
		return lost, err
	}
	for more := true; more; {
		err := s.do(ctx, SpaceCritical, func(t *tx) error {
			err := s.restoreBatches(t, nanos(at))
			more = len(s.batches) > 0
			return err
		})
		if err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// restoredNumbers is more than a batch's log has got since a backup, where the clock is behind what it was.
const restoredNumbers = 1 << 30

// skipNumbers has what comes now get numbers in the logs of batches that nothing has had since the backup, nor in another store that was
// restored from one: whoever has followed one goes on from there, and misses none of it. They are microseconds: more of these pass
// between two restores than a batch has hosts. Where the clock is far behind they are chance.
func (s *Store) skipNumbers(ctx context.Context, at time.Time) error {
	left := slices.Collect(maps.Values(s.batches))
	for len(left) > 0 {
		err := s.do(ctx, SpaceCritical, func(t *tx) error {
			for ; len(left) > 0 && t.hasRoom(maxStep); left = left[1:] {
				count := at.UnixMicro() - int64(left[0].log) //nolint:gosec // numbers are fewer than that
				if count < restoredNumbers {
					count = restoredNumbers + rand.Int64N(restoredNumbers<<10) //nolint:gosec // no secret
				}
				t.logEntry(left[0], store.BatchEntry{Kind: store.BatchGap, Count: int(count)})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loseJobs ends what has not ended, and returns how many jobs.
func (s *Store) loseJobs(ctx context.Context, at time.Time) (lost int, err error) {
	for more := true; more; {
		err := s.do(ctx, SpaceCritical, func(t *tx) error {
			n, err := s.loseSome(t, at)
			lost += n
			more = n > 0
			return err
		})
		if err != nil {
			return lost, err
		}
	}
	return lost, nil
}

func (s *Store) loseSome(t *tx, at time.Time) (int, error) {
	event := store.Event{Kind: store.Lose, At: fromNanos(nanos(at)), Reason: harp.LostRestored}
	n := 0
	for e := range s.sched.All() {
		i := id(e.ID)
		if n == maxDue || !t.hasRoom(maxEvent+maxStep) {
			break
		}
		before, err := readJob(t, i)
		if err != nil {
			return n, err
		}
		var c store.Change
		if err := s.applyEvent(t, i, before, event, &c); err != nil {
			return n, err
		}
		if c.Err != nil {
			return n, fmt.Errorf("store: job %s: %w", i, c.Err)
		}
		n++
	}
	return n, nil
}
