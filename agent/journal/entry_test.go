package journal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file anew")

// everyEntry is one of each kind, with every field that the kind has.
func everyEntry() []entry {
	k := Key{"0199f3a1-1111-7000-8000-000000000001", 300}
	stop := &Stop{Cause: "cancel", Since: time.Unix(0, 1_700_000_000_000_000_001), Limit: time.Minute}
	return []entry{
		{
			kind: kindHead, id: "id", number: 300, base: 1 << 40, was: "copied", place: "here",
			taken: takings{of: []taking{{"store", 300}, {"another", 1}}, rest: 200},
		},
		{kind: kindAccept, key: k, fence: 7, info: []byte("info"), store: "store"},
		{kind: kindAccept, key: k, fence: 7, info: []byte("info")},
		{kind: kindBegin, key: k, fence: 7, info: []byte("info"), started: 1 << 60, store: "store"},
		{kind: kindBegin, key: k, fence: 7, info: []byte("info"), started: 1 << 60},
		{kind: kindStart, key: k, started: 1 << 60},
		{kind: kindStop, key: k, stop: stop},
		{kind: kindEnd, key: k, dropped: true, count: 300, body: []byte("body")},
		{kind: kindRecords, key: k, count: 300, records: [][]byte{{1}, {}, []byte("record")}},
		{kind: kindAcked, key: k, count: 300},
		{kind: kindWithdrawn, key: k},
		{kind: kindTomb, key: k, at: 1 << 60},
		{
			kind: kindState, key: k, fence: 7, info: []byte("info"), state: Stopping, started: 1 << 60,
			dropped: true, count: 300, acked: 200, stop: stop,
		},
		{kind: kindState, key: k, state: Accepted},
		{kind: kindFirst, number: 300},
		{kind: kindClosed},
	}
}

// TestEntryGolden: the bytes of every kind of entry, alone and in a group, are golden, and
// are read as what they were written from.
func TestEntryGolden(t *testing.T) {
	var group []byte
	var b strings.Builder
	last := kindHead - 1
	for _, e := range everyEntry() {
		if e.kind > last+1 {
			t.Errorf("there is no entry of kind %d", last+1)
		}
		last = e.kind
		alone := appendEntry(nil, &e)
		group = append(group, alone...)
		seal(alone, 1<<33)
		got, n, err := parse(alone, 1<<33)
		if err != nil || n != len(alone) || !equalEntries(got, e) {
			t.Errorf("%+v is read as %+v, %v", e, got, err)
		}
		b.WriteString(hex.Dump(alone) + "\n")
	}
	seal(group, 1<<33)
	b.WriteString(hex.Dump(group))
	for off := 0; off < len(group); off += entryLen(group[off:]) {
		if at := groupAt(group[off:], 1<<33+int64(off)); at != 1<<33 {
			t.Errorf("the entry at %d says that its group is at %d", off, at-1<<33)
		}
	}
	const name = "testdata/entries.golden"
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if b.String() != string(want) {
		t.Errorf("the format has changed; it is\n%s", b.String())
	}
}

// equalEntries compares two entries; times by what they mean.
func equalEntries(a, b entry) bool {
	if (a.stop == nil) != (b.stop == nil) {
		return false
	}
	if a.stop != nil && !a.stop.Since.Equal(b.stop.Since) {
		return false
	}
	for _, e := range []*entry{&a, &b} {
		if e.stop != nil {
			stop := *e.stop
			stop.Since = time.Time{}
			e.stop = &stop
		}
		if len(e.info) == 0 {
			e.info = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

// TestEntriesThatMakeNoSense: a body that no journal writes is refused, though its checksum
// is right: of no records, or of more than there are bytes; in a state that an attempt on
// disk does not have; with something missing or too much.
func TestEntriesThatMakeNoSense(t *testing.T) {
	bodyOf := func(e entry) []byte { return appendBody([]byte{byte(e.kind)}, &e) }
	k := Key{"job", 1}
	list := map[string][]byte{
		"no records":         bodyOf(entry{kind: kindRecords, key: k}),
		"a negative record":  bodyOf(entry{kind: kindRecords, key: k, count: -1, records: [][]byte{{1}}}),
		"a record too late":  bodyOf(entry{kind: kindAcked, key: k, count: math.MaxInt64/2 + 1}),
		"state absent":       bodyOf(entry{kind: kindState, key: k, state: Absent}),
		"state forgotten":    bodyOf(entry{kind: kindState, key: k, state: Forgotten}),
		"no job":             bodyOf(entry{kind: kindWithdrawn, key: Key{"", 1}}),
		"attempt 0":          bodyOf(entry{kind: kindWithdrawn, key: Key{"job", 0}}),
		"a negative base":    bodyOf(entry{kind: kindHead, id: "id", number: 1, base: -1}),
		"an empty store":     append(bodyOf(entry{kind: kindAccept, key: k}), 0),
		"too many stores":    bodyOf(entry{kind: kindHead, id: "id", number: 1, taken: takings{of: make([]taking, maxStores+1)}}),
		"an unknown kind":    {byte(kindClosed) + 1},
		"kind 0":             {0},
		"nothing":            {},
		"a bool of 2":        replaced(bodyOf(entry{kind: kindEnd, key: k, dropped: true}), 6, 2),
		"another magic":      replaced(bodyOf(entry{kind: kindHead, id: "id", number: 1}), 1, 'H'),
		"another version":    replaced(bodyOf(entry{kind: kindHead, id: "id", number: 1}), 16, version+1),
		"very many records":  append(appendOf(appendBytes([]byte{byte(kindRecords)}, []byte("job")), &entry{kind: kindRecords, key: k})[:7], 0xff, 0xff, 0xff, 0xff, 0x7f),
		"a number too large": append([]byte{byte(kindFirst)}, bytes.Repeat([]byte{0xff}, 11)...),
	}
	for i, e := range everyEntry() {
		whole, older := bodyOf(e), e
		older.store = ""
		if _, ok := parseBody(whole); !ok {
			t.Errorf("%+v is refused", e)
		}
		list[fmt.Sprintf("entry %d and a byte", i)] = append(bytes.Clone(whole), 0)
		for n := range len(whole) {
			if !bytes.Equal(whole[:n], bodyOf(older)) { // which says nothing of a store
				list[fmt.Sprintf("entry %d without the last %d bytes", i, len(whole)-n)] = whole[:n]
			}
		}
	}
	for what, body := range list {
		if e, ok := parseBody(body); ok {
			t.Errorf("%s: %x is read as %+v", what, body, e)
		}
	}
}

func replaced(b []byte, at int, v byte) []byte {
	b[at] = v
	return b
}
