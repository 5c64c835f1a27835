package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// getter is where rows are read: a Snapshot, or a tx by what it has written.
type getter interface {
	Get(key []byte) ([]byte, error)
}

// Get makes a tx a getter of raw values, as a Snapshot is.
func (t *tx) Get(key []byte) ([]byte, error) { return t.getRaw(key) }

// read decodes the row under key; false if there is none.
func read(from getter, key []byte, into any) (bool, error) {
	var payload []byte
	var err error
	if t, ok := from.(*tx); ok {
		payload, err = t.get(key) // which remembers its pieces
	} else {
		payload, _, err = loadValue(key, from.Get)
	}
	if err != nil || payload == nil {
		return false, err
	}
	return true, decode(payload, into)
}

// readItem decodes a row that a scan has met.
func readItem(snap Snapshot, item Item, into any) error {
	payload, err := joinItem(snap, item)
	if err != nil {
		return err
	}
	return decode(payload, into)
}

func joinItem(snap Snapshot, item Item) ([]byte, error) {
	first, err := unseal(item.Key, item.Value)
	if err != nil {
		return nil, err
	}
	payload, _, err := join(item.Key, first, snap.Get)
	return payload, err
}

// indexed is the id in an index entry.
func indexed(item Item) (id, error) {
	payload, err := unseal(item.Key, item.Value)
	if err != nil {
		return id{}, err
	}
	if len(payload) != len(id{}) {
		return id{}, fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
	}
	return id(payload), nil
}

// readCall reads a job as its rows have it, and what its request was told apart
// by. Errors: harp.ErrNotFound, ErrDamaged.
func readCall(from getter, i id) (*store.Job, callRow, error) {
	j, call, _, err := readRows(from, i)
	return j, call, err
}

// readRows is readCall with the row of the job's life.
func readRows(from getter, i id) (*store.Job, callRow, lifeRow, error) {
	var call callRow
	var life lifeRow
	found, err := read(from, i.key(prefixCall), &call)
	if err != nil {
		return nil, call, life, err
	}
	if !found {
		return nil, call, life, absentError(from, i)
	}
	if found, err = read(from, i.key(prefixLife), &life); err == nil && !found {
		err = fmt.Errorf("%w: job %s has no life", ErrDamaged, i)
	}
	j := call.toJob(i, life.Life)
	if err == nil && life.Waits {
		if j.Outcome, err = readOutcome(from, i); errors.Is(err, ErrDamaged) {
			j.Outcome, err = damagedOutcome(from, i, j.Attempts, err)
		}
	}
	return j, call, life, err
}

// damagedOutcome is what the attempts say of an outcome that cannot be read, and what lies
// beside it: long ones are what is damaged first, and the job can go on without. Errors: err
// where they do not, the engine's.
func damagedOutcome(from getter, i id, attempts []store.Attempt, err error) (*store.Outcome, error) {
	for _, a := range slices.Backward(attempts) {
		o := &store.Outcome{State: harp.State(a.Outcome), Reason: a.Reason, Started: harp.DidRun}
		code := ""
		switch o.State {
		case harp.StateLost:
			code, o.Started = "lost", harp.MayHaveRun
		case harp.StateTimedOut:
			code = "timeout"
		case harp.StateFailed:
			code = "remote"
		default:
			continue
		}
		o.Failure = failures.New(code, "what was stored of this failure is damaged")
		o.Failure.Ran = o.Started
		value, err := from.Get(i.key(prefixValue))
		o.HasValue = value != nil
		return o, err
	}
	return nil, err
}

// readOutcome reads how the last attempt of a job ended that has not ended.
func readOutcome(from getter, i id) (*store.Outcome, error) {
	o := new(store.Outcome)
	found, err := read(from, i.key(prefixOutcome), o)
	if err == nil && !found {
		err = fmt.Errorf("%w: job %s has no outcome", ErrDamaged, i)
	}
	return o, err
}

func readJob(from getter, i id) (*store.Job, error) {
	if t, ok := from.(*tx); ok {
		return t.readJob(i)
	}
	j, _, err := readCall(from, i)
	return j, err
}

func notFound(job string) error { return failures.NotFound("job", job) }

// absentError says of a job without the row of what never changes whether it has ever had one. One
// that has a life has lost it: its id is none that nobody knows.
func absentError(from getter, i id) error {
	life, err := from.Get(i.key(prefixLife))
	if err != nil {
		return err
	}
	if life != nil {
		return fmt.Errorf("%w: job %s has a life only", ErrDamaged, i)
	}
	tomb, err := from.Get(i.key(prefixTomb))
	switch {
	case err != nil:
		return err
	case tomb != nil:
		return prunedError(i)
	}
	return notFound(i.String())
}

func prunedError(i id) error {
	return failures.New("pruned", "job "+i.String()+" was pruned").Err()
}

// isPruned reports whether a job of this id was deleted by retention.
func (t *tx) isPruned(i id) (bool, error) {
	tomb, err := t.getRaw(i.key(prefixTomb))
	return tomb != nil, err
}

// readMark reads the row of a queue that has been cancelled; nil for any other.
func readMark(from getter, name harp.Value) (*queueRow, error) {
	row, found, err := readQueue(from, string(name))
	if err == nil && !found {
		err = checkUnmarked(from, name)
	}
	if err != nil || len(row.Marks) == 0 {
		return nil, err
	}
	return &row, nil
}

