package journal

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// uuidKey is the key of an attempt as there are many.
func uuidKey(n int) Key {
	return Key{fmt.Sprintf("0199f3a1-1111-7000-8000-%012x", n), 1}
}

// TestTombs: each is there for its time, however its attempt is called, also when
// the journal was opened anew, and gone an eighth of that later.
func TestTombs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := []Key{
			uuidKey(1),
			{uuidKey(1).Job, 2},
			{uuidKey(1).Job, 1 << 40},
			{"0199F3A1-1111-7000-8000-000000000001", 1},
			{"0199f3a1-1111-7000-8000+000000000001", 1},
			{"0199f3a1-1111-7000-8000-00000000000g", 1},
			{"job", 1},
		}
		const keep = 7 * 24 * time.Hour
		mem := NewMemory()
		j, err := Open(mem, Options{})
		must(t, err)
		for i, k := range keys {
			must(t, j.AcceptStart(k, Accept{}, now()))
			must(t, j.Forget(k))
			if i+1 < len(keys) && j.State(keys[i+1]) != Absent {
				t.Errorf("%v is %v before it was there", keys[i+1], j.State(keys[i+1]))
			}
			time.Sleep(time.Second)
		}
		check := func(want State) {
			t.Helper()
			for range 2 {
				for _, k := range keys {
					if got := j.State(k); got != want {
						t.Errorf("%v is %v, want %v", k, got, want)
					}
				}
				must(t, j.Close())
				j, err = Open(mem, Options{})
				must(t, err)
			}
		}
		time.Sleep(keep - time.Minute)
		check(Forgotten)
		time.Sleep(keep/8 + time.Minute)
		check(Absent)
		for _, k := range keys {
			must(t, j.AcceptStart(k, Accept{}, now()))
		}
		must(t, j.Close())
	})
}

// TestTombsExpire: those whose time has passed take no memory any more once another is
// made, and are not counted as needed on disk.
func TestTombsExpire(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, _ *gate, j *Journal) {
		for i := range 10 {
			must(t, j.Forget(uuidKey(i), key(i)))
		}
		time.Sleep(4 * 24 * time.Hour)
		must(t, j.Forget(uuidKey(100)))
		if n := j.tombs.n; n != 21 || len(j.tombs.ages) != 2 {
			t.Errorf("%d tombs of %d ages before any has passed", n, len(j.tombs.ages))
		}
		time.Sleep(4*24*time.Hour + time.Hour)
		must(t, j.Forget(uuidKey(101)))
		if n := j.tombs.n; n != 2 || len(j.tombs.ages) != 2 {
			t.Errorf("%d tombs of %d ages, of which 2 have not passed", n, len(j.tombs.ages))
		}
	})
}

// TestTombsAreBounded: of very many the newest are there, also when the journal was opened
// anew, and the others take neither memory nor disk.
func TestTombsAreBounded(t *testing.T) {
	const many, segment = 40_000, 64 << 10
	mem := NewMemory()
	open := func() *Journal {
		j, err := Open(mem, Options{SegmentSize: segment, MaxTombs: 4000})
		must(t, err)
		return j
	}
	j := open()
	check := func() {
		t.Helper()
		if n := j.tombs.n; n < 3500 || n > 4000 {
			t.Errorf("%d tombs", n)
		}
		for n := many - 3500; n < many; n++ {
			if got := j.State(uuidKey(n)); got != Forgotten {
				t.Fatalf("%d of %d is %v", n, many, got)
			}
		}
		if got := j.State(uuidKey(many / 2)); got != Absent {
			t.Errorf("an old one is %v", got)
		}
	}
	for n := range many {
		must(t, j.Forget(uuidKey(n)))
		if n%100 == 0 {
			must(t, j.Sync())
		}
	}
	check()
	must(t, j.Close())
	j = open()
	check()
	must(t, j.Close())
	size := 0
	names, err := mem.List()
	must(t, err)
	for _, name := range names {
		data, err := readFile(mem, name)
		must(t, err)
		size += len(data)
	}
	if most := 2*(4000*tombCost+segment) + 2*segment; size > most {
		t.Errorf("on disk there are %d bytes, at most %d are expected", size, most)
	}
}

