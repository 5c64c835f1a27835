package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
)

// TestNewFailed: whatever an error says, its frame holds it.
func TestNewFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		big := rapid.StringN(0, -1, 200_000)
		if rapid.Bool().Draw(t, "long") {
			big = rapid.Just(strings.Repeat("é€x", 80_000))
		}
		f := failures.New(rapid.SampledFrom([]string{"remote", "internal", "invalid", "lost"}).Draw(t, "code"), big.Draw(t, "message"))
		f.Type, f.Host, f.Stage = big.Draw(t, "type"), big.Draw(t, "host"), big.Draw(t, "stage")
		f.Field, f.LimitOf, f.JobID = big.Draw(t, "field"), big.Draw(t, "limit"), big.Draw(t, "job")
		f.Data = wire.Encode(big.Draw(t, "data"))
		body := wire.Encode(wire.NewFailed(f.Err()))
		if len(body) > wire.MaxBody(wire.TypeFailed) {
			t.Fatalf("%d bytes", len(body))
		}
		var got wire.Failed
		if err := wire.Decode(body, &got); err != nil || harp.FailureOf(got.Failure).Code != f.Code {
			t.Fatal(got, err)
		}
	})
}

// FuzzFailed: no bytes make a failure panic, and what was read is one.
// TestFailureOfAnyLength checks that a failure is cut before it is kept, in each of its parts.
func TestFailureOfAnyLength(t *testing.T) {
	long := strings.Repeat("é", 2<<20)
	data, err := harp.NewValue(make([]byte, 2<<20))
	if err != nil {
		t.Fatal(err)
	}
	sent := harp.Failure{
		Code: long, Type: long, Message: long, Data: data, Ran: harp.Ran(long), Fault: harp.Fault(long),
		Host: long, Stage: long, Field: long, LimitOf: long, JobID: long,
	}
	for _, code := range []string{long, "remote", "timeout", "invalid", "unavailable", "lost"} {
		sent.Code = code
		var got wire.Failed
		if err := wire.Decode(wire.Encode(map[string]any{"failure": sent}), &got); err != nil {
			t.Fatal(err)
		}
		kept := wire.Encode(got)
		if max := 80 << 10; len(kept) > max || !utf8.Valid([]byte(got.Failure.Error())) {
			t.Errorf("of a failure of code %.20s %d bytes are kept", code, len(kept))
		}
	}
}

func FuzzFailed(f *testing.F) {
	for _, code := range []string{"remote", "internal", "invalid", "lost", "x", ""} {
		f.Add(wire.Encode(map[string]any{"failure": harp.Failure{Code: code, Message: "m", Data: harp.Value{0xc3}, Stage: "dial", Field: "f"}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, again wire.Failed
		if err := wire.Decode(b, &got); err != nil || got.Failure == nil {
			return
		}
		is := harp.FailureOf(got.Failure)
		if is.IsZero() || got.Failure.Error() == "" && is.Message == "" && is.Type == "" {
			t.Fatalf("%+v: %q", is, got.Failure)
		}
		if is.Data.Validate() != nil {
			t.Fatalf("%x is no value", []byte(is.Data))
		}
		if err := wire.Decode(wire.Encode(got), &again); err != nil || harp.FailureOf(again.Failure).Code != is.Code {
			t.Fatalf("%+v became %+v: %v", got, again, err)
		}
	})
}
