package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// An entry is
//
//	length of the body, CRC-32C of the body, bytes since its group began, CRC-32C of
//	position and these three: uint32 each, little endian
//	body
//	endMark
//
// A group is written once all before it is synced: so each of its entries proves that.
// The position is the entry's own in the journal, so that what was once written
// elsewhere is never taken for it. The head of a segment, its first entry, says
// which position that is, and has 0 for its own. endMark is not zero: an entry that
// ends in zeros was not written to its end.
const (
	entryHead = 16
	entrySize = entryHead + 1 // without its body
	endMark   = 0xA5
	sector    = 512 // what a disk writes whole or not at all
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errCut = errors.New("the entry is cut short")
	errSum = errors.New("the checksum is wrong")
	errBad = errors.New("the entry makes no sense")
)

type kind byte

const (
	kindHead      kind = iota + 1 // of a segment
	kindAccept                    // ACCEPT
	kindBegin                     // ACCEPT and START
	kindStart                     // START
	kindStop                      // LIMIT or CANCEL
	kindEnd                       // END
	kindRecords                   // RECORDS
	kindAcked                     // ACKED, up to a record
	kindWithdrawn                 // WITHDRAWN
	kindTomb                      // ACKED, the end too, or forgotten
	kindState                     // of an attempt all but END and records: written again
	kindFirst                     // the segments before this one are not needed
	kindClosed                    // nothing: it proves that what is before it was synced
)

const (
	magic      = "harp journal"
	version    = 4
	oldVersion = 2 // is read, too: its heads do not say where they are, and those before 4 not how many calls were taken
)

// entry is one of any kind; each has its own of the fields.
type entry struct {
	kind kind
	key  Key

	fence   int64 // accept, begin, state
	info    []byte
	store   string // accept, begin: whose call it is; empty: it is none, and not counted
	started int64  // begin, start, state: Unix nanoseconds
	state   State  // state
	stop    *Stop  // stop, state
	dropped bool   // end, state
	count   int64  // end, state: of records; records: the first; acked: the first not acked
	acked   int64  // state
	at      int64  // tomb: Unix nanoseconds
	body    []byte
	records [][]byte

	id     string  // head
	number uint64  // head, first: of a segment
	base   int64   // head
	was    string  // head: the id of the journal that this one was copied from; empty: none
	place  string  // head: of the file, where that is known; a copy has another
	taken  takings // head: before it
	old    bool    // head: of older software
}

// appendEntry appends an entry, without its checksums.
func appendEntry(b []byte, e *entry) []byte {
	start := len(b)
	b = append(b, make([]byte, entryHead)...)
	b = appendBody(append(b, byte(e.kind)), e)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-entryHead))
	return append(b, endMark)
}

func appendBody(b []byte, e *entry) []byte {
	switch e.kind {
	case kindHead:
		b = appendBytes(append(b, magic...), []byte(e.id))
		b = binary.AppendUvarint(binary.AppendUvarint(b, version), e.number)
		b = binary.AppendVarint(b, e.base)
		b = appendBytes(appendBytes(b, []byte(e.was)), []byte(e.place))
		return appendTakings(b, &e.taken)
	case kindFirst:
		return binary.AppendUvarint(b, e.number)
	case kindClosed:
		return b
	default:
		return appendOf(appendBytes(b, []byte(e.key.Job)), e)
	}
}

