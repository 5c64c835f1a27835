package agent

import (
	"slices"

	"github.com/harpcaller/harp/internal/wire"
)

const (
	// batchBytes is about how much goes in one RECORDS frame: more gains nothing.
	batchBytes = 32 << 10
	// batchRecords keeps a frame within the elements of a message.
	batchRecords = 400
	// recordCost is what the window counts for a record beside its value.
	recordCost = 32
)

// outbox holds the records of an attempt that are numbered and not acknowledged.
// Their bytes stay within the window, except that one record may always be there.
type outbox struct {
	window int
	first  int64 // number of the first record held: all before it are acknowledged
	bytes  int
	head   int           // index of the first record held
	kept   []wire.Record // what is before head is empty
}

func costOf(r wire.Record) int { return len(r.Value) + recordCost }

// held returns the records.
func (o *outbox) held() []wire.Record { return o.kept[o.head:] }

// next is the number that the next record gets.
func (o *outbox) next() int64 { return o.first + int64(len(o.held())) }

// fits reports whether there is room for a record.
func (o *outbox) fits(cost int) bool { return len(o.held()) == 0 || o.bytes+cost <= o.window }

// add numbers a record. It makes room in place where at least half is empty.
func (o *outbox) add(r wire.Record) {
	if len(o.kept) == cap(o.kept) && o.head > len(o.kept)/2 {
		n := copy(o.kept, o.held())
		clear(o.kept[n:])
		o.kept, o.head = o.kept[:n], 0
	}
	o.kept = append(o.kept, r)
	o.bytes += costOf(r)
}

// ack forgets the records before next.
func (o *outbox) ack(next int64) {
	n := int(min(max(next-o.first, 0), int64(len(o.held()))))
	done := o.held()[:n]
	for _, r := range done {
		o.bytes -= costOf(r)
	}
	clear(done)
	o.first += int64(n)
	o.head += n
	if o.head == len(o.kept) {
		o.kept, o.head = o.kept[:0], 0
	}
}

// batch returns a copy of the records from a number on that go in one frame.
func (o *outbox) batch(from int64) []wire.Record {
	rest := o.held()[from-o.first:]
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
func (o *outbox) drop() { o.kept, o.head, o.bytes = nil, 0, 0 }
