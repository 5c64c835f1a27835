package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// remains is what a spool file says of an attempt.
type remains struct {
	header
	*file          // of which only a cursor may be had
	going  bool    // the command was to be executed next
	failed bool    // and was not
	leader started // zero: it is not known that the command ran
	torn   bool    // behind the notes is something that is none
	stop   *Stop
	end    *End
	damage error // what is after the records that can be read, a *DamagedError; nil: nothing
}

// readHeader returns what a spool file begins with. The error is a *DamagedError, one
// of the file system, or ErrVersion.
func readHeader(path string) (header, error) {
	f, err := os.Open(path)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	h, _, err := headerOf(f)
	return h, err
}

// Info returns the Info of the Spec of an attempt. The error is one of the file
// system, a *DamagedError, or ErrVersion.
func Info(o Options, k Key) ([]byte, error) {
	p, err := placeOf(o, k)
	if err != nil {
		return nil, err
	}
	h, err := readHeader(p.spool())
	return h.Spec.Info, err
}

func headerOf(f *os.File) (h header, size int64, err error) {
	head, err := newFrames(f).next()
	if err != nil && !isDamage(err) {
		return h, 0, err
	}
	if err == nil && head.kind != entryHeader {
		err = errDamaged
	}
	if err == nil {
		_, err = head.decode(&h)
	}
	if err != nil {
		return h, 0, &DamagedError{Path: f.Name(), Err: err}
	}
	if _, err := agree(spoolVersion, h.Version); err != nil || h.Version > spoolVersion {
		return h, 0, fmt.Errorf("%s: %w", f.Name(), errors.Join(ErrVersion, err))
	}
	return h, head.size(), nil
}

// readRemains reads the spool file of a supervisor that is dead. What it was writing
// last may be cut off, and is ignored. If any other record is not as it was written, those
// before it can be read. The error is a *DamagedError if that holds for anything else,
// ErrVersion, or one of the file system.
func readRemains(path string) (*remains, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := remainsOf(f)
	if err == nil {
		err = m.scan()
	}
	if err != nil {
		drop(f)
		return nil, err
	}
	return m, nil
}

// remainsOf reads all but the records.
func remainsOf(f *os.File) (*remains, error) {
	h, size, err := headerOf(f)
	if err != nil {
		return nil, err
	}
	m := &remains{header: h, file: &file{f: f, slots: size, step: max(h.Spec.MaxSpool/1024, 512)}}
	m.records = size + h.Reserve
	m.gone = mark{0, m.records}
	if err := m.readSlots(); err != nil {
		return nil, err
	}
	m.taken, m.next, m.marks = m.gone, m.gone, []mark{m.gone}
	return m, m.readNotes(size + 2*slotSize)
}

// readSlots finds the first record that is there.
func (m *remains) readSlots() error {
	for i := range int64(2) {
		b := make([]byte, slotSize)
		if _, err := m.f.ReadAt(b, m.slots+i*slotSize); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := binary.BigEndian.Uint64(b[4:])
		if crc32.Checksum(b[4:28], castagnoli) != binary.BigEndian.Uint32(b) || n <= m.slot {
			continue
		}
		m.slot = n
		m.gone = mark{int64(binary.BigEndian.Uint64(b[12:])), int64(binary.BigEndian.Uint64(b[20:]))}
	}
	return nil
}

// readNotes reads the notes of the reserve. After the last there are zeros, or one that
// was not written as a whole, or is not any more as it was.
func (m *remains) readNotes(at int64) error {
	in := newFrames(io.NewSectionReader(m.f, at, m.records-at))
	for {
		f, err := in.next()
		if isDamage(err) {
			zeros, err := m.zerosFrom(at, min(at+frameHeader, m.records))
			m.torn = !zeros
			return err
		}
		if err != nil {
			return err
		}
		if err := m.learn(f); err != nil {
			return &DamagedError{Path: m.f.Name(), Offset: at, Err: err}
		}
		at += f.size()
	}
}

func (m *remains) learn(f frame) error {
	var err error
	switch f.kind {
	case entryGo:
		m.going = true
	case entryFailed:
		m.failed = true
	case entryStarted:
		_, err = f.decode(&m.leader)
	case entryStop:
		m.stop = new(Stop)
		_, err = f.decode(m.stop)
	case entryEnd:
		m.end, err = decodeEnd(f)
	}
	return err
}

func decodeEnd(f frame) (*End, error) {
	end := new(End)
	raw, err := f.decode(end)
	if len(raw) > 0 {
		end.Result = append([]byte(nil), raw...)
	}
	return end, err
}

// scan finds all records, up to the end or to what was cut off.
func (m *remains) scan() error {
	info, err := m.f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	in := newFrames(io.NewSectionReader(m.f, m.next.offset, max(size-m.next.offset, 0)))
	for m.next.offset < size {
		f, err := in.next()
		if err == nil && f.kind != entryRecord {
			err = errDamaged
		}
		if err != nil {
			cut, unread := m.cutOff(err, size)
			if unread != nil {
				return unread
			}
			if cut {
				break
			}
			m.damage = &DamagedError{Path: m.f.Name(), Offset: m.next.offset, Err: err}
			return nil
		}
		m.next = mark{m.next.n + 1, m.next.offset + f.size()}
		if m.next.offset-m.marks[len(m.marks)-1].offset >= m.step {
			m.marks = append(m.marks, m.next)
		}
	}
	if m.end != nil && m.end.Records > m.next.n {
		m.damage = &DamagedError{Path: m.f.Name(), Offset: m.next.offset, Err: fmt.Errorf(
			"%w: it has %d of %d records", errDamaged, m.next.n, m.end.Records)}
	}
	return nil
}

// cutOff reports whether what is no record is only what was written last: it goes
// beyond the end, up to it, or is zeros. The error is that of the file system.
func (m *remains) cutOff(err error, size int64) (bool, error) {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return true, nil
	case !isDamage(err):
		return false, err
	}
	head := make([]byte, frameHeader)
	if _, err := m.f.ReadAt(head, m.next.offset); err != nil {
		return false, err
	}
	length := int64(binary.BigEndian.Uint32(head))
	if m.next.offset+frameHeader+length == size {
		return true, nil
	}
	return m.zerosFrom(m.next.offset, size)
}

// zerosFrom reports whether there is nothing else in a part of the file, as far as that goes.
func (m *remains) zerosFrom(at, end int64) (bool, error) {
	b := make([]byte, readStep)
	for at < end {
		n, err := m.f.ReadAt(b[:min(readStep, end-at)], at)
		for _, c := range b[:n] {
			if c != 0 {
				return false, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		at += int64(n)
	}
	return true, nil
}
