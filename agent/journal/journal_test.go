package journal

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// positionOf is how much was ever written and synced.
func positionOf(j *Journal) int64 { return j.current().end() }

func key(i int) Key { return Key{fmt.Sprint("job", i), 1} }

// TestGroupCommit: what arrives while one sync runs shares the next.
func TestGroupCommit(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		open := g.shut(nil)
		var all sync.WaitGroup
		start := func(i int) {
			all.Go(func() {
				if err := j.AcceptStart(key(i), Accept{}, now()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for i := range 100 {
			start(i)
		}
		if n := g.count(); n != 1 {
			t.Errorf("%d syncs are under way", n)
		}
		open()
		all.Wait()
		if n := g.count(); n != 1 {
			t.Errorf("99 callers shared %d syncs", n)
		}
	})
}

// TestBusy: a disk that is slower than those who print is waited for, and one that
// fails keeps nobody waiting.
func TestBusy(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no luck")} {
		inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
			must(t, j.AcceptStart(key(1), Accept{}, now()))
			open := g.shut(fails)
			n := int64(0)
			for ; j.Busy() == nil; n++ {
				if n > MaxWaiting/1000 {
					t.Fatalf("%d bytes wait, and it is not busy", n*1000)
				}
				if _, err := j.Append(key(1), n, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			if n < MaxWaiting/1100 {
				t.Errorf("busy after %d records of 1,000 bytes", n)
			}
			eased := j.Busy()
			select {
			case <-eased:
				t.Error("nothing was written, and it is eased")
			default:
			}
			open()
			<-eased
			synctest.Wait()
			if j.Busy() != nil || j.waiting != 0 {
				t.Errorf("all is settled, and %d bytes wait", j.waiting)
			}
		})
	}
}

// TestBusyWithEnds: ENDs that wait to be written count as records do.
func TestBusyWithEnds(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		for n := range 10 {
			must(t, j.AcceptStart(key(n), Accept{}, now()))
		}
		open := g.shut(nil)
		for n := range 10 {
			if _, _, err := j.End(key(n), End{Body: make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		eased := j.Busy()
		if eased == nil {
			t.Error("10 MiB wait, and it is not busy")
		}
		open()
		synctest.Wait()
		if j.Busy() != nil || j.waiting != 0 {
			t.Errorf("all is settled, and %d bytes wait", j.waiting)
		}
	})
}

// TestCompactionKeepsUp: records that come without a pause, more at a time than a segment
// holds, do not fill the disk with what is acknowledged.
func TestCompactionKeepsUp(t *testing.T) {
	const segment, record, rounds = 4 << 10, 10 << 10, 300
	inBubble(t, Options{SegmentSize: segment, SyncBytes: 1}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		var mu sync.Mutex // guards what follows
		n, most, done := int64(0), int64(0), make(chan struct{})
		more := func() { // during each sync: there is always something to write
			mu.Lock()
			defer mu.Unlock()
			if n == rounds {
				return
			}
			if _, err := j.Append(key(1), n, make([]byte, record)); err != nil {
				t.Error(err)
			}
			n++
			if err := j.Ack(key(1), n-1); err != nil {
				t.Error(err)
			}
			j.mu.Lock()
			most = max(most, j.segments[len(j.segments)-1].end()-j.segments[0].base)
			j.mu.Unlock()
			if n == rounds {
				close(done)
			}
		}
		g.mu.Lock()
		g.while = more
		g.mu.Unlock()
		more()
		<-done
		if allowed := int64(2*segment + 10*record); most > allowed {
			t.Errorf("of %d bytes there were %d on disk at a time, at most %d are to be", rounds*record, most, allowed)
		}
	})
}

// TestRecordsSync: a record is synced 100 ms after it came, or when 64 KiB have
// gathered, or with what cannot wait.
func TestRecordsSync(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		g.count()
		first, err := j.Append(key(1), 0, []byte("r"))
		must(t, err)
		time.Sleep(99 * time.Millisecond)
		if _, err := j.Append(key(1), 1, []byte("s")); err != nil || g.count() != 0 {
			t.Fatalf("synced after 99 ms, or %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := g.count(); n != 1 || first.Wait() != nil {
			t.Fatalf("%d syncs after 101 ms", n)
		}
		time.Sleep(time.Second)
		if n := g.count(); n != 0 {
			t.Fatalf("%d syncs of nothing", n)
		}

		_, err = j.Append(key(1), 2, make([]byte, 64<<10))
		must(t, err)
		synctest.Wait()
		if n := g.count(); n != 1 {
			t.Fatalf("%d syncs of 64 KiB at once", n)
		}

		_, err = j.Append(key(1), 3, []byte("t"))
		must(t, err)
		must(t, j.AcceptStart(key(2), Accept{}, now()))
		if n := g.count(); n != 1 {
			t.Fatalf("%d syncs of a record and a start", n)
		}
		number, list, err := j.Records(key(1), 1, 1<<20)
		if err != nil || number != 1 || len(list) != 3 || string(list[2]) != "t" {
			t.Errorf("records %d, %d, %v", number, len(list), err)
		}
	})
}

