package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Which jobs have not ended is stored for the next opening, and is at hand by state for
// listings: an entry of an index for each would be deleted as soon as its job goes on.

// cohortMost is how many jobs a cohort has at most: its row is written anew when one of them
// ends, once in a commit.
const cohortMost = 32

// cohort is jobs that were submitted one after the other in one commit, as far as they have
// not ended. They have a row together, which is deleted with the last of them.
type cohort struct {
	first uint64 // submit number of the first that it had
	n     int
	ids   [cohortMost]id
}

func (c *cohort) addJob(i id) {
	c.ids[c.n] = i
	c.n++
}

func (c *cohort) removeJob(i id) {
	if n := slices.Index(c.ids[:c.n], i); n >= 0 {
		c.n--
		c.ids[n] = c.ids[c.n]
	}
}

func cohortKey(first uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixUnended}, first)
}

// write is the row of the cohort.
func (c *cohort) write() Write {
	key := cohortKey(c.first)
	if c.n == 0 {
		return Write{key, nil}
	}
	payload := make([]byte, 0, c.n*len(id{}))
	for n := range c.n {
		payload = append(payload, c.ids[n][:]...)
	}
	return Write{key, seal(key, payload)}
}

// openCohort reads the row of a cohort. Errors: ErrDamaged.
func openCohort(item Item) (*cohort, error) {
	payload, err := unseal(item.Key, item.Value)
	if err != nil {
		return nil, err
	}
	if len(item.Key) != len(cohortKey(0)) || len(payload)%len(id{}) != 0 || len(payload) > cohortMost*len(id{}) {
		return nil, fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
	}
	c := &cohort{first: binary.BigEndian.Uint64(item.Key[1:])}
	for i := range slices.Chunk(payload, len(id{})) {
		c.addJob(id(i))
	}
	return c, nil
}

// A changedCohort is a cohort as a group has made it.
type changedCohort struct {
	cohort
	isNew bool // by this group
}

// enterCohort notes a new job, as one of the cohort that the group fills.
func (t *tx) enterCohort(i id, j *store.Job) {
	if t.filling == nil || t.filling.n == cohortMost {
		t.filling = &cohort{first: j.No}
		t.changed[t.filling] = &changedCohort{isNew: true}
		t.size += cohortSize
	}
	t.filling.addJob(i)
	t.changed[t.filling].cohort = *t.filling
	t.cohorts[i] = t.filling
	t.noteMove(i, "", j)
}

// leaveCohort notes that a job has ended.
func (t *tx) leaveCohort(i id) {
	c := t.cohorts[i]
	delete(t.cohorts, i)
	c.removeJob(i)
	if t.changed[c] == nil {
		t.changed[c] = new(changedCohort)
		t.size += cohortSize
	}
	t.changed[c].cohort = *c
}

// cohortSize is how many bytes the row of a cohort has at most.
const cohortSize = 1 + 8 + crcSize + cohortMost*len(id{}) + WriteCost

// cohortRows are the rows of the cohorts that the group has changed.
func (t *tx) cohortRows() []Write {
	var out []Write
	for _, c := range t.changed {
		if c.n > 0 || !c.isNew {
			out = append(out, c.write())
		}
	}
	return out
}

// unendedJobs is the jobs that have not ended, by the states that their rows have, as they are
// committed.
type unendedJobs struct {
	mu      sync.Mutex
	byState map[harp.State]*btree.BTreeG[standing] // guarded by mu
}

// standing is a job in the order of submission.
type standing struct {
	at place
	id id
}

// A move is what a change made of the state of a job.
type move struct {
	standing
	from, to harp.State // "": it is new
}

// noteMove notes in which state a job is after an event, for when the group is committed.
func (t *tx) noteMove(i id, from harp.State, after *store.Job) {
	if from != after.State {
		t.moves = append(t.moves, move{standing{submittedAt(after), i}, from, after.State})
	}
}

// move brings it after what was committed.
func (u *unendedJobs) move(moves ...move) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range moves {
		if had := u.byState[m.from]; had != nil {
			had.Delete(m.standing)
		}
		if m.to.Ended() {
			continue
		}
		if u.byState == nil {
			u.byState = map[harp.State]*btree.BTreeG[standing]{}
		}
		if u.byState[m.to] == nil {
			u.byState[m.to] = btree.NewBTreeGOptions(standing.before, btree.Options{NoLocks: true, Degree: 16})
		}
		u.byState[m.to].Set(m.standing)
	}
}

func (s standing) before(other standing) bool { return bytes.Compare(s.at[:], other.at[:]) < 0 }

// copy is what it is now: a view that is opened behind it has all of these jobs, in these states
// or, if they have gone on meanwhile, in later ones.
func (u *unendedJobs) copy() map[harp.State]*btree.BTreeG[standing] {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make(map[harp.State]*btree.BTreeG[standing], len(u.byState))
	for state, tree := range u.byState {
		if tree.Len() > 0 {
			out[state] = tree.Copy()
		}
	}
	return out
}
