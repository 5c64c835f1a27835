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
// transaction but one: what came before a later commit was confirmed with it. Errors: the system's.
func cutUnwritten(dir string, numbers []int) error {
	for _, number := range slices.Backward(numbers) {
		name := filepath.Join(dir, fmt.Sprintf(memFormat, number))
		content, err := mapLog(name)
		if err != nil {
			return err
		}
		if content == nil {
			continue
		}
		at, err := findUnwritten(dir, content)
		end := len(content)
		z.Munmap(content) //nolint:errcheck // nothing was written
		if err != nil || at == 0 {
			return err
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(make([]byte, end-at), int64(at))
		return errors.Join(err, syncLog(f), f.Close())
	}
	return nil
}

// findUnwritten is where the first transaction begins, or the first value that was moved as the value log was collected, of which something was
// never written to the value log; 0 if there is none behind the last transaction but one.
func findUnwritten(dir string, content []byte) (at int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the disk cannot read it: badger will say so
			at, err = 0, nil
		}
	}()
	units := lastUnits(content)
	newest := map[string]int{} // where the unit begins that has a key last: a value may have been moved twice
	for _, u := range units {
		for _, e := range u.entries {
			newest[string(e.key)] = u.begin
		}
	}
	for _, u := range units {
		for _, e := range u.entries {
			if newest[string(e.key)] != u.begin {
				continue
			}
			if isUnwritten, err := isUnwritten(dir, e); err != nil || isUnwritten {
				return u.begin, err
			}
		}
	}
	return 0, nil
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

// isUnwritten reports whether the value that an entry points to was never written: its file is not there, or ends before it, or has only zeros
// in a block of it. One that is damaged is not.
func isUnwritten(dir string, e logEntry) (bool, error) {
	var p valuePointer
	if n, err := binary.Decode(e.value, binary.NativeEndian, &p); err != nil || n != len(e.value) || p.Size > longestSought {
		return false, nil
	}
	f, err := os.Open(filepath.Join(dir, fmt.Sprintf(vlogFormat, p.File)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
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
	if written, ok := parseEntry(value); err != nil || ok && bytes.Equal(written.key, e.key) {
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
