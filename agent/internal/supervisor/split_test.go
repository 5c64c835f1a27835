package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// split runs a splitter over a stream that arrives in chunks.
func split(how Splitting, limit int, chunks ...string) []Record {
	s := newSplitter(kindStdout, how, limit)
	var got []Record
	emit := func(p piece) {
		got = append(got, Record{Kind: p.kind, Value: bytes.Clone(p.value), Partial: p.partial})
	}
	for _, c := range chunks {
		s.write([]byte(c), emit)
	}
	s.end(emit)
	return got
}

// inShort writes records as text: kind's first letter, value, and + if it is partial.
func inShort(records []Record) string {
	var all []string
	for _, r := range records {
		letter, plus := "", ""
		if r.Kind == kindData {
			letter = "data:"
		}
		if r.Partial {
			plus = "+"
		}
		all = append(all, fmt.Sprintf("%s%q%s", letter, r.Value, plus))
	}
	return strings.Join(all, " ")
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		name   string
		how    Splitting
		max    int
		chunks []string
		want   string
	}{
		{"lines", SplitLines, 80, []string{"a\nb\n"}, `"a" "b"`},
		{"an empty line", SplitLines, 80, []string{"\n\na\n"}, `"" "" "a"`},
		{"a line in parts", SplitLines, 80, []string{"he", "ll", "o\nyou\n"}, `"hello" "you"`},
		{"no line feed at the end", SplitLines, 80, []string{"a\nb"}, `"a" "b"+`},
		{"bytes that are no text", SplitLines, 80, []string{"\x00\xff\n"}, `"\x00\xff"`},
		{"a line of the limit", SplitLines, 3, []string{"abc\n"}, `"abc"`},
		{"a line of the limit, its end later", SplitLines, 3, []string{"abc", "\n"}, `"abc"`},
		{"a line over the limit", SplitLines, 3, []string{"abcd\n"}, `"abc"+ "d"`},
		{"progress", SplitLines, 80, []string{"1%\r2%\r", "3%\ndone\n"}, `"1%\r"+ "2%\r"+ "3%" "done"`},
		{"lines of DOS", SplitLines, 80, []string{"a\r\nb\r", "\n"}, `"a\r" "b\r"`},
		{"a carriage return at the end", SplitLines, 80, []string{"a\r"}, `"a\r"+`},
		{"JSON", SplitJSON, 80, []string{"{\"a\":1}\nno\n7\n\n"}, `data:"{\"a\":1}" "no" data:"7" ""`},
		{"JSON without a line feed", SplitJSON, 80, []string{`{"a":1}`}, `data:"{\"a\":1}"+`},
		{"JSON that is the rest of a line", SplitJSON, 3, []string{"abc12\n"}, `"abc"+ "12"`},
		{"JSON that is the start of a line", SplitJSON, 3, []string{"123456\n"}, `"123"+ "456"`},
		{"raw", SplitRaw, 80, []string{"a\nb", "\nc"}, `"a\nb"+ "\nc"+`},
		{"raw over the limit", SplitRaw, 2, []string{"abc"}, `"ab"+ "c"+`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := inShort(split(test.how, test.max, test.chunks...)); got != test.want {
				t.Errorf("records are\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// joined is the stream that records are of.
func joined(records []Record) []byte {
	var b []byte
	for _, r := range records {
		b = append(b, r.Value...)
		if !r.Partial {
			b = append(b, '\n')
		}
	}
	return b
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("a\r\nb\r\rc\n\nlast"), 3, 2, false)
	f.Add([]byte("1%\r2%\r100%\n"), 80, 1, true)
	f.Add([]byte("{}\n[1,2]\nno"), 5, 4, true)
	f.Fuzz(func(t *testing.T, stream []byte, limit, chunk int, isJSON bool) {
		limit, chunk = 1+max(limit, 0)%64, 1+max(chunk, 0)%64
		how := SplitLines
		if isJSON {
			how = SplitJSON
		}
		records := split(how, limit, inChunks(stream, chunk)...)
		if got := joined(records); !bytes.Equal(got, stream) {
			t.Fatalf("the records are of %q, the stream is %q", got, stream)
		}
		for _, r := range records {
			checkRecord(t, r, limit)
		}
		if whole := split(how, limit, string(stream)); inShort(whole) != inShort(records) {
			t.Fatalf("in chunks of %d: %s; at once: %s", chunk, inShort(records), inShort(whole))
		}
	})
}

func checkRecord(t *testing.T, r Record, limit int) {
	t.Helper()
	if len(r.Value) > limit || bytes.ContainsRune(r.Value, '\n') {
		t.Fatalf("a value of %d bytes with the limit %d: %q", len(r.Value), limit, r.Value)
	}
	if i := bytes.IndexByte(r.Value, '\r'); i >= 0 && i < len(r.Value)-1 {
		t.Fatalf("a carriage return within a record: %q", r.Value)
	}
	if r.Kind == kindData && !json.Valid(r.Value) {
		t.Fatalf("data that is not JSON: %q", r.Value)
	}
}

func inChunks(stream []byte, n int) []string {
	var chunks []string
	for c := range slices.Chunk(stream, n) {
		chunks = append(chunks, string(c))
	}
	return chunks
}
