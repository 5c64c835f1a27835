package rows

import (
	"bytes"
	"errors"

	"github.com/harpcaller/harp/store"
)

// A batch is deleted whole, as long after its end as a job is: from the commit on that begins with it it is
// pruned, and so are its members, which leave no tombstones of their own.

// pruneBatches deletes those that ended first.
func (p *pruning) pruneBatches() error {
	return p.sweep(byBatchEnd, func(item Item, at int64) (bool, error) {
		if !p.isDue(at) {
			return true, nil
		}
		i, err := indexed(item)
		if errors.Is(err, ErrDamaged) {
			p.s.log.Error("a batch cannot be deleted: which it is cannot be read", "err", err)
			return false, nil
		}
		if err != nil {
			return true, err
		}
		key := bytes.Clone(item.Key)
		gone, err := p.pruneBatch(i)
		switch {
		case errors.Is(err, ErrDamaged):
			p.s.log.Error("batch cannot be deleted", "batch", i.String(), "err", err)
			return false, nil
		case err != nil:
			return true, err
		case !gone:
			p.s.swept[byBatchEnd], p.out.More = key, true
			return true, nil
		}
		p.write(key, nil)
		return false, nil
	})
}

// pruneBatch deletes a batch, as much of it as one Prune may; true if all.
func (p *pruning) pruneBatch(i id) (bool, error) {
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
		if errors.Is(err, errNoNames) {
			continue // they went before
		}
		if err != nil {
			return false, err
		}
		if gone, err := p.pruneMembers(&row.Batch, piece, &names); err != nil || !gone {
			return false, err
		}
		p.remove(namesKey(i, piece))
	}
	return p.pruneBatchRows(i, &row.Batch)
}

func (p *pruning) hasTomb(key []byte) bool {
	value, err := p.getRaw(key)
	return err == nil && value != nil
}

// pruneMembers deletes the members that a row of names is about; false if that is too much for one
// Prune: those that are gone are no longer found by the next.
func (p *pruning) pruneMembers(b *store.Batch, piece int, names *batchNames) (bool, error) {
	for n := range names.Names {
		if p.out.Jobs >= maxPruned || p.isFull() {
			p.out.More = true
			return false, nil
		}
		_, i := memberOf(b, piece*namesMost+n, names.host(n))
		if _, err := p.pruneJob(i); err != nil {
			return false, err
		}
	}
	return true, nil
}

// pruneBatchRows deletes what is left of a batch without members.
func (p *pruning) pruneBatchRows(i id, b *store.Batch) (bool, error) {
	for entry, err := range p.snap.Keys(i.key(prefixBatchLog)) {
		if err != nil {
			return false, err
		}
		if p.isFull() {
			return false, nil
		}
		p.write(bytes.Clone(entry.Key), nil)
	}
	if err := p.removeWhole(i.key(prefixRequest)); err != nil {
		return false, err
	}
	at := placeOf(nanos(b.Member.SubmitTime), b.No)
	p.appendWrite(append(indexKey(byBatch), at[:]...), nil)
	p.remove(i.key(prefixBatch))
	p.remove(i.key(prefixBatchLife))
	p.ids = append(p.ids, i[:]...)
	return true, nil
}
