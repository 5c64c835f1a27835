package rows

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/harpcaller/harp/store"
)

// When jobs ended is read by Prune alone, which deletes those first that ended first: the jobs
// that ended in one commit have a row together, those of each class one.

// endedMost is how many jobs such a row has at most: so few that an engine which keeps what is
// longer apart has it among the rows of jobs.
const endedMost = 128

// An ended is a job that has ended.
type ended struct {
	class uint32
	at    int64
	no    uint64
	id    id
}

const endedSize = 8 + len(id{}) // bytes of each in its row

// noteEnded notes that a job has ended.
func (t *tx) noteEnded(i id, j *store.Job) { t.addEnded(ended{j.Class, nanos(j.EndTime), j.No, i}) }

func (t *tx) addEnded(e ended) {
	t.wrote = true
	if n := len(t.ended); n%endedMost == 0 || t.ended[n-1].class != e.class {
		t.size += len(endedPrefix(byEnded, e.class)) + len(place{}) + crcSize + WriteCost
	}
	t.size += endedSize
	t.ended = append(t.ended, e)
}

// endedRows are the rows of jobs that have ended.
func endedRows(all []ended) []Write {
	slices.SortFunc(all, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.at, b.at), cmp.Compare(a.no, b.no))
	})
	var out []Write
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(e ended) bool { return e.class != all[0].class })
		if n < 0 {
			n = len(all)
		}
		for some := range slices.Chunk(all[:n], endedMost) {
			at := placeOf(some[0].at, some[0].no)
			key := append(endedPrefix(byEnded, some[0].class), at[:]...)
			out = append(out, Write{key, sealEnded(key, some)})
		}
		all = all[n:]
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

// endedWalk goes through what has ended of a class, jobs and batches, in the order of their ends.
type endedWalk struct {
	class   *store.RetentionClass
	before  int64 // what ended before has been kept long enough
	jobs    endedIndex
	batches endedIndex

	row   []ended // what is left of the row of jobs that is under way; none: it cannot be read
	stuck []ended // of it, those that cannot be deleted
}

// endedIndex is an index of a class as it is walked through.
type endedIndex struct {
	prefix []byte
	from   []byte // where the last Prune stopped; nil: it is walked through from its beginning
	next   func() (Item, error, bool)
	stop   func()
	item   Item
	at     int64 // when what item is about ended, or the first of it
	isOver bool  // there are no more
}

// walkEnded begins to walk through what has ended of a class: where the last Prune stopped, as long as there is more.
func (p *pruning) walkEnded(c *store.RetentionClass) (*endedWalk, error) {
	w := &endedWalk{class: c, before: p.keptBefore(c)}
	if err := p.walkIndex(&w.jobs, byEnded, c.No); err != nil {
		return w, err
	}
	if err := p.walkIndex(&w.batches, byBatchEnd, c.No); err != nil {
		return w, err
	}
	return w, p.openRow(w)
}

func (p *pruning) walkIndex(x *endedIndex, kind byte, class uint32) error {
	x.prefix = endedPrefix(kind, class)
	x.from = p.s.swept[string(x.prefix)]
	delete(p.s.swept, string(x.prefix))
	x.next, x.stop = iter.Pull2(p.snap.Scan(x.prefix, x.from, false))
	return x.advance()
}

func (x *endedIndex) advance() error {
	item, err, is := x.next()
	if x.isOver = !is; x.isOver || err != nil {
		return err
	}
	x.item = Item{bytes.Clone(item.Key), bytes.Clone(item.Value)}
	x.at = x.endOf(item)
	return nil
}

// endOf is when what an item is about ended, or the first of it.
func (x *endedIndex) endOf(item Item) int64 {
	return int64(binary.BigEndian.Uint64(item.Key[len(x.prefix):]) ^ 1<<63)
}

func (w *endedWalk) stop() {
	for _, x := range []*endedIndex{&w.jobs, &w.batches} {
		if x.stop != nil {
			x.stop()
		}
	}
}

// first is when the first ended of what is left; false if nothing is.
func (w *endedWalk) first() (at int64, is bool) {
	switch {
	case w.jobs.isOver && w.batches.isOver:
		return 0, false
	case w.jobs.isOver || !w.batches.isOver && w.batches.at <= w.jobs.at:
		return w.batches.at, true
	}
	return w.jobs.at, true
}

