package rows

import (
	"bytes"
	"testing"
	"testing/quick"

	"github.com/harpcaller/harp"
)

// TestPlainRows checks that rows are written as reflection would write them, whatever is
// in them, and that what every job has is written without.
func TestPlainRows(t *testing.T) {
	same := func(row plainRow) bool {
		plain := row.appendPlain(nil)
		reflected := encodeReflected(row)
		if plain != nil && !bytes.Equal(plain, reflected) {
			t.Errorf("%+v is\n%x, not\n%x", row, plain, reflected)
			return false
		}
		return true
	}
	for _, check := range []any{
		func(r callRow) bool {
			r.Labels, r.Retry = nil, nil
			return r.appendPlain(nil) != nil && same(r)
		},
		func(r lifeRow) bool {
			r.Cancel, r.Stopping, r.Failure, r.Late, r.Left = nil, nil, nil, nil, nil
			return r.appendPlain(nil) != nil && same(r)
		},
		func(at int64, texts [5]string, job, queue []byte, attempt int, by *harp.Principal, labels map[string]string) bool {
			r := eventRow{
				At: at, Type: harp.EventType(texts[0]), Job: job, Host: texts[1], Procedure: texts[2], Queue: queue,
				State: harp.State(texts[3]), Reason: texts[4], Attempt: attempt, By: by,
			}
			plain := r
			r.Labels = labels
			return plain.appendPlain(nil) != nil && same(plain) && same(r)
		},
		func(r submissionRow) bool { return r.appendPlain(nil) != nil && same(r) },
		func(r callRow) bool { return same(r) },
		func(r lifeRow) bool { return same(r) },
	} {
		if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
			t.Error(err)
		}
	}
	for _, row := range []plainRow{callRow{}, lifeRow{}, eventRow{}, submissionRow{}} {
		same(row)
	}
}