// appendOf appends what an entry says of its attempt.
func appendOf(b []byte, e *entry) []byte {
	b = binary.AppendVarint(b, e.key.Attempt)
	switch e.kind {
	case kindAccept:
		b = appendBytes(binary.AppendVarint(b, e.fence), e.info)
		b = appendStore(b, e.store)
	case kindBegin:
		b = appendBytes(binary.AppendVarint(b, e.fence), e.info)
		b = appendStore(binary.AppendVarint(b, e.started), e.store)
	case kindStart:
		b = binary.AppendVarint(b, e.started)
	case kindStop:
		b = appendStop(b, e.stop)
	case kindEnd:
		b = binary.AppendVarint(appendBool(b, e.dropped), e.count)
		b = appendBytes(b, e.body)
	case kindRecords:
		b = binary.AppendVarint(b, e.count)
		b = binary.AppendUvarint(b, uint64(len(e.records)))
		for _, r := range e.records {
			b = appendBytes(b, r)
		}
	case kindAcked:
		b = binary.AppendVarint(b, e.count)
	case kindTomb:
		b = binary.AppendVarint(b, e.at)
	case kindState:
		b = appendBytes(binary.AppendVarint(b, e.fence), e.info)
		b = binary.AppendVarint(append(b, byte(e.state)), e.started)
		b = binary.AppendVarint(appendBool(b, e.dropped), e.count)
		b = appendBool(binary.AppendVarint(b, e.acked), e.stop != nil)
		if e.stop != nil {
			b = appendStop(b, e.stop)
		}
	default: // nothing but its name
	}
	return b
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendStore appends whose call an attempt is, last of all: older software has written nothing there.
func appendStore(b []byte, store string) []byte {
	if store == "" {
		return b
	}
	return appendBytes(b, []byte(store))
}

func appendTakings(b []byte, t *takings) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, t.rest), uint64(len(t.of)))
	for _, one := range t.of {
		b = binary.AppendUvarint(appendBytes(b, []byte(one.store)), one.count)
	}
	return b
}

func appendStop(b []byte, s *Stop) []byte {
	b = appendBytes(b, []byte(s.Cause))
	b = binary.AppendVarint(b, s.Since.UnixNano())
	return binary.AppendVarint(b, int64(s.Limit))
}

// seal puts the checksums into the entries of b, which are a group at a position.
func seal(b []byte, position int64) {
	head := new(headBytes)
	for off := 0; off < len(b); off += entryLen(b[off:]) {
		e := b[off : off+entryLen(b[off:])]
		binary.LittleEndian.PutUint32(e[4:], crc32.Checksum(e[entryHead:len(e)-1], castagnoli))
		binary.LittleEndian.PutUint32(e[8:], uint32(off)) //nolint:gosec // a group fits in memory many times
		binary.LittleEndian.PutUint32(e[12:], head.sum(e, position+int64(off)))
	}
}

// headBytes are what the checksum of an entry's head is made of.
type headBytes [20]byte

// sum is the checksum of the head of the entry at the start of b.
func (p *headBytes) sum(b []byte, position int64) uint32 {
	binary.LittleEndian.PutUint64(p[:], uint64(position))
	copy(p[8:], b[:12])
	return crc32.Checksum(p[:], castagnoli)
}

// parse reads the entry at the start of b, which has a position. The entry shares
// memory with b. The error is errCut where b ends too early, errSum or errBad.
func parse(b []byte, position int64) (e entry, n int, err error) {
	body, n, err := unseal(b, position)
	if err != nil {
		return entry{}, n, err
	}
	e, ok := parseBody(body)
	if !ok {
		return entry{}, n, errBad
	}
	return e, n, nil
}

// unseal returns the body of the entry at the start of b. n is the size of the
// entry, 0 if that is not known.
func unseal(b []byte, position int64) (body []byte, n int, err error) {
	if len(b) < entryHead {
		return nil, 0, errCut
	}
	if new(headBytes).sum(b, position) != binary.LittleEndian.Uint32(b[12:]) {
		return nil, 0, errSum
	}
	size := int64(binary.LittleEndian.Uint32(b)) + entrySize
	if size > int64(len(b)) {
		return nil, 0, errCut
	}
	n = int(size)
	body = b[entryHead : n-1]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) || b[n-1] != endMark {
		return nil, n, errSum
	}
	return body, n, nil
}

// groupAt returns where the group of the entry at the start of b began.
func groupAt(b []byte, position int64) int64 {
	return position - int64(binary.LittleEndian.Uint32(b[8:]))
}