// TestEndBeforeSync: END may be sent before it is on disk, records may be read.
func TestEndBeforeSync(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		open := g.shut(nil)
		before := positionOf(j)
		_, err := j.Append(key(1), 0, []byte("r"))
		must(t, err)
		c, dropped, err := j.End(key(1), End{Body: []byte("end"), Records: 1})
		if err != nil || dropped {
			t.Fatal(dropped, err)
		}
		synctest.Wait()
		select {
		case <-c.Done():
			t.Fatal("the commit is done before its sync")
		default:
		}
		body, err := j.Ended(key(1))
		_, list, err2 := j.Records(key(1), 0, 10)
		if string(body) != "end" || len(list) != 1 || errors.Join(err, err2) != nil {
			t.Errorf("%q, %q, %v, %v", body, list, err, err2)
		}
		if positionOf(j) != before {
			t.Error("the position counts what is not synced")
		}
		open()
		must(t, c.Wait())
		if positionOf(j) <= before {
			t.Error("the position does not count what is synced")
		}
	})
}

// TestFailedSync: with a sync all fails that waited for it or came since, and
// nothing of it is on disk, or known but that an attempt is forgotten.
func TestFailedSync(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(0), Accept{}, now()))
		must(t, j.Accept(key(1), Accept{}))
		must(t, j.AcceptStart(key(4), Accept{}, now()))
		boom := errors.New("boom")
		open := g.shut(boom)
		size := len(g.Bytes(segmentName(1)))
		var all sync.WaitGroup
		for _, call := range []func() error{
			func() error { return j.AcceptStart(key(2), Accept{}, now()) },
			func() error { return j.AcceptStart(key(3), Accept{}, now()) },
			func() error { return j.Start(key(1), now()) },
			func() error { return wait(j.Append(key(0), 0, []byte("r"), []byte("s"))) },
			func() error { return wait(j.Stopping(key(0), Stop{Cause: "cancel"})) },
			func() error {
				c, _, err := j.End(key(0), End{Records: 2})
				return wait(c, err)
			},
			func() error { _ = j.Ack(key(0), 1); return j.Sync() },
			func() error { _ = j.Forget(key(4)); return j.Sync() },
		} {
			all.Go(func() {
				if err := call(); !errors.Is(err, boom) || errors.Is(err, ErrBroken) {
					t.Errorf("answered %v", err)
				}
			})
			synctest.Wait()
		}
		open()
		all.Wait()
		if n := len(g.Bytes(segmentName(1))); n != size {
			t.Errorf("%d bytes are left in the segment, expected %d", n, size)
		}
		for i, want := range []State{Started, Accepted, Absent, Absent, Forgotten} {
			if s := j.State(key(i)); s != want {
				t.Errorf("attempt %d is %v, expected %v", i, s, want)
			}
		}
		if h := j.Held()[0]; h.Records != 0 || h.Acked != 0 || h.Stop != nil {
			t.Errorf("held: %+v", h)
		}
		must(t, wait(j.Append(key(0), 0, bytes.Repeat([]byte("r"), 64<<10))))
		must(t, j.AcceptStart(key(2), Accept{}, now()))
	})
}

