package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden: the bytes of a message are a promise to every peer that is not of
// this build. A golden file changes only when the protocol does.
func TestGolden(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			got := hex.Dump(wire.Encode(message))
			path := filepath.Join("testdata", "golden", name+".hex")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("bytes have changed:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A key that comes twice in a message is refused: a reader of the first and one of the last would
// not hear the same.
func TestKeysThatComeTwice(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			b := wire.Encode(message)
			r := msgpack.NewReader(b)
			if r.Kind() != msgpack.KindMap {
				t.Fatal("it is no map")
			}
			n := r.Map()
			var entries [][]byte
			for range n {
				key := r.Raw()
				entries = append(entries, slices.Concat(key, r.Raw()))
			}
			if n == 0 {
				return // it says nothing
			}
			twice := append([]byte{0xde, 0, byte(n + 1)}, slices.Concat(append(entries, entries[0])...)...)
			err := wire.Decode(twice, reflect.New(reflect.TypeOf(message)).Interface())
			var refused *msgpack.FormatError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "twice") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGoldenFiles: no golden file is without its message.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	known := messages()
	for _, f := range files {
		if _, ok := known[strings.TrimSuffix(filepath.Base(f), ".hex")]; !ok {
			t.Errorf("%s belongs to no message", f)
		}
	}
}

// TestRoundTrip: what is encoded is decoded to the same, also with every field
// empty, and every key is within what a receiver accepts.
func TestRoundTrip(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			for _, m := range []any{message, reflect.Zero(reflect.TypeOf(message)).Interface()} {
				b := wire.Encode(m)
				got := reflect.New(reflect.TypeOf(m))
				if err := wire.Decode(b, got.Interface()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.Elem().Interface(), m) {
					t.Errorf("got %+v, want %+v", got.Elem(), m)
				}
			}
		})
	}
}

// TestEveryFieldIsGolden: a golden message leaves no field empty, so that none can
// change unseen.
func TestEveryFieldIsGolden(t *testing.T) {
	partial := map[string]bool{"request_plain": true, "call_direct": true, "hello_caller": true, "hello_agent": true}
	for name, message := range messages() {
		if !partial[name] {
			fieldsSet(t, name, reflect.ValueOf(message))
		}
	}
}

func fieldsSet(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("msgpack") == "-" {
			continue
		}
		if v.Field(i).IsZero() {
			t.Errorf("%s.%s is empty", path, f.Name)
		}
		fieldsSet(t, path+"."+f.Name, v.Field(i))
	}
}

// TestUnknownKeys: a receiver ignores keys it does not know, so that messages can
// grow.
func TestUnknownKeys(t *testing.T) {
	b := wire.Encode(map[string]any{"id": "j", "wait": true, "later": map[string]any{"deep": []any{1, "x"}}})
	var got wire.ResultOf
	if err := wire.Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	if got != (wire.ResultOf{ID: "j", Wait: true}) {
		t.Errorf("got %+v", got)
	}
}

// TestFrameCaps: what the limits allow fits its frame, and no frame is longer than a
// transport carries.
func TestFrameCaps(t *testing.T) {
	for typ := range transport.Type(127) {
		if n := wire.MaxBody(typ); n < 1 || n > transport.MaxFrame {
			t.Errorf("type %d: %d", typ, n)
		}
	}
	biggest := harp.Request{ID: "j", Args: bytes.Repeat([]byte{1}, wire.MaxMessage), Info: bytes.Repeat([]byte{1}, harp.MaxInfo), Queue: make([]byte, harp.MaxQueueName)}
	call := wire.Call{Submission: harp.Submission{Request: biggest.Encode(), Signature: make([]byte, 64)}}
	for typ, m := range map[transport.Type]any{
		wire.TypeSubmit:          call.Submission,
		wire.TypeCall:            call,
		wire.TypePutWindow:       wire.PutWindow{Request: harp.NewID(), Window: biggestWindow(t)},
		wire.TypeWindowSpans:     wire.WindowSpans{Window: new(biggestWindow(t)), From: time.Unix(1, 0), To: time.Unix(2, 0)},
		wire.TypeApply:           wire.NewApply(harp.NewID(), strings.Repeat("m", harp.MaxManagedBy), slices.Repeat([]harp.Document{{Window: new(biggestWindow(t))}}, 5), harp.ApplyOptions{Prune: true}),
		wire.TypePutNotification: wire.PutNotification{Request: harp.NewID(), Notification: biggestNotification()},
		wire.TypeChunk:           wire.Chunk{Bytes: make([]byte, wire.MaxChunk)},
		wire.TypeEnd:             wire.End{Value: make([]byte, wire.MaxMessage), Failure: harp.Failure{Code: "remote", Data: make([]byte, wire.MaxMessage)}.Err()},
	} {
		if n := len(wire.Encode(m)); n > wire.MaxBody(typ) {
			t.Errorf("type %d: %d bytes, cap %d", typ, n, wire.MaxBody(typ))
		}
	}
}

