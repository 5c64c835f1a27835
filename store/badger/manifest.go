package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"google.golang.org/protobuf/proto"

	"github.com/harpcaller/harp/store"
)

// The manifest names the tables of a store. Behind its title it is changes, each of several
// tables at a time: four bytes of length, the CRC-32C of the change, the change.
const (
	manifestTitle = 8
	changeHeader  = 4 + crc32.Size
)

// behindTitle is the changes in a manifest.
func behindTitle(content []byte) []byte { return content[min(manifestTitle, len(content)):] }

// splitChanges splits changes, up to where one is not whole.
func splitChanges(content []byte) (changes [][]byte, rest []byte) {
	for len(content) >= changeHeader {
		size := changeHeader + uint64(binary.BigEndian.Uint32(content))
		if size > uint64(len(content)) || crc32.Checksum(content[changeHeader:size], castagnoli) != binary.BigEndian.Uint32(content[4:]) {
			break
		}
		changes, content = append(changes, content[:size]), content[size:]
	}
	return changes, content
}

// levels says of tables on which level they are.
type levels map[uint64]uint32

// levelsOf is what changes make.
func levelsOf(changes [][]byte) (levels, error) {
	l := levels{}
	return l, l.applyChanges(changes)
}

func (l levels) applyChanges(changes [][]byte) error {
	for _, change := range changes {
		var of pb.ManifestChangeSet
		if err := proto.Unmarshal(change[changeHeader:], &of); err != nil {
			return fmt.Errorf("store/badger: a change of the manifest: %w", err)
		}
		for _, c := range of.Changes {
			if c.Op == pb.ManifestChange_DELETE {
				delete(l, c.Id)
			} else {
				l[c.Id] = c.Level
			}
		}
	}
	return nil
}

// without is the tables that others are not.
func (l levels) without(others levels) levels {
	rest := maps.Clone(l)
	maps.DeleteFunc(rest, func(id uint64, _ uint32) bool { _, is := others[id]; return is })
	return rest
}

// below is the tables on levels below all of others.
func (l levels) below(others levels) levels {
	lowest := slices.Max(slices.Collect(maps.Values(others)))
	rest := maps.Clone(l)
	maps.DeleteFunc(rest, func(_ uint64, level uint32) bool { return level <= lowest })
	return rest
}

// areIn reports whether all tables are there. One that is empty is about to be removed.
func (l levels) areIn(dir string) bool {
	for id := range l {
		if !isMade(table.NewFilename(id, dir)) {
			return false
		}
	}
	return true
}

// tablesIn are the tables that a manifest names, and those of them that are not there, or empty. Errors:
// store.ErrDamaged, the system's, and badger's, of a manifest that it does not take.
func tablesIn(dir string) (named map[uint64]badger.TableManifest, missing []uint64, err error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
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
		info, err := os.Stat(table.NewFilename(id, dir))
		switch {
		case errors.Is(err, os.ErrNotExist), err == nil && info.Size() == 0:
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
	named, missing, err := tablesIn(dir)
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
	rest, err := io.ReadAll(io.NewSectionReader(f, from, math.MaxInt64-from))
	if err != nil || len(rest) < changeHeader {
		return err
	}
	want, sum := binary.BigEndian.Uint32(rest[4:]), uint32(0)
	for n := changeHeader; n < len(rest); n++ {
		if sum = crc32.Update(sum, castagnoli, rest[n:n+1]); sum == want {
			return fmt.Errorf("store/badger: %w: a length in %s", store.ErrDamaged, f.Name())
		}
	}
	return nil
}