// isEmpty reports whether there is nothing of the class.
func (w *endedWalk) isEmpty() bool {
	return w.jobs.isEmpty() && w.batches.isEmpty()
}

func (x *endedIndex) isEmpty() bool { return x.from == nil && x.item.Key == nil }

// reached is how far the walk has come; nil: it has met nothing.
func (x *endedIndex) reached() []byte {
	if x.item.Key == nil {
		return x.from
	}
	return x.item.Key
}

// openRow reads the row of jobs that is next. Of one that cannot be read the jobs are looked for in its turn.
func (p *pruning) openRow(w *endedWalk) error {
	for w.row = nil; !w.jobs.isOver; {
		row, err := openEnded(w.jobs.item)
		switch {
		case errors.Is(err, ErrDamaged):
			return nil
		case err != nil:
			return err
		case len(row) > 0:
			w.row, w.stuck, w.jobs.at = row, nil, row[0].at
			return nil
		}
		if err := w.jobs.advance(); err != nil {
			return err
		}
	}
	return nil
}

// pruneFirst deletes of a class what ended first: a batch, or jobs of one row, as long as isDue says so of the
// time of their ends. Full says that there is more than one Prune deletes.
func (p *pruning) pruneFirst(w *endedWalk, isDue func(at int64) bool) (full bool, err error) {
	if w.jobs.isOver || !w.batches.isOver && w.batches.at <= w.jobs.at {
		return p.pruneNextBatch(w)
	}
	if len(w.row) == 0 {
		return true, p.findEnded(w)
	}
	before, deleted := len(w.row), 0
	for len(w.row) > 0 && isDue(w.row[0].at) {
		if full = p.out.Jobs >= maxPruned || p.isFull(); full {
			p.out.More = true
			break
		}
		p.class = w.class.No
		gone, err := p.pruneJob(w.row[0].id)
		if err == nil && !gone && p.class > 0 {
			gone, err = true, p.leaveClass(w.row[0])
		}
		if err != nil {
			return true, err
		}
		if gone {
			deleted++
		} else {
			w.stuck = append(w.stuck, w.row[0])
		}
		w.row = w.row[1:]
	}
	if len(w.row) == before {
		return true, nil
	}
	key := w.jobs.item.Key
	switch left := slices.Concat(w.stuck, w.row); {
	case deleted == 0:
	case len(left) == 0:
		p.write(key, nil)
	default:
		p.write(key, sealEnded(key, left))
	}
	if len(w.row) > 0 {
		w.jobs.at = w.row[0].at
		return full, nil
	}
	if err := w.jobs.advance(); err != nil {
		return true, err
	}
	return full, p.openRow(w)
}

// finding is how far the jobs of a row that cannot be read have been looked for.
type finding struct {
	row   []byte // its key
	from  []byte // where the next Prune goes on
	found int
}

// endedApart is by how much what ended in one commit may have ended after what did in the next, as operations wait for their commits.
const endedApart = time.Minute

// findEnded looks among all jobs for those of the row that is next, which cannot be read, and has them in rows anew that the next Prune meets: else they
// would be kept, and counted, for ever. Some may be in other rows as well, which does no harm. Where there are more than one Prune looks at the next goes on.
func (p *pruning) findEnded(w *endedWalk) error {
	p.out.More = true
	key := w.jobs.item.Key
	f := p.s.finding
	p.s.finding = finding{}
	if !bytes.Equal(f.row, key) {
		f = finding{row: key}
	}
	before, err := p.nextEnded(w)
	if err != nil {
		return err
	}
	for item, err := range p.snap.Scan([]byte{prefixLife}, f.from, false) {
		if err != nil {
			return err
		}
		if p.sought++; p.sought > maxSought || p.isFull() {
			f.from = bytes.Clone(item.Key)
			p.s.finding = f
			return nil
		}
		i := id(item.Key[1:])
		if i.isMember() {
			continue
		}
		var life lifeRow
		switch err := readItem(p.snap, item, &life); {
		case errors.Is(err, ErrDamaged):
			continue
		case err != nil:
			return err
		}
		if at := nanos(life.EndTime); life.State.Ended() && life.Class == w.class.No && at >= w.jobs.at && at < before {
			p.addEnded(ended{class: life.Class, at: at, no: noOf(i), id: i})
			f.found++
		}
	}
	p.s.log.Error("which jobs ended when could not be read: they were looked for", "class", w.class.No, "found", f.found)
	p.write(key, nil)
	return nil
}

