package rows

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A backup is a line of text that names its format, then frames. A frame is its kind
// in a byte, the length of its payload in four, the payload, and the CRC-32C of its
// number, from 0, and all of that, in four: so that a frame that is missing, or out of
// its place, is noticed as well as one that was changed. The first is the head, the
// last the tail, which says how many rows there are; the others are rows, each its key
// and its value with their lengths as uvarints. After the tail there is nothing.

const backupTitle = "harp backup 1\n"

const (
	frameHead = 'h'
	frameRows = 'r'
	frameTail = 't'

	frameHeader = 5       // kind and length
	frameFull   = 1 << 20 // from which on, its rows counted as writes, a frame takes no more
	frameMost   = 4 << 20 // a longer one is not read
)

type headRow struct {
	Store  string `msgpack:"store"`
	Format int    `msgpack:"format"`
}

type tailRow struct {
	Rows int `msgpack:"rows"`
}

// errBackup is what is wrong with bytes that are no whole backup.
func errBackup(what string) error {
	return fmt.Errorf("store: incomplete backup: %s", what)
}

// Backup implements store.Upkeep.
func (r *Reader) Backup(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(r.open, func() { cancel(r.openErr()) })
	defer stop()
	return r.view(func(snap Snapshot) error {
		out := &frameWriter{ctx: ctx, w: w}
		if _, err := io.WriteString(w, backupTitle); err != nil {
			return err
		}
		if err := out.frame(frameHead, encode(headRow{Store: r.id, Format: formatVersion})); err != nil {
			return err
		}
		count, err := out.rows(snap)
		if err != nil {
			return err
		}
		return out.frame(frameTail, encode(tailRow{Rows: count}))
	})
}

func (r *Reader) openErr() error { return context.Cause(r.open) }

// frameWriter writes the frames of a backup.
type frameWriter struct {
	ctx    context.Context
	w      io.Writer
	number uint64
}

// rows writes all that there is and returns how much.
func (f *frameWriter) rows(snap Snapshot) (count int, err error) {
	var buf []byte
	cost := 0
	for item, err := range snap.Scan(nil, nil, false) {
		if err != nil {
			return count, err
		}
		buf = binary.AppendUvarint(buf, uint64(len(item.Key)))
		buf = append(buf, item.Key...)
		buf = binary.AppendUvarint(buf, uint64(len(item.Value)))
		buf = append(buf, item.Value...)
		count++
		if cost += WriteCost; len(buf)+cost < frameFull {
			continue
		}
		if err := f.frame(frameRows, buf); err != nil {
			return count, err
		}
		buf, cost = buf[:0], 0
	}
	if len(buf) == 0 {
		return count, nil
	}
	return count, f.frame(frameRows, buf)
}

func (f *frameWriter) frame(kind byte, payload []byte) error {
	if err := f.ctx.Err(); err != nil {
		return context.Cause(f.ctx)
	}
	header := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	sum := binary.BigEndian.AppendUint32(nil, frameSum(f.number, header, payload))
	f.number++
	for _, b := range [][]byte{header, payload, sum} {
		if _, err := f.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func frameSum(number uint64, header, payload []byte) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, number), castagnoli)
	return crc32.Update(crc32.Update(sum, castagnoli, header), castagnoli, payload)
}

// frameReader reads the frames of a backup.
type frameReader struct {
	r      *bufio.Reader
	number uint64
}

// openBackup reads what a backup begins with.
func openBackup(r io.Reader) (*frameReader, headRow, error) {
	f := &frameReader{r: bufio.NewReaderSize(r, 64<<10)}
	var head headRow
	title := make([]byte, len(backupTitle))
	if _, err := io.ReadFull(f.r, title); err != nil {
		return f, head, cutShort(err)
	}
	if string(title) != backupTitle {
		return f, head, errBackup("it does not begin as one of this version")
	}
	kind, payload, err := f.nextFrame()
	switch {
	case err != nil:
		return f, head, err
	case kind != frameHead:
		return f, head, errBackup("its head is missing")
	}
	if err := decode(payload, &head); err != nil {
		return f, head, err
	}
	if head.Format != formatVersion {
		return f, head, otherFormat(head.Format)
	}
	return f, head, nil
}

// nextFrame reads a frame.
func (f *frameReader) nextFrame() (kind byte, payload []byte, err error) {
	header := make([]byte, frameHeader)
	if _, err := io.ReadFull(f.r, header); err != nil {
		return 0, nil, cutShort(err)
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > frameMost {
		return 0, nil, errBackup("a part of it is damaged")
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(f.r, payload); err != nil {
		return 0, nil, cutShort(err)
	}
	sum := make([]byte, crcSize)
	if _, err := io.ReadFull(f.r, sum); err != nil {
		return 0, nil, cutShort(err)
	}
	if binary.BigEndian.Uint32(sum) != frameSum(f.number, header, payload) {
		return 0, nil, errBackup("a part of it is damaged")
	}
	f.number++
	return header[0], payload, nil
}

// cutShort says of a reader's end that it came too early.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errBackup("its end is missing")
	}
	return err
}

// each calls f with the rows of each frame, and returns how many there are when the
// tail has said that these are all.
func (f *frameReader) each(do func(rows []Write) error) (count int, err error) {
	for {
		kind, payload, err := f.nextFrame()
		switch {
		case err != nil:
			return count, err
		case kind == frameTail:
			return count, f.checkEnd(payload, count)
		case kind != frameRows:
			return count, errBackup("it has a part of an unknown kind")
		}
		rows, err := parseRows(payload)
		if err != nil {
			return count, err
		}
		count += len(rows)
		if err := do(rows); err != nil {
			return count, err
		}
	}
}

// checkEnd checks the tail and that nothing follows.
func (f *frameReader) checkEnd(payload []byte, count int) error {
	var tail tailRow
	if err := decode(payload, &tail); err != nil {
		return err
	}
	if tail.Rows != count {
		return errBackup(fmt.Sprintf("it has %d rows of %d", count, tail.Rows))
	}
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errBackup("something follows its end")
	}
	return nil
}

func parseRows(payload []byte) ([]Write, error) {
	var out []Write
	r := bytes.NewReader(payload)
	part := func() ([]byte, error) {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > uint64(r.Len()) {
			return nil, errBackup("a part of it is damaged")
		}
		b := make([]byte, n)
		_, err = io.ReadFull(r, b)
		return b, err
	}
	for r.Len() > 0 {
		key, err := part()
		if err != nil {
			return nil, err
		}
		value, err := part()
		if err != nil {
			return nil, err
		}
		out = append(out, Write{key, value})
	}
	return out, nil
}
