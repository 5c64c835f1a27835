package rows

import (
	"bytes"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// A chunk is records that lie under one key: when it arrived, how many there are, and of
// each the agent's time, kind, dropped bytes and value; before the kind a true if it is
// partial, or a false and how many records are missing in its place. A chunk of one that
// says so has no others, and takes the place of all that are missing.

// chunkLen is how many of the records go into one chunk: at least one, and not more
// than fit one piece.
func chunkLen(records []harp.Record) int {
	size := recordCost
	for n := range records {
		if size += recordSize(&records[n]); size > pieceSize && n > 0 {
			return n
		}
	}
	return len(records)
}

func encodeChunk(records []harp.Record, arrived time.Time) []byte {
	const slack = 16 // of a record's time and lengths, beyond what it counts
	b := make([]byte, 0, recordCost+recordsSize(records)+slack)
	b = msgpack.AppendArray(msgpack.AppendInt(b, nanos(arrived)), len(records))
	for i := range records {
		r := &records[i]
		b = msgpack.AppendInt(b, nanos(r.Time))
		switch {
		case r.Partial:
			b = msgpack.AppendBool(b, true)
		case r.Missing > 0:
			b = msgpack.AppendUint(msgpack.AppendBool(b, false), r.Missing)
		}
		b = msgpack.AppendUint(msgpack.AppendString(b, string(r.Kind)), r.Truncated)
		b = msgpack.AppendBytes(b, r.Value)
	}
	return b
}

// readChunk takes the records of a chunk, numbered from the job's number `first` on, until
// no more are wanted. Their values share a copy of it. It returns how many numbers the
// chunk takes.
func (r *reading) readChunk(payload []byte, attempt int, first uint64) (uint64, error) {
	c := msgpack.NewReader(bytes.Clone(payload))
	c.Int()
	n := c.Array()
	takes := uint64(n)
	r.reserveRecords(n, len(payload))
	for i := range n {
		rec := harp.Record{Seq: first + uint64(i), Attempt: attempt}
		if decodeRecord(&c, &rec); !c.OK() {
			break
		}
		takes = max(takes, rec.Missing)
		if r.takeRecord(&rec); r.full {
			break
		}
	}
	if !c.OK() || !r.full && !c.Done() {
		return takes, fmt.Errorf("%w: a chunk of %d records", ErrDamaged, n)
	}
	return takes, nil
}

func decodeRecord(from *msgpack.Reader, r *harp.Record) {
	r.Time = fromNanos(from.Int())
	if from.Kind() == msgpack.KindBool {
		if r.Partial = from.Bool(); !r.Partial {
			r.Missing = uint64(from.Int())
		}
	}
	r.Kind = kindOf(from.Text())
	r.Truncated = uint64(from.Int())
	if from.Kind() == msgpack.KindNil {
		from.Nil()
	} else {
		r.Value = from.Bytes()
	}
}

// kindOf is string(kind), but the usual ones need no memory.
func kindOf(kind []byte) harp.RecordKind {
	for _, k := range []harp.RecordKind{harp.KindData, harp.KindStdout, harp.KindStderr, harp.KindLog} {
		if string(kind) == string(k) {
			return k
		}
	}
	return harp.RecordKind(kind)
}
