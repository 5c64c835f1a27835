package badger

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp/store/internal/rows"
)

// The value log is files of entries, one behind the other. An entry is two bytes of flags,
// the lengths of its key and value and when it expires, the key, the value, and the CRC-32C of
// all of that. Badger collects a file by reading it from its beginning, writing again what is
// still in use, and removing it; an entry that it cannot read it takes for the end.

const (
	vlogHeader   = 20      // bytes of a file before its first entry
	vlogKeyMost  = 1 << 16 // bytes of a key
	discardEntry = 16      // bytes of an entry in badger's file of what can be discarded
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkCollected returns an error if collecting the value log would lose values: where the
// file that is next for it is damaged, those behind the damage. It is next if so much of it was
// deleted.
func (e *engine) checkCollected(deleted float64) error {
	name, discard, err := e.nextCollected()
	if err != nil || name == "" {
		return err
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case float64(discard) < deleted*float64(info.Size()):
		return nil // badger leaves it
	case uint64(info.Size()) == vlogHeader+discard:
		return nil // nothing in it is in use; more is counted where a compaction was killed and made again
	}
	if err := checkEntries(name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// nextCollected is the file of the value log of which most can be discarded, and how much;
// "" if there is none.
func (e *engine) nextCollected() (name string, discard uint64, err error) {
	content, err := os.ReadFile(filepath.Join(e.dir, "DISCARD"))
	if err != nil {
		return "", 0, err
	}
	for ; len(content) >= discardEntry; content = content[discardEntry:] {
		number, size := binary.BigEndian.Uint64(content), binary.BigEndian.Uint64(content[8:])
		if number == 0 {
			break
		}
		file := filepath.Join(e.dir, fmt.Sprintf(vlogFormat, number))
		if _, err := os.Stat(file); err == nil && size > discard {
			name, discard = file, size
		}
	}
	return name, discard, nil
}

var errDamagedLog = errors.New("an entry is damaged")

// checkEntries reads all entries of a file of the value log. Errors: errDamagedLog, the
// system's.
func checkEntries(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := summing{bufio.NewReaderSize(f, 64<<10), crc32.New(castagnoli)}
	if _, err := in.Discard(vlogHeader); err != nil {
		return cutShort(err)
	}
	for err == nil {
		err = in.entry()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cutShort is the error of a file that ends within an entry.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamagedLog
	}
	return err
}

// summing reads bytes, the checksum of which it makes.
type summing struct {
	*bufio.Reader
	sum hash.Hash32
}

func (s summing) ReadByte() (byte, error) {
	c, err := s.Reader.ReadByte()
	if err == nil {
		s.sum.Write([]byte{c})
	}
	return c, err
}

// entry reads an entry. Errors: io.EOF at the end of the file.
func (s summing) entry() error {
	s.sum.Reset()
	if _, err := s.ReadByte(); err != nil {
		return err
	}
	if _, err := s.ReadByte(); err != nil {
		return cutShort(err)
	}
	var lengths [3]uint64
	for n := range lengths {
		var err error
		if lengths[n], err = binary.ReadUvarint(s); err != nil {
			return errDamagedLog
		}
	}
	key, value, expires := lengths[0], lengths[1], lengths[2]
	switch {
	case key == 0 && value == 0 && expires == 0:
		return s.zeros()
	case key > vlogKeyMost || value > rows.MaxCommit:
		return errDamagedLog
	}
	if _, err := io.CopyN(s.sum, s.Reader, int64(key+value)); err != nil {
		return cutShort(err)
	}
	var sum [crc32.Size]byte
	if _, err := io.ReadFull(s.Reader, sum[:]); err != nil {
		return cutShort(err)
	}
	if binary.BigEndian.Uint32(sum[:]) != s.sum.Sum32() {
		return errDamagedLog
	}
	return nil
}

// zeros reads what is behind the last entry where a file was not cut off there.
func (s summing) zeros() error {
	for {
		c, err := s.Reader.ReadByte()
		if err != nil {
			return err
		}
		if c != 0 {
			return errDamagedLog
		}
	}
}
