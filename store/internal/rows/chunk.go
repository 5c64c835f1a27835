package rows

import (
	"bytes"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/pack"
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
	b = pack.AppendArray(pack.AppendInt(b, nanos(arrived)), len(records))
	for i := range records {
		r := &records[i]
		b = pack.AppendInt(b, nanos(r.Time))
		switch {
		case r.Partial:
			b = pack.AppendBool(b, true)
		case r.Missing > 0:
			b = pack.AppendUint(pack.AppendBool(b, false), r.Missing)
		}
		b = pack.AppendUint(pack.AppendString(b, string(r.Kind)), r.Truncated)
		b = pack.AppendBytes(b, r.Value)
	}
	return b
}

// readChunk takes the records of a chunk, numbered from the job's number `first` on, until
// no more are wanted. Their values share a copy of it. It returns how many numbers the
// chunk takes.
func (r *reading) readChunk(payload []byte, attempt int, first uint64) (uint64, error) {
	c := pack.NewReader(bytes.Clone(payload))
	c.Int()
	n := c.Array()
	takes := uint64(n)
	r.expect(n, len(payload))
	for i := range n {
		rec := harp.Record{Seq: first + uint64(i), Attempt: attempt}
		decodeRecord(&c, &rec)
		takes = max(takes, rec.Missing)
		if r.take(&rec); r.full {
			break
		}
	}
	if !c.OK() || !r.full && !c.Done() {
		return takes, fmt.Errorf("%w: a chunk of %d records", ErrDamaged, n)
	}
	return takes, nil
}

func decodeRecord(from *pack.Reader, r *harp.Record) {
	r.Time = fromNanos(from.Int())
	switch from.Peek() {
	case pack.True:
		r.Partial = from.Bool()
	case pack.False:
		from.Bool()
		r.Missing = uint64(from.Int())
	}
	r.Kind = kindOf(from.Text())
	r.Truncated = uint64(from.Int())
	if from.Peek() == pack.Nil {
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