// nextEnded is the time before which all jobs of the row that is next have ended.
func (p *pruning) nextEnded(w *endedWalk) (int64, error) {
	for item, err := range p.snap.Scan(w.jobs.prefix, append(bytes.Clone(w.jobs.item.Key), 0), false) {
		if err != nil {
			return 0, err
		}
		return w.jobs.endOf(item) + int64(endedApart), nil
	}
	return math.MaxInt64, nil
}

// noOf stands for the submit number of a job in the key of a row of jobs that have ended. It is that of no other job.
func noOf(i id) uint64 { return binary.BigEndian.Uint64(i[8:]) }

// pruneEnded deletes what has ended: of each class what is due, and then, where jobs store more than they may, of all of
// them what ended first. While there is more it goes on with the class at which the last Prune had enough: else of those
// before it what is kept would be looked at by each.
func (p *pruning) pruneEnded() error {
	isOver := p.isOver()
	var walks []*endedWalk
	defer func() {
		for _, w := range walks {
			w.stop()
		}
	}()
	full := false
	begin := p.s.sweptClass
	p.s.sweptClass = 0
	for _, c := range p.allClasses() {
		if c.No < begin && !isOver {
			continue
		}
		w, err := p.walkEnded(c)
		walks = append(walks, w)
		if err != nil {
			return err
		}
		if full, err = p.pruneClass(w); err != nil {
			return err
		}
		if full {
			p.s.sweptClass = c.No
			break
		}
		if !isOver {
			w.stop()
		}
	}
	for !full {
		w, at := firstOf(walks)
		if w == nil || !p.isTooMuch(at) {
			break
		}
		var err error
		if full, err = p.pruneFirst(w, p.isTooMuch); err != nil {
			return err
		}
	}
	p.noteSwept(walks)
	return nil
}

// allClasses are all classes, that of what no rule fits first.
func (p *pruning) allClasses() []*store.RetentionClass {
	all := []*store.RetentionClass{{}}
	for _, no := range p.s.classNumbers() {
		all = append(all, p.s.classes[no])
	}
	return all
}

// pruneClass deletes what is due of a class, and the class if it is empty and no rule is as it.
func (p *pruning) pruneClass(w *endedWalk) (full bool, err error) {
	isDue := func(at int64) bool { return at < w.before || p.isClassOver(w.class) }
	for {
		at, is := w.first()
		if !is || !isDue(at) {
			break
		}
		if full, err = p.pruneFirst(w, isDue); full || err != nil {
			return full, err
		}
	}
	if c := w.class; w.isEmpty() && c.No > 0 {
		p.forgetClass(c)
	}
	return false, nil
}

// forgetClass deletes a class of which there is nothing, unless a rule is as it, or its number could be given again.
func (p *pruning) forgetClass(c *store.RetentionClass) {
	if c.No != p.s.lastClass && !p.s.isInUse(c) {
		delete(p.s.classes, c.No)
		p.dropClass(c.No)
		return
	}
	if c.Bytes != 0 {
		c.Bytes = 0
		p.noteClass(c)
	}
}

// firstOf returns the walk to which what ended first is next, and when that was; nil if nothing is left.
func firstOf(walks []*endedWalk) (out *endedWalk, first int64) {
	for _, w := range walks {
		if at, is := w.first(); is && (out == nil || at < first) {
			out, first = w, at
		}
	}
	return out, first
}

// noteSwept notes where the next Prune goes on if there is more.
func (p *pruning) noteSwept(walks []*endedWalk) {
	if !p.out.More {
		for _, c := range p.allClasses() {
			for kind := range classed {
				delete(p.s.swept, string(endedPrefix(kind, c.No)))
			}
		}
		p.s.sweptClass = 0
		return
	}
	for _, w := range walks {
		for _, x := range []*endedIndex{&w.jobs, &w.batches} {
			if key := x.reached(); key != nil {
				p.s.swept[string(x.prefix)] = key
			}
		}
	}
}
