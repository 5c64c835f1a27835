package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// takenWalk calls, crashes, closes and fails at random, with segments that go all the time.
type takenWalk struct {
	t      *testing.T
	rand   *rand.Rand
	mem    *Memory
	j      *Journal
	stores int
	calls  int
	least  map[string]uint64 // calls that were accepted
	most   map[string]uint64 // and those of which that is not known
	told   map[string]uint64 // the highest that was said of each
}

func (w *takenWalk) store() string { return fmt.Sprint("store", w.rand.IntN(w.stores)) }

// open opens the journal, often with a call of the disk that will fail.
func (w *takenWalk) open() {
	for w.j = nil; w.j == nil; {
		var fsys FS = w.mem
		fails := w.rand.IntN(3) == 0
		if fails {
			f := FailAt(w.mem, 1+w.rand.IntN(60), errors.New("boom"))
			f.Anyway, f.Forever = w.rand.IntN(2) == 0, w.rand.IntN(3) == 0
			fsys = f
		}
		var err error
		if w.j, err = Open(fsys, Options{SegmentSize: int64(100 + 20*w.stores)}); err != nil && !fails {
			w.t.Fatal(err)
		}
	}
}

// call lets a store call, or nobody.
func (w *takenWalk) call() {
	w.calls++
	k, store := key(w.calls), w.store()
	accept := Accept{Store: store, Info: make([]byte, w.rand.IntN(100))}
	if w.rand.IntN(4) == 0 {
		accept.Store = ""
	}
	var err error
	if w.rand.IntN(2) == 0 {
		err = w.j.Accept(k, accept)
	} else {
		err = w.j.AcceptStart(k, accept, time.Now())
	}
	switch {
	case accept.Store == "":
	case err == nil:
		w.least[store]++
		w.most[store]++
	case errors.Is(err, ErrBroken):
		w.most[store]++
	}
	if w.rand.IntN(10) > 0 { // it leaves nothing else
		_ = errors.Join(w.j.Withdraw(k), w.j.Retract(k))
	}
	if w.j.Err() != nil {
		_ = w.j.Close()
		w.open()
	}
}

func (w *takenWalk) step() {
	switch w.rand.IntN(20) {
	case 0:
		_ = w.j.Close()
		w.open()
	case 1:
		w.mem.Crash()
		_ = w.j.Close()
		w.open()
	default:
		w.call()
	}
}

// check compares what the journal says with what happened. Of more stores than it knows, it may say more.
func (w *takenWalk) check() {
	w.t.Helper()
	for n := range w.stores {
		store := fmt.Sprint("store", n)
		is := w.j.Taken(store)
		if is < w.told[store] || is < w.least[store] || w.stores <= maxStores && is > w.most[store] {
			w.t.Fatalf("%s has called %d times, after %d, of %d to %d", store, is, w.told[store], w.least[store], w.most[store])
		}
		w.told[store] = is
	}
}

// TestTaken: how many calls of each store were taken is known through crashes, failures and compaction, to the very number,
// and never falls, however many stores there are.
func TestTaken(t *testing.T) {
	for _, stores := range []int{3, maxStores + 20} {
		for seed := range uint64(10) {
			w := &takenWalk{
				t: t, rand: rand.New(rand.NewPCG(seed, 5)), mem: NewMemory(), stores: stores,
				least: map[string]uint64{}, most: map[string]uint64{}, told: map[string]uint64{},
			}
			w.open()
			for range 400 {
				w.step()
				w.check()
			}
			if oldest(w.j) < 10 {
				t.Errorf("seed %d: nothing was compacted", seed)
			}
			_ = w.j.Close()
		}
	}
}

// TestTakenIsSynced: a call counts once it is on disk, and for its own store only.
func TestTakenIsSynced(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{Store: "a"}, now()))
		counts := func() []uint64 { return []uint64{j.Taken("a"), j.Taken("b"), j.Taken("")} }
		if is := counts(); !slices.Equal(is, []uint64{1, 0, 0}) {
			t.Errorf("after a call it is %d", is)
		}
		open := g.shut(errors.New("boom"))
		c, err := j.accept(key(2), Accept{Store: "a"}, Started, now())
		must(t, err)
		if is := counts(); !slices.Equal(is, []uint64{1, 0, 0}) {
			t.Errorf("before the sync it is %d", is)
		}
		open()
		if err := c.Wait(); err == nil {
			t.Error("it was accepted")
		}
		must(t, j.AcceptStart(key(3), Accept{}, now()))
		must(t, j.AcceptStart(key(4), Accept{Store: "b"}, now()))
		must(t, j.Reduce(key(4), nil, nil)) // is written as if it came now
		must(t, j.Sync())
		if is := counts(); !slices.Equal(is, []uint64{1, 1, 0}) {
			t.Errorf("in the end it is %d", is)
		}
		must(t, j.Close())
		j, err = Open(g, Options{})
		must(t, err)
		defer j.Close()
		if is := counts(); !slices.Equal(is, []uint64{1, 1, 0}) {
			t.Errorf("opened again it is %d", is)
		}
	})
	j, err := Open(NewMemory(), Options{})
	must(t, err)
	defer j.Close()
	if err := j.Accept(key(1), Accept{Store: string(make([]byte, maxStoreID+1))}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a longer id: %v", err)
	}
}

// TestJournalThatDoesNotCount: older software did not say how many calls were taken. What this one appends that does not
// read, so it begins another segment.
func TestJournalThatDoesNotCount(t *testing.T) {
	made := appendEntry(nil, &entry{kind: kindHead, id: "older", number: 1, was: "was", place: "here"})
	made = append(made[:len(made)-3], endMark) // it ends with the place
	made[0] -= 2
	made[entryHead+1+len(magic)+1+len("older")] = version - 1
	seal(made, 0)
	begin := appendEntry(nil, &entry{kind: kindBegin, key: key(1), started: 1})
	seal(begin, int64(len(made)))
	made = append(made, begin...)
	mem := NewMemory()
	mem.Put(segmentName(1), made)
	for taken := range uint64(2) {
		j, err := Open(mem, Options{})
		must(t, err)
		if j.State(key(1)) != Started || j.Taken("a") != taken || j.ID() != "older" {
			t.Errorf("journal %s holds one that is %v, and has taken %d", j.ID(), j.State(key(1)), j.Taken("a"))
		}
		must(t, j.AcceptStart(key(2+int(taken)), Accept{Store: "a"}, now()))
		must(t, j.Close())
		if is := mem.Bytes(segmentName(1)); !bytes.Equal(is, made) {
			t.Errorf("the segment of older software has %d bytes, it had %d", len(is), len(made))
		}
	}
}
