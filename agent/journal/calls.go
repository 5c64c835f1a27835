package journal

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Accept journals ACCEPT of an attempt that is to start later. It returns when that
// is on disk. ErrKnown means that the attempt is in the journal already and nothing
// was done; ErrFull that there is no room for another. A withdrawn attempt may be
// accepted again.
func (j *Journal) Accept(k Key, a Accept) error {
	return wait(j.accept(k, a, Accepted, time.Time{}))
}

// AcceptStart is Accept and Start in one write. Errors: as Accept.
func (j *Journal) AcceptStart(k Key, a Accept, at time.Time) error {
	return wait(j.accept(k, a, Started, at))
}

func wait(c *Commit, err error) error {
	if err != nil {
		return err
	}
	return c.Wait()
}

func (j *Journal) accept(k Key, a Accept, s State, at time.Time) (*Commit, error) {
	if err := checkKey(k); err != nil {
		return nil, err
	}
	if len(a.Store) > maxStoreID {
		return nil, fmt.Errorf("%w: the store's id has %d bytes", ErrInvalid, len(a.Store))
	}
	e := &entry{kind: kindAccept, key: k, fence: a.Fence, store: a.Store, info: bytes.Clone(a.Info)}
	made := &attempt{accepted: true, state: s, fence: a.Fence, info: e.info, elsewhere: a.Elsewhere}
	if s == Started {
		e.kind, e.started = kindBegin, at.UnixNano()
		made.started = e.started
	}
	return j.do(func(g *group) error {
		if j.stateLocked(k) != Absent {
			return ErrKnown
		}
		if most := j.opts.MaxAttempts; len(j.attempts) >= most {
			return &FullError{Limit: int64(most), Attempts: true}
		}
		if err := j.roomLocked(k.Job, a.Elsewhere, made.size().agent); err != nil {
			return err
		}
		j.tombs.remove(k) // its time has passed
		j.replaceLocked(g, k, made)
		g.add(e)
		g.taken = append(g.taken, a.Store)
		return nil
	})
}

// Start journals START of an accepted attempt and returns when that is on disk.
// Errors: ErrUnknown, ErrState.
func (j *Journal) Start(k Key, at time.Time) error {
	return wait(j.change(k, func(g *group, a *attempt) error {
		if a.state != Accepted {
			return ErrState
		}
		a.state, a.started = Started, at.UnixNano()
		g.add(&entry{kind: kindStart, key: k, started: a.started})
		return nil
	}))
}

// Withdraw journals that accepted attempts will not start, in one write, and
// returns when that is on disk: they are absent from then on. With ErrUnknown or
// ErrState for one of them none is withdrawn.
func (j *Journal) Withdraw(keys ...Key) error {
	if len(keys) == 0 {
		return nil
	}
	return wait(j.do(func(g *group) error {
		for _, k := range keys {
			switch a := j.attempts[k]; {
			case a == nil:
				return ErrUnknown
			case a.state != Accepted:
				return ErrState
			}
		}
		for _, k := range keys {
			j.replaceLocked(g, k, nil)
			g.add(&entry{kind: kindWithdrawn, key: k})
		}
		return nil
	}))
}

// Retract journals that an attempt did not begin, though its START is journalled, and
// returns when that is on disk: it is absent from then on. The error is ErrState for
// one that was stopped, has records or has ended. If it fails the attempt is started,
// except that ErrBroken means that this is not known.
func (j *Journal) Retract(k Key) error {
	return wait(j.do(func(g *group) error {
		switch a := j.attempts[k]; {
		case a == nil:
			return ErrUnknown
		case a.state != Started || a.next > 0:
			return ErrState
		}
		j.replaceLocked(g, k, nil)
		g.add(&entry{kind: kindWithdrawn, key: k})
		return nil
	}))
}

// Stopping journals LIMIT or CANCEL of an attempt that was started. It does not
// wait. What is journalled first decides: of several the first is kept, and after
// END the error is ErrState.
func (j *Journal) Stopping(k Key, s Stop) (*Commit, error) {
	if len(s.Cause) > maxCause {
		return nil, fmt.Errorf("%w: the cause has %d bytes", ErrInvalid, len(s.Cause))
	}
	return j.change(k, func(g *group, a *attempt) error {
		if !a.running() {
			return ErrState
		}
		if a.stop == nil {
			a.state, a.stop = Stopping, &s
			g.add(&entry{kind: kindStop, key: k, stop: &s})
		}
		return nil
	})
}

// End journals END of an attempt that was started; its body is the journal's own from then on. It does
// not wait: END may be sent before it is on disk. Where there is no room for its body the bare one is
// journalled, which always fits, and dropped says so; without a bare one the error
// is ErrFull. If the commit fails the attempt has not ended, and may be ended again.
func (j *Journal) End(k Key, e End) (c *Commit, dropped bool, err error) {
	return j.endAfter(k, anywhere, e)
}

