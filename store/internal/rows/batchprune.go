package rows

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/harpcaller/harp/store"
)

// A batch is deleted whole, as long after its end as a job is: from the commit on that begins with it it is
// pruned, and so are its members, which leave no tombstones of their own.

// maxSought is how many members one Prune looks for. Of a batch that was cancelled most were never there.
const maxSought = 10 * maxPruned

// pruneNextBatch deletes the batch of a class that ended first. Full says that it is more than one Prune deletes.
func (p *pruning) pruneNextBatch(w *endedWalk) (full bool, err error) {
	item := w.batches.item
	gone := false
	i, err := indexed(item)
	if errors.Is(err, ErrDamaged) {
		i, err = findBatch(p.snap, numberIn(item.Key))
	}
	switch {
	case p.isFull():
	case errors.Is(err, ErrDamaged):
		p.s.log.Error("a batch cannot be deleted: which it is cannot be read", "err", err)
		gone = true
	case err != nil:
		return true, err
	default:
		if gone, err = p.pruneEntry(item.Key, i, w.class.No); err != nil {
			return true, err
		}
	}
	if !gone {
		p.out.More = true
		return true, nil
	}
	return false, w.batches.advance()
}

// findBatch looks through all batches for the one with a submit number. Errors: ErrDamaged, the engine's.
func findBatch(snap Snapshot, no uint64) (id, error) {
	for entry, err := range snap.Keys(indexKey(byBatch)) {
		if err != nil {
			return id{}, err
		}
		if numberIn(entry.Key) != no {
			continue
		}
		key := bytes.Clone(entry.Key)
		value, err := snap.Get(key)
		if err != nil {
			return id{}, err
		}
		return indexed(Item{key, value})
	}
	return id{}, fmt.Errorf("%w: batch no. %d is not listed", ErrDamaged, no)
}

// pruneEntry deletes a batch with its entry; false if that is too much for one Prune. One that cannot be
// read stays.
func (p *pruning) pruneEntry(key []byte, i id, class uint32) (bool, error) {
	gone, err := p.pruneBatch(i, class)
	switch {
	case errors.Is(err, ErrDamaged):
		p.s.log.Error("batch cannot be deleted", "batch", i.String(), "err", err)
		return p.leaveClassOfBatch(key, i, class)
	case err != nil || !gone:
		return false, err
	}
	p.write(key, nil)
	return true, nil
}

