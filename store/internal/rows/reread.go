package rows

import (
	"iter"
	"time"
)

// rereads is how often a read is tried again that fails in an operation that has written: after a millisecond, then after twice as
// long each time, a second in all.
const rereads = 10

// rereader is the view of a group. An operation that has written cannot be taken back, as much of the memory is as it has made it:
// if a read of it failed the store would have to be opened anew. So that is tried again first.
type rereader struct {
	Snapshot
	t *tx
}

func (r *rereader) Get(key []byte) ([]byte, error) {
	for failed := 0; ; failed++ {
		value, err := r.Snapshot.Get(key)
		if err == nil || !r.awaitNext(failed) {
			return value, err
		}
	}
}

func (r *rereader) Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error] {
	return rescan(r, r.Snapshot.Scan(prefix, from, reverse))
}

func (r *rereader) Keys(prefix []byte) iter.Seq2[Entry, error] {
	return rescan(r, r.Snapshot.Keys(prefix))
}

// rescan yields what a scan does. One that fails is begun again, and what it had yielded is passed over.
func rescan[T any](r *rereader, scan iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		yielded := 0
		for failed := 0; ; failed++ {
			n := 0
			var failure error
			for one, err := range scan {
				if failure = err; err != nil {
					break
				}
				if n++; n <= yielded {
					continue
				}
				yielded = n
				if !yield(one, nil) {
					return
				}
			}
			if failure == nil {
				return
			}
			if !r.awaitNext(failed) {
				var none T
				yield(none, failure)
				return
			}
		}
	}
}

// awaitNext waits until a read that has failed is to be tried again; false if it is not to be.
func (r *rereader) awaitNext(failed int) bool {
	if !r.t.wrote || failed >= rereads {
		return false
	}
	time.Sleep(time.Millisecond << failed)
	return true
}
