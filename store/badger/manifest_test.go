//go:build linux

package badger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

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
