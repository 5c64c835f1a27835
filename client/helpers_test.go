package client

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// must returns v.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// wantField fails unless err is ErrInvalid for a field.
func wantField(t testing.TB, err error, field string) {
	t.Helper()
	var fe *harp.FieldError
	if !errors.Is(err, harp.ErrInvalid) || !errors.As(err, &fe) || fe.Field != field {
		t.Fatalf("got %v, want an ErrInvalid of %q", err, field)
	}
}

// sentinels are all there are.
var sentinels = []error{
	harp.ErrNotFound, harp.ErrPruned, harp.ErrConflict, harp.ErrInvalid, harp.ErrDenied, harp.ErrRefused, harp.ErrNoSpace,
	harp.ErrRejected, harp.ErrUnreachable, harp.ErrExpired, harp.ErrCancelled, harp.ErrTimeout, harp.ErrLost,
	harp.ErrUnavailable, harp.ErrClosed, harp.ErrDuplicateHost,
}

// allFailures is one failure of each code, some with the content that they have in life.
func allFailures() map[string]harp.Failure {
	all := map[string]harp.Failure{"later": {Code: "later", Type: "new", Message: "the message", Ran: harp.DidNotRun, Fault: harp.FaultPolicy}}
	for code := range strings.FieldsSeq(`not_found pruned conflict invalid denied refused no_space rejected rejected_not_found
		rejected_invalid rejected_denied unreachable expired expired_offline cancelled timeout lost unavailable closed
		duplicate_host remote internal`) {
		f := failures.New(code, "the message")
		switch code {
		case "remote":
			f.Type, f.Data, f.ExitCode, f.Host = "unit_not_found", harp.Value{0x81, 0xa1, 'a', 1}, new(int64(3)), "web01"
		case "invalid", "rejected_invalid":
			f.Field = "args.count"
		case "timeout":
			f.Limit, f.LimitOf, f.Message = time.Minute, harp.LimitSilenceTimeout, ""
		case "unreachable", "expired_offline":
			f.Host, f.Stage = "web01", "dial"
		case "unavailable":
			f.JobID, f.Ran = "0198f0a2-7c11-7000-8000-000000000001", harp.MayHaveRun
		}
		all[code] = f
	}
	return all
}

// sameError fails unless got is what f describes.
func sameError(t *testing.T, got error, f harp.Failure) {
	t.Helper()
	for _, s := range sentinels {
		if is, want := errors.Is(got, s), errors.Is(f.Err(), s); is != want {
			t.Errorf("errors.Is(%v, %v) is %v", got, s, is)
		}
	}
	if back := harp.FailureOf(got); !reflect.DeepEqual(back, f) {
		t.Errorf("FailureOf\n%+v, want\n%+v", back, f)
	}
}