// EndAfter is End where the last record that was spooled must be the one before
// number after; else the error is ErrGap, as that of AppendAfter.
func (j *Journal) EndAfter(k Key, after int64, e End) (c *Commit, dropped bool, err error) {
	return j.endAfter(k, after, e)
}

func (j *Journal) endAfter(k Key, after int64, e End) (c *Commit, dropped bool, err error) {
	if len(e.Bare) > MaxBare {
		return nil, false, fmt.Errorf("%w: the bare end has %d bytes, at most %d", ErrInvalid, len(e.Bare), MaxBare)
	}
	c, err = j.change(k, func(g *group, a *attempt) error {
		if !a.running() {
			return ErrState
		}
		if after != anywhere && after != a.next {
			return ErrGap
		}
		if e.Records < a.next {
			return fmt.Errorf("%w: an end after %d records, of which %d are spooled", ErrInvalid, e.Records, a.next)
		}
		body := e.Body
		if err := j.roomForEndLocked(k, body); err != nil {
			if e.Bare == nil {
				return err
			}
			body, dropped = e.Bare, true
		}
		x := &extent{cost: endCost(body), pending: [][]byte{body}}
		a.state, a.end, a.dropped, a.next = Ended, x, dropped, e.Records
		g.addEnd(&entry{kind: kindEnd, key: k, dropped: dropped, count: e.Records, body: body}, x)
		j.waitLocked(g, len(body))
		return nil
	})
	return c, dropped, err
}

func endCost(body []byte) int64 { return int64(len(body)) + Reserve - MaxBare }

// roomForEndLocked says whether an END fits. It takes the place of its reserve, so
// that one which fits the reserve always does.
func (j *Journal) roomForEndLocked(k Key, body []byte) error {
	if len(body) <= MaxBare {
		return nil
	}
	return j.roomLocked(k.Job, endCost(body), endCost(body)-Reserve)
}

// Append spools records of an attempt that was started, from number first on; from then
// on they are the journal's own. It does not wait: they are synced within 100 ms, or at once when
// 64 KiB have gathered. Numbers may be left out and never come back: ErrInvalid. The
// error is ErrFull where the job or the agent holds as much as it may. If the commit
// fails they are not spooled, and may be again.
func (j *Journal) Append(k Key, first int64, records ...[]byte) (*Commit, error) {
	return j.append(k, anywhere, first, records)
}

// AppendAfter is Append where the last record that was spooled must have been the
// one before number after; else a commit failed that the caller does not know of
// yet, and the error is ErrGap.
func (j *Journal) AppendAfter(k Key, after, first int64, records ...[]byte) (*Commit, error) {
	return j.append(k, after, first, records)
}

// anywhere lets records follow whatever was spooled last.
const anywhere = -1

func (j *Journal) append(k Key, after, first int64, records [][]byte) (*Commit, error) {
	if len(records) == 0 {
		return nil, fmt.Errorf("%w: no records", ErrInvalid)
	}
	bytesOf, cost := len(records)*recordCost, int64(extentCost)
	for _, r := range records {
		bytesOf += len(r)
		cost += int64(len(r)) + recordCost
	}
	return j.doLater(k, func(g *group, a *attempt) error {
		if !a.running() {
			return ErrState
		}
		if after != anywhere && after != a.next {
			return ErrGap
		}
		if first < a.next {
			return fmt.Errorf("%w: record %d, expected %d", ErrInvalid, first, a.next)
		}
		if err := j.roomLocked(k.Job, cost, cost); err != nil {
			return err
		}
		j.spoolLocked(g, k, a, &extent{first: first, count: int64(len(records)), cost: cost, pending: slices.Clip(records)})
		j.waitLocked(g, bytesOf)
		return nil
	})
}

// waitLocked counts bytes of a group as waiting to be written.
func (j *Journal) waitLocked(g *group, n int) {
	g.spooled += n
	j.waiting += n
}

// MaxWaiting is how many bytes of records and ENDs may wait for the disk: more do not make it
// any faster.
const MaxWaiting = 8 << 20

// Busy returns nil, or, if more records and ENDs wait to be written than is good, what is closed
// when it is worth asking again. They are taken all the same.
func (j *Journal) Busy() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting < MaxWaiting {
		return nil
	}
	if j.eased == nil {
		j.eased = make(chan struct{})
	}
	return j.eased
}

// writtenLocked counts what a group has as waiting no longer.
func (j *Journal) writtenLocked(g *group) {
	j.waiting -= g.spooled
	if j.eased != nil && j.waiting < MaxWaiting {
		close(j.eased)
		j.eased = nil
	}
}

