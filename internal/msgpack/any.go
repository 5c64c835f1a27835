package msgpack

import (
	"fmt"
	"math"
)

// Any reads any value: nil, bool, int64 (uint64 only above the largest int64), float64,
// string, []byte, time.Time in UTC, [Sealed], []any or map[string]any. Keys of maps that
// are no strings are written as such.
func (r *Reader) Any() any {
	switch r.Kind() {
	case KindNil:
		r.Nil()
		return nil
	case KindBool:
		return r.Bool()
	case KindInt:
		n, negative := r.integer()
		if n > math.MaxInt64 && !negative {
			return n
		}
		return int64(n)
	case KindFloat:
		return r.Float()
	case KindString:
		return string(r.Text())
	case KindBytes:
		p := r.Bytes()
		return append(make([]byte, 0, len(p)), p...)
	case KindArray:
		return r.anyList()
	case KindMap:
		return r.anyMap()
	case KindExt:
		return r.anyExt()
	default:
		r.Fail()
		return nil
	}
}

func (r *Reader) anyList() []any {
	list := make([]any, r.Array())
	for i := range list {
		list[i] = r.Any()
	}
	return list
}

func (r *Reader) anyMap() map[string]any {
	n := r.Map()
	m := make(map[string]any, n)
	for range n {
		key := keyText(r.Any())
		m[key] = r.Any()
	}
	return m
}

// keyText is the key of a map as a string.
func keyText(key any) string {
	if s, ok := key.(string); ok {
		return s
	}
	return fmt.Sprint(key)
}

// Sealed is a value of the type [SealedExt], which only its addressee can open, as it is
// encoded.
type Sealed struct{ Raw string }

// String hides it.
func (Sealed) String() string { return "***" }

// MarshalJSON hides it.
func (Sealed) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

func (r *Reader) anyExt() any {
	start := r.at
	kind, body := r.Ext()
	switch {
	case kind == SealedExt && r.OK():
		return Sealed{string(r.b[start:r.at])}
	case kind == timeExt && isTime(body):
		return timeFrom(body)
	}
	r.Fail()
	return nil
}
