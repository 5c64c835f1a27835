package wire_test

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
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
		"request":       request,
		"call":          wire.Call{Signed: wire.Signed{Request: []byte{0x80}}, Attempt: 1, Timeout: -1, Window: wire.Window},
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

// TestBothCodecs: every message is, byte for byte, what the library writes, and is read
// as the library reads it; each field by itself, too, as what is written by hand leaves
// some out.
func TestBothCodecs(t *testing.T) {
	for name, message := range messages() {
		sameInBoth(t, name, message)
		for _, path := range fieldsOf(reflect.TypeOf(message), nil) {
			only := reflect.New(reflect.TypeOf(message)).Elem()
			from := reflect.ValueOf(message)
			only.FieldByIndex(path).Set(from.FieldByIndex(path))
			sameInBoth(t, name+"."+from.Type().FieldByIndex(path).Name, only.Interface())
		}
	}
	for name, message := range everyCall() {
		sameInBoth(t, name, message)
	}
}

// fieldsOf are the paths of the fields of a struct, those of structs in it as well.
func fieldsOf(t reflect.Type, at []int) (paths [][]int) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		path := append(slices.Clone(at), i)
		paths = append(append(paths, path), fieldsOf(t.Field(i).Type, path)...)
	}
	return paths
}

func sameInBoth(t *testing.T, name string, message any) {
	t.Helper()
	want, err := transport.Marshal(message)
	if err != nil {
		t.Fatal(name, err)
	}
	if got := wire.Encode(message); !bytes.Equal(got, want) {
		t.Errorf("%s is\n%x, by the library\n%x", name, got, want)
	}
	got, known := reflect.New(reflect.TypeOf(message)), reflect.New(reflect.TypeOf(message))
	if err := errors.Join(wire.Decode(want, got.Interface()), transport.Unmarshal(want, known.Interface(), transport.ProtocolLimits)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if !reflect.DeepEqual(got.Interface(), known.Interface()) {
		t.Errorf("%s: read %+v, the library %+v", name, got, known)
	}
}

// FuzzRow: a record that is read without validation before is what is read with it, and
// what is not valid is refused.
func FuzzRow(f *testing.F) {
	for _, m := range []wire.PulledRecord{
		{Seq: 1 << 40, Attempt: 1, Record: wire.Record{Time: 1, Value: []byte{0xc3}}},
		{Seq: 7, Record: wire.Record{Kind: "stdout", Partial: true, Truncated: 9}},
	} {
		f.Add(wire.Encode(m))
	}
	f.Add([]byte("\x81\xa1k\xa1\xff"))                      // not UTF-8
	f.Add([]byte("\x82\xa1k\xa1\xff\xa1k\xa1x"))            // not UTF-8, then well
	f.Add([]byte("\x82\xa1v\xc4\x01x\xa1v\xc4\x01y"))       // twice
	f.Add([]byte("\x82\xa1v\xc0\xa1x\xc3"))                 // nil, and a truth for a number
	f.Add([]byte("\x82\xa1v\xc4\x00\xa5later\x91\xa1\xff")) // nothing, and a key not known
	f.Fuzz(func(t *testing.T, row []byte) {
		got, want := wire.PulledRecord{Seq: 1, Record: wire.Record{Kind: "log", Value: []byte{1}}}, wire.PulledRecord{}
		err, known := got.DecodeRow(row), wire.DecodeRow(row, &want)
		if (err == nil) != (known == nil) {
			t.Fatalf("%v, validated %v", err, known)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v, validated %+v", got, want)
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

// TestBodies: a body is read as any message is. A call and an end that are at hand, and a
// page of records, keep parts of it, and they only.
func TestBodies(t *testing.T) {
	for name, m := range everyCall() {
		body := wire.Encode(m)
		got := reflect.New(reflect.TypeOf(m))
		if err := wire.DecodeBody(body, got.Interface()); err != nil {
			t.Fatal(name, err)
		}
		if name != "pulled" {
			clear(body)
		}
		if !reflect.DeepEqual(got.Elem().Interface(), m) {
			t.Errorf("%s: %+v", name, got.Elem())
		}
		if err := wire.DecodeBody(nil, got.Interface()); !errors.Is(err, transport.ErrMalformed) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	var pulled wire.Pulled
	if err := wire.DecodeBody([]byte("\x81\xa4next\xa1\xff"), &pulled); !errors.Is(err, transport.ErrMalformed) {
		t.Errorf("what is no page: %v", err)
	}
	var call wire.Call
	var end wire.End
	for want, decode := range map[any]func([]byte) error{&call: call.DecodeBody, &end: end.DecodeBody} {
		for _, m := range messages() {
			if reflect.TypeOf(m) != reflect.TypeOf(want).Elem() {
				continue
			}
			reflect.ValueOf(want).Elem().SetZero()
			if err := decode(wire.Encode(m)); err != nil || !reflect.DeepEqual(reflect.ValueOf(want).Elem().Interface(), m) {
				t.Errorf("%+v, %v", want, err)
			}
		}
	}
}

// TestAppend: what is appended is what is encoded.
func TestAppend(t *testing.T) {
	all := slices.Concat(slices.Collect(maps.Values(messages())), slices.Collect(maps.Values(everyCall())))
	for _, m := range all {
		var got []byte
		switch m := m.(type) {
		case wire.Request:
			got = m.Append([]byte("before"))
		case wire.Call:
			got = m.Append([]byte("before"))
		case wire.End:
			got = m.Append([]byte("before"))
		default:
			continue
		}
		if want := append([]byte("before"), wire.Encode(m)...); !bytes.Equal(got, want) {
			t.Errorf("%T: %x, not %x", m, got, want)
		}
	}
}

// TestAtHandAllocs: the messages of a direct call cost no more than the parts of the
// request and the time of the start, where they are at hand and sent at once.
func TestAtHandAllocs(t *testing.T) {
	kinds := everyCall()
	request, call, end := kinds["request"].(wire.Request), kinds["call"].(wire.Call), kinds["end"].(wire.End)
	b := make([]byte, 0, 512)
	n := testing.AllocsPerRun(100, func() {
		var r wire.Request
		if err := r.Decode(request.Append(b)); err != nil || r.ID != request.ID {
			t.Fatal(err)
		}
		var c wire.Call
		if err := c.DecodeBody(call.Append(b)); err != nil || c.Attempt != 1 {
			t.Fatal(err)
		}
		var e wire.End
		if err := e.DecodeBody(end.Append(b)); err != nil || e.Records != 300 {
			t.Fatal(err)
		}
	})
	if n > 5 {
		t.Errorf("%v allocations", n)
	}
}

// TestPlainAllocs: the messages of every call cost what they hold, and no more.
func TestPlainAllocs(t *testing.T) {
	budget := map[string]float64{ // of Encode, which also boxes the message, and Decode
		"request": 5, "call": 2, "ack": 1, "accepted": 2, "started": 1, "record": 2, "records": 4, "pulled": 3, "pulled_record": 2, "end": 3,
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

// BenchmarkAtHand is BenchmarkPlain for who has the message at hand, sends it at once and
// has received it in a frame.
func BenchmarkAtHand(b *testing.B) {
	call := everyCall()["call"].(wire.Call)
	b.ReportAllocs()
	for b.Loop() {
		s := wire.NewScratch()
		s.B = call.Append(s.B)
		var got wire.Call
		if err := got.DecodeBody(s.B); err != nil {
			b.Fatal(err)
		}
		s.Free()
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