// biggestNotification is as long as a notification may be.
func biggestNotification() harp.Notification {
	patterns := slices.Repeat([]string{strings.Repeat("p", harp.MaxProcedureName)}, harp.MaxNotificationPatterns)
	labels := map[string]string{}
	for n := range harp.MaxLabels {
		labels[fmt.Sprintf("%0*d", harp.MaxLabelKey, n)] = strings.Repeat("v", harp.MaxLabelValue)
	}
	return harp.Notification{
		Name: strings.Repeat("n", harp.MaxNotificationName), Doc: strings.Repeat("d", harp.MaxScheduleDoc), On: patterns, Procedures: patterns, Schedules: patterns,
		Target: strings.Repeat("t", harp.MaxTarget), Labels: labels, Include: []string{harp.IncludeArgs, harp.IncludeResult},
		To: harp.Receiver{Mail: &harp.Mail{To: slices.Repeat([]string{strings.Repeat("m", harp.MaxMailAddress)}, harp.MaxMailTo)}},
	}
}

// biggestWindow is as long as a window may be.
func biggestWindow(t *testing.T) harp.Window {
	t.Helper()
	patterns := slices.Repeat([]string{strings.Repeat("p", harp.MaxProcedureName)}, harp.MaxWindowPatterns)
	zones := map[string]string{}
	for n := range harp.MaxWindowPatterns {
		zones[fmt.Sprintf("%0*d", harp.MaxTZ, n)] = strings.Repeat("z", harp.MaxTZ)
	}
	w := harp.Window{
		Name: strings.Repeat("n", harp.MaxWindowName), Doc: strings.Repeat("d", harp.MaxScheduleDoc), Reason: strings.Repeat("r", harp.MaxWhy),
		Target: strings.Repeat("t", harp.MaxTarget), Mode: harp.WindowRefuse, Only: true, SchedulesOnly: true, All: true, Procedures: patterns, Exempt: patterns,
		TZ:       strings.Repeat("z", harp.MaxTZ),
		Calendar: &harp.WindowCalendar{Content: make([]byte, harp.MaxCalendar), Event: strings.Repeat("e", harp.MaxScheduleDoc), Zones: zones},
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestRows: a row may hold more elements than a message.
func TestRows(t *testing.T) {
	names := make([]string, 2*msgpack.ProtocolLimits.Elements)
	row := wire.Encode(harp.HostStatus{Name: "web01", Procedures: names})
	var host harp.HostStatus
	if err := wire.Decode(row, &host); err == nil {
		t.Error("a message of so many elements was accepted")
	}
	if err := wire.DecodeRow(row, &host); err != nil || len(host.Procedures) != len(names) {
		t.Error(len(host.Procedures), err)
	}
	answer := wire.Encode(wire.Hosts{Hosts: wire.Rows{row, row}})
	var hosts wire.Hosts
	if err := wire.Decode(answer, &hosts); err != nil || len(hosts.Hosts) != 2 {
		t.Error(len(hosts.Hosts), err)
	}
}

// TestText: a string that is not UTF-8 never leaves, and is refused when it comes as
// bytes.
func TestText(t *testing.T) {
	const bad, good = "disk \xff full", "disk \ufffd full"
	message := harp.JobStatus{
		ID: bad, Labels: map[string]string{bad: bad}, CancelRequested: &harp.CancelRequest{By: harp.Principal{Name: bad}},
		Attempts: []harp.Attempt{{Outcome: bad}, {Outcome: "lost"}}, Args: []byte{0xc3},
	}
	var got harp.JobStatus
	if err := wire.Decode(wire.Encode(message), &got); err != nil {
		t.Fatal(err)
	}
	want := harp.JobStatus{
		ID: good, Labels: map[string]string{good: good}, CancelRequested: &harp.CancelRequest{By: harp.Principal{Name: good}},
		Attempts: []harp.Attempt{{Outcome: good}, {Outcome: "lost"}}, Args: []byte{0xc3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if message.ID != bad || message.Attempts[0].Outcome != bad {
		t.Error("the message given was changed")
	}
	bytesForString := wire.Encode(map[string][]byte{"id": []byte(bad)})
	if err := wire.Decode(bytesForString, &got); !errors.Is(err, transport.ErrMalformed) {
		t.Error(err)
	}
	if b := wire.Encode([]any{bad, nil, 3}); !bytes.Contains(b, []byte(good)) {
		t.Errorf("%q", b)
	}
}

// FuzzDecode: no bytes from outside make any message panic, and what was accepted
// can be sent on.
func FuzzDecode(f *testing.F) {
	kinds := messages()
	for _, m := range kinds {
		f.Add(wire.Encode(m))
	}
	f.Add([]byte{0xde, 0xff, 0xff})
	f.Add([]byte{0x81, 0x91, 0xc0, 0xc0}) // a key that cannot be hashed
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, m := range kinds {
			got := reflect.New(reflect.TypeOf(m))
			if wire.Decode(b, got.Interface()) != nil {
				continue
			}
			again := reflect.New(reflect.TypeOf(m))
			if err := wire.Decode(wire.Encode(got.Elem().Interface()), again.Interface()); err != nil {
				t.Errorf("%s: what was accepted is refused when sent on: %v", name, err)
			}
		}
	})
}
