package rows

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// idempotencyRow is what an idempotency key stands for until its time is over.
type idempotencyRow struct {
	Job    []byte `msgpack:"job"`
	Digest []byte `msgpack:"digest"`
	Until  int64  `msgpack:"until"` // by a clock that is never set
}

// idempotencyKey is the key of an idempotency key's row: keys are as long as callers make
// them.
func idempotencyKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return append([]byte{prefixOnce}, sum[:]...)
}

// expiryKey is the index entry by which a row is found once its time is over.
func expiryKey(row *idempotencyRow, key []byte) []byte {
	at := placeOf(row.Until, 0)
	return slices.Concat(indexKey(byOver), at[:8], key[1:])
}

// submittedBefore answers a submission, of a job or a batch, by the idempotency key that it came under; true if it
// has. It returns only errors that nothing can be done about.
func (t *tx) submittedBefore(what string, in *store.Submission, out *store.Submitted, now int64) (bool, error) {
	if in.Key == "" {
		return false, nil
	}
	var row idempotencyRow
	found, err := read(t, idempotencyKey(in.Key), &row)
	if err != nil || !found || row.Until <= now || len(row.Job) != len(id{}) {
		return false, err
	}
	i := id(row.Job)
	if !bytes.Equal(row.Digest, in.Digest[:]) {
		out.Err = failures.ConflictOfKey(what, i.String())
		return true, nil
	}
	gone, err := t.isPruned(i)
	if err != nil || gone {
		out.Job = &store.Job{ID: i.String()}
		return true, err
	}
	out.Job, out.Err = readShown(t, i)
	return true, nil
}

// putIdempotency writes what the idempotency key of a new job stands for, over what has
// outlived its time.
func (t *tx) putIdempotency(i id, in *store.Submission, now, until int64) error {
	if in.Key == "" || until <= now {
		return nil
	}
	key := idempotencyKey(in.Key)
	var had idempotencyRow
	found, err := read(t, key, &had)
	if err != nil {
		return err
	}
	if found {
		t.write(expiryKey(&had, key), nil)
	}
	row := idempotencyRow{Job: slices.Clone(i[:]), Digest: in.Digest[:], Until: until}
	t.put(key, encode(row))
	over := expiryKey(&row, key)
	t.write(over, seal(over, nil))
	return nil
}