// parseBody reads a body; all of it must make sense.
func parseBody(b []byte) (e entry, ok bool) {
	r := reader{b: b}
	e.kind = kind(r.byte())
	switch e.kind {
	case kindHead:
		if string(r.take(uint64(len(magic)))) != magic {
			return e, false
		}
		e.id = string(r.bytes())
		v := r.uvarint()
		if v < oldVersion || v > version {
			return e, false
		}
		e.number, e.base = r.uvarint(), r.varint()
		if v > oldVersion {
			e.was, e.place = string(r.bytes()), string(r.bytes())
		}
		if e.old = v < version; !e.old {
			e.taken = r.takings()
		}
		return e, r.done() && e.base >= 0
	case kindFirst:
		e.number = r.uvarint()
		return e, r.done()
	case kindClosed:
		return e, r.done()
	default:
		ok = r.attempt(&e)
		return e, ok && r.done() && checkKey(e.key) == nil
	}
}

// checkVersion returns an ErrVersion for a segment whose head is sound, and that this software
// does not read.
func checkVersion(segment []byte) error {
	body, _, err := unseal(segment, 0)
	r := reader{b: body}
	if err != nil || kind(r.byte()) != kindHead || string(r.take(uint64(len(magic)))) != magic {
		return nil //nolint:nilerr // it is damaged, which is found where it is read
	}
	r.bytes()
	v, use := r.uvarint(), "a newer"
	if r.bad || v >= oldVersion && v <= version {
		return nil
	}
	if v < oldVersion {
		use = "an older"
	}
	return fmt.Errorf("%w: its version is %d and this software knows only %d to %d: use %s one", ErrVersion, v, oldVersion, version, use)
}

// attempt reads what an entry says of its attempt.
func (r *reader) attempt(e *entry) (known bool) {
	e.key = Key{string(r.bytes()), r.varint()}
	switch e.kind {
	case kindAccept:
		e.fence, e.info = r.varint(), r.bytes()
		e.store = r.store()
	case kindBegin:
		e.fence, e.info, e.started = r.varint(), r.bytes(), r.varint()
		e.store = r.store()
	case kindStart:
		e.started = r.varint()
	case kindStop:
		e.stop = r.stop()
	case kindEnd:
		e.dropped, e.count, e.body = r.bool(), r.count(), r.bytes()
	case kindRecords:
		e.count = r.count()
		e.records = r.records()
	case kindAcked:
		e.count = r.count()
	case kindWithdrawn:
	case kindTomb:
		e.at = r.varint()
	case kindState:
		e.fence, e.info, e.state, e.started = r.varint(), r.bytes(), State(r.byte()), r.varint()
		e.dropped, e.count, e.acked = r.bool(), r.count(), r.count()
		if r.bool() {
			e.stop = r.stop()
		}
		r.bad = r.bad || e.state < Accepted || e.state > Ended
	default:
		return false
	}
	return true
}

// reader reads a body.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) done() bool { return !r.bad && len(r.b) == 0 }

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.byte()
	r.bad = r.bad || v > 1
	return v == 1
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad = true
		return
	}
	r.take(uint64(n))
}

// count is a number of records.
func (r *reader) count() int64 {
	v := r.varint()
	r.bad = r.bad || v < 0 || v > math.MaxInt64/2
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// store is what appendStore has appended.
func (r *reader) store() string {
	if r.bad || len(r.b) == 0 {
		return ""
	}
	store := string(r.bytes())
	r.bad = r.bad || store == ""
	return store
}

func (r *reader) takings() takings {
	t := takings{rest: r.uvarint()}
	n := r.uvarint()
	if n > maxStores {
		r.bad = true
	}
	for i := uint64(0); i < n && !r.bad; i++ {
		t.of = append(t.of, taking{string(r.bytes()), r.uvarint()})
	}
	return t
}

func (r *reader) records() [][]byte {
	n := r.uvarint()
	if n == 0 || n > uint64(len(r.b)) { // each takes a byte at least
		r.bad = true
		return nil
	}
	list := make([][]byte, 0, n)
	for range n {
		list = append(list, r.bytes())
	}
	return list
}

func (r *reader) stop() *Stop {
	return &Stop{Cause: string(r.bytes()), Since: time.Unix(0, r.varint()), Limit: time.Duration(r.varint())}
}
