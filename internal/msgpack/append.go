package msgpack

import (
	"encoding/binary"
	"math"
)

// AppendNil appends nil.
func AppendNil(b []byte) []byte { return append(b, codeNil) }

// AppendBool appends a boolean.
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

// AppendFloat32 appends a float of 32 bits.
func AppendFloat32(b []byte, f float32) []byte {
	return binary.BigEndian.AppendUint32(append(b, codeFloat), math.Float32bits(f))
}

// AppendString appends s as it is; [Validate] refuses what is not UTF-8.
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
	return append(appendBinHead(b, len(v)), v...)
}

// appendBinHead appends the head of n bytes.
func appendBinHead(b []byte, n int) []byte {
	return appendLength(b, n, codeBin8, codeBin16, codeBin32)
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
