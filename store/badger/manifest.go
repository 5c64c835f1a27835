package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/harpcaller/harp/store"
)

// The manifest names the tables of a store. Behind eight bytes it is sets of changes: four bytes
// of length, the CRC-32C of the set, the set.

// tablesIn are the tables that a manifest names, and those of them that are not there. Errors:
// store.ErrDamaged, the system's, and badger's, of a manifest that it does not take.
func tablesIn(dir, manifest string) (named map[uint64]badger.TableManifest, missing []uint64, err error) {
	f, err := os.Open(filepath.Join(dir, manifest))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	all, end, err := badger.ReplayManifestFile(f, magic, badger.DefaultOptions(dir).WithLogger(nil))
	if err == nil {
		err = checkCutOff(f, end)
	}
	if err != nil {
		return nil, nil, err
	}
	for id := range all.Tables {
		_, err := os.Stat(table.NewFilename(id, dir))
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, id)
		case err != nil:
			return nil, nil, err
		}
	}
	return all.Tables, missing, nil
}

// removeOrphans removes tables that a kill has left behind half made: those that the
// manifest does not name. Where others that it names are missing all stay: what was in those may
// be in these. Errors: store.ErrDamaged, the system's.
func removeOrphans(dir string, files []os.DirEntry) error {
	named, missing, err := tablesIn(dir, badger.ManifestFilename)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return checkNew(dir, files)
	case errors.Is(err, store.ErrDamaged):
		return err
	case err != nil, len(missing) > 0:
		return nil //nolint:nilerr // opening will say so
	}
	for _, f := range files {
		id, ok := table.ParseFileID(f.Name())
		if _, known := named[id]; known || !ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// checkNew returns store.ErrDamaged if there is anything but a manifest of a database, which
// makes that first. Badger would make another and remove all tables.
func checkNew(dir string, files []os.DirEntry) error {
	for _, f := range files {
		if !slices.Contains([]string{".sst", ".mem", ".vlog"}, filepath.Ext(f.Name())) {
			continue
		}
		if info, err := f.Info(); err != nil || info.Size() > 0 {
			return errors.Join(err, fmt.Errorf("store/badger: %w: %s is gone, and %s is there", store.ErrDamaged, filepath.Join(dir, badger.ManifestFilename), f.Name()))
		}
	}
	return nil
}

// checkCutOff looks at what badger will cut off from a manifest, as a set of changes that was
// written in part. One that is whole has a damaged length: then badger would cut off all that
// is behind it, too, and remove the tables that only that names. Errors: store.ErrDamaged,
// the system's.
func checkCutOff(f *os.File, from int64) error {
	const header = 4 + crc32.Size
	rest, err := io.ReadAll(io.NewSectionReader(f, from, math.MaxInt64-from))
	if err != nil || len(rest) < header {
		return err
	}
	want, sum := binary.BigEndian.Uint32(rest[4:]), uint32(0)
	for n := header; n < len(rest); n++ {
		if sum = crc32.Update(sum, castagnoli, rest[n:n+1]); sum == want {
			return fmt.Errorf("store/badger: %w: a length in %s", store.ErrDamaged, f.Name())
		}
	}
	return nil
}
