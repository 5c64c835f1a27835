package badger

import (
	"bytes"
	"testing"
)

// FuzzLog looks at what may be left of a log: where it ends, the next entry, and where it is cut off, are in it.
func FuzzLog(f *testing.F) {
	f.Add([]byte{}, 0, uint64(0))
	f.Add(append(make([]byte, vlogHeader), 0, 0, 9, 1, 0, 'k', 0, 0, 0, 0, 0, 0, 0, 1, 'v', 1, 2, 3, 4), 3, uint64(1))
	f.Fuzz(func(t *testing.T, content []byte, at int, committed uint64) {
		if len(content) > vlogHeader {
			if end, _ := lastEntry(content, committed); end < 0 || end > len(content) {
				t.Errorf("%d bytes end at %d", len(content), end)
			}
			if at, _, err := findUnwritten("none", content, 0); err != nil || at != 0 && at < vlogHeader || at >= len(content) {
				t.Errorf("what was never written begins at %d of %d bytes, %v", at, len(content), err)
			}
		}
		if at < 0 || at >= len(content) {
			return
		}
		if next, ok := nextEntry(content, at, longestInMem); ok && (next <= at || next > len(content)) {
			t.Errorf("behind %d the next entry is at %d of %d", at, next, len(content))
		}
		if e, ok := parseEntry(content[at:]); ok && !bytes.Contains(content, e.value) {
			t.Errorf("%+v is not in it", e)
		}
	})
}