// TestTombsAreWrittenAgainSeldom: what is journalled beside many tombstones lets each of them be written
// again about once, and not with each segment.
func TestTombsAreWrittenAgainSeldom(t *testing.T) {
	const many, segment = 4000, 16 << 10
	j, err := Open(NewMemory(), Options{SegmentSize: segment})
	must(t, err)
	defer j.Close()
	for n := range many {
		must(t, j.Forget(uuidKey(n)))
		if n%100 == 0 {
			must(t, j.Sync())
		}
	}
	must(t, j.AcceptStart(key(1), Accept{}, now()))
	before := positionOf(j)
	const rounds, record = 200, 2 << 10
	for n := range int64(rounds) {
		c, err := j.Append(key(1), n, make([]byte, record))
		must(t, err)
		must(t, errors.Join(j.Sync(), c.Wait(), j.Ack(key(1), n+1)))
	}
	if got, most := positionOf(j)-before, int64(2*(rounds*(record+300)+many*tombCost)); got > most {
		t.Errorf("%d bytes were written for %d of records, at most %d are expected", got, rounds*record, most)
	}
}

// TestTombSize: a tombstone takes little memory.
func TestTombSize(t *testing.T) {
	const many = 100_000
	tombs, now := newTombs(time.Hour, 1<<20), time.Now()
	before := heap()
	for n := range many {
		tombs.add(uuidKey(n), now.UnixNano(), now)
	}
	if each := (heap() - before) / many; each > 100 {
		t.Errorf("a tombstone takes %d bytes", each)
	}
	if !tombs.has(uuidKey(many-1), now) || tombs.has(uuidKey(many), now) || tombs.n != many {
		t.Errorf("%d tombs", tombs.n)
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // a heap is smaller
}

// TestTombsOutliveRestarts: tombstones that a restart, a crash, and a segment's removal,
// which writes them again, have all met are there until their own time is over, and not
// longer for any of it.
func TestTombsOutliveRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep, each = 7 * 24 * time.Hour, 12 * time.Hour
		opts := Options{SegmentSize: 2 << 10}
		mem := NewMemory()
		j, err := Open(mem, opts)
		must(t, err)
		made := map[Key]time.Time{}
		removed := 0
		for round := range 40 {
			for i := range 5 {
				k := uuidKey(round*5 + i)
				must(t, j.AcceptStart(k, Accept{}, now()))
				must(t, j.Forget(k))
				made[k] = time.Now()
			}
			old := Key{fmt.Sprint("busy", round), 1} // whose records are written and go
			must(t, j.AcceptStart(old, Accept{}, now()))
			for n := range int64(20) {
				must(t, wait(j.Append(old, n, make([]byte, 500))))
				must(t, j.Ack(old, n+1))
			}
			must(t, j.Forget(old))
			made[old] = time.Now()
			must(t, j.Sync())
			removed = int(oldest(j)) //nolint:gosec // there are few
			switch round % 3 {
			case 0:
				must(t, j.Close())
			case 1:
				mem.Crash()
				_ = j.Close()
			}
			if round%3 != 2 {
				j, err = Open(mem, opts)
				must(t, err)
			}
			for k, at := range made {
				switch age, s := time.Since(at), j.State(k); {
				case age < keep && s != Forgotten:
					t.Fatalf("round %d: %v, forgotten %v ago, is %v", round, k, age, s)
				case age >= keep+keep/8 && s != Absent:
					t.Fatalf("round %d: %v, forgotten %v ago, is %v", round, k, age, s)
				}
			}
			if n, most := j.tombs.n, 6*int((keep+keep/8)/each+1); n > most {
				t.Fatalf("round %d: %d tombs, at most %d are to be kept", round, n, most)
			}
			time.Sleep(each)
		}
		if removed < 50 {
			t.Errorf("%d segments were removed: too few to show anything", removed-1)
		}
		must(t, j.Close())
	})
}

// TestTombsAreAsManyAsAllowed: nothing gives way before there are more.
func TestTombsAreAsManyAsAllowed(t *testing.T) {
	const most = 16
	tombs, now := newTombs(time.Hour, most), time.Now()
	for n := range most {
		tombs.add(uuidKey(n), now.UnixNano(), now)
	}
	for n := range most {
		if !tombs.has(uuidKey(n), now) {
			t.Errorf("%d of %d has given way", n, most)
		}
	}
	tombs.add(uuidKey(most), now.UnixNano(), now)
	for n := range most + 1 {
		if has := tombs.has(uuidKey(n), now); has != (n >= most/8) {
			t.Errorf("of %d the %dth is there: %v", most+1, n, has)
		}
	}
}
