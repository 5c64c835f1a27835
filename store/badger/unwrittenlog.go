package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/dgraph-io/ristretto/v2/z"
)

// A file system that aborts its journal may have a sync succeed of which nothing reaches the disk, and put on it what was synced after that.
// Then the log of a memory table has entries that point to values which the value log lacks. The commit that they are of was not confirmed, so
// that nobody was answered: they are taken out before badger reads them.

// flagPointer is of an entry that does not have a value, but says where in the value log that is.
const flagPointer = 1 << 1

// valuePointer says where an entry of the value log is, in the layout of badger's entries.
type valuePointer struct{ File, Size, Offset uint32 }

// cutUnwritten cuts off the newest of the logs of memory tables where the first value begins that was never written, if that is behind the last
// transaction but one: what came before a later commit was confirmed with it. It returns up to where the newest file of the value log has values
// that what is left there points to. Errors: the system's.
func cutUnwritten(dir string, numbers []int, newest int) (reached int64, err error) {
	for _, number := range slices.Backward(numbers) {
		name := filepath.Join(dir, fmt.Sprintf(memFormat, number))
		content, err := mapLog(name)
		if err != nil {
			return 0, err
		}
		if content == nil {
			continue
		}
		at, reached, err := findUnwritten(dir, content, newest)
		end := len(content)
		z.Munmap(content) //nolint:errcheck // nothing was written
		if err != nil || at == 0 {
			return reached, err
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		_, err = f.WriteAt(make([]byte, end-at), int64(at))
		return reached, errors.Join(err, syncLog(f), f.Close())
	}
	return 0, nil
}

// findUnwritten is where the first transaction begins, or the first value that was moved as the value log was collected, of which something was
// never written to the value log; 0 if there is none behind the last transaction but one. It also returns up to where the newest file of the value
// log has values of those before.
func findUnwritten(dir string, content []byte, newest int) (at int, reached int64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the disk cannot read it: badger will say so
			at, reached, err = 0, 0, nil
		}
	}()
	units := unconfirmed(lastUnits(content))
	last := map[string]int{} // where the unit begins that has a key last: a value may have been moved twice
	for _, u := range units {
		for _, e := range u.entries {
			last[string(e.key)] = u.begin
		}
	}
	for _, u := range units {
		end := reached
		for _, e := range u.entries {
			p, ok := e.pointer()
			if !ok || last[string(e.key)] != u.begin {
				continue
			}
			if isUnwritten, err := isUnwritten(dir, e.key, p, newest); err != nil || isUnwritten {
				return u.begin, reached, err
			}
			if p.File == uint32(newest) {
				end = max(end, int64(p.Offset)+int64(p.Size))
			}
		}
		reached = end
	}
	return 0, reached, nil
}

// unit is what a log has whole or not at all: a transaction, or a value that was moved.
type unit struct {
	begin   int
	entries []logEntry // those that point to the value log
}

// lastUnits are the units of a memory table's log behind its last transaction but one.
func lastUnits(content []byte) []unit {
	var last, behind []unit // up to the end of the last transaction, and behind that
	open := unit{begin: vlogHeader}
	for at := vlogHeader; ; {
		e, ok := parseEntry(content[at:])
		if !ok {
			return append(last, behind...)
		}
		at += e.size
		if e.flags&flagPointer != 0 {
			open.entries = append(open.entries, e)
		}
		isEnd := e.flags&flagEndTxn != 0
		if e.flags&flagTxn != 0 && !isEnd {
			continue
		}
		behind = append(behind, open)
		open = unit{begin: at}
		if isEnd {
			last, behind = behind, nil
		}
	}
}

// mostUnconfirmed is more than what is written and synced at a time: a commit, and what a transaction takes at most of values that are moved.
const mostUnconfirmed = memTableSize / 2

// unconfirmed are those of units, or of the last of them, behind which nothing was synced: a sync that begins after the file system has aborted
// its journal fails.
func unconfirmed(units []unit) []unit {
	size := 0
	for i, u := range slices.Backward(units) {
		if size >= mostUnconfirmed {
			return units[i+1:]
		}
		for _, e := range u.entries {
			p, _ := e.pointer()
			size += int(p.Size)
		}
	}
	return units
}

// pointer is where the value of an entry lies; false if that is nowhere.
func (e logEntry) pointer() (p valuePointer, ok bool) {
	n, err := binary.Decode(e.value, binary.NativeEndian, &p)
	return p, err == nil && n == len(e.value) && p.Size <= longestSought
}

// isUnwritten reports whether the value of a key was never written: its file, which would be the newest, is not there, or ends before it, or has
// only zeros in a block of it. The first two are so where the file system has lost that it made the file, or that the file has grown. One that is
// damaged is not; nor is one whose file was collected, as it was deleted while it was moved.
func isUnwritten(dir string, key []byte, p valuePointer, newest int) (bool, error) {
	f, err := os.Open(filepath.Join(dir, fmt.Sprintf(vlogFormat, p.File)))
	if errors.Is(err, fs.ErrNotExist) {
		return int64(p.File) > int64(newest), nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	value := make([]byte, p.Size)
	n, err := f.ReadAt(value, int64(p.Offset))
	if errors.Is(err, io.EOF) {
		return n < len(value), nil
	}
	if written, ok := parseEntry(value); err != nil || ok && bytes.Equal(written.key, key) {
		return false, nil
	}
	return hasEmptyBlock(value, int(p.Offset)), nil
}

// hasEmptyBlock reports whether what is at an offset in a file has only zeros in one of the blocks in which it was written. They have
// 512 bytes, or a multiple.
func hasEmptyBlock(b []byte, offset int) bool {
	const size = 512
	for len(b) > 0 {
		n := min(len(b), size-offset%size)
		if len(bytes.Trim(b[:n], "\x00")) == 0 {
			return true
		}
		b, offset = b[n:], offset+n
	}
	return false
}