// leaveClassOfBatch is leaveClass for a batch with its entry; false if there is more to be counted for that than one Prune looks at.
func (p *pruning) leaveClassOfBatch(key []byte, i id, class uint32) (bool, error) {
	if class == 0 {
		return true, nil
	}
	var life batchLifeRow
	found, err := read(p.tx, i.key(prefixBatchLife), &life)
	if err == nil && !found || errors.Is(err, ErrDamaged) {
		var all bool
		if life.Counted, all, err = p.weighBatch(i, class); err == nil && !all {
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	p.uncount(class, life.Counted)
	entry := append(endedPrefix(byBatchEnd, 0), key[len(endedPrefix(byBatchEnd, class)):]...)
	p.write(bytes.Clone(key), nil)
	p.write(entry, seal(entry, i[:]))
	return true, nil
}

// weighing is how much a batch counts whose life cannot be read, as far as its members were looked at.
type weighing struct {
	batch id
	from  []byte // where the next Prune goes on
	size  int64
}

// weighBatch is what a batch counts in its class whose life cannot be read, by its members; false if those are more than one Prune looks
// at: then the next goes on.
func (p *pruning) weighBatch(i id, class uint32) (size int64, all bool, err error) {
	c := p.s.classes[class]
	if c == nil || c.MaxBytes == 0 {
		return 0, true, nil
	}
	w := p.s.weighing
	p.s.weighing = weighing{}
	if w.batch != i {
		w = weighing{batch: i}
	}
	for item, err := range p.snap.Scan(append([]byte{prefixCall}, i.ofMembers()...), w.from, false) {
		if err != nil {
			return 0, false, err
		}
		if p.sought++; p.sought > maxSought {
			w.from = bytes.Clone(item.Key)
			p.s.weighing, p.out.More = w, true
			return 0, false, nil
		}
		member, err := p.weighMember(i, id(item.Key[1:]))
		if err != nil {
			return 0, false, err
		}
		w.size += member
	}
	request, err := p.storedSize(i.key(prefixRequest))
	return min(w.size+request, c.Bytes), true, err
}

// weighMember is what a member counts of a batch; nothing if it is that of another one, which was made in the same moment.
func (p *pruning) weighMember(batch, i id) (int64, error) {
	j, _, life, err := readRows(p.tx, i)
	switch {
	case errors.Is(err, ErrDamaged):
		return p.countedOf(i)
	case err != nil:
		return 0, err
	case j.Batch != batch.String():
		return 0, nil
	}
	return p.sizeOf(i, j, life.Value)
}

// pruneBatch deletes a batch of a class, as much of it as one Prune may; true if all.
func (p *pruning) pruneBatch(i id, class uint32) (bool, error) {
	var life batchLifeRow
	if _, err := read(p.tx, i.key(prefixBatchLife), &life); errors.Is(err, ErrDamaged) {
		p.lost = class
		defer func() { p.lost = 0 }()
	}
	var row batchRow
	found, err := read(p.tx, i.key(prefixBatch), &row)
	if err != nil || !found {
		return err == nil, err
	}
	row.ID = i.String()
	if tomb := i.key(prefixTomb); !p.hasTomb(tomb) {
		p.write(tomb, seal(tomb, nil))
	}
	for piece := (row.Hosts - 1) / namesMost; piece >= 0; piece-- {
		names, err := readNames(p.tx, i, piece)
		if errors.Is(err, ErrDamaged) {
			continue // they went before, or their members are found by what their ids begin with
		}
		if err != nil {
			return false, err
		}
		if gone, err := p.pruneMembers(&row.Batch, piece, &names); err != nil || !gone {
			return false, err
		}
		p.remove(namesKey(i, piece))
	}
	if gone, err := p.pruneOthers(i, &row.Batch); err != nil || !gone {
		return false, err
	}
	return p.pruneBatchRows(i, &row.Batch, class)
}

func (p *pruning) hasTomb(key []byte) bool {
	value, err := p.getRaw(key)
	return err == nil && value != nil
}

// pruneMembers deletes the members that a row of names is about; false if that is too much for one
// Prune: those that are gone are no longer found by the next.
func (p *pruning) pruneMembers(b *store.Batch, piece int, names *batchNames) (bool, error) {
	for n := range names.Names {
		if p.sought++; p.out.Jobs >= maxPruned || p.sought > maxSought || p.isFull() {
			p.out.More = true
			return false, nil
		}
		if gone, err := p.pruneSteps(b, piece*namesMost+n, names.host(n)); err != nil || !gone {
			return false, err
		}
	}
	return true, nil
}

// pruneSteps deletes the members on a host, the first step last: without it there are no others. False is as
// that of pruneMembers.
func (p *pruning) pruneSteps(b *store.Batch, index int, host store.BatchHost) (bool, error) {
	first, i := memberOf(b, index, host)
	steps := b.StepCount()
	if steps > 1 {
		if call, err := p.getRaw(i.key(prefixCall)); err != nil || call == nil {
			return err == nil, err
		}
	}
	for step := steps; step > 1; step-- {
		if p.out.Jobs >= maxPruned || p.isFull() {
			p.out.More = true
			return false, nil
		}
		_, i := stepOf(b, first.Index, host, step)
		if _, err := p.pruneJob(i); err != nil {
			return false, err
		}
	}
	_, err := p.pruneJob(i)
	return true, err
}

// pruneOthers deletes the members on hosts whose names could not be read; false if that is too much for one
// Prune. One that cannot be read itself stays.
func (p *pruning) pruneOthers(i id, b *store.Batch) (bool, error) {
	for entry, err := range p.snap.Keys(append([]byte{prefixCall}, i.ofMembers()...)) {
		if err != nil {
			return false, err
		}
		if p.out.Jobs >= maxPruned || p.isFull() {
			p.out.More = true
			return false, nil
		}
		member := id(bytes.Clone(entry.Key[1:]))
		var call callRow
		found, err := read(p.tx, entry.Key, &call)
		switch {
		case errors.Is(err, ErrDamaged), err == nil && (!found || call.Batch != b.ID):
			continue
		case err != nil:
			return false, err
		}
		if _, err := p.pruneJob(member); err != nil {
			return false, err
		}
	}
	return true, nil
}

// pruneBatchRows deletes what is left of a batch without members.
func (p *pruning) pruneBatchRows(i id, b *store.Batch, class uint32) (bool, error) {
	for entry, err := range p.snap.Keys(i.key(prefixBatchLog)) {
		if err != nil {
			return false, err
		}
		if p.isFull() {
			return false, nil
		}
		p.write(bytes.Clone(entry.Key), nil)
	}
	if err := p.uncountBatch(i, class); err != nil {
		return false, err
	}
	if err := p.removeWhole(i.key(prefixRequest)); err != nil {
		return false, err
	}
	for piece := range (b.Hosts + namesMost - 1) / namesMost {
		if err := p.removeWhole(namesKey(i, piece)); err != nil { // which could not be read
			return false, err
		}
	}
	at := placeOf(nanos(b.Member.SubmitTime), b.No)
	p.appendWrite(append(indexKey(byBatch), at[:]...), nil)
	p.remove(i.key(prefixBatch))
	p.remove(i.key(prefixBatchLife))
	p.ids = append(p.ids, i[:]...)
	return true, nil
}

// uncountBatch takes what a batch stored from what its class does. Of one whose life cannot be read its members
// were taken one by one.
func (p *pruning) uncountBatch(i id, class uint32) error {
	var life batchLifeRow
	_, err := read(p.tx, i.key(prefixBatchLife), &life)
	if errors.Is(err, ErrDamaged) {
		request, err := p.storedSize(i.key(prefixRequest))
		p.uncount(p.lost, request)
		return err
	}
	if life.Class == class { // else it has left its class
		p.uncount(class, life.Counted)
	}
	return err
}
