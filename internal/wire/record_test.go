package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
)

// fullPage is a page of as many records as an answer holds, of 100 bytes each.
func fullPage(kind harp.RecordKind) harp.RecordPage {
	page := harp.RecordPage{Next: 1<<20 + MaxRows, End: 1 << 30}
	for i := range MaxRows {
		page.Records = append(page.Records, harp.Record{
			Seq: uint64(1<<20 + i), Attempt: 1, Time: time.Unix(1700000000, int64(i)).UTC(),
			Kind: kind, Value: Encode(bytes.Repeat([]byte{byte(i)}, 98)),
		})
	}
	return page
}

// readPage reads an answer.
func readPage(t testing.TB, body []byte) {
	n := 0
	var w Pulled
	if err := DecodeBody(body, &w); err != nil {
		t.Fatal(err)
	}
	for _, err := range w.allRecords() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != MaxRows {
		t.Fatalf("%d records", n)
	}
}

// TestRecordAllocs: records take no memory of their own on their way in an answer, to it
// and out of it.
func TestRecordAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
	page := fullPage(harp.KindStdout)
	body := Encode(NewPulled(page))
	if n := testing.AllocsPerRun(10, func() { Encode(NewPulled(page)) }); n > 10 {
		t.Errorf("a page takes %v allocations to write", n)
	}
	if n := testing.AllocsPerRun(10, func() { readPage(t, body) }); n > MaxRows*3/4 {
		t.Errorf("a page takes %v allocations to read", n)
	}
}

// TestValuesTogether: values that are kept together are copies, cannot grow into each
// other, and keep no more memory than a piece.
func TestValuesTogether(t *testing.T) {
	var given, kept []harp.Value
	sizes := []int{1, 0, 100, valuesTogether / 4, valuesTogether/4 + 1, 5000, 3}
	for range 20 {
		for _, n := range sizes {
			given = append(given, bytes.Repeat([]byte{byte(len(given))}, n))
		}
	}
	keeper := values{left: 3000} // less than there is
	for _, v := range given {
		given := bytes.Clone(v)
		kept = append(kept, keeper.copyValue(given))
		clear(given)
	}
	for i, v := range kept {
		if !bytes.Equal(v, given[i]) || cap(v) != len(v) && len(v) <= valuesTogether/4 || (v == nil) != (len(given[i]) == 0) {
			t.Errorf("%d is %x in %d bytes, want %x", i, v, cap(v), given[i])
		}
		if len(keeper.room) > valuesTogether {
			t.Errorf("a piece has %d bytes", len(keeper.room))
		}
	}
}

// BenchmarkRecords writes and reads a page of records.
func BenchmarkRecords(b *testing.B) {
	page := fullPage(harp.KindData)
	body := Encode(NewPulled(page))
	for name, do := range map[string]func(){
		"write": func() { Encode(NewPulled(page)) },
		"read":  func() { readPage(b, body) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(page.Records)), "ns/record")
		})
	}
}
