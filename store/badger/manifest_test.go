//go:build linux && !race

package badger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/store"
	harpbadger "github.com/harpcaller/harp/store/badger"
)

// TestManifestHasBlocksAhead looks whether the manifest can be appended to on a disk
// that another has filled: with an entry that was written in part before others badger does not
// open.
func TestManifestHasBlocksAhead(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, harpbadger.Options{})
	defer st.Close()
	name := filepath.Join(dir, badger.ManifestFilename)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := harpbadger.Blocks(name); err != nil || n < info.Size()+32<<10 {
		t.Errorf("the manifest of %d bytes has blocks for %d: %v", info.Size(), n, err)
	}
}

// TestLengthOfTheLastChange damages the length of the last change of a manifest, behind which nothing is: by what is
// before it the store would open, without what that change says. One that is there in part was being written.
func TestLengthOfTheLastChange(t *testing.T) {
	name := filepath.Join(t.TempDir(), badger.ManifestFilename)
	const before = 5
	for _, content := range [][]byte{[]byte("x"), []byte("table 17 is of level 1"), bytes.Repeat([]byte("many tables "), 1000)} {
		change := binary.BigEndian.AppendUint32(nil, uint32(len(content)+256))
		change = binary.BigEndian.AppendUint32(change, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
		change = append(change, content...)
		flipped := bytes.Clone(change)
		flipped[len(flipped)-1] ^= 1
		for what, try := range map[string]struct {
			rest    []byte
			damaged bool
		}{
			"whole": {change, true}, "with others behind it": {append(bytes.Clone(change), change...), true}, "without its last byte": {change[:len(change)-1], false},
			"with another last byte": {flipped, false}, "without content": {change[:8], false}, "the half of its head": {change[:4], false}, "nothing of it": {nil, false},
		} {
			overwrite(t, name, append(make([]byte, before), try.rest...))
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := harpbadger.CheckCutOff(f, before); errors.Is(err, store.ErrDamaged) != try.damaged || err != nil && !try.damaged {
				t.Errorf("a change of %d bytes, %s: %v", len(content), what, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDamagedManifest flips the bits of a manifest one by one, cuts it off, and removes it. The
// store is refused, and no table of it is taken for one that no manifest names, and removed.
func TestDamagedManifest(t *testing.T) {
	dir := t.TempDir()
	makeTable(t, dir, map[string]*store.Job{})
	for range 2 { // several changes behind each other
		st := open(t, dir, harpbadger.Options{})
		submit(t, st, "h")
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, badger.ManifestFilename)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	refuse := func(what string) error {
		t.Helper()
		_, err := harpbadger.Open(dir, quiet(harpbadger.Options{}))
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Fatalf("%s: %v, want an error that names the directory", what, err)
		}
		if left, globErr := filepath.Glob(filepath.Join(dir, "*.sst")); globErr != nil || !slices.Equal(left, tables) {
			t.Fatalf("%s: %v, and of the tables %v there are %v", what, err, tables, left)
		}
		return err
	}
	for bit := range 8 * len(whole) {
		undo := flipBit(t, name, whole, bit)
		if err := refuse(fmt.Sprintf("bit %d of byte %d of %d", bit%8, bit/8, len(whole))); errors.Is(err, harpbadger.ErrInUse) {
			t.Error(err)
		}
		undo()
	}
	named := 8 + 8 + 8 + int(binary.BigEndian.Uint32(whole[16:])) // magic, no change, the first table
	for length := named; length < len(whole); length += 9 {
		overwrite(t, name, whole[:length])
		if err := refuse(fmt.Sprintf("%d bytes of %d", length, len(whole))); errors.Is(err, harpbadger.ErrInUse) {
			t.Error(err)
		}
	}
	overwrite(t, name, whole)
	if err := os.Rename(name, name+".away"); err != nil {
		t.Fatal(err)
	}
	if err := refuse("no manifest"); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("no manifest: %v, want ErrDamaged", err)
	}
	if err := os.Rename(name+".away", name); err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{{0}, whole[8:15], whole[8:17]} { // of a change that a power cut left
		overwrite(t, name, append(bytes.Clone(whole), part...))
		if err := open(t, dir, harpbadger.Options{}).Close(); err != nil {
			t.Error(err)
		}
	}
}
