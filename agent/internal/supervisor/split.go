package supervisor

import (
	"bytes"
	"encoding/json"
)

// The kinds of records.
const (
	kindStdout = "stdout"
	kindStderr = "stderr"
	kindData   = "data"
)

// piece is a record before it has a time and a number.
type piece struct {
	kind    string
	value   []byte // valid until the next call of the splitter
	partial bool
}

// splitter makes records of one stream. The values of its records, each with a line
// feed unless it is partial, are the stream again.
type splitter struct {
	kind string
	how  Splitting
	max  int // bytes of a value

	line []byte // that has not ended yet
	cont bool   // its beginning was split off
}

func newSplitter(kind string, how Splitting, limit int) *splitter {
	return &splitter{kind: kind, how: how, max: limit}
}

// write splits what was read next and hands over what is complete.
func (s *splitter) write(b []byte, emit func(piece)) {
	if s.how == SplitRaw {
		s.writeRaw(b, emit)
		return
	}
	for len(b) > 0 {
		b = s.take(b, emit)
	}
}

func (s *splitter) writeRaw(b []byte, emit func(piece)) {
	for len(b) > 0 {
		n := min(len(b), s.max)
		emit(piece{s.kind, b[:n], true})
		b = b[n:]
	}
}

// take moves bytes into the line, up to the next that may end it, and returns the
// rest. What a carriage return or the limit ends is handed over only with the byte
// after it, as that may be the line feed.
func (s *splitter) take(b []byte, emit func(piece)) []byte {
	if b[0] == '\n' {
		s.emit(emit, false)
		return b[1:]
	}
	if len(s.line) == s.max || bytes.HasSuffix(s.line, []byte{'\r'}) {
		s.emit(emit, true)
	}
	n := min(len(b), s.max-len(s.line))
	if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
		n = i
	}
	if i := bytes.IndexByte(b[:n], '\r'); i >= 0 {
		n = i + 1
	}
	s.line = append(s.line, b[:n]...)
	return b[n:]
}

// end hands over what is left when the stream has ended.
func (s *splitter) end(emit func(piece)) {
	if len(s.line) > 0 {
		s.emit(emit, true)
	}
}

func (s *splitter) emit(emit func(piece), partial bool) {
	emit(piece{s.kindOf(partial), s.line, partial})
	s.line, s.cont = s.line[:0], partial
}

// kindOf is the kind of the line: a line of stdout that is JSON is data, but not a
// part of one.
func (s *splitter) kindOf(partial bool) string {
	whole := !s.cont && (!partial || !bytes.HasSuffix(s.line, []byte{'\r'}) && len(s.line) < s.max)
	if s.how == SplitJSON && s.kind == kindStdout && whole && json.Valid(s.line) {
		return kindData
	}
	return s.kind
}
