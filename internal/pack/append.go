// Package pack writes and reads msgpack without reflection, for what is encoded and
// decoded with every call. What it writes is what the library writes with compact
// integers. What it reads is the plain form of each kind; of everything else a
// [Reader] says that it is odd, and who asked leaves it to the library.
package pack

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// AppendNil appends nil.
func AppendNil(b []byte) []byte { return append(b, codeNil) }

// AppendBool appends a truth.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

// AppendInt appends an integer in its shortest form.
func AppendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0:
		return AppendUint(b, uint64(n))
	case n >= -32:
		return append(b, byte(n))
	case n >= math.MinInt8:
		return append(b, codeInt8, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, codeInt16), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, codeInt32), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, codeInt64), uint64(n))
}

// AppendUint appends an integer in its shortest form.
func AppendUint(b []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, codeUint8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, codeUint16), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, codeUint32), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUint64), n)
}

// AppendFloat appends a float of 64 bits.
func AppendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeDouble), math.Float64bits(f))
}

// AppendString appends a text as it is, which should be UTF-8.
func AppendString(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, codeFixStr|byte(len(s))), s...)
	}
	return append(appendLength(b, len(s), codeStr8, codeStr16, codeStr32), s...)
}

// AppendBytes appends bytes; nil for a nil slice.
func AppendBytes(b, v []byte) []byte {
	if v == nil {
		return AppendNil(b)
	}
	return append(appendLength(b, len(v), codeBin8, codeBin16, codeBin32), v...)
}

// AppendArray appends the head of an array of n values.
func AppendArray(b []byte, n int) []byte {
	if n < 16 {
		return append(b, codeFixArray|byte(n))
	}
	return appendLength(b, n, 0, codeArray16, codeArray32)
}

// AppendMap appends the head of a map of n entries.
func AppendMap(b []byte, n int) []byte {
	if n < 16 {
		return append(b, codeFixMap|byte(n))
	}
	return appendLength(b, n, 0, codeMap16, codeMap32)
}

// appendLength appends a length behind its code. There is no code for 8 bits if that
// is 0.
func appendLength(b []byte, n int, short, middle, long byte) []byte {
	switch {
	case n <= math.MaxUint8 && short != 0:
		return append(b, short, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, middle), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, long), uint32(n)) //nolint:gosec // no value is longer
}

// Message is a map that is being written, behind what B held before. A method whose
// name ends with Opt leaves out what is empty.
type Message struct {
	B  []byte
	at int // of the map's head
	n  int // its entries
}

// Begin begins a message behind b.
func Begin(b []byte) Message { return Message{B: append(b, codeFixMap), at: len(b)} }

// End returns all that was written.
func (m *Message) End() []byte {
	if m.n < 16 {
		m.B[m.at] |= byte(m.n)
		return m.B
	}
	body := len(m.B)
	m.B = append(m.B, 0, 0)
	copy(m.B[m.at+3:], m.B[m.at+1:body])
	m.B[m.at] = codeMap16
	binary.BigEndian.PutUint16(m.B[m.at+1:], uint16(m.n)) //nolint:gosec // no message has so many
	return m.B
}

// Key begins an entry, whose value the caller appends to B.
func (m *Message) Key(key string) {
	m.n++
	m.B = AppendString(m.B, key)
}

// Int writes an integer.
func (m *Message) Int(key string, n int64) {
	m.Key(key)
	m.B = AppendInt(m.B, n)
}

// IntOpt writes an integer other than 0.
func (m *Message) IntOpt(key string, n int64) {
	if n != 0 {
		m.Int(key, n)
	}
}

// Bytes writes bytes.
func (m *Message) Bytes(key string, v []byte) {
	m.Key(key)
	m.B = AppendBytes(m.B, v)
}

// BytesOpt writes bytes, if there are any.
func (m *Message) BytesOpt(key string, v []byte) {
	if len(v) > 0 {
		m.Bytes(key, v)
	}
}

// Text writes a text, in which U+FFFD takes the place of what is not UTF-8.
func (m *Message) Text(key, s string) {
	m.Key(key)
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	m.B = AppendString(m.B, s)
}

// TextOpt writes a text that is not empty.
func (m *Message) TextOpt(key, s string) {
	if s != "" {
		m.Text(key, s)
	}
}

// BoolOpt writes what is true.
func (m *Message) BoolOpt(key string, v bool) {
	if v {
		m.Key(key)
		m.B = AppendBool(m.B, v)
	}
}
