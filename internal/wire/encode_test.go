package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/wire"
)

// everyCall are the messages of every call, as they usually are.
func everyCall() map[string]any {
	started := wire.Started{Time: 1700000000000000001}
	record := wire.Record{Time: 1, Value: []byte{0xc3}}
	return map[string]any{
		"call":          wire.Call{Submission: harp.Submission{Request: []byte{0x80}}, Attempt: 1, SilenceTimeout: -1, Window: wire.Window},
		"ack":           wire.Ack{Next: 300, Window: wire.Window},
		"accepted":      wire.Accepted{Started: &started},
		"started":       started,
		"record":        record,
		"records":       wire.Records{First: 7, Records: []wire.Record{record, {Time: 2, Kind: "stdout", Partial: true, Truncated: 9}}},
		"pulled":        wire.Pulled{Records: wire.Rows{wire.Encode(record), {0x80}}, Next: 300, End: 1 << 40},
		"pulled_record": wire.PulledRecord{Seq: 1 << 40, Attempt: 1, Missing: 1 << 40, Record: record},
		"end":           wire.End{Value: []byte{0xc3}, Records: 300, RanFor: 70000, Started: &started},
	}
}

// TestBodies: a body is read as any message is, and the message keeps parts of it.
func TestBodies(t *testing.T) {
	for name, m := range messages() {
		body := wire.Encode(m)
		got := reflect.New(reflect.TypeOf(m))
		if err := wire.DecodeBody(body, got.Interface()); err != nil || !reflect.DeepEqual(got.Elem().Interface(), m) {
			t.Errorf("%s: %+v, %v", name, got.Elem(), err)
		}
		if err := wire.DecodeBody(nil, got.Interface()); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	value := harp.Value("\xa5value")
	body := wire.Encode(wire.End{Value: value})
	var end wire.End
	if err := wire.DecodeBody(body, &end); err != nil || !bytes.Equal(end.Value, value) {
		t.Fatal(end.Value, err)
	}
	if clear(body); bytes.Equal(end.Value, value) {
		t.Error("the value is a copy")
	}
}

// TestAppend: what is appended is what is encoded, of a pointer as well.
func TestAppend(t *testing.T) {
	for name, m := range messages() {
		pointer, _ := pointers(m)
		if got, want := wire.Append([]byte("before"), &pointer), append([]byte("before"), wire.Encode(m)...); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, not %x", name, got, want)
		}
	}
}

// TestAllocs: the messages of every call cost what they hold, and no more.
func TestAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
	budget := map[string]float64{ // of Append and Decode
		"call": 1, "ack": 0, "accepted": 1, "started": 0, "record": 1, "records": 3, "pulled": 3, "pulled_record": 1, "end": 2,
	}
	for name, m := range everyCall() {
		from, into := pointers(m)
		b := make([]byte, 0, 512)
		n := testing.AllocsPerRun(100, func() {
			reflect.ValueOf(into).Elem().SetZero()
			if err := wire.Decode(wire.Append(b, &from), into); err != nil {
				t.Fatal(err)
			}
		})
		if n > budget[name] {
			t.Errorf("%s: %v allocations, at most %v", name, n, budget[name])
		}
	}
}

// pointers returns one pointer to a copy of m, and one to a message of its type.
func pointers(m any) (from, into any) {
	p := reflect.New(reflect.TypeOf(m))
	p.Elem().Set(reflect.ValueOf(m))
	return p.Interface(), reflect.New(reflect.TypeOf(m)).Interface()
}

// BenchmarkMessages writes and reads the messages of a direct call.
func BenchmarkMessages(b *testing.B) {
	kinds := everyCall()
	b.Run("call", func(b *testing.B) { benchmarkMessage(b, kinds["call"].(wire.Call)) })
	b.Run("end", func(b *testing.B) { benchmarkMessage(b, kinds["end"].(wire.End)) })
	b.Run("records", func(b *testing.B) { benchmarkMessage(b, kinds["records"].(wire.Records)) })
}

func benchmarkMessage[M any](b *testing.B, m M) {
	b.ReportAllocs()
	var into, zero M
	for b.Loop() {
		into = zero
		if err := wire.Decode(wire.Append(make([]byte, 0, 128), &m), &into); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzRow: a row is read without validation. What Validate accepts is read as a message is,
// and whatever is read can be sent on.
func FuzzRow(f *testing.F) {
	for _, m := range []wire.PulledRecord{
		{Seq: 1 << 40, Attempt: 1, Record: wire.Record{Time: 1, Value: []byte{0xc3}}},
		{Seq: 7, Record: wire.Record{Kind: "stdout", Partial: true, Truncated: 9}},
	} {
		f.Add(wire.Encode(m))
	}
	f.Add([]byte("\x81\xa1k\xa1\xff"))                 // not UTF-8
	f.Add([]byte("\x81\xa5later\xdd\xff\xff\xff\xff")) // a key not known, cut short
	f.Add(wire.Encode(messages()["job"].(harp.JobStatus)))
	f.Fuzz(func(t *testing.T, row []byte) {
		for _, kind := range []any{wire.PulledRecord{}, harp.JobStatus{}} {
			got, want := reflect.New(reflect.TypeOf(kind)).Interface(), reflect.New(reflect.TypeOf(kind)).Interface()
			err := wire.DecodeRow(row, got)
			if known := wire.Decode(row, want); known == nil && (err != nil || !reflect.DeepEqual(got, want)) {
				t.Fatalf("read %+v, %v, as a message %+v", got, err, want)
			}
			if err == nil {
				if err := wire.Decode(wire.Encode(got), want); err != nil {
					t.Fatalf("%+v cannot be sent on: %v", got, err)
				}
			}
		}
	})
}
