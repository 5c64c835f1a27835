package agent

import (
	"slices"

	"github.com/harpcaller/harp/internal/wire"
)

const (
	// batchBytes is about how much goes in one RECORDS frame.
	batchBytes = 64 << 10
	// batchRecords keeps a frame within the elements of a message.
	batchRecords = 400
	// recordCost is what the window counts for a record beside its value.
	recordCost = 32
)

// outbox holds the records of an attempt that are numbered and not acknowledged.
// Their bytes stay within the window, except that one record may always be there.
type outbox struct {
	window  int
	first   int64 // number of records[0]: all before it are acknowledged
	records []wire.Record
	bytes   int
}

func costOf(r wire.Record) int { return len(r.Value) + recordCost }

// fits reports whether there is room for a record.
func (o *outbox) fits(cost int) bool { return len(o.records) == 0 || o.bytes+cost <= o.window }

// add numbers a record.
func (o *outbox) add(r wire.Record) {
	o.records = append(o.records, r)
	o.bytes += costOf(r)
}

// next is the number that the next record gets.
func (o *outbox) next() int64 { return o.first + int64(len(o.records)) }

// ack forgets the records before next.
func (o *outbox) ack(next int64) {
	n := min(max(next-o.first, 0), int64(len(o.records)))
	for _, r := range o.records[:n] {
		o.bytes -= costOf(r)
	}
	clear(o.records[:n])
	o.records = o.records[n:]
	o.first += n
	if len(o.records) == 0 {
		o.records = nil
	}
}

// batch returns a copy of the records from a number on that go in one frame.
func (o *outbox) batch(from int64) []wire.Record {
	rest := o.records[from-o.first:]
	bytes := 0
	for i, r := range rest {
		bytes += costOf(r)
		if i > 0 && (bytes > batchBytes || i == batchRecords) {
			return slices.Clone(rest[:i])
		}
	}
	return slices.Clone(rest)
}

// drop forgets the records that are not acknowledged, and their numbers.
func (o *outbox) drop() { o.records, o.bytes = nil, 0 }
