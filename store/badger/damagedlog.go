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
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/synced"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// A log ends for badger at the first entry that it cannot read: it takes that for one that was
// being written as the power failed, cuts the log off there, and says nothing. Where the entry was changed on the
// disk that deletes all that was stored behind it. So harp looks at the logs before badger does.

// checkLogs looks for damage in the logs of a directory. Of memory tables' logs with entries behind an
// unreadable one that were written after that was synced, the store is not to be opened. A value log is
// kept from being cut off: each of its values is found without those before it. A commit whose values were never
// written is taken out. Errors: store.ErrDamaged, the system's.
func checkLogs(dir string) error {
	numbers, err := memNumbers(dir)
	if err != nil {
		return err
	}
	values := logAhead{dir: dir, format: vlogFormat}
	if err := values.findLogs(); err != nil {
		return err
	}
	defer values.close()
	reached, err := cutUnwritten(dir, numbers, values.number)
	if err != nil {
		return err
	}
	var last, committed uint64 // versions of the last transactions that are whole, before a log and in it; 0: not known
	for n, number := range numbers {
		if committed = 0; n > 0 && number != numbers[n-1]+1 {
			last = 0 // one between them became a table while an iterator kept the one before
		}
		name := filepath.Join(dir, fmt.Sprintf(memFormat, number))
		content, err := mapLog(name)
		if err != nil {
			return err
		}
		if content == nil {
			continue
		}
		before, damaged := checkMem(content, last)
		z.Munmap(content) //nolint:errcheck // nothing was written
		if damaged {
			return fmt.Errorf("store/badger: %w: log %s: an entry, behind which others were synced", store.ErrDamaged, name)
		}
		if before > last {
			last, committed = before, before
		}
	}
	return keepDamagedLog(&values, committed, reached)
}

// memNumbers are the numbers of the logs of memory tables, in their order.
func memNumbers(dir string) ([]int, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+filepath.Ext(memFormat)))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		base := filepath.Base(name)
		n, err := strconv.Atoi(strings.TrimSuffix(base, filepath.Ext(base)))
		if err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// syncLog syncs a log that was cut off. Tests replace it.
var syncLog = (*os.File).Sync

// keepDamagedLog makes another file of the value log behind the newest where that has whole entries
// behind one that cannot be read: badger cuts the newest off alone. Those of a version above the last that was
// committed, if that is known, were on their way, and may be cut off. Up to where it is known to have values it
// keeps them whole or not: of a damaged one that was cut off nobody could tell that it had been written.
func keepDamagedLog(newest *logAhead, committed uint64, reached int64) error {
	if newest.file == nil {
		return nil
	}
	content, err := mapLog(newest.file.Name())
	if err != nil || content == nil {
		return err
	}
	last, damaged := lastEntry(content, committed)
	z.Munmap(content) //nolint:errcheck // nothing was written
	end := max(int64(last), reached)
	if !damaged && end == int64(last) {
		return nil
	}
	if err := errors.Join(newest.file.Truncate(end), syncLog(newest.file)); err != nil {
		return err
	}
	next := newest.name(newest.number + 1)
	err = makeValueLog(next)
	if ballast := findBallast(newest.dir); isFull(err) && ballast.shrink(vlogHeaderRoom) == nil {
		err = makeValueLog(next)
	}
	if isFull(err) {
		return fmt.Errorf("%w: opening %s: %w", harp.ErrNoSpace, newest.dir, err)
	}
	return errors.Join(err, synced.Dir(newest.dir))
}

// vlogHeaderRoom is more than the blocks that a file takes with a header alone.
const vlogHeaderRoom = 1 << 20

// makeValueLog makes a file of the value log in which nothing is.
func makeValueLog(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, vlogHeader)) // without a key
	return errors.Join(err, f.Sync(), f.Close())
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

// versionSize is how many bytes the version has that a key ends with.
const versionSize = 8

// logEntry is an entry of a log.
type logEntry struct {
	flags byte
	key   []byte // with a version behind it
	value []byte
	size  int // bytes that it takes
}

