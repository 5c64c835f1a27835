//go:build linux

package hostile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// object is a map, as key, value, key, value: in any order, keys of any type, any of them
// twice.
type object []any

// list is an array.
type list []any

// encoded is msgpack as it is, well-formed or not.
type encoded []byte

// user is a user value: it travels as bin inside a message.
func user(value any) []byte { return encode(value) }

// encode writes a value in msgpack.
func encode(value any) []byte { return appendValue(nil, value) }

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, 0xc0)
	case bool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case int:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case string:
		return append(appendLength(b, [3]byte{0xd9, 0xda, 0xdb}, len(v)), v...)
	case []byte:
		return append(appendLength(b, [3]byte{0xc4, 0xc5, 0xc6}, len(v)), v...)
	case encoded:
		return append(b, v...)
	case list:
		b = appendLength(b, [3]byte{0, 0xdc, 0xdd}, len(v))
		for _, item := range v {
			b = appendValue(b, item)
		}
		return b
	case object:
		b = appendLength(b, [3]byte{0, 0xde, 0xdf}, len(v)/2)
		for _, item := range v {
			b = appendValue(b, item)
		}
		return b
	}
	panic(fmt.Sprintf("no msgpack for %T", value))
}

// appendInt writes an integer in as few bytes as there can be, as canonical values have it.
func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= -32 && v <= math.MaxInt8:
		return append(b, byte(v))
	case v > 0 && v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v > 0 && v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v > 0 && v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// appendLength writes the beginning of what has a length, with codes for lengths of 1, 2 and 4 bytes.
// Of collections, which have no code for 1, short ones are written in their own way.
func appendLength(b []byte, codes [3]byte, n int) []byte {
	switch {
	case codes[0] == 0 && n < 16:
		return append(b, map[byte]byte{0xdc: 0x90, 0xde: 0x80}[codes[1]]|byte(n))
	case codes[0] == 0xd9 && n < 32:
		return append(b, 0xa0|byte(n))
	case codes[0] != 0 && n <= math.MaxUint8:
		return append(b, codes[0], byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, codes[1]), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, codes[2]), uint32(n))
}

// fields reads a message: a map with string keys. What is not well-formed is nil: the tests
// then miss what they look for.
func fields(b []byte) map[string]any {
	d := decoder{b}
	m, _ := d.readValue().(map[string]any)
	return m
}

// decoder reads what harp sends, which is taken to be well-formed.
type decoder struct{ b []byte }

func (d *decoder) readBytes(n int) []byte {
	n = max(min(n, len(d.b)), 0)
	got := d.b[:n]
	d.b = d.b[n:]
	return got
}

// readNumber reads an unsigned integer of n bytes.
func (d *decoder) readNumber(n int) (v uint64) {
	for _, b := range d.readBytes(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

// readValue reads a value: nil, bool, int64, float64, string, []byte, []any or map[string]any.
func (d *decoder) readValue() any {
	if len(d.b) == 0 {
		return nil
	}
	code := d.readBytes(1)[0]
	switch {
	case code < 0x80:
		return int64(code)
	case code < 0x90:
		return d.readMap(int(code & 0x0f))
	case code < 0xa0:
		return d.readList(int(code & 0x0f))
	case code < 0xc0:
		return string(d.readBytes(int(code & 0x1f)))
	case code >= 0xe0:
		return int64(int8(code))
	}
	switch code {
	case 0xc2, 0xc3:
		return code == 0xc3
	case 0xc4, 0xc5, 0xc6:
		return d.readBytes(int(d.readNumber(1 << (code - 0xc4))))
	case 0xca:
		return float64(math.Float32frombits(uint32(d.readNumber(4))))
	case 0xcb:
		return math.Float64frombits(d.readNumber(8))
	case 0xcc, 0xcd, 0xce, 0xcf:
		return int64(d.readNumber(1 << (code - 0xcc)))
	case 0xd0:
		return int64(int8(d.readNumber(1)))
	case 0xd1:
		return int64(int16(d.readNumber(2)))
	case 0xd2:
		return int64(int32(d.readNumber(4)))
	case 0xd3:
		return int64(d.readNumber(8))
	case 0xd9, 0xda, 0xdb:
		return string(d.readBytes(int(d.readNumber(1 << (code - 0xd9)))))
	case 0xdc, 0xdd:
		return d.readList(int(d.readNumber(2 << (code - 0xdc))))
	case 0xde, 0xdf:
		return d.readMap(int(d.readNumber(2 << (code - 0xde))))
	}
	return nil
}

func (d *decoder) readList(n int) []any {
	var items []any
	for range min(n, len(d.b)) {
		items = append(items, d.readValue())
	}
	return items
}

func (d *decoder) readMap(n int) map[string]any {
	m := map[string]any{}
	for range min(n, len(d.b)) {
		key, _ := d.readValue().(string)
		m[key] = d.readValue()
	}
	return m
}
