package rows

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// handmade are rows with every field that is written by hand, and no other.
func handmade() map[string]plainRow {
	j := fullJob()
	i, _ := parseID(j.ID)
	call, life := newCallRow(&j, [32]byte{1}), newLifeRow(&j.Life)
	call.Labels, call.Retry = nil, nil
	life.Cancel, life.Stopping, life.Failure, life.Late, life.Left = nil, nil, nil, nil, nil
	return map[string]plainRow{
		"call":       call,
		"life":       life,
		"submission": submissionRow{Request: []byte("r"), Signature: []byte("s"), KeyID: "k"},
		"event": eventRow{
			At: 1, Type: "t", Job: i[:], Host: "h", Procedure: "p", Queue: j.Queue, State: "s", Reason: "r", Attempt: 2, By: &j.Principal,
		},
	}
}

// byReflection are the fields with which a row is not written by hand.
var byReflection = map[string]bool{
	"call.Labels": true, "call.Retry": true, "event.Labels": true,
	"life.Cancel": true, "life.Stopping": true, "life.Failure": true, "life.Late": true, "life.Left": true,
}

// TestHandmadeRows: a row with every field that is written by hand is written by hand, its
// bytes are golden, and reflection writes the same, of each field alone as well.
func TestHandmadeRows(t *testing.T) {
	const name = "testdata/handmade.golden"
	var b strings.Builder
	for _, what := range []string{"call", "life", "submission", "event"} {
		row := handmade()[what]
		fmt.Fprintf(&b, "%s\n%s", what, hex.Dump(row.appendPlain(nil)))
		v := reflect.ValueOf(row)
		sameByHand(t, what, row)
		for n := range v.NumField() {
			if !v.Type().Field(n).IsExported() {
				continue
			}
			field := what + "." + v.Type().Field(n).Name
			if v.Field(n).IsZero() != byReflection[field] {
				t.Errorf("%s: empty is %v", field, v.Field(n).IsZero())
			}
			only := reflect.New(v.Type()).Elem()
			only.Field(n).Set(v.Field(n))
			alone, is := only.Interface().(plainRow)
			if !is {
				t.Fatal(field)
			}
			sameByHand(t, field, alone)
		}
	}
	records := []harp.Record{
		{Time: noon, Kind: harp.KindStdout, Partial: true, Truncated: 300, Value: harp.Value{1}},
		{Time: noon, Kind: "another", Value: harp.Value{}},
		{},
	}
	fmt.Fprintf(&b, "chunk\n%s", hex.Dump(encodeChunk(records, noon)))
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("bytes have changed:\n%s\nwant\n%s", got, want)
	}
}

func sameByHand(t *testing.T, what string, row plainRow) {
	t.Helper()
	before := []byte("before")
	got := row.appendPlain(before)
	if want := append(before, encodeReflected(row)...); !bytes.Equal(got, want) {
		t.Errorf("%s is\n%x, by reflection\n%x", what, got, want)
	}
}