// TestTombstones: an attempt that is over is known for seven days, over restarts,
// and not much longer.
func TestTombstones(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		must(t, j.Forget(key(1), key(2)))
		must(t, j.Close())
		time.Sleep(7*24*time.Hour - time.Second)
		j, err := Open(g, Options{})
		must(t, err)
		for i := 1; i <= 2; i++ {
			if err := j.AcceptStart(key(i), Accept{}, now()); !errors.Is(err, ErrKnown) || j.State(key(i)) != Forgotten {
				t.Errorf("before their time: %v", err)
			}
		}
		time.Sleep(21*time.Hour + time.Second) // an eighth of their time
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		if s := j.State(key(2)); s != Absent {
			t.Errorf("after their time: %v", s)
		}
		must(t, j.Close())
		j, err = Open(g, Options{})
		must(t, err)
		if a, b := j.State(key(1)), j.State(key(2)); a != Started || b != Absent {
			t.Errorf("afterwards: %v, %v", a, b)
		}
		must(t, j.Close())
	})
}

// TestSpaceReturns: what is on disk stays near what is needed.
func TestSpaceReturns(t *testing.T) {
	g := &gate{Memory: NewMemory()}
	opts := Options{SegmentSize: 4 << 10, Keep: time.Nanosecond}
	j, err := Open(g, opts)
	must(t, err)
	defer func() { _ = j.Close() }()
	old := Key{"old", 1}
	must(t, j.AcceptStart(old, Accept{Info: []byte("info")}, now()))
	must(t, wait(j.Append(old, 0, []byte("record"))))
	for i := range 2000 {
		must(t, j.AcceptStart(key(i), Accept{}, now()))
		c, _, err := j.End(key(i), End{Body: make([]byte, 100)})
		must(t, wait(c, err))
		must(t, j.Forget(key(i)))
	}
	must(t, j.Sync())
	_ = j.Close()
	total := 0
	names, _ := g.List()
	for _, name := range names {
		total += len(g.Bytes(name))
	}
	if total > 10*4<<10 {
		t.Errorf("%d bytes in %d files", total, len(names))
	}
	j, err = Open(g, opts)
	must(t, err)
	_, list, err := j.Records(old, 0, 100)
	if err != nil || len(list) != 1 || string(list[0]) != "record" {
		t.Errorf("the oldest record: %q, %v", list, err)
	}
}

// many is how many records an attempt of TestManyAtOnce has.
const many = 2000

// TestManyAtOnce: attempts of many goroutines, while segments are removed; with a
// reader that reads what was spooled.
func TestManyAtOnce(t *testing.T) {
	mem := NewMemory()
	opts := Options{SegmentSize: 2 << 10, SyncWithin: time.Microsecond}
	j, err := Open(mem, opts)
	must(t, err)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if err := oneOfMany(j, key(i)); err != nil {
				t.Errorf("attempt %d: %v", i, err)
			}
		})
	}
	all.Wait()
	must(t, j.Close())
	if oldest(j) < 5 {
		t.Error("too few segments were removed to show anything")
	}
	j, err = Open(mem, opts)
	must(t, err)
	defer j.Close()
	for _, h := range j.Held() {
		body, err := j.Ended(h.Key)
		if err != nil || string(body) != h.Job || h.Records != many || h.Acked != many-50 {
			t.Errorf("%+v: %q, %v", h, body, err)
		}
		if err := readFrom(j, h.Key, many-50, many); err != nil {
			t.Error(err)
		}
	}
}

