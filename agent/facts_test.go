package agent

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What os-release says is read with and without quotes.
func TestReadRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "os-release")
	text := "# a comment\nID=debian\nVERSION_ID=\"12\"\nNAME='Debian GNU/Linux'\nEMPTY=\n\nnothing\nQUOTE=\"\nURL=\"https://x/?a=b\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"ID": "debian", "VERSION_ID": "12", "NAME": "Debian GNU/Linux", "EMPTY": "", "QUOTE": `"`, "URL": "https://x/?a=b"}
	if got := readRelease(path); !maps.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	if got := readRelease(path + " that is not there"); len(got) != 0 {
		t.Errorf("of no file %q", got)
	}
}

// The addresses of a machine are those by which others may reach it.
func TestGlobalAddresses(t *testing.T) {
	got := globalAddresses()
	for _, text := range got {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
			t.Errorf("%s is among the addresses, %v", text, err)
		}
	}
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) {
		t.Errorf("twice in %v", got)
	}
}

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
