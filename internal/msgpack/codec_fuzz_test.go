package msgpack_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/harpcaller/harp/internal/msgpack"
)

// FuzzCodec checks that what the codec decodes is what the library decodes, but for numbers
// that the library cuts, and that what it encodes is what the library encodes.
func FuzzCodec(f *testing.F) {
	for _, v := range []any{
		full,
		every{},
		[]byte("x"), "text", -1, 1 << 40, true, 1.5, nil,
		[]string{"a"},
		[]any{"by", 3, "position"},
		map[string]any{"count": 300},
		map[string]any{"tags": nil, "name": []byte("b"), "more": 1},
		map[string]any{"Embedded": map[string]any{"e": 300}, "Pointed": nil, "apart": nil, "other": 1},
		map[string]any{"at": "2027-01-02T03:04:05Z", "pointer": []any{1, nil}, "pair": nil, "digest": "ab"},
	} {
		f.Add(encode(f, v))
	}
	f.Add([]byte("\x81\xc0\x01"))                                        // a key that is nil
	f.Add([]byte("\x82\xc4\x04name\xa1x\xa5count\xca\x3f\x80\x00\x00"))  // a key as bytes, and a float
	f.Add([]byte("\x84\xa1d\xc0\xa1c\xc0\xa1b\x81\xa1A\xcd21\xa1a\xc0")) // a map of structs
	f.Add([]byte("\xca\xff\x8000"))                                      // a NaN
	into := []any{every{}, []byte{}, "", int16(0), uint64(0), true, 1.5, float32(0), []string{}, []every{}, map[string]inner{}, row{}, [3]int{}}
	f.Fuzz(func(t *testing.T, b []byte) {
		if msgpack.Validate(b, msgpack.ValueLimits) != nil || isOdd(b) {
			return
		}
		for _, zero := range into {
			got, want := reflect.New(reflect.TypeOf(zero)), reflect.New(reflect.TypeOf(zero))
			err, known := codec.Decode(b, got.Interface()), decodeByLibrary(b, want.Interface())
			if err != nil && (known != nil || numberRefused.MatchString(err.Error())) || known != nil && timeRefused.MatchString(known.Error()) {
				continue
			}
			mine, err2 := encodeByLibrary(got.Elem().Interface())
			theirs, err3 := encodeByLibrary(want.Elem().Interface())
			mine, theirs = sortEntries(mine), sortEntries(theirs)
			if err != nil || known != nil || err2 != nil || err3 != nil || !bytes.Equal(mine, theirs) {
				t.Fatalf("%x into %T: read %+v, %v, the library %+v, %v", b, zero, got.Elem(), err, want.Elem(), known)
			}
			if sent := sortEntries(encode(t, got.Elem().Interface())); !bytes.Equal(sent, mine) {
				t.Fatalf("%T: wrote %x, the library %x", zero, sent, mine)
			}
		}
	})
}

// sortEntries returns a value with the entries of each map in the order of their bytes: Go
// gives them in any order, and the library sorts them in few kinds of maps.
func sortEntries(b []byte) []byte {
	r := msgpack.NewReader(b)
	return sortEntriesAt(&r)
}

func sortEntriesAt(r *msgpack.Reader) []byte {
	rest := *r
	raw := rest.Raw()
	var parts [][]byte
	switch r.Kind() {
	case msgpack.KindArray:
		for range r.Array() {
			parts = append(parts, sortEntriesAt(r))
		}
	case msgpack.KindMap:
		for range r.Map() {
			parts = append(parts, slices.Concat(r.Raw(), sortEntriesAt(r)))
		}
		slices.SortFunc(parts, bytes.Compare)
	default:
		r.Skip()
	}
	body := slices.Concat(parts...)
	return slices.Concat(raw[:len(raw)-len(body)], body)
}

// isOdd reports whether a value holds what the library takes for something else, an
// extension and, in floats, a number above the largest int64, or what it decodes into what
// is there already, a key that comes twice, or a NaN, of which it keeps all bits.
func isOdd(b []byte) bool {
	r := msgpack.NewReader(b)
	return oddAt(&r)
}

func oddAt(r *msgpack.Reader) (odd bool) {
	switch r.Kind() {
	case msgpack.KindExt:
		odd = true
		r.Skip()
	case msgpack.KindInt:
		_, odd = r.Any().(uint64)
	case msgpack.KindFloat:
		odd = math.IsNaN(r.Float())
	case msgpack.KindArray:
		for range r.Array() {
			odd = oddAt(r) || odd
		}
	case msgpack.KindMap:
		seen := map[string]bool{}
		for range r.Map() {
			key := *r
			text := fmt.Sprintf("%s", key.Any()) // of a string and of bytes the same
			odd = seen[text] || odd
			seen[text] = true
			odd = oddAt(r) || odd
			odd = oddAt(r) || odd
		}
	default:
		r.Skip()
	}
	return odd
}
