package journal

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzOpen: whatever a segment holds, it is refused as corrupt, or what is read of it
// can be read again.
func FuzzOpen(f *testing.F) {
	mem, h := NewMemory(), newHistory()
	j, err := Open(mem, Options{})
	if err != nil {
		f.Fatal(err)
	}
	if err := play(j, h); err != nil {
		f.Fatal(err)
	}
	if err := j.Close(); err != nil {
		f.Fatal(err)
	}
	data := mem.Bytes(segmentName(1))
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		mem := NewMemory()
		mem.Put(segmentName(1), data)
		j := newJournal(mem, Options{})
		err := j.load()
		if errors.Is(err, ErrCorrupt) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := look(j, universe); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzEntry: a body is refused, or is the entry that is written from it. The
// checksums, which no fuzzer guesses, are not in the way here.
func FuzzEntry(f *testing.F) {
	for _, o := range []entry{
		{kind: kindHead, id: "id", number: 3, base: 99},
		{kind: kindFirst, number: 3},
		{kind: kindBegin, key: key(1), fence: 7, info: []byte("i"), started: 3},
		{kind: kindStop, key: key(1), stop: &Stop{Cause: "cancel", Since: now(), Limit: 3}},
		{kind: kindEnd, key: key(1), dropped: true, count: 2, body: []byte("b")},
		{kind: kindRecords, key: key(1), count: 2, records: [][]byte{{1}, {}}},
		{kind: kindState, key: key(1), state: Stopping, count: 2, acked: 1, stop: &Stop{Since: now()}},
		{kind: kindTomb, key: key(1), at: 3},
	} {
		b := appendEntry(nil, &o)
		f.Add(b[entryHead : len(b)-1])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, ok := parseBody(body)
		if !ok {
			return
		}
		b := appendEntry(nil, &e)
		seal(b, 5)
		again, n, err := parse(b, 5)
		if err != nil || n != len(b) {
			t.Fatalf("%+v: %v", e, err)
		}
		if !bytes.Equal(appendEntry(nil, &again), appendEntry(nil, &e)) {
			t.Fatalf("%+v became %+v", e, again)
		}
		if _, _, err := parse(b, 6); err == nil {
			t.Fatal("an entry was taken for one at another position")
		}
	})
}
