package journal

import (
	"encoding/hex"
	"flag"
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
		{kind: kindHead, id: "id", number: 300, base: 1 << 40},
		{kind: kindAccept, key: k, fence: 7, info: []byte("info")},
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
