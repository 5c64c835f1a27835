package supervisor

import (
	"os"
	"sync"
	"testing"
	"time"
)

// TestClocks checks that the time in which a command is held back is none of its silence.
func TestClocks(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p pressure
	var q quiet
	q.heard(at(0), p.total(at(0)))
	p.begin(at(2))
	p.begin(at(3)) // the other stream
	if got := q.since(at(10), p.total(at(10))); got != 2*time.Second {
		t.Errorf("silent for %v while it is held back", got)
	}
	p.finish(at(12))
	p.finish(at(13))
	if got := q.since(at(15), p.total(at(15))); got != 4*time.Second {
		t.Errorf("silent for %v after it was held back", got)
	}
	q.heard(at(16), p.total(at(16)))
	if got := q.since(at(19), p.total(at(19))); got != 3*time.Second {
		t.Errorf("silent for %v after it was heard", got)
	}
}

// TestLongLineIsNotKept checks that of a line that is too long to be a result no more is kept than a
// result may have, however long it gets, and that what comes after it counts.
func TestLongLineIsNotKept(t *testing.T) {
	l := lastJSON{max: 4}
	for range 100 {
		l.write([]byte("[1,"))
	}
	if len(l.line) > l.max {
		t.Errorf("%d bytes are kept of a line", len(l.line))
	}
	l.write([]byte("1]\n"))
	if value, why := l.value, l.why; value != nil || why != resultTooLarge {
		t.Errorf("the result is %q, %q", value, why)
	}
	l.write([]byte("1234\n12345\n"))
	if value, why := l.result(); string(value) != "1234" || why != "" {
		t.Errorf("after a shorter line the result is %q, %q", value, why)
	}
	short := lastJSON{max: 1}
	short.write([]byte("[1]\n"))
	if value, why := short.result(); value != nil || why != resultTooLarge {
		t.Errorf("where one byte is enough the result is %q, %q", value, why)
	}
}

// TestWhatWasPrintedIsReadLate checks that nothing of what a command has printed is lost where it is
// read only when the time is over in which its output may stay open, as after the machine or its
// disk stood still; and that more is not waited for then.
func TestWhatWasPrintedIsReadLate(t *testing.T) {
	const size = 3*readChunk + 1 // which a pipe takes
	for name, c := range map[string]struct{ open, floods bool }{
		"closed": {}, "left open": {open: true}, "flooded": {open: true, floods: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err == nil {
				_, err = w.Write(make([]byte, size))
			}
			if err == nil {
				err = r.SetReadDeadline(time.Unix(1, 0))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var flooding sync.WaitGroup
			if c.floods {
				flooding.Go(func() {
					for err == nil {
						_, err = w.Write(make([]byte, readChunk))
					}
				})
			}
			if !c.open {
				drop(w)
			}
			e := newEngine(Spec{}, newMemory(8<<20), secretDir{}, "")
			e.draining = time.Now().Add(-time.Hour)
			e.read(&stream{pipe: r, result: noResult{}, splitter: newSplitter(kindStdout, SplitRaw, 1<<20)})
			flooding.Wait()
			got := 0
			if err := e.spool.cursor(0).read(e.spool.count(), func(_ int64, r Record) error { got += len(r.Value); return nil }); err != nil {
				t.Fatal(err)
			}
			if got < size || got > size && !c.floods || e.open != c.open {
				t.Errorf("%d bytes were read of %d, it is open: %v", got, size, e.open)
			}
		})
	}
}

// TestDrainTimeDoesNotRunWhileHeldBack checks that an output stays open for a while behind the end of its
// command, and that the time in which it is held back does not count.
func TestDrainTimeDoesNotRunWhileHeldBack(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	e := newEngine(Spec{}, newMemory(1), secretDir{}, "")
	e.pressure.sum = time.Hour // before it ended
	e.streams = []*stream{{pipe: r}}
	e.drain()
	e.draining = e.draining.Add(-time.Minute) // passes
	e.pressure.sum += time.Minute             // all of it held back
	if !e.drainOn(e.streams[0]) {
		t.Error("the time in which it was held back counts")
	}
	e.draining = e.draining.Add(-drainTime)
	if e.drainOn(e.streams[0]) {
		t.Errorf("it may stay open for more than %v", drainTime)
	}
}
