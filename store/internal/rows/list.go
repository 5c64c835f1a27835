package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// List implements store.Jobs. Every part of a filter has an index in the order of
// submission. The walk goes down all of them together: each is moved to the place
// where another stands, so that the one with fewest entries sets the pace, and a
// job is read only where all agree.
func (s *Store) List(_ context.Context, f store.Filter, cursor string) (store.Page, error) {
	page, err := s.list(s.unended.copy(), &f, cursor)
	if err != nil {
		return store.Page{}, err
	}
	s.explain(page.Jobs)
	return page, nil
}

// list is List without what queued jobs wait for now. Which jobs had not ended, by their states, was
// looked at before.
func (r *Reader) list(unended map[harp.State]*btree.BTreeG[standing], f *store.Filter, cursor string) (store.Page, error) {
	var page store.Page
	at, empty, err := firstPlace(f, cursor)
	if err != nil || empty {
		return page, err
	}
	err = r.view(func(snap Snapshot) error {
		w, err := newWalk(snap, unended, f, r.log)
		if err != nil {
			return err
		}
		defer w.stop()
		return w.fillPage(at, &page)
	})
	return page, err
}

// firstPlace is where a page begins; empty says that the filter leaves nothing.
func firstPlace(f *store.Filter, cursor string) (at place, empty bool, err error) {
	at = lastPlace
	if !f.Until.IsZero() {
		var ok bool
		if at, ok = placeOf(nanos(f.Until), 0).before(); !ok {
			return at, true, nil
		}
	}
	if cursor == "" {
		return at, false, nil
	}
	says, err := openCursor('j', cursor)
	if err != nil {
		return at, false, err
	}
	sum := filterSum(f)
	if len(says) != len(sum)+len(at) || !bytes.Equal(says[:len(sum)], sum) {
		return at, false, badCursor()
	}
	return place(says[len(sum):]), false, nil
}

// filterSum tells filters apart: a cursor is good for the one that it came from.
func filterSum(f *store.Filter) []byte {
	text := fmt.Sprintf("%q %q %q %q %d %d", f.Host, f.Procedure, string(f.Queue), f.States, nanos(f.Since), nanos(f.Until))
	for _, k := range slices.Sorted(maps.Keys(f.Labels)) {
		text += fmt.Sprintf(" %q=%q", k, f.Labels[k])
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:8]
}

// walk is one page of a listing on its way.
type walk struct {
	snap   Snapshot
	filter *store.Filter
	marks  map[string]*queueRow // of all queues that have been cancelled
	hidden []string             // those of which nobody can say which jobs they cancelled
	log    *slog.Logger         // of what is left out, as it is damaged
	parts  []part
	lowest place
	limit  int
}

// A part is the entries of one part of the filter: an index, or several of which
// an entry of any counts.
type part []track

// A track walks down one index.
type track interface {
	// seek moves down to the highest entry that is not above a place.
	seek(at place) error

	// stands is where it is; false behind the last entry.
	stands() (standing, bool)

	// jumped is how often it has begun anew at a place.
	jumped() int

	stop()
}

func newWalk(snap Snapshot, unended map[harp.State]*btree.BTreeG[standing], f *store.Filter, log *slog.Logger) (*walk, error) {
	w := &walk{snap: snap, filter: f, marks: map[string]*queueRow{}, log: log, limit: pageLimit(f.Limit)}
	if !f.Since.IsZero() {
		w.lowest = placeOf(nanos(f.Since), 0)
	}
	if err := w.readMarks(); err != nil {
		return nil, err
	}
	one := func(kind byte, value ...string) {
		w.parts = append(w.parts, part{newStoredTrack(snap, indexKey(kind, value...), log)})
	}
	for k, v := range f.Labels {
		one(byLabel, k, v)
	}
	if f.Queue != nil {
		one(byQueue, string(f.Queue))
	}
	if f.Host != "" {
		one(byHost, f.Host)
	}
	if f.Procedure != "" {
		one(byProcedure, f.Procedure)
	}
	if len(f.States) > 0 || len(w.parts) == 0 {
		var p part
		for _, state := range w.storedStates() {
			if state.Ended() {
				p = append(p, newStoredTrack(snap, indexKey(byState, string(state)), log))
			} else if tree := unended[state]; tree != nil {
				p = append(p, &unendedTrack{tree: tree})
			}
		}
		w.parts = append(w.parts, p)
	}
	return w, nil
}

// readMarks reads the queues whose mark may make a job other than its row.
func (w *walk) readMarks() error {
	for item, err := range w.snap.Scan([]byte{prefixMarked}, nil, false) {
		if err != nil {
			return err
		}
		name := string(item.Key[1:])
		switch w.marks[name], err = readMark(w.snap, harp.Value(name)); {
		case errors.Is(err, ErrDamaged):
			w.log.Error("jobs of a queue that was cancelled cannot be listed", "queue", harp.Value(name).String(), "err", err)
			w.hidden = append(w.hidden, name)
		case err != nil:
			return err
		}
	}
	return nil
}

// allStates are those that a job may be in.
var allStates = []harp.State{
	harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown,
	harp.StateSucceeded, harp.StateFailed, harp.StateTimedOut, harp.StateCancelled, harp.StateExpired, harp.StateRejected, harp.StateLost,
}

// storedStates are those that a job shown in a wanted state may have in its row.
func (w *walk) storedStates() []harp.State {
	if len(w.filter.States) == 0 {
		return allStates
	}
	states := slices.Clone(w.filter.States)
	if len(w.marks) > 0 {
		if slices.Contains(states, harp.StateCancelled) {
			states = append(states, harp.StateQueued)
		}
		if slices.Contains(states, harp.StateCancelling) {
			states = append(states, harp.StateSent, harp.StateRunning)
		}
	}
	slices.Sort(states)
	return slices.Compact(states)
}

