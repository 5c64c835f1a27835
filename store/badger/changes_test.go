//go:build !race

package badger_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/harpcaller/harp/store"
	harpbadger "github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// change is a change of the manifest that makes tables and deletes others.
func change(made, deleted []uint64) []byte {
	var set []byte
	add := func(id uint64, op byte) {
		one := binary.AppendUvarint([]byte{1 << 3}, id)
		one = append(one, 2<<3, op)
		set = append(append(set, 1<<3|2, byte(len(one))), one...)
	}
	for _, id := range made {
		add(id, 0)
	}
	for _, id := range deleted {
		add(id, 1)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(set)))
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(set, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, set...)
}

// tablesIn are the numbers of the tables in a directory.
func tablesIn(t *testing.T, dir string) (ids []uint64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		id, ok := table.ParseFileID(name)
		if !ok {
			t.Fatal(name)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestMissingTables opens a store whose manifest names tables that are not there. Where all
// that they were made of is there it goes on with that; where it is not, the store is not opened, and no table
// is removed.
func TestMissingTables(t *testing.T) {
	const missing, other = 900_000, 900_001
	type manifest func(title, had []byte, there []uint64) (content, kept []byte)
	appended := func(made ...uint64) manifest {
		return func(_, had []byte, there []uint64) (content, kept []byte) {
			return append(had, change(made, there)...), nil
		}
	}
	for name, try := range map[string]struct {
		manifest
		opens bool
	}{
		"not made":         {appended(missing), true},
		"two not made":     {appended(missing, other), true},
		"nothing was made": {appended(), true},
		"lost": {func(_, had []byte, _ []uint64) (content, kept []byte) {
			return append(had, change([]uint64{missing}, nil)...), nil
		}, false},
		"one lost before": {func(_, had []byte, there []uint64) (content, kept []byte) {
			return slices.Concat(had, change([]uint64{missing}, nil), change([]uint64{other}, there)), nil
		}, false},
		"lost behind it": {func(_, had []byte, there []uint64) (content, kept []byte) {
			return slices.Concat(had, change([]uint64{missing}, there), change([]uint64{other}, nil)), nil
		}, false},
		"not made, made anew": {func(title, had []byte, _ []uint64) (content, kept []byte) {
			return append(title, change([]uint64{missing}, nil)...), had
		}, true},
		"lost, made anew": {func(title, _ []byte, there []uint64) (content, kept []byte) {
			return append(title, change(append(there, missing), nil)...), nil
		}, false},
		"kept, and lost": {func(title, had []byte, _ []uint64) (content, kept []byte) {
			return append(title, change([]uint64{missing}, nil)...), append(had, change([]uint64{other}, nil)...)
		}, false},
		"kept, and out of date": {func(title, had []byte, _ []uint64) (content, kept []byte) {
			return slices.Concat(title, change([]uint64{missing}, nil), change(nil, nil)), had
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			key := []byte("key")
			e := openEngine(t, dir)
			commit(t, e, rows.Write{Key: key, Value: []byte("value")})
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			there := tablesIn(t, dir)
			had := manifestOf(t, dir)
			content, kept := try.manifest(slices.Clip(had[:8]), slices.Clip(had), slices.Clip(there))
			overwrite(t, filepath.Join(dir, badger.ManifestFilename), content)
			if err := os.Remove(filepath.Join(dir, harpbadger.KeptName)); err != nil {
				t.Fatal(err)
			}
			if kept != nil {
				overwrite(t, filepath.Join(dir, harpbadger.KeptName), kept)
			}
			e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{}))
			if err != nil {
				if now := tablesIn(t, dir); try.opens || !slices.Equal(now, there) {
					t.Errorf("%v; of tables %d there are %d", err, there, now)
				}
				return
			}
			defer e.Close()
			if !try.opens {
				t.Error("it was opened")
			}
			snap := view(t, e)
			defer snap.Close()
			if got, err := snap.Get(key); string(got) != "value" || err != nil {
				t.Errorf("the value is %q, %v", got, err)
			}
		})
	}
}

// TestKilledAsItRemovesTables opens a store that was killed as it removed a table that a compaction had
// replaced: badger empties one before that. What was made of it is kept, all the more as what it was made of
// is gone.
func TestKilledAsItRemovesTables(t *testing.T) {
	for name, isAnew := range map[string]bool{"appended": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			key := []byte("key")
			e := openEngine(t, dir)
			commit(t, e, rows.Write{Key: key, Value: []byte("value")})
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			there := tablesIn(t, dir)
			if len(there) != 1 {
				t.Fatal(there)
			}
			replaced, made := table.NewFilename(there[0], dir), there[0]+1
			content, err := os.ReadFile(replaced)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, table.NewFilename(made, dir), content)
			overwrite(t, replaced, nil)
			had := manifestOf(t, dir)
			manifest, kept := slices.Concat(had, change([]uint64{made}, there)), had
			if isAnew {
				manifest = slices.Concat(had[:8], change([]uint64{made}, nil))
			}
			if err := os.Remove(filepath.Join(dir, harpbadger.KeptName)); err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(dir, harpbadger.KeptName), kept)
			overwrite(t, filepath.Join(dir, badger.ManifestFilename), manifest)
			e = openEngine(t, dir)
			defer e.Close()
			snap := view(t, e)
			defer snap.Close()
			if got, err := snap.Get(key); string(got) != "value" || err != nil {
				t.Errorf("the value is %q, %v", got, err)
			}
		})
	}
}

// TestEmptiedTable opens a store of which a table is empty, and another that the manifest does not
// name: what was in the one may be in the other, which is not removed.
func TestEmptiedTable(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	commit(t, e, rows.Write{Key: []byte("key"), Value: []byte("value")})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	there := tablesIn(t, dir)
	overwrite(t, table.NewFilename(900_000, dir), []byte("table"))
	overwrite(t, table.NewFilename(there[0], dir), nil)
	if e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{})); err == nil {
		t.Error("it is opened", e.Close())
	} else if !errors.Is(err, store.ErrDamaged) {
		t.Errorf("opening: %v, want ErrDamaged", err)
	}
	if now := tablesIn(t, dir); len(now) != 2 {
		t.Errorf("there are tables %d", now)
	}
}
