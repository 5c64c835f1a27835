package wire_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// everyCall are the messages of every call, as they usually are.
func everyCall() map[string]any {
	started := wire.Started{Time: 1700000000000000001}
	request := wire.Request{Version: 1, ID: "0198f0a2-7c11-7000-8000-000000000001", Host: "web01", Procedure: "p", Args: []byte{0x80}, Timeout: 5}
	record := wire.Record{Time: 1, Value: []byte{0xc3}}
	return map[string]any{
		"request":  request,
		"call":     wire.Call{Signed: wire.Signed{Request: []byte{0x80}}, Attempt: 1, Timeout: -1, Window: wire.Window},
		"ack":      wire.Ack{Next: 300, Window: wire.Window},
		"accepted": wire.Accepted{Started: &started},
		"started":  started,
		"record":   record,
		"records":  wire.Records{First: 7, Records: []wire.Record{record, {Time: 2, Kind: "stdout", Partial: true, Truncated: 9}}},
		"pulled":   wire.PulledRecord{Seq: 1 << 40, Attempt: 1, Record: record},
		"end":      wire.End{Value: []byte{0xc3}, Records: 300, RanFor: 70000, Started: &started},
	}
}

// FuzzPlain: what is written and read by hand is what the library writes and reads.
func FuzzPlain(f *testing.F) {
	kinds := everyCall()
	for name, m := range messages() {
		if kinds[name] != nil {
			f.Add(wire.Encode(m))
		}
	}
	for _, m := range kinds {
		f.Add(wire.Encode(m))
	}
	f.Add([]byte("\x83\xa7started\x81\xa4time\x01\xa7started\x80\xa5value\xc0")) // twice, and nil
	f.Add([]byte("\x81\xa2id\xc4\x01x"))                                         // bytes for a text
	f.Add([]byte("\x82\xa3ran\xcb\x40\x00\x00\x00\x00\x00\x00\x00\xa1x\xc3"))    // a float, and a key not known
	f.Add([]byte("\x82\xa7records\xc0\xa5first\xcf\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, m := range kinds {
			got, want := reflect.New(reflect.TypeOf(m)), reflect.New(reflect.TypeOf(m))
			err := wire.Decode(b, got.Interface())
			known := transport.Unmarshal(b, want.Interface(), transport.ProtocolLimits)
			if err != nil {
				continue
			}
			if known != nil || !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Fatalf("%s: read %+v, the library %+v, %v", name, got, want, known)
			}
			sent, err := transport.Marshal(got.Elem().Interface())
			if again := wire.Encode(got.Elem().Interface()); err != nil || !bytes.Equal(sent, again) {
				t.Fatalf("%s: wrote %x, the library %x, %v", name, again, sent, err)
			}
		}
	})
}

// TestPlainText: a text that is not UTF-8 does not leave in these messages either, and
// none of them takes one as bytes.
func TestPlainText(t *testing.T) {
	var got wire.Request
	if err := wire.Decode(wire.Encode(wire.Request{ID: "a\xffb"}), &got); err != nil || got.ID != "a\ufffdb" {
		t.Errorf("%q, %v", got.ID, err)
	}
	if err := wire.Decode([]byte("\x81\xa2id\xc4\x01\xff"), &got); err == nil {
		t.Errorf("read %q", got.ID)
	}
}

// TestPlainAllocs: the messages of every call cost what they hold, and no more.
func TestPlainAllocs(t *testing.T) {
	budget := map[string]float64{ // of Encode, which also boxes the message, and Decode
		"request": 5, "call": 2, "ack": 1, "accepted": 2, "started": 1, "record": 2, "records": 4, "pulled": 2, "end": 3,
	}
	for name, m := range everyCall() {
		got := reflect.New(reflect.TypeOf(m))
		into := got.Interface()
		n := testing.AllocsPerRun(100, func() {
			got.Elem().SetZero()
			if err := wire.Decode(wire.Encode(m), into); err != nil {
				t.Fatal(err)
			}
		})
		if n > budget[name] {
			t.Errorf("%s: %v allocations, at most %v", name, n, budget[name])
		}
	}
}

// BenchmarkPlain writes and reads the messages of a direct call.
func BenchmarkPlain(b *testing.B) {
	kinds := everyCall()
	for _, name := range []string{"request", "call", "end", "records"} {
		m := kinds[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			into := reflect.New(reflect.TypeOf(m))
			for b.Loop() {
				into.Elem().SetZero()
				if err := wire.Decode(wire.Encode(m), into.Interface()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