// oneOfMany waits for each fiftieth record, so that what the journal writes at once is
// a bounded part of all: however the goroutines run, segments are removed meanwhile.
func oneOfMany(j *Journal, k Key) error {
	if err := j.AcceptStart(k, Accept{}, now()); err != nil {
		return err
	}
	for n := range int64(many) {
		c, err := j.Append(k, n, fmt.Appendf(nil, "%s record %d", k.Job, n))
		if err != nil {
			return err
		}
		if n%50 == 49 {
			if err := wait(c, nil); err != nil {
				return err
			}
			if err := readFrom(j, k, n-49, n+1); err != nil {
				return err
			}
			if n < many-1 {
				if err := j.Ack(k, n+1); err != nil {
					return err
				}
			}
		}
	}
	c, _, err := j.End(k, End{Body: []byte(k.Job), Records: many})
	return wait(c, err)
}

func readFrom(j *Journal, k Key, from, to int64) error {
	for from < to {
		first, list, err := j.Records(k, from, 500)
		if err != nil || first != from || len(list) == 0 {
			return fmt.Errorf("from %d: %d records from %d: %w", from, len(list), first, err)
		}
		for _, r := range list {
			if string(r) != fmt.Sprintf("%s record %d", k.Job, from) {
				return fmt.Errorf("record %d is %q", from, r)
			}
			from++
		}
	}
	return nil
}

// TestDisk: a journal on disk, in a directory that is not there yet.
func TestDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "journal")
	j, err := Open(Disk(dir), small)
	must(t, err)
	h := newHistory()
	must(t, play(j, h))
	id, position := j.ID(), positionOf(j)
	must(t, j.Close())
	if err := j.Accept(key(1), Accept{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed journal answers %v", err)
	}
	must(t, j.Close())
	j, err = Open(Disk(dir), small)
	must(t, err)
	defer j.Close()
	got, err := look(j, universe)
	must(t, err)
	must(t, h.allows(got))
	if j.ID() != id || positionOf(j) < position {
		t.Errorf("journal %s at %d, it was %s at %d", j.ID(), positionOf(j), id, position)
	}
}

// TestRetract: a start that is taken back is as if it had never been, and nothing
// else can be.
func TestRetract(t *testing.T) {
	mem := NewMemory()
	j, err := Open(mem, Options{})
	must(t, err)
	k := key(1)
	must(t, j.AcceptStart(k, Accept{}, now()))
	must(t, j.Retract(k))
	mem.Crash()
	_ = j.Close()
	j, err = Open(mem, Options{})
	must(t, err)
	defer func() { _ = j.Close() }()
	if s := j.State(k); s != Absent || j.used != 0 {
		t.Errorf("%v, %d bytes used", s, j.used)
	}
	if err := j.Retract(k); !errors.Is(err, ErrUnknown) {
		t.Errorf("what is not there: %v", err)
	}
	must(t, j.Accept(k, Accept{}))
	if err := j.Retract(k); !errors.Is(err, ErrState) {
		t.Errorf("what was not started: %v", err)
	}
	must(t, j.Start(k, now()))
	must(t, wait(j.Append(k, 0, []byte("record"))))
	if err := j.Retract(k); !errors.Is(err, ErrState) {
		t.Errorf("what has records: %v", err)
	}
	c, _, err := j.End(k, End{Records: 1})
	must(t, wait(c, err))
	if err := j.Retract(k); !errors.Is(err, ErrState) {
		t.Errorf("what has ended: %v", err)
	}
}

// TestCompactionRests checks that the oldest segment, which could not be removed, is not tried again and again without a pause.
func TestCompactionRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(NewMemory(), Options{})
		must(t, j.create(segment{number: 1}))
		j.segments = []segment{{number: 0, size: 1 << 40}, {number: 1, base: 1 << 40}} // of which nothing is needed, and the first is not there
		for range 2 {
			if more := j.compact(1); more || time.Until(j.resting) != time.Second {
				t.Errorf("there is more to do: %t; it rests for %v", more, time.Until(j.resting))
			}
		}
		must(t, j.file.Close())
	})
}
