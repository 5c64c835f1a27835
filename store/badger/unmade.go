package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"
)

// Badger appends each change of its tables to the manifest and syncs that. Where the sync fails
// it removes the tables that the change has made, keeps those that the change was to delete, and
// goes on, with the change in the manifest: a database that names tables that are not there is
// not opened any more. So the store fails then, and such tables are written down in a file, by
// which opening takes their changes out of the manifest.

// unmadeName is the file with the numbers of tables that the manifest names and that were not
// made, a line each.
const unmadeName = "UNMADE"

// isOfManifest reports whether an error is about the manifest.
func isOfManifest(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	return errors.As(err, &path) && isManifest(path.Path) || errors.As(err, &link) && isManifest(link.New)
}

func isManifest(name string) bool {
	return strings.HasPrefix(filepath.Base(name), badger.ManifestFilename)
}

// noteUnmade writes down which tables the manifest names for nothing.
func noteUnmade(dir string) error {
	_, missing, err := tablesIn(dir, badger.ManifestFilename)
	if err != nil {
		return err
	}
	var list []byte
	for _, id := range missing {
		list = fmt.Appendln(list, id)
	}
	return replaceFile(filepath.Join(dir, unmadeName), list)
}

// replaceFile writes a file in place of the one that there is, whole or not at all.
func replaceFile(name string, content []byte) error {
	f, err := os.OpenFile(name+"-NEW", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// mendManifest takes the changes out of the manifest that were to make tables which were
// not made. Where tables are missing without those changes, too, all stays as it is.
func mendManifest(dir string) error {
	list := filepath.Join(dir, unmadeName)
	content, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	unmade := map[uint64]bool{}
	for _, line := range strings.Fields(string(content)) {
		id, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			return fmt.Errorf("store/badger: %s: %w", list, err)
		}
		unmade[id] = true
	}
	_, missing, err := tablesIn(dir, badger.ManifestFilename)
	if err != nil {
		return nil //nolint:nilerr // what looks at it next will say so
	}
	missing = slices.DeleteFunc(missing, func(id uint64) bool { return !unmade[id] })
	if len(missing) > 0 {
		if mended, err := dropChanges(dir, missing); err != nil || !mended {
			return err // opening says which tables are missing
		}
	}
	return os.Remove(list)
}

const (
	manifestTitle  = 8 // bytes at the beginning of a manifest
	manifestHeader = 8 // bytes before a change: its length in four, and its checksum

	// trialName is a manifest that is read to see what is in it.
	trialName = "MANIFEST-TRIAL"
)

// dropChanges makes the manifest anew without the changes that make these tables. It is false
// if others would be missing then.
func dropChanges(dir string, unmade []uint64) (bool, error) {
	name, trial := filepath.Join(dir, badger.ManifestFilename), filepath.Join(dir, trialName)
	content, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	defer os.Remove(trial) //nolint:errcheck // another overwrites it
	title, rest := slices.Clip(content[:manifestTitle]), content[manifestTitle:]
	mended := title
	for {
		var change []byte
		if change, rest = cutChange(rest); change == nil {
			break // what is left is cut short: badger leaves it out, too
		}
		if err := os.WriteFile(trial, slices.Concat(title, change), 0o600); err != nil {
			return false, err
		}
		made, gone, err := tablesIn(dir, trialName)
		switch {
		case err != nil:
			return false, err
		case !slices.ContainsFunc(unmade, func(id uint64) bool { _, ok := made[id]; return ok }):
			mended = append(mended, change...)
		case len(made) > len(gone):
			return false, nil // badger has made the manifest anew, with all that it names in one change
		}
	}
	if err := os.WriteFile(trial, mended, 0o600); err != nil {
		return false, err
	}
	if _, missing, err := tablesIn(dir, trialName); err != nil || len(missing) > 0 {
		return false, err
	}
	return true, replaceFile(name, mended)
}

// cutChange cuts the first change off; nil if there is none.
func cutChange(changes []byte) (change, rest []byte) {
	if len(changes) < manifestHeader {
		return nil, nil
	}
	size := manifestHeader + uint64(binary.BigEndian.Uint32(changes))
	if size > uint64(len(changes)) {
		return nil, nil
	}
	return changes[:size], changes[size:]
}