// parseHeader reads how long the header of an entry is, its key and its value; false if there is no such entry.
func parseHeader(b []byte) (header, key, value int, ok bool) {
	const least = 5 // bytes of a header
	if len(b) < least || b[1] != 0 {
		return 0, 0, 0, false
	}
	header = 2
	var lengths [3]uint64
	for n := range lengths {
		length, size := binary.Uvarint(b[header:min(len(b), header+binary.MaxVarintLen64)])
		if size <= 0 {
			return 0, 0, 0, false
		}
		lengths[n], header = length, header+size
	}
	if lengths[0] < versionSize || lengths[0] > vlogKeyMost || lengths[1] > rows.MaxCommit || lengths[2] != 0 { // when it expires
		return 0, 0, 0, false
	}
	return header, int(lengths[0]), int(lengths[1]), true
}

// parseEntry reads an entry; false if it is none that is whole.
func parseEntry(b []byte) (e logEntry, ok bool) {
	header, key, value, ok := parseHeader(b)
	end := header + key + value
	if !ok || len(b) < end+crc32.Size || crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return e, false
	}
	return logEntry{b[0], b[header : header+key], b[header+key : end], end + crc32.Size}, true
}

const (
	// longestSought is how long an entry is at most that is looked for: none of rows' is longer.
	longestSought = 128 << 10

	// longestInMem is more than how long a value is in the log of a memory table.
	longestInMem = 2 * valueThreshold
)

// nextEntry is where the next entry behind one that cannot be read begins; false if there is none. That is where this
// one says that it ends, or where entries follow each other up to the end, or for longer than the longest value: a caller may
// have sent one that looks like entries.
func nextEntry(content []byte, at, longest int) (int, bool) {
	said := 0
	if header, key, value, ok := parseHeader(content[at:]); ok {
		said = at + header + key + value + crc32.Size
	}
	for at++; at < len(content); at++ {
		e, ok := parseEntry(content[at:min(len(content), at+longestSought)])
		if !ok {
			continue
		}
		end := at
		for ok && end-at <= longest {
			end += e.size
			e, ok = parseEntry(content[end:])
		}
		if at == said || end-at > longest || len(bytes.Trim(content[end:], "\x00")) == 0 {
			return at, true
		}
		at = end - 1
	}
	return 0, false
}

// lastEntry is where the last whole entry of a log ends, and whether there is one before it that cannot
// be read. It looks at none behind the first that was not committed.
func lastEntry(content []byte, committed uint64) (end int, damaged bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the disk cannot read it: badger will say so
			damaged = false
		}
	}()
	end = vlogHeader
	for at, unreadable := end, false; ; {
		e, ok := parseEntry(content[at:])
		if !ok {
			if at, ok = nextEntry(content, at, longestSought); !ok {
				return end, damaged
			}
			unreadable = true
			continue
		}
		if committed > 0 && y.ParseTs(e.key) > committed {
			return end, damaged
		}
		at += e.size
		end, damaged = at, unreadable
	}
}

// checkMem reports whether the log of a memory table, or one before it, has an entry that cannot be read and was
// synced. Each transaction is synced before anything else is written, and has a version of one more; last is that of
// the last one in the logs before, if it is known. It returns that of the last before anything that cannot be read.
func checkMem(content []byte, last uint64) (before uint64, damaged bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			damaged = true
		}
	}()
	before = last
	var under uint64 // version of the transaction under way, or of what is behind an entry that cannot be read; 0: none
	for at, unreadable := vlogHeader, false; ; {
		e, ok := parseEntry(content[at:])
		if !ok {
			if at, ok = nextEntry(content, at, longestInMem); !ok {
				return before, false
			}
			unreadable = true
			continue
		}
		at += e.size
		version, isEnd := y.ParseTs(e.key), e.flags&flagEndTxn != 0
		if !isEnd && e.flags&flagTxn == 0 { // was moved as the value log was collected, under its old version
			if under > 0 {
				return before, true
			}
			continue
		}
		if before > 0 && version > before+1 || under > 0 && version != under {
			return before, true
		}
		if under = version; isEnd && !unreadable {
			before, under = version, 0
		}
	}
}
