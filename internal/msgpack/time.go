package msgpack

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"time"
	"unsafe"
)

// In a user's value a time is an extension of 4, 8 or 12 bytes: seconds; nanoseconds in 30 bits and seconds in
// 34; or nanoseconds in 32 bits and seconds in 64, with a sign.
// https://github.com/msgpack/msgpack/blob/master/spec.md#timestamp-extension-type

// timeExt is the msgpack ext type of a time, -1.
const timeExt = 0xff

var timeType = reflect.TypeFor[time.Time]()

// timePlan is the plan of a time, which knows itself whether it is zero.
func (c *Codec) timePlan() plan {
	if c.Message {
		return plan{encodeNanos, decodeNanos, nil}
	}
	return plan{encodeTime, decodeTime, nil}
}

// Nanos returns a time as messages have it: nanoseconds since 1970 UTC, 0 for the zero time.
// The one moment that is 0 becomes the next, and a time before the first or after the last
// that 64 bits can say becomes that.
func Nanos(t time.Time) int64 {
	switch n := t.UnixNano(); {
	case t.IsZero():
		return 0
	case t.Before(firstTime):
		return math.MinInt64
	case t.After(lastTime):
		return math.MaxInt64
	case n == 0:
		return 1
	default:
		return n
	}
}

var firstTime, lastTime = FromNanos(math.MinInt64), FromNanos(math.MaxInt64)

// FromNanos is the inverse of [Nanos]. The time is in UTC.
func FromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func encodeNanos(_ encoding, b []byte, at unsafe.Pointer) []byte {
	return AppendInt(b, Nanos(*(*time.Time)(at)))
}

func decodeNanos(d *decoder, at unsafe.Pointer) {
	n, negative, ok := d.decodeNumber(reflect.TypeFor[time.Time])
	switch {
	case !ok:
	case n > math.MaxInt64 && !negative:
		d.outOfRange(n, negative, timeType)
	default:
		*(*time.Time)(at) = FromNanos(int64(n))
	}
}

func encodeTime(_ encoding, b []byte, at unsafe.Pointer) []byte {
	t := (*time.Time)(at)
	sec, nsec := uint64(t.Unix()), uint64(t.Nanosecond())
	switch {
	case sec>>34 != 0:
		b = binary.BigEndian.AppendUint32(append(b, codeExt8, 12, timeExt), uint32(nsec))
		return binary.BigEndian.AppendUint64(b, sec)
	case nsec != 0 || sec>>32 != 0:
		return binary.BigEndian.AppendUint64(append(b, codeFixExt8, timeExt), nsec<<34|sec)
	}
	return binary.BigEndian.AppendUint32(append(b, codeFixExt4, timeExt), uint32(sec))
}

// decodeTime decodes a time, in UTC, or a string that has it as in RFC 3339.
func decodeTime(d *decoder, at unsafe.Pointer) {
	t := (*time.Time)(at)
	switch d.Kind() {
	case KindString:
		got, err := time.Parse(time.RFC3339Nano, string(d.Text()))
		if err != nil {
			d.refuse(err)
			return
		}
		*t = got.UTC()
	case KindExt:
		got, ok := d.Any().(time.Time)
		if !ok {
			d.refuse(errNotTime)
			return
		}
		*t = got
	case KindNil:
		d.Nil()
		*t = time.Time{}
	default:
		d.misfit(timeType)
	}
}

var errNotTime = errors.New("an extension that is no time does not fit time.Time")

// isTime reports whether p is one of the three forms of a time, its nanoseconds
// below one second.
func isTime(p []byte) bool {
	const second = 1_000_000_000
	switch len(p) {
	case 4:
		return true
	case 8:
		return binary.BigEndian.Uint64(p)>>34 < second
	case 12:
		return binary.BigEndian.Uint32(p) < second
	}
	return false
}

// timeFrom returns the time that an extension holds, of which isTime is true.
func timeFrom(p []byte) time.Time {
	var sec, nsec uint64
	switch len(p) {
	case 4:
		sec = uint64(binary.BigEndian.Uint32(p))
	case 8:
		both := binary.BigEndian.Uint64(p)
		sec, nsec = both&(1<<34-1), both>>34
	case 12:
		sec, nsec = binary.BigEndian.Uint64(p[4:]), uint64(binary.BigEndian.Uint32(p))
	}
	return time.Unix(int64(sec), int64(nsec)).UTC()
}
