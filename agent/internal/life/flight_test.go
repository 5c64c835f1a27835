package life

import (
	"testing"

	"github.com/harpcaller/harp/internal/wire"
)

// What is in flight is counted from the record on that the dispatcher asked for, which is
// seldom the attempt's first, and again so after all was acknowledged.
func TestFlightOfRecordsFromTheMiddle(t *testing.T) {
	record := func(size int) wire.Record { return wire.Record{Value: make([]byte, size)} }
	var f flight
	for _, first := range []int64{100, 103, 700} {
		f.add(first, []wire.Record{record(10), record(20), record(30)})
		all := f.bytes
		for n, size := range []int{10, 20, 30} {
			f.ack(first + int64(n)) // it is not acknowledged
			before := f.bytes
			f.ack(first + int64(n) + 1)
			if cost := costOf(record(size)); before-f.bytes != cost {
				t.Errorf("record %d of %d bytes in flight counts %d, not %d", first+int64(n), all, before-f.bytes, cost)
			}
		}
		if f.bytes != 0 || len(f.costs) != 0 {
			t.Errorf("after all is acknowledged %d bytes are in flight", f.bytes)
		}
	}
}