// spoolLocked adds to the records that will be written together, or begins with
// others.
func (j *Journal) spoolLocked(g *group, k Key, a *attempt, x *extent) {
	if last := g.spool[k]; last != nil && last.next() == x.first && last.cost < int64(j.opts.SyncBytes) {
		last.pending = append(last.pending, x.pending...)
		last.count += x.count
		last.cost += x.cost - extentCost
		a.spooled += x.cost - extentCost
		a.next = x.next()
		return
	}
	g.flush(k)
	if g.spool == nil {
		g.spool = map[Key]*extent{}
	}
	g.spool[k] = x
	a.add(x)
}

// KeepElsewhere says how many bytes of an attempt's records may be kept elsewhere until
// it has ended, as [Accept] does, of one that was accepted before the journal was opened.
// Errors: ErrUnknown.
func (j *Journal) KeepElsewhere(k Key, size int64) error {
	_, err := j.doLater(k, func(_ *group, a *attempt) error {
		a.elsewhere = size
		return nil
	})
	return err
}

// Ack says that the records before next are kept elsewhere. It does not wait, and
// may be forgotten in a crash, as that they are acknowledged again harms nobody. If the commit
// fails it is written again later.
// Errors: ErrUnknown; ErrInvalid beyond the records there are.
func (j *Journal) Ack(k Key, next int64) error {
	_, err := j.doLater(k, func(g *group, a *attempt) error {
		switch {
		case next > a.next:
			return fmt.Errorf("%w: acknowledged up to %d of %d", ErrInvalid, next, a.next)
		case next > a.acked:
			a.ack(next)
			g.add(&entry{kind: kindAcked, key: k, count: next})
		}
		return nil
	})
	return err
}

// Forget drops attempts of which the end was acknowledged, or that nobody will ask
// for again, whatever their state, and leaves their tombstones. Those that are not
// in the journal get one too: they will not be accepted. It does not wait, and may be
// forgotten in a crash. If the commit fails it is written again later. Errors: ErrBroken, ErrClosed; ErrInvalid for no proper key.
func (j *Journal) Forget(keys ...Key) error {
	for _, k := range keys {
		if err := checkKey(k); err != nil {
			return err
		}
	}
	_, err := j.doWhen(false, func(g *group) error {
		now := time.Now()
		for _, k := range keys {
			j.entombLocked(g, k, now.UnixNano(), now)
		}
		j.tombs.expire(now)
		return nil
	})
	return err
}

// Reduce leaves of an attempt that has ended, or has no process any more, nothing but an Info and an END without a
// value, of at most MaxBare bytes: its records are gone. It does not wait, and may be forgotten in a crash. If the commit
// fails it is written again later. Errors: ErrUnknown; ErrState for one that was not started; ErrInvalid.
func (j *Journal) Reduce(k Key, info, end []byte) error {
	if len(end) > MaxBare {
		return fmt.Errorf("%w: the bare end has %d bytes, at most %d", ErrInvalid, len(end), MaxBare)
	}
	left := reduction{bytes.Clone(info), bytes.Clone(end)}
	_, err := j.doWhen(false, func(g *group) error { return j.reduceLocked(g, k, left) })
	return err
}

func (j *Journal) reduceLocked(g *group, k Key, left reduction) error {
	a := j.attempts[k]
	switch {
	case a == nil:
		return ErrUnknown
	case a.state == Accepted:
		return ErrState
	}
	x := &extent{cost: endCost(left.end), pending: [][]byte{left.end}}
	next := &attempt{accepted: true, state: Ended, fence: a.fence, info: left.info, started: a.started, end: x}
	j.replaceLocked(g, k, next)
	if g.reduced == nil {
		g.reduced = map[Key]reduction{}
	}
	g.reduced[k] = left
	g.add(&entry{kind: kindBegin, key: k, fence: next.fence, info: next.info, started: next.started}) // as if it came now
	g.addEnd(&entry{kind: kindEnd, key: k, body: left.end}, x)
	return nil
}

// entombLocked drops an attempt and leaves its tombstone, which is made at a time.
func (j *Journal) entombLocked(g *group, k Key, at int64, now time.Time) {
	if j.stateLocked(k) == Forgotten {
		return
	}
	j.replaceLocked(g, k, nil)
	j.tombs.add(k, at, now)
	if g.tombs == nil {
		g.tombs = map[Key]int64{}
	}
	g.tombs[k] = at
	g.add(&entry{kind: kindTomb, key: k, at: at})
}

// Sync returns when all that was journalled is on disk. Errors: ErrBroken, ErrClosed.
func (j *Journal) Sync() error {
	return wait(j.do(func(*group) error { return nil }))
}
