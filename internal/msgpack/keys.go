package msgpack

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// noteKey notes that a key of the innermost map begins at the value in hand, or that the last one
// has ended before it.
func (v *validator) noteKey(begins bool) {
	if begins {
		v.keys = append(v.keys, Span{From: v.at})
		return
	}
	v.keys[len(v.keys)-1].To = v.at
}

// fewKeys is how many keys are compared each with each; more are sorted.
const fewKeys = 12

// hasDuplicates takes the keys of a map, from first on, off the list. It reports whether two are
// the same, of which the later is then in hand. Most maps are sorted, or have few keys.
func (v *validator) hasDuplicates(first int32) bool {
	keys := v.keys[first:]
	v.keys = v.keys[:first]
	sorted := true
	for i := 1; sorted && i < len(keys); i++ {
		sorted = v.compareKeys(keys[i-1], keys[i]) < 0
	}
	switch {
	case sorted:
		return false
	case len(keys) <= fewKeys:
		for i := range keys {
			for j := range i {
				if v.compareKeys(keys[i], keys[j]) == 0 {
					v.at = keys[i].From
					return true
				}
			}
		}
		return false
	}
	slices.SortFunc(keys, func(a, b Span) int { return cmp.Or(v.compareKeys(a, b), a.From-b.From) })
	for i := 1; i < len(keys); i++ {
		if v.compareKeys(keys[i-1], keys[i]) == 0 {
			v.at = keys[i].From
			return true
		}
	}
	return false
}

// compareKeys orders keys: 0 for two that a Go map would have as one, however they are encoded.
func (v *validator) compareKeys(a, b Span) int {
	p, q := v.b[a.From:a.To], v.b[b.From:b.To]
	if isShortText(p[0]) && isShortText(q[0]) { // most are
		return bytes.Compare(p[1:], q[1:])
	}
	x, y := keyOf(p), keyOf(q)
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.high, y.high), cmp.Compare(x.low, y.low), bytes.Compare(x.text, y.text))
}

func isShortText(code byte) bool { return code >= codeFixStr && code < codeNil }

// mapKey is a key without its encoding.
type mapKey struct {
	kind Kind
	high int8   // -1: a negative number
	low  uint64 // of a number; of a negative one its bits
	text []byte // of a string or bytes; of all others but numbers the encoding
}

// keyOf reads a key, which is valid. Strings and bytes decode into the same, and so do a float
// that is whole and an integer.
func keyOf(b []byte) mapKey {
	r := NewReader(b)
	switch r.Kind() {
	case KindString:
		return mapKey{kind: KindString, text: r.Text()}
	case KindBytes:
		return mapKey{kind: KindString, text: r.Bytes()}
	case KindInt:
		return intKey(r.integer())
	case KindFloat:
		f := r.Float()
		if whole := int64(f); float64(whole) == f && math.Abs(f) < 1<<63 {
			return intKey(uint64(whole), whole < 0) //nolint:gosec // its bits
		}
		return mapKey{kind: KindFloat, low: math.Float64bits(f)}
	default:
		return mapKey{kind: KindNone, text: b}
	}
}

func intKey(n uint64, negative bool) mapKey {
	k := mapKey{kind: KindInt, low: n}
	if negative {
		k.high = -1
	}
	return k
}
