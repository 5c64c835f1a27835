package badger

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// ballastName is the file that keeps space for cancels and deletes.
const ballastName = "BALLAST"

// ballast is a file that takes blocks of the disk.
type ballast struct {
	name string
	held bool // it is there
}

func findBallast(dir string) ballast {
	b := ballast{name: filepath.Join(dir, ballastName)}
	info, err := os.Stat(b.name)
	b.held = err == nil && info.Size() > 0
	return b
}

// drop gives the blocks back.
func (b *ballast) drop() error {
	if err := os.Remove(b.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	b.held = false
	return nil
}

// make takes so many bytes of blocks. A file that could not be made whole does not
// stay.
func (b *ballast) make(size uint64) error {
	f, err := os.OpenFile(b.name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = allocate(f, int64(size)); err != nil {
		err = fill(f, int64(size))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, b.drop())
	}
	b.held = true
	return nil
}

// fill writes what no file system makes smaller.
func fill(f *os.File, size int64) error {
	var seed [32]byte
	noise := rand.NewChaCha8(seed)
	buf := make([]byte, 256<<10)
	for size > 0 {
		noise.Read(buf) //nolint:errcheck // always nil
		n, err := f.Write(buf[:min(int64(len(buf)), size)])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return f.Sync()
}

// replaySize is how many bytes opening the store may write at once: what is in the
// logs of its memory tables becomes tables.
func replaySize(dir string) (uint64, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, name := range logs {
		n, err := blocks(name)
		if err != nil {
			return 0, err
		}
		sum += uint64(n)
	}
	return sum, nil
}
