package wire

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// Records and the messages that carry them. There are many, so that those of a page share
// their memory.

// NewPulled returns the answer that holds as many records of a page as it may, at least one.
func NewPulled(p harp.RecordPage) Pulled {
	rows := recordRows(p.Records)
	m := Pulled{Records: rows, Next: p.Next, End: p.End, Ended: p.Ended}
	if n := len(rows); n < len(p.Records) {
		m.Next, m.Ended = p.Records[n].Seq, false
	}
	return m
}

// recordRows is NewRows for records.
func recordRows(records []harp.Record) Rows {
	records = records[:min(len(records), MaxRows)]
	room := 0
	for i := range records {
		room += RecordRoom + len(records[i].Value)
	}
	b := make([]byte, 0, min(room, MaxPage))
	rows := make(Rows, 0, len(records))
	var row PulledRecord // one for all, as it gets into the heap
	for i := range records {
		start := len(b)
		row = newPulledRecord(&records[i])
		if b = Append(b, &row); len(b) > MaxPage && i > 0 {
			break
		}
		rows = append(rows, b[start:len(b):len(b)])
	}
	return rows
}

func newPulledRecord(r *harp.Record) PulledRecord {
	m := PulledRecord{Seq: r.Seq, Attempt: r.Attempt, Missing: r.Missing, Record: Record{
		Time: msgpack.Nanos(r.Time), Kind: string(r.Kind), Value: r.Value, Partial: r.Partial, Truncated: int64(r.Truncated),
	}}
	if r.Kind == harp.KindData { // most are
		m.Kind = ""
	}
	return m
}

// Page is the inverse of [NewPulled]. Errors: msgpack.ErrMalformed.
func (m *Pulled) Page() (harp.RecordPage, error) {
	p := harp.RecordPage{Records: make([]harp.Record, 0, len(m.Records)), Next: m.Next, End: m.End, Ended: m.Ended}
	for r, err := range m.allRecords() {
		if err != nil {
			return harp.RecordPage{}, err
		}
		p.Records = append(p.Records, r)
	}
	return p, nil
}

// allRecords yields the records; an error is the last thing it yields.
func (m *Pulled) allRecords() iter.Seq2[harp.Record, error] {
	return func(yield func(harp.Record, error) bool) {
		together := values{left: sizeOf(m.Records)}
		var row PulledRecord // one for all, as it gets into the heap
		for _, b := range m.Records {
			var r harp.Record
			row = PulledRecord{}
			err := DecodeRow(b, &row)
			if err == nil {
				r, err = row.Numbered(row.Seq, row.Attempt)
			}
			r.Value, r.Missing = together.copyValue(r.Value), row.Missing
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Numbered returns the record with its number and the number of its attempt. It keeps the
// value where it is. Errors: msgpack.ErrMalformed.
func (r *Record) Numbered(seq uint64, attempt int) (harp.Record, error) {
	value := harp.Value(r.Value)
	if len(value) == 0 {
		value = nil
	}
	return harp.Record{
		Seq: seq, Attempt: attempt, Time: msgpack.FromNanos(r.Time), Kind: cmp.Or(harp.RecordKind(r.Kind), harp.KindData),
		Value: value, Partial: r.Partial, Truncated: uint64(max(r.Truncated, 0)),
	}, validate(value)
}

func sizeOf(rows Rows) (size int) {
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

// copyValue returns a copy.
func (v *values) copyValue(value harp.Value) harp.Value {
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