// checkUnmarked returns ErrDamaged of a queue that has no row and was cancelled: that row has said
// which of its jobs the cancel was about.
func checkUnmarked(from getter, name harp.Value) error {
	marked, err := from.Get(nameKey(prefixMarked, string(name)))
	if err == nil && marked != nil {
		err = fmt.Errorf("%w: queue %s was cancelled and has no row", ErrDamaged, name)
	}
	return err
}

// readQueue reads the row of a queue; false if there is none. Errors: ErrDamaged, but not
// from a tx.
func readQueue(from getter, name string) (row queueRow, found bool, err error) {
	if t, ok := from.(*tx); ok {
		return t.queueRow(name)
	}
	found, err = read(from, nameKey(prefixQueue, name), &row)
	return row, found, err
}

// queueRow reads the row of a queue; false if there is none. In place of one that is damaged, or
// not there any more, it returns what the schedule has, which run writes when the operation is over.
func (t *tx) queueRow(name string) (row queueRow, found bool, err error) {
	found, err = read(t, nameKey(prefixQueue, name), &row)
	isLost := errors.Is(err, ErrDamaged) || err == nil && !found
	if q := t.sched.Queue(name); q != nil && isLost {
		if !slices.Contains(t.damaged, q) {
			t.damaged = append(t.damaged, q)
		}
		return rowOf(q), true, nil
	}
	return row, found, err
}

// readShown reads a job as it is shown: as the mark of its queue makes it.
func readShown(from getter, i id) (*store.Job, error) {
	j, err := readJob(from, i)
	if err == nil {
		j, _, err = coveredBy(from, j)
	}
	return j, err
}

// readLatest is readShown for a view that was opened just now.
func (s *Store) readLatest(snap Snapshot, i id) (*store.Job, error) {
	j := s.jobCache.getSettled(i)
	if j == nil {
		return readShown(snap, i)
	}
	covered, _, err := coveredBy(snap, j)
	return covered, err
}

// cachedJob returns a job that is shown as it is at hand, without a view; nil for any other.
func (s *Store) cachedJob(text string) *store.Job {
	i, ok := parseID(text)
	if !ok || s.usable() != nil {
		return nil
	}
	return s.jobCache.getShown(i)
}

// Job implements store.Jobs.
func (s *Store) Job(_ context.Context, text string) (*store.Job, error) {
	one := []*store.Job{s.cachedJob(text)}
	if one[0] == nil {
		err := s.viewJob(text, func(snap Snapshot, i id) (err error) {
			one[0], err = s.readLatest(snap, i)
			if i.isMember() && errors.Is(err, harp.ErrNotFound) {
				one[0], err = s.findUnreached(snap, i)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	s.explain(one)
	return one[0], nil
}

// explain puts jobs that say what they wait for now, and where, in the place of those that are
// queued.
func (s *Store) explain(jobs []*store.Job) {
	if !slices.ContainsFunc(jobs, func(j *store.Job) bool { return j.State == harp.StateQueued }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, j := range jobs {
		i, _ := parseID(j.ID)
		e := s.sched.Job(i)
		if j.State != harp.StateQueued || e == nil || !e.Waits() {
			continue
		}
		explained := *j
		explained.Reason = s.sched.Reason(e, j)
		if j.Queue != nil {
			explained.QueuePos = e.Position()
		}
		jobs[n] = &explained
	}
}

// Obstacles implements store.Jobs.
func (s *Store) Obstacles(ctx context.Context, text string) ([]harp.Obstacle, error) {
	j, err := s.Job(ctx, text)
	if err != nil || j.State != harp.StateQueued {
		return nil, err
	}
	i, _ := parseID(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sched.Job(i)
	switch {
	case e != nil && e.Waits():
		return s.sched.Obstacles(e, j), nil
	case e == nil && j.Batch != "":
		return []harp.Obstacle{{Reason: j.Reason, Batch: j.Batch}}, nil // which has not come to it
	}
	return nil, nil
}

// Active implements store.Jobs.
func (s *Store) Active(ctx context.Context, hostName string) ([]*store.Job, error) {
	var ids []schedule.ID
	err := s.doAhead(ctx, SpaceFull, func(*tx) error {
		ids = s.sched.Active(hostName)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.readActive(ids)
}

// readActive reads those of the jobs that hold an attempt.
func (s *Store) readActive(ids []schedule.ID) ([]*store.Job, error) {
	return s.readThose(ids, func(j *store.Job) bool { return store.HoldsSlot(j.State) })
}

// readThose reads those of the jobs that are as they are wanted.
func (s *Store) readThose(ids []schedule.ID, isWanted func(*store.Job) bool) ([]*store.Job, error) {
	var jobs []*store.Job
	err := s.view(func(snap Snapshot) error {
		for _, i := range ids {
			j, err := s.readLatest(snap, i)
			switch {
			case errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned): // it has ended meanwhile
			case errors.Is(err, ErrDamaged):
				s.log.Error("job cannot be read", "job", id(i).String(), "err", err)
			case err != nil:
				return err
			case isWanted(j):
				jobs = append(jobs, j)
			}
		}
		return nil
	})
	return jobs, err
}
