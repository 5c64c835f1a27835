package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// A fact is the number behind its own word, and is left out where there is none.
func TestNumberIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "facts")
	if err := os.WriteFile(path, []byte("first 1 2\nalone\n\nMemFree: 3 kB\nMem: 4 kB\ntext x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]int64{"first": 1, "MemFree:": 3, "Mem:": 4} {
		if n, is := numberIn(path, word); n != want || !is {
			t.Errorf("behind %q is %d, %v", word, n, is)
		}
	}
	for _, word := range []string{"1", "alone", "text", "kB", "absent"} {
		if n, is := numberIn(path, word); is {
			t.Errorf("behind %q is %d", word, n)
		}
	}
	if _, is := numberIn(path+" that is not there", "first"); is {
		t.Error("there is a number in no file")
	}
}
