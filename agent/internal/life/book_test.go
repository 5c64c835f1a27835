package life

import (
	"github.com/harpcaller/harp/internal/wire"
)

// book is a journal of one attempt: what it has, of which a part is on disk.
type book struct {
	has, disk Progress
	records   map[int64]wire.Record
	end       *wire.End
	lacks     *Lacks
	acked     int64
	pending   []Progress // commits that are not heard of yet
	failed    bool       // the first of them has failed, and nobody has heard of it
	err       error      // of whatever is handed over
	full      bool
	renewed   *Event // it is another journal, and nobody knows
	dropped   bool   // nobody will ask for it any more
}

// write takes something, or does not.
func (b *book) write(w Write) Event {
	switch e := b.renewed; {
	case e != nil:
		b.renewed = nil
		return *e
	case b.err != nil:
		return Event{Kind: NotTaken, Err: b.err}
	case b.has.End, w.Kind != WriteStop && w.After != b.has.Next:
		return Event{Kind: NotTaken, Err: errGap}
	case b.full && (w.Kind == WriteRecords || w.Kind == WriteEnd && w.Whole):
		return Event{Kind: NotTaken, Err: errFull, Full: true}
	}
	for i, r := range w.Records {
		b.records[w.First+int64(i)] = r
	}
	if w.Kind == WriteEnd {
		end := *w.End
		b.end, b.lacks = &end, w.Lacks
		b.lose()
	}
	b.has = w.To
	b.pending = append(b.pending, w.To)
	return Event{Kind: Taken, Bare: w.Kind == WriteEnd && b.full}
}

// lose forgets records behind what it has.
func (b *book) lose() {
	for n := range b.records {
		if n >= b.has.Next {
			delete(b.records, n)
		}
	}
}

// fall goes back to what is on the disk, of which there may be more than was heard of.
func (b *book) fall(more int) {
	for _, to := range b.pending[:more] {
		b.disk = to
	}
	b.has, b.acked = b.disk, min(b.acked, b.disk.Next)
	b.lose()
}

// next is the number that its next record gets.
func (b *book) next() int64 {
	if b.has.End {
		return b.end.Records
	}
	return b.has.Next
}

// read returns records from a number on.
func (b *book) read(of Fetch) (first int64, records []wire.Record) {
	first = max(of.From, b.acked)
	for first < b.has.Next {
		if _, is := b.records[first]; is {
			break
		}
		first++
	}
	for n := first; n < b.has.Next; n++ {
		r, is := b.records[n]
		if !is || len(records) > 0 && costOf(r) > of.Most {
			break
		}
		of.Most -= costOf(r)
		records = append(records, r)
	}
	return first, records
}

func lacks(b *book, n int64) bool { return b.lacks != nil && n >= b.lacks.First && n < b.lacks.Next }
