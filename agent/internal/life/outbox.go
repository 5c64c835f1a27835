package life

import "github.com/harpcaller/harp/internal/wire"

const (
	// batchBytes is about how much goes in one RECORDS frame: more gains nothing.
	batchBytes = 32 << 10
	// batchRecords keeps a frame within the elements of a message.
	batchRecords = 360
	// RecordCost is what the window counts for a record beside its value.
	RecordCost = 32
)

// outbox holds the last records of an attempt that are numbered and not
// acknowledged. While somebody is told of them their bytes stay within the window,
// except that one record may always be there.
type outbox struct {
	window int
	acked  int64 // the first record that is not acknowledged
	gone   int64 // those before it are not there any more: see back
	first  int64 // number of the first record held: those between are in the journal
	bytes  int
	head   int           // index of the first record held
	kept   []wire.Record // what is before head is empty
}

func costOf(r wire.Record) int { return len(r.Value) + RecordCost }

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

// takeBack undoes add, and returns the record.
func (o *outbox) takeBack() wire.Record {
	last := len(o.kept) - 1
	r := o.kept[last]
	o.bytes -= costOf(r)
	o.kept[last] = wire.Record{}
	o.kept = o.kept[:last]
	return r
}

// ack forgets the records before next, which may be more than there were.
func (o *outbox) ack(next int64) {
	o.acked = max(o.acked, next)
	o.forget(o.acked)
	if len(o.held()) == 0 {
		o.first = max(o.first, o.acked)
	}
}

// back takes back that records from a number on were acknowledged. They are gone all
// the same.
func (o *outbox) back(from int64) {
	o.gone = max(o.gone, o.acked)
	o.acked = min(o.acked, from)
}

// evict leaves records to the journal, which has those before synced, until no more
// than so many bytes are held.
func (o *outbox) evict(most int, synced int64) {
	bytes, n := o.bytes, o.first
	for _, r := range o.held() {
		if bytes <= most || n >= synced {
			break
		}
		bytes -= costOf(r)
		n++
	}
	o.forget(n)
}

// forget drops the records before next that are held.
func (o *outbox) forget(next int64) {
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

// within returns as many records as go in one frame of so many bytes, one at least.
func within(records []wire.Record, most int) []wire.Record {
	bytes := 0
	for i, r := range records {
		bytes += costOf(r)
		if i > 0 && (bytes > min(most, batchBytes) || i == batchRecords) {
			return records[:i]
		}
	}
	return records
}
