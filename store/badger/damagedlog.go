package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// A log ends for badger at the first entry that it cannot read: it takes that for one that was
// being written as the power failed, cuts the log off there, and says nothing. Where the entry was changed on the
// disk that deletes all that was stored behind it. So harp looks at the logs before badger does.

// checkLogs looks for damage in the logs of a directory. Of a memory table's log with entries behind an
// unreadable one that were written after that was synced, the store is not to be opened. A value log is
// kept from being cut off: each of its values is found without those before it. Errors:
// store.ErrDamaged, the system's.
func checkLogs(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+filepath.Ext(memFormat)))
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := mapLog(name)
		if err != nil || content == nil {
			if err != nil {
				return err
			}
			continue
		}
		damaged := isDamagedMem(content)
		z.Munmap(content) //nolint:errcheck // nothing was written
		if damaged {
			return fmt.Errorf("store/badger: %w: log %s: an entry, behind which others were synced", store.ErrDamaged, name)
		}
	}
	return keepDamagedLog(dir)
}

// keepDamagedLog makes another file of the value log behind the newest where that has whole entries
// behind one that cannot be read: badger cuts the newest off alone.
func keepDamagedLog(dir string) error {
	newest := logAhead{dir: dir, format: vlogFormat}
	if err := newest.findLogs(); err != nil || newest.file == nil {
		return err
	}
	defer newest.close()
	content, err := mapLog(newest.file.Name())
	if err != nil || content == nil {
		return err
	}
	end, damaged := lastEntry(content)
	z.Munmap(content) //nolint:errcheck // nothing was written
	if !damaged {
		return nil
	}
	if err := errors.Join(newest.file.Truncate(int64(end)), newest.file.Sync()); err != nil {
		return err
	}
	next := newest.name(newest.number + 1)
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, vlogHeader)) // without a key
	return errors.Join(err, f.Sync(), f.Close(), syncDir(dir))
}

// mapLog maps a log up to where there are only zeros; nil if nothing can be in it. What was never written is
// not mapped: on some file systems that takes blocks.
func mapLog(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	end, err := writtenEnd(f)
	if err != nil || end <= vlogHeader {
		return nil, err
	}
	content, err := z.Mmap(f, false, end)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: name, Err: err}
	}
	return content, nil
}

// writtenEnd is where the last entry of a log ends at most: a checksum may end with zeros.
func writtenEnd(f *os.File) (end int64, err error) {
	chunk, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := f.ReadAt(chunk, at)
		if !bytes.Equal(chunk[:n], zeros[:n]) {
			end = at + int64(len(bytes.TrimRight(chunk[:n], "\x00")))
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return min(end+crc32.Size, at), nil
		case err != nil:
			return 0, err
		}
	}
}

// The flags of an entry that belongs to a transaction, and of the one that ends it.
const (
	flagTxn    = 1 << 6
	flagEndTxn = 1 << 7
)

// logEntry is an entry of a log.
type logEntry struct {
	flags byte
	value []byte
	size  int // bytes that it takes
}

// parseEntry reads an entry; false if it is none that is whole.
func parseEntry(b []byte) (e logEntry, ok bool) {
	const least = 5 // bytes of a header
	if len(b) < least || b[1] != 0 {
		return e, false
	}
	at := 2
	var lengths [3]uint64
	for n := range lengths {
		length, size := binary.Uvarint(b[at:min(len(b), at+binary.MaxVarintLen64)])
		if size <= 0 {
			return e, false
		}
		lengths[n], at = length, at+size
	}
	key, value, expires := lengths[0], lengths[1], lengths[2]
	if key == 0 || key > vlogKeyMost || value > rows.MaxCommit || expires != 0 || uint64(len(b)-at) < key+value+crc32.Size {
		return e, false
	}
	end := at + int(key+value)
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return e, false
	}
	return logEntry{b[0], b[end-int(value) : end], end + crc32.Size}, true
}

// longestSought is how long an entry is at most that is looked for: none of rows' is longer.
const longestSought = 128 << 10

// nextEntry is where the next entry behind one that cannot be read begins; false if there is none.
func nextEntry(content []byte, at int) (int, bool) {
	for at++; at < len(content); at++ {
		if _, ok := parseEntry(content[at:min(len(content), at+longestSought)]); ok {
			return at, true
		}
	}
	return 0, false
}

// lastEntry is where the last whole entry of a log ends, and whether there is one before it that cannot
// be read.
func lastEntry(content []byte) (end int, damaged bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the disk cannot read it: badger will say so
			damaged = false
		}
	}()
	end = vlogHeader
	for at := end; ; {
		if e, ok := parseEntry(content[at:]); ok {
			at += e.size
			end = at
			continue
		}
		next, ok := nextEntry(content, at)
		if !ok {
			return end, damaged
		}
		at, damaged = next, true
	}
}

// isDamagedMem reports whether the log of a memory table has an entry that cannot be read and was synced: one
// before the last transaction. Each is synced before the next is written, and has a version of one more.
func isDamagedMem(content []byte) (is bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			is = true
		}
	}()
	var before, behind uint64 // versions of the last transactions before and behind what cannot be read
	for at, damaged := vlogHeader, false; ; {
		e, ok := parseEntry(content[at:])
		if !ok {
			if at, ok = nextEntry(content, at); !ok {
				return false
			}
			damaged = true
			continue
		}
		at += e.size
		if e.flags&flagEndTxn == 0 {
			continue
		}
		version, err := strconv.ParseUint(string(e.value), 10, 64)
		switch {
		case err != nil:
			return true
		case !damaged:
			before = version
		case behind > 0 && behind != version, before > 0 && version > before+1:
			return true
		default:
			behind = version
		}
	}
}
