package badger

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// ballastName is the file that keeps space for what must be written.
const ballastName = "BALLAST"

// ballast is a file that takes blocks of the disk.
type ballast struct {
	name string
	size uint64 // bytes that it takes
}

func findBallast(dir string) ballast {
	b := ballast{name: filepath.Join(dir, ballastName)}
	if n, err := blocks(b.name); err == nil && n > 0 {
		b.size = uint64(n)
	}
	return b
}

// shrink gives so many bytes back, or all that there are.
func (b *ballast) shrink(size uint64) error {
	left := b.size - min(b.size, size)
	if left == 0 {
		return b.drop()
	}
	if err := os.Truncate(b.name, int64(left)); err != nil {
		return err
	}
	b.size = left
	return nil
}

// drop gives all back.
func (b *ballast) drop() error {
	if err := os.Remove(b.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	b.size = 0
	return nil
}

// grow makes it take so many bytes. If it cannot be made as large it keeps what it has.
func (b *ballast) grow(size uint64) error {
	f, err := os.OpenFile(b.name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	had := int64(b.size)
	if err = allocate(f, 0, int64(size)); err == nil {
		err = f.Truncate(int64(size))
	} else if errors.Is(err, errors.ErrUnsupported) {
		err = fill(f, had, int64(size))
	}
	if err != nil {
		return errors.Join(err, f.Truncate(had), f.Close())
	}
	b.size = size
	return f.Close()
}

// fill writes what no file system makes smaller from one offset to another.
func fill(f *os.File, from, to int64) error {
	var seed [32]byte
	noise := rand.NewChaCha8(seed)
	buf := make([]byte, 256<<10)
	for from < to {
		noise.Read(buf) //nolint:errcheck // always nil
		n, err := f.WriteAt(buf[:min(int64(len(buf)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return f.Sync()
}

// logs are those of badger's memory tables.
type logs struct{ largest, all uint64 }

// logSizes is how many bytes of disk the logs take. What is in one becomes a table when
// it is full or the store is opened again.
func logSizes(dir string) (l logs, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if !isMade(name) {
			continue // it waits to be the next
		}
		n, err := blocks(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it became one just now
		}
		if err != nil {
			return l, err
		}
		l.largest, l.all = max(l.largest, uint64(n)), l.all+uint64(n)
	}
	return l, nil
}
