package harp

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/harpcaller/harp/internal/wire"
)

// Records and the messages that carry them, both directions next to each other. There are
// many, so that those of a page share their memory.

// recordsToWire takes as many records of a page as an answer holds, at least one.
func recordsToWire(p RecordPage) wire.Pulled {
	rows := recordRows(p.Records)
	w := wire.Pulled{Records: rows, Next: signed(p.Next), End: signed(p.End), Ended: p.Ended}
	if n := len(rows); n < len(p.Records) {
		w.Next, w.Ended = signed(p.Records[n].Seq), false
	}
	return w
}

// recordRows is fill for records.
func recordRows(records []Record) wire.Rows {
	records = records[:min(len(records), wire.MaxRows)]
	room := 0
	for i := range records {
		room += wire.RecordRoom + len(records[i].Value)
	}
	b := make([]byte, 0, min(room, wire.MaxPage))
	rows := make(wire.Rows, 0, len(records))
	var row wire.PulledRecord // one for all, as it gets into the heap
	for i := range records {
		start := len(b)
		row = recordToWire(records[i])
		if b = wire.Append(b, &row); len(b) > wire.MaxPage && i > 0 {
			break
		}
		rows = append(rows, b[start:len(b):len(b)])
	}
	return rows
}

func recordsFromWire(w wire.Pulled) (RecordPage, error) {
	page, err := pageFromWire(w)
	if err != nil {
		return page, err
	}
	page.Records = slices.Grow(page.Records, len(w.Records))
	for rec, err := range recordsIn(w.Records) {
		if err != nil {
			return page, err
		}
		page.Records = append(page.Records, rec)
	}
	return page, nil
}

// pageFromWire is recordsFromWire without the records.
func pageFromWire(w wire.Pulled) (RecordPage, error) {
	var r reader
	return RecordPage{Next: r.count("next", w.Next), End: r.count("end", w.End), Ended: w.Ended}, r.err
}

// recordsIn yields the records of rows; an error is the last thing it yields.
func recordsIn(rows wire.Rows) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		together := values{left: sizeOf(rows)}
		var w wire.PulledRecord // one for all, as it gets into the heap
		for _, row := range rows {
			var rec Record
			w = wire.PulledRecord{}
			err := wire.DecodeRow(row, &w)
			if err == nil {
				rec, err = recordFromWire(w)
			}
			rec.Value = together.keep(rec.Value)
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func sizeOf(rows wire.Rows) (size int) {
	for _, row := range rows {
		size += len(row)
	}
	return size
}

// values keeps values beside each other: a piece of memory for each would cost more
// than many of them hold, and one for all be kept by whoever keeps one.
type values struct {
	room []byte
	left int // how much will be kept, at most
}

// valuesTogether is how much memory values share at most.
const valuesTogether = 4 << 10

// keep returns a copy.
func (v *values) keep(value Value) Value {
	n := len(value)
	switch {
	case n == 0:
		return nil
	case n > valuesTogether/4:
		return bytes.Clone(value)
	case n > len(v.room):
		v.room = make([]byte, max(n, min(v.left, valuesTogether)))
	}
	kept := v.room[:n:n]
	v.room = v.room[n:]
	v.left -= n
	copy(kept, value)
	return kept
}

func recordToWire(rec Record) wire.PulledRecord {
	return wire.PulledRecord{Seq: signed(rec.Seq), Attempt: int64(rec.Attempt), Missing: signed(rec.Missing), Record: wire.Record{
		Time: nanos(rec.Time), Kind: kindToWire(rec.Kind), Value: rec.Value, Partial: rec.Partial, Truncated: signed(rec.Truncated),
	}}
}

// recordFromWire leaves the value where it is.
func recordFromWire(w wire.PulledRecord) (Record, error) {
	var r reader
	return Record{
		Seq: r.count("seq", w.Seq), Attempt: r.number("attempt", w.Attempt),
		Time: fromNanos(w.Time), Kind: kindFromWire(w.Kind),
		Value: r.value("value", w.Value), Partial: w.Partial, Truncated: r.count("truncated", w.Truncated),
		Missing: r.count("missing", w.Missing),
	}, r.err
}

// kindToWire leaves out the kind that most records are of.
func kindToWire(k RecordKind) string {
	if k == KindData {
		return ""
	}
	return string(k)
}

func kindFromWire(w string) RecordKind { return cmp.Or(RecordKind(w), KindData) }
