package synced

import (
	"os"
	"runtime"
)

// Dir puts on disk which files a directory has, so that one that was made, renamed or removed
// in it stays so.
func Dir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // where a directory cannot be synced, and need not be
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
