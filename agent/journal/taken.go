package journal

import "slices"

const (
	// maxStores is of how many stores it is known how often they have called, those that did last.
	maxStores = 64
	// maxStoreID is how long the id of one may be.
	maxStoreID = 128
)

// takings are how many calls of each store the journal has ever taken. The head of each segment says
// how many there were before it, and what accepts a call adds one: so nothing has to be written
// again of segments that go.
type takings struct {
	of   []taking // the store that called last is the last
	rest uint64   // no other store has called more often
}

type taking struct {
	store string
	count uint64
}

// count is how many calls of a store were taken; of one that was left out, at least as many.
func (t *takings) count(store string) uint64 {
	for i := len(t.of) - 1; i >= 0; i-- {
		if t.of[i].store == store {
			return t.of[i].count
		}
	}
	return t.rest
}

// add counts a call of a store. Of more stores than are known the one that has not called for longest is
// left out. Its count must never fall, as that would say that the journal was set back: so others that are
// not known have that of the highest that was left out.
func (t *takings) add(store string) {
	next := taking{store, t.count(store) + 1}
	t.of = append(slices.DeleteFunc(t.of, func(one taking) bool { return one.store == store }), next)
	if len(t.of) > maxStores {
		t.rest = max(t.rest, t.of[0].count)
		t.of = slices.Delete(t.of, 0, 1)
	}
}

// countLocked counts a call of each store that has an id.
func (j *Journal) countLocked(stores ...string) {
	for _, store := range stores {
		if store != "" {
			j.taken.add(store)
		}
	}
}

// Taken is how many calls of a dispatcher's store the journal has ever taken, as far as that is on disk.
// Nothing else adds to it, and it never falls, unless the journal was set back.
func (j *Journal) Taken(store string) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken.count(store)
}
