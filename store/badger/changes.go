package badger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	_ "unsafe" // for linkname

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/internal/synced"
)

// Badger appends each change of its tables to the manifest, syncs that, and only then removes the
// tables that the change replaces. So harp looks at the change when the manifest is to be synced:
// a compaction drops each table that it cannot make, without an error. If the sync fails, or harp
// does not accept the change, badger keeps the tables that were to be replaced, and goes on with the
// change in its manifest: harp takes it back, and the store fails.

// syncManifest is the function by which badger syncs the manifest, and no other file.
//
//go:linkname syncManifest github.com/dgraph-io/badger/v4.syncFunc
var syncManifest func(*os.File) error

// manifests are those of open databases, by the names of their files.
var manifests sync.Map

func init() {
	others := syncManifest
	syncManifest = func(f *os.File) error {
		if m, ok := manifests.Load(f.Name()); ok {
			return m.(*manifest).sync(f)
		}
		return others(f)
	}
}

// keptName is a second name of the manifest. After some thousand changes badger makes the manifest
// anew, with the next change in it: by this name the old one is there until the change is accepted.
const keptName = "MANIFEST-KEPT"

// manifest is that of an open database. Badger makes one change of it at a time.
type manifest struct {
	dir  string
	fail func(error)

	discard atomic.Uint64 // what was deleted up to this version may be left out

	file   os.FileInfo // of the manifest with all changes that were accepted; nil before the first of a new database
	end    int64       // of the last of them
	levels levels      // after them
}

// watchManifest looks at each change of the manifest of a database that is about to be opened.
// fail is told why one is not accepted. Errors: ErrInUse, the system's.
func watchManifest(dir string, fail func(error)) (*manifest, error) {
	m := &manifest{dir: dir, fail: fail, end: manifestTitle + changeHeader, levels: levels{}}
	if _, used := manifests.LoadOrStore(m.name(), m); used { // before it is read: who has it may change it until it is left
		return nil, ErrInUse
	}
	if err := m.read(); err != nil {
		m.leave()
		return nil, err
	}
	if m.file != nil {
		m.keepCopy()
	}
	return m, nil
}

// read reads the changes that there are.
func (m *manifest) read() error {
	content, err := os.ReadFile(m.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	changes, rest := splitChanges(behindTitle(content))
	if m.levels, err = levelsOf(changes); err != nil {
		return err
	}
	m.end = int64(len(content) - len(rest)) // badger cuts off the rest
	m.file, err = os.Stat(m.name())
	return err
}

func (m *manifest) name() string { return filepath.Join(m.dir, badger.ManifestFilename) }

// leave looks at no more changes.
func (m *manifest) leave() { manifests.CompareAndDelete(m.name(), m) }

// sync syncs the manifest with a new change. One that is not accepted is taken back.
func (m *manifest) sync(f *os.File) error {
	err := m.accept(f)
	if err != nil {
		err = errors.Join(err, m.takeBack(f))
		m.fail(err)
	}
	return err
}

// accept syncs a change that is good.
func (m *manifest) accept(f *os.File) error {
	file, err := f.Stat()
	if err != nil {
		return err
	}
	from, now := m.end, maps.Clone(m.levels)
	if m.isOther(file) { // all is in one change
		from, now = manifestTitle, levels{}
	}
	content := make([]byte, max(0, file.Size()-from))
	if _, err := f.ReadAt(content, from); err != nil {
		return err
	}
	changes, rest := splitChanges(content)
	if len(rest) > 0 {
		return fmt.Errorf("store/badger: %s: a change was written in part", f.Name())
	}
	if err := now.applyChanges(changes); err != nil {
		return err
	}
	if err := m.checkMerge(now); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	m.file, m.end, m.levels = file, file.Size(), now
	m.keepCopy()
	return nil
}

// isOther reports whether a file is another than the manifest was with the last change.
func (m *manifest) isOther(file os.FileInfo) bool { return m.file != nil && !os.SameFile(file, m.file) }

// takeBack makes the manifest what it was before a change. Where badger has made it anew there can
// be no further change: in memory badger has the one that was taken back, and would write it again.
func (m *manifest) takeBack(f *os.File) error {
	file, err := f.Stat()
	if err != nil {
		return err
	}
	if !m.isOther(file) {
		_, err = f.Seek(m.end, io.SeekStart)
		return errors.Join(err, f.Truncate(m.end))
	}
	if err := f.Close(); err != nil {
		return err
	}
	kept := filepath.Join(m.dir, keptName)
	if file, err = os.Stat(kept); err != nil {
		return err
	}
	if m.isOther(file) {
		return fmt.Errorf("store/badger: %s is none that was accepted", kept)
	}
	return putBack(m.dir)
}

// keepCopy gives the manifest its second name. Where that fails it is tried again at the next change.
func (m *manifest) keepCopy() {
	kept := filepath.Join(m.dir, keptName)
	if file, err := os.Stat(kept); err == nil && os.SameFile(file, m.file) {
		return
	}
	os.Remove(kept)         //nolint:errcheck // there may be none
	os.Link(m.name(), kept) //nolint:errcheck // not every file system can
}

// putBack puts the manifest that was kept in the place of the one that there is.
func putBack(dir string) error {
	if err := os.Rename(filepath.Join(dir, keptName), filepath.Join(dir, badger.ManifestFilename)); err != nil {
		return err
	}
	return synced.Dir(dir)
}

// takeBackLast takes the last change of a manifest back if all tables that it replaces are there:
// the process may have been killed before it looked at it. If it had accepted the change the
// compaction is done again.
func takeBackLast(dir string) error {
	name := filepath.Join(dir, badger.ManifestFilename)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	changes, rest := splitChanges(behindTitle(content))
	if len(changes) == 0 || len(rest) > 0 {
		return nil // another change had begun behind the last
	}
	if len(changes) == 1 {
		return takeBackOther(dir, content)
	}
	last := len(changes) - 1
	before, err := levelsOf(changes[:last])
	if err != nil {
		return err
	}
	after, err := levelsOf(changes)
	if err != nil {
		return err
	}
	if len(before.without(after)) == 0 || !before.areIn(dir) {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(len(content) - len(changes[last])))
	return errors.Join(err, f.Sync(), f.Close())
}

// takeBackOther is takeBackLast of a manifest that badger has made anew, with all in one change.
func takeBackOther(dir string, content []byte) error {
	kept, err := os.ReadFile(filepath.Join(dir, keptName))
	if errors.Is(err, fs.ErrNotExist) || bytes.Equal(kept, content) {
		return nil
	}
	if err != nil {
		return err
	}
	changes, _ := splitChanges(behindTitle(kept))
	before, err := levelsOf(changes)
	if err != nil || len(before) == 0 || !before.areIn(dir) {
		return err
	}
	return putBack(dir)
}
