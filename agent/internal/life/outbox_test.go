package life

import (
	"slices"
	"testing"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
)

// TestRecordsBeyondTheElementsOfAMessage: as many records as go in a frame are within what a
// peer reads, also if each has all that a record may have.
func TestRecordsBeyondTheElementsOfAMessage(t *testing.T) {
	full := wire.Record{Time: 1, Kind: "stdout", Value: []byte{0xc0}, Partial: true, Truncated: 1}
	records := within(slices.Repeat([]wire.Record{full}, 1000), batchBytes)
	body := wire.Encode(wire.Records{First: 1, Records: records})
	if err := msgpack.Validate(body, msgpack.ProtocolLimits); err != nil {
		t.Errorf("%d records: %v", len(records), err)
	}
}
