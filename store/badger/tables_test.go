//go:build !race

package badger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// TestDamage flips bits in the table of a closed store: all of what is read of it as it is
// opened, which is its end and that of its last block, and some of the others. Each is
// refused as damage.
func TestDamage(t *testing.T) {
	dir, want := t.TempDir(), map[string]*store.Job{}
	name, whole := makeTable(t, dir, want)
	flip := func(bit int) {
		defer flipBit(t, name, whole, bit)()
		if _, err := badger.Open(dir, quiet(badger.Options{})); !errors.Is(err, store.ErrDamaged) {
			t.Fatalf("bit %d of byte %d of %d is another: %v, want ErrDamaged", bit%8, bit/8, len(whole), err)
		}
	}
	const end = 200 // bytes; before them are the offsets of entries, or what is in the index
	for _, last := range []int{indexStart(whole), len(whole)} {
		for bit := 8 * (last - end); bit < 8*last; bit++ {
			flip(bit)
		}
	}
	for bit := 0; bit < 8*len(whole); bit += 101 {
		flip(bit)
	}
	compare(t, open(t, dir, badger.Options{}), want)
}

// TestDamageUnverified flips bits in a table that is not verified. What keeps badger from
// opening it is damage, and nothing panics.
func TestDamageUnverified(t *testing.T) {
	name, whole := makeTable(t, t.TempDir(), map[string]*store.Job{})
	flip := func(bit int) error {
		defer flipBit(t, name, whole, bit)()
		return badger.CheckTable(name, false)
	}
	index := indexStart(whole)
	for bit := 8 * index; bit < 8*len(whole); bit++ {
		if err := flip(bit); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("bit %d of byte %d, the index is at %d: %v, want ErrDamaged", bit%8, bit/8, index, err)
		}
	}
	count := index - 4
	count -= int(binary.BigEndian.Uint32(whole[count:])) + 4
	for bit := range 8 { // more entries than bytes
		if err := flip(8*count + bit); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("bit %d of how many entries the last block has: %v, want ErrDamaged", bit, err)
		}
	}
	for bit := 8 * (count - 200); bit < 8*index; bit++ {
		if err := flip(bit); err != nil && !errors.Is(err, store.ErrDamaged) {
			t.Errorf("bit %d of byte %d: %v, want ErrDamaged or nil", bit%8, bit/8, err)
		}
	}
	for _, content := range [][]byte{nil, make([]byte, 4096), append(bytes.Clone(whole), make([]byte, 4096)...), whole[:len(whole)-1]} {
		overwrite(t, name, content)
		if err := badger.CheckTable(name, false); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%d bytes of %d: %v, want ErrDamaged", len(content), len(whole), err)
		}
	}
	overwrite(t, name, whole)
	if err := badger.CheckTable(name, false); err != nil {
		t.Error(err)
	}
}

// TestTableThatTheDiskCannotRead maps more of a table than there is: reading that is a fault, as
// where the disk answers with an error.
func TestTableThatTheDiskCannotRead(t *testing.T) {
	name, whole := makeTable(t, t.TempDir(), map[string]*store.Job{})
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := z.Mmap(f, false, int64(len(whole)+2*os.Getpagesize()))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Munmap(content) //nolint:errcheck // nothing was written
	if err := badger.CheckTableContent(1, content, true); err == nil {
		t.Error("what cannot be read is taken for whole")
	}
	if err := badger.CheckTableContent(1, content[:len(whole)], true); err != nil {
		t.Error(err)
	}
}

// makeTable makes a store in a directory and closes it. It returns its only table.
func makeTable(t *testing.T, dir string, jobs map[string]*store.Job) (name string, content []byte) {
	t.Helper()
	st := open(t, dir, badger.Options{})
	st.SetGate("h", store.Gate{Open: true, Most: 1000})
	for range 50 {
		j := submit(t, st, "h")
		jobs[j.ID] = j
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %d tables in %s, want one", err, len(files), dir)
	}
	content, err = os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return files[0], content
}

// indexStart is where the last block of a table ends and its index begins. Behind that are
// its length, a checksum and the length of that.
func indexStart(table []byte) int {
	at := len(table) - 4
	at -= int(binary.BigEndian.Uint32(table[at:])) + 4
	return at - int(binary.BigEndian.Uint32(table[at:]))
}