// fillPage fills the page from a place on downwards.
func (w *walk) fillPage(at place, page *store.Page) error {
	agreed := 0 // so many parts have an entry at this place
	for n := 0; ; n = (n + 1) % len(w.parts) {
		if page.Examined == store.MaxExamined || w.jumps() >= maxJumps {
			page.Cursor = w.cursor(at)
			return nil
		}
		page.Examined++
		found, i, err := w.parts[n].seek(at)
		if err != nil || i == nil || bytes.Compare(found[:], w.lowest[:]) < 0 {
			return err
		}
		if found != at {
			at, agreed = found, 0
		}
		if agreed++; agreed < len(w.parts) {
			continue
		}
		if err := w.takeJob(*i, page); err != nil {
			return err
		}
		var ok bool
		if at, ok = at.before(); !ok {
			return nil
		}
		if agreed = 0; len(page.Jobs) == w.limit {
			page.Cursor = w.cursor(at)
			return nil
		}
	}
}

func (w *walk) cursor(at place) string {
	return makeCursor('j', append(filterSum(w.filter), at[:]...))
}

// takeJob reads a job that all parts have and puts it on the page, unless the mark of
// its queue shows it in another state.
func (w *walk) takeJob(i id, page *store.Page) error {
	j, err := readJob(w.snap, i)
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned):
		w.log.Error("job cannot be listed", "job", i.String(), "err", err)
		return nil
	case err != nil:
		return err
	case !j.State.Ended() && j.Queue != nil && slices.Contains(w.hidden, string(j.Queue)):
		return nil
	}
	j, _ = w.marks[string(j.Queue)].coverJob(j)
	if len(w.filter.States) == 0 || slices.Contains(w.filter.States, j.State) {
		page.Jobs = append(page.Jobs, j)
	}
	return nil
}

// jumps is how often its tracks have jumped.
func (w *walk) jumps() (n int) {
	for _, p := range w.parts {
		for _, t := range p {
			n += t.jumped()
		}
	}
	return n
}

func (w *walk) stop() {
	for _, p := range w.parts {
		for _, t := range p {
			t.stop()
		}
	}
}

// seek moves to the highest entry that is not above a place, and returns its place
// and job; nil if there is none.
func (p part) seek(at place) (best place, i *id, err error) {
	for _, t := range p {
		if err := t.seek(at); err != nil {
			return best, nil, err
		}
		if s, ok := t.stands(); ok && (i == nil || bytes.Compare(s.at[:], best[:]) > 0) {
			best, i = s.at, &s.id
		}
	}
	return best, i, nil
}

// storedTrack walks down one index of the engine.
type storedTrack struct {
	snap   Snapshot
	prefix []byte
	log    *slog.Logger
	next   func() (Item, error, bool)
	close  func()
	at     place
	id     id
	begun  bool
	end    bool
	jumps  int // so far
	reach  int // how far it walks before it jumps
}

func newStoredTrack(snap Snapshot, prefix []byte, log *slog.Logger) *storedTrack {
	return &storedTrack{snap: snap, prefix: prefix, log: log, close: func() {}, reach: steps}
}

func (t *storedTrack) stop() { t.close() }

func (t *storedTrack) jumped() int { return t.jumps }

func (t *storedTrack) stands() (standing, bool) { return standing{t.at, t.id}, !t.end }

const (
	// steps is how far a track walks at most before it rather jumps, which takes as
	// long as that.
	steps = 16

	// maxJumps is how often the tracks of a page jump at most: that takes some 10 ms among
	// a million jobs, twice that while tables are merged.
	maxJumps = 400
)

// seek implements track. Where it had to jump the last time it walks less far before it does so
// again.
func (t *storedTrack) seek(at place) error {
	before := t.jumps
	for n := 0; !t.end && (!t.begun || bytes.Compare(t.at[:], at[:]) > 0); n++ {
		if !t.begun || n == t.reach {
			t.jump(at)
		}
		if err := t.step(); err != nil {
			return err
		}
	}
	if t.jumps > before && before > 0 {
		t.reach = max(1, t.reach-1)
	} else {
		t.reach = min(steps, t.reach*2)
	}
	return nil
}

// jump starts anew at a place.
func (t *storedTrack) jump(at place) {
	t.close()
	t.begun = true
	t.jumps++
	from := append(slices.Clone(t.prefix), at[:]...)
	t.next, t.close = iter.Pull2(t.snap.Scan(t.prefix, from, true))
}

// step moves down by one entry, and past those that are damaged.
func (t *storedTrack) step() error {
	for {
		item, err, ok := t.next()
		if err != nil || !ok {
			t.end = true
			return err
		}
		if len(item.Key) != len(t.prefix)+len(t.at) {
			return fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
		}
		copy(t.at[:], item.Key[len(t.prefix):])
		if t.id, err = indexed(item); !errors.Is(err, ErrDamaged) {
			return err
		}
		t.log.Error("job cannot be listed", "err", err)
	}
}

// unendedTrack walks down the jobs in one state that have not ended.
type unendedTrack struct {
	tree *btree.BTreeG[standing]
	standing
	begun, end bool
}

func (t *unendedTrack) seek(at place) error {
	if t.begun && (t.end || bytes.Compare(t.at[:], at[:]) <= 0) {
		return nil
	}
	t.begun, t.end = true, true
	t.tree.Descend(standing{at: at}, func(s standing) bool {
		t.standing, t.end = s, false
		return false
	})
	return nil
}

func (t *unendedTrack) stands() (standing, bool) { return t.standing, !t.end }

func (t *unendedTrack) jumped() int { return 0 }

func (t *unendedTrack) stop() {}
