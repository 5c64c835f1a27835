package rows

import (
	"errors"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// The steps of a chain are members of one batch: see docs/decisions/0039. The next one is written in the commit in
// which one ends, and what a host comes to lies in the row of the step that began last there.

// checkSteps refuses a chain that no store could go through.
func checkSteps(b *store.Batch) error {
	if n := b.StepCount(); n > harp.MaxSteps || n > 1 && n*b.Hosts > store.MaxBatchHosts {
		return &harp.FieldError{Field: "steps", Message: fmt.Sprintf("are %d on %d hosts, at most %d, and %d of all hosts together", n, b.Hosts, harp.MaxSteps, store.MaxBatchHosts)}
	}
	for n := range b.Steps {
		if len(b.Steps[n].Classes) != len(b.Classes) {
			return &harp.FieldError{Field: "steps", Message: fmt.Sprintf("has %d classes in step %d of %d", len(b.Steps[n].Classes), n+2, len(b.Classes))}
		}
	}
	return nil
}

// endStep does what follows the end of a member for the chain of its host: it writes the next step, or else says
// how the host has ended, and which step says so. That is 0 while the chain goes on.
func (s *Store) endStep(t *tx, b *batch, i id, j *store.Job) (decided int, to harp.State, err error) {
	decided, to = j.Decision()
	n := b.row.NextStep(j)
	if j.Chain == nil || n == 0 || b.life.IsOver() && to != harp.StateSucceeded {
		return decided, to, nil
	}
	if s.opts.restored {
		return decided, to, nil
	}
	if isRemoved, err := s.isRemoved(t, b, j.Host, nanos(j.Since)); err != nil || isRemoved {
		return decided, to, err // it was cancelled with its queue before, which its row says only now
	}
	next, ni := stepOf(b.row, j.Index, store.BatchHost{Name: j.Host, Class: j.Chain.Class}, n)
	if to != harp.StateSucceeded {
		next.Chain.Decided, next.Chain.State = decided, to
	}
	switch isNew, err := s.isNew(t, ni); {
	case err != nil && !errors.Is(err, harp.ErrPruned) && !errors.Is(err, harp.ErrConflict):
		return 0, "", err
	case err != nil || !isNew:
		s.log.Error("a step of a chain is there before the one before it has ended: it is not begun again", "batch", b.id.String(), "job", next.ID, "err", err)
		return decided, to, nil
	}
	s.sched.Number++
	now := nanos(j.Since)
	next.No, next.Life = s.sched.Number, beginMember(next, now, harp.ReasonBatch)
	if b.life.IsOver() { // it begins no step, and the host has not succeeded
		e := b.life.CancelOfMembers()
		e.At = fromNanos(now)
		if next.Life, _, err = next.Next(e); err != nil {
			return 0, "", err
		}
		t.putEnded(ni, next)
		b.life.Counted += footprint(next)
		t.left = append(t.left, next)
		return n, next.State, nil
	}
	return 0, next.State, s.beginStep(t, i, ni, next, now)
}

// beginStep writes the next step of a chain, which is parked with the slot of the one before it until the operation
// has done all else: see settleBatches.
func (s *Store) beginStep(t *tx, last, i id, j *store.Job, now int64) error {
	if err := s.openQueue(t, j); err != nil {
		return err
	}
	s.sched.Follow(i, j, last, now)
	t.putMember(i, j)
	t.enterCohort(i, j)
	told := *j
	told.Reason = fmt.Sprintf("%d of %d", j.Chain.Step, j.Chain.Of)
	t.emitJob(harp.EventChainStep, i, &told, now, nil)
	return nil
}

// notBegun is why a step cannot be cancelled that has not begun.
func notBegun(m earlyMember) error {
	if m.isOut {
		return fmt.Errorf("%w: the chain does not come to step %d", store.ErrIllegal, m.step)
	}
	f := failures.New("conflict", fmt.Sprintf("step %d of the chain on host %s has not begun: the one before it can be cancelled, or the batch", m.step, m.host.Name))
	f.Type = "job"
	return f.Err()
}

// members goes through the members of a batch, those of all steps of a host one after the other.
type members struct {
	*Store
	snap Snapshot
	b    batch
	last *store.Job // of the host, the step that began last before the next one
}

// at reads the member at a place. It is called for one place after the other, from any on.
func (m *members) at(place int) (*store.Job, error) {
	steps := m.b.row.StepCount()
	index, step := place/steps, place%steps+1
	host, err := m.b.hostAt(m.snap, index)
	if err != nil {
		return nil, err
	}
	if step == 1 {
		m.last, err = m.readMember(m.snap, &m.b, index, host)
		return m.last, err
	}
	if m.last == nil || m.last.Index != index {
		if m.last, err = m.lastBegun(index, host, step-1); err != nil {
			return nil, err
		}
	}
	j, is, err := m.begun(index, host, step)
	if is {
		m.last = j
		return j, err
	}
	if err != nil {
		return nil, err
	}
	isAhead, err := m.isAhead(step)
	if err != nil {
		return nil, err
	}
	if j.Life = m.b.row.UnbegunLife(m.last); isAhead {
		j.Life = store.Begin(m.b.row.Member.SubmitTime, harp.ReasonChain)
	}
	return j, nil
}

// isAhead reports whether the chain may come to a step though the one that began last has ended: that was cancelled
// with its queue, and when its row says so the next one begins.
func (m *members) isAhead(step int) (bool, error) {
	next := m.b.row.NextStep(m.last)
	if m.last.State != harp.StateCancelled || m.last.Queue == nil || m.b.life.IsOver() || next == 0 || step < next {
		return false, nil
	}
	i, _ := parseID(m.last.ID)
	stored, err := readJob(m.snap, i)
	if errors.Is(err, ErrDamaged) || errors.Is(err, harp.ErrNotFound) || errors.Is(err, harp.ErrPruned) {
		return false, nil
	}
	return err == nil && !stored.State.Ended(), err
}

// lastBegun is the step of a host that began last, of those up to one.
func (m *members) lastBegun(index int, host store.BatchHost, step int) (*store.Job, error) {
	for ; step > 1; step-- {
		if j, is, err := m.begun(index, host, step); is || err != nil {
			return j, err
		}
	}
	return m.readMember(m.snap, &m.b, index, host)
}

// begun reads a step behind the first; false if it has not begun, with its job without a life.
func (m *members) begun(index int, host store.BatchHost, step int) (*store.Job, bool, error) {
	j, i := stepOf(m.b.row, index, host, step)
	for _, kind := range []byte{prefixLife, prefixCall} {
		value, err := m.snap.Get(i.key(kind))
		if err != nil {
			return nil, false, err
		}
		if value != nil {
			j, err = m.readStored(m.snap, &m.b, i, j)
			return j, true, err
		}
	}
	return j, false, nil
}
