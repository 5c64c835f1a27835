package rows

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/harpcaller/harp/store"
)

// When jobs ended is read by Prune alone, which deletes those first that ended first: the jobs
// that ended in one commit have a row together.

// endedMost is how many jobs such a row has at most: so few that an engine which keeps what is
// longer apart has it among the rows of jobs.
const endedMost = 128

// An ended is a job that has ended.
type ended struct {
	at int64
	no uint64
	id id
}

const endedSize = 8 + len(id{}) // bytes of each in its row

// noteEnded notes that a job has ended.
func (t *tx) noteEnded(i id, j *store.Job) {
	if len(t.ended)%endedMost == 0 {
		t.size += len(indexKey(byEnded)) + len(place{}) + crcSize + WriteCost
	}
	t.size += endedSize
	t.ended = append(t.ended, ended{nanos(j.EndTime), j.No, i})
}

// endedRows are the rows of jobs that have ended.
func endedRows(all []ended) []Write {
	slices.SortFunc(all, func(a, b ended) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.no, b.no)) })
	var out []Write
	for some := range slices.Chunk(all, endedMost) {
		at := placeOf(some[0].at, some[0].no)
		key := append(indexKey(byEnded), at[:]...)
		out = append(out, Write{key, sealEnded(key, some)})
	}
	return out
}

func sealEnded(key []byte, some []ended) []byte {
	payload := make([]byte, 0, len(some)*endedSize)
	for _, e := range some {
		payload = append(binary.BigEndian.AppendUint64(payload, uint64(e.at)), e.id[:]...)
	}
	return seal(key, payload)
}

// openEnded reads a row of jobs that have ended. Errors: ErrDamaged.
func openEnded(item Item) ([]ended, error) {
	payload, err := unseal(item.Key, item.Value)
	if err == nil && len(payload)%endedSize != 0 {
		err = fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
	}
	if err != nil {
		return nil, err
	}
	var out []ended
	for e := range slices.Chunk(payload, endedSize) {
		out = append(out, ended{at: int64(binary.BigEndian.Uint64(e)), id: id(e[8:])})
	}
	return out, nil
}

// pruneJobs deletes those that ended first, and before each the batches that ended before it.
func (p *pruning) pruneJobs(batches *endedBatches) error {
	return p.sweep(byEnded, func(item Item, at int64) (bool, error) {
		if !p.isDue(at) {
			return true, nil
		}
		if enough, err := p.pruneBatches(batches, at); enough || err != nil {
			return true, err
		}
		if !p.isDue(at) { // there is room by that
			return true, nil
		}
		all, err := openEnded(item)
		if errors.Is(err, ErrDamaged) {
			p.s.log.Error("jobs cannot be deleted: which of them ended when cannot be read", "err", err)
			return false, nil
		}
		if err != nil {
			return true, err
		}
		return p.deleteEnded(bytes.Clone(item.Key), all)
	})
}

// deleteEnded deletes those of a row of jobs that are due. Full says that there are more than one Prune
// deletes.
func (p *pruning) deleteEnded(key []byte, all []ended) (full bool, err error) {
	var left []ended
	for n, e := range all {
		if full = p.out.Jobs == maxPruned || p.isFull(); full {
			p.s.swept[byEnded], p.out.More = key, true
			left = append(left, all[n:]...)
			break
		}
		gone := false
		if p.isDue(e.at) {
			if gone, err = p.pruneJob(e.id); err != nil {
				return true, err
			}
		}
		if !gone {
			left = append(left, e)
		}
	}
	switch len(left) {
	case len(all):
	case 0:
		p.write(key, nil)
	default:
		p.write(key, sealEnded(key, left))
	}
	return full, nil
}
