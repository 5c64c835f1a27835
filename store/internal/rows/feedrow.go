package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/harpcaller/harp/internal/msgpack"
)

// The events of a group lie several to a row, which is stored under the number of the
// last of them: so a scan from any event's number on begins with the row that it is in,
// and where the feed ends is known without reading a row. A row is its events one after
// the other, each as [eventRow] has it, with its length before it.

const (
	// feedRowMost is how many bytes of events a row has that has more than one: so few
	// that an engine which keeps what is longer apart has it among the rows of jobs.
	feedRowMost = 4000

	lengthMost = 5                      // bytes of an event's length
	eventMost  = pieceSize - lengthMost // bytes of an event: it has to fit one piece
)

// feedRows is the events of a group, in the rows that they will be.
type feedRows []feedRow

type feedRow struct {
	last   uint64
	events []byte
}

// addEvent takes one more event and returns by how many bytes the writes grow at most.
func (f *feedRows) addEvent(no uint64, event []byte) int {
	const another = 1 + 8 + crcSize + 1 + WriteCost // key, checksum, number of pieces
	size := lengthMost + len(event)
	if n := len(*f); n == 0 || len((*f)[n-1].events)+size > feedRowMost {
		*f = append(*f, feedRow{})
		size += another
	}
	row := &(*f)[len(*f)-1]
	row.last, row.events = no, msgpack.AppendBytes(row.events, event)
	return size
}

// writes are the rows as they are stored.
func (f feedRows) writes() []Write {
	out := make([]Write, len(f))
	for n, row := range f {
		key := eventKey(row.last)
		first, _ := split(key, row.events)
		out[n] = Write{key, first}
	}
	return out
}

// A fact is an event as it lies in a row.
type storedEvent struct {
	no  uint64
	row []byte // of eventRow
}

// at is when it happened, which its row begins with.
func (e storedEvent) at() int64 {
	r := msgpack.NewReader(e.row)
	r.Array()
	return r.Int()
}

// eventsAfter yields the events after a number, and ErrDamaged with the number of the last
// in place of those of a row that cannot be read. Any other error is the last thing it yields.
func eventsAfter(snap Snapshot, after uint64) iter.Seq2[storedEvent, error] {
	return func(yield func(storedEvent, error) bool) {
		for item, err := range snap.Scan([]byte{prefixEvent}, eventKey(after+1), false) {
			if err != nil {
				yield(storedEvent{}, err)
				return
			}
			events, err := eventsIn(snap, item)
			if err != nil && (!yield(storedEvent{no: lastIn(item.Key)}, err) || !errors.Is(err, ErrDamaged)) {
				return
			}
			for _, e := range events {
				if e.no > after && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// eventsIn returns the events of a row that a scan has met, as parts of it. Errors:
// ErrDamaged.
func eventsIn(snap Snapshot, item Item) ([]storedEvent, error) {
	payload, err := joinItem(snap, item)
	if err != nil {
		return nil, err
	}
	events, ok := splitEvents(lastIn(item.Key), payload)
	if !ok {
		return nil, fmt.Errorf("%w under key %q", ErrDamaged, item.Key)
	}
	return events, nil
}

// splitEvents returns the events of a row, the last of which has this number; false if
// it is none.
func splitEvents(last uint64, payload []byte) ([]storedEvent, bool) {
	var events []storedEvent
	r := msgpack.NewReader(payload)
	for r.OK() && !r.Done() {
		events = append(events, storedEvent{row: r.Bytes()})
	}
	for n := range events {
		events[n].no = last - uint64(len(events)-1-n)
	}
	return events, r.OK()
}

// lastIn is the number of the last event in the row with this key.
func lastIn(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }
