package limit

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"sync"
	"sync/atomic"

	"github.com/harpcaller/harp/internal/synced"
)

// journal is what an agent must keep to say after a crash what it had started: a file that is
// appended to, where what is added while one sync runs is synced together by the next. It
// promises what harp's agent does of what it noted, that it is on the disk and that the file
// system took it, and no more: it is never read, cut back or compacted.
type journal struct {
	f     *os.File
	adds  chan add
	done  sync.WaitGroup
	last  atomic.Uint64 // number of the last job
	syncs int           // for tests, once done
}

type add struct {
	kind  byte
	job   uint64
	value []byte
	done  chan error
}

// The kinds of entries.
const (
	began = 'b'
	ended = 'e'
)

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f, adds: make(chan add, most)}
	j.done.Go(j.loop)
	return j, nil
}

// wrap returns f as a worker with a journal does it: its beginning is on the disk before it
// runs, and its result before anybody hears of it.
func (j *journal) wrap(f func([]byte) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(job []byte) ([]byte, error) {
		n := j.last.Add(1)
		if err := j.add(began, n, job); err != nil {
			return nil, err
		}
		result, err := f(job)
		if err != nil {
			return nil, err
		}
		return result, j.add(ended, n, result)
	}
}

// add returns when the entry is on the disk.
func (j *journal) add(kind byte, job uint64, value []byte) error {
	a := add{kind, job, value, make(chan error, 1)}
	j.adds <- a
	return <-a.done
}

func (j *journal) loop() {
	var buf []byte
	var group []add
	for a := range j.adds {
		group = append(group[:0], a)
		for len(group) < most && len(j.adds) > 0 {
			group = append(group, <-j.adds)
		}
		buf = buf[:0]
		for _, a := range group {
			buf = appendEntry(buf, a)
		}
		err := j.write(buf)
		for _, a := range group {
			a.done <- err
		}
	}
}

// headSize is of an entry: length and checksum of what follows, kind, job.
const headSize = 4 + 4 + 1 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendEntry(buf []byte, a add) []byte {
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0, a.kind)
	buf = binary.BigEndian.AppendUint64(buf, a.job)
	buf = append(buf, a.value...)
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-8)) //nolint:gosec // far below
	binary.BigEndian.PutUint32(buf[at+4:], crc32.Checksum(buf[at+8:], castagnoli))
	return buf
}

func (j *journal) write(buf []byte) error {
	if _, err := j.f.Write(buf); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.syncs++
	return synced.Confirm(j.f)
}

// Close waits for what was added.
func (j *journal) Close() error {
	close(j.adds)
	j.done.Wait()
	return errors.Join(j.f.Sync(), j.f.Close())
}
