// Package inventory holds what targets compare of hosts: it takes the labels and facts of a
// host apart once, when they arrive, and shows any number of hosts as the table that a
// target is matched with.
package inventory

import (
	"encoding/binary"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// Limits of what is compared of one host. What is beyond a length is there, for a target
// that asks whether it is, but is like no text; what is beyond a number is not there.
const (
	MaxFacts = 512     // paths
	maxPath  = 1 << 10 // bytes of a path
	maxText  = 1 << 10 // bytes of a text
	maxList  = 4 << 10 // bytes of a list
)

// Attributes are the labels and facts of one host. They never change. Hosts that have the
// same keys share these, and so with each value.
type Attributes struct {
	keys   unique.Handle[string] // as appendKey writes them, sorted
	values []unique.Handle[any]  // of each key: string, bool, int64, uint64, float64, list or present

	addresses []netip.Addr
}

// Addresses returns those in the fact addresses, a list of texts. They must not be changed.
func (a Attributes) Addresses() []netip.Addr { return a.addresses }

// list is the encoding of a list.
type list string

// present stands for a value that is compared with nothing, such as a map.
type present struct{}

// Sources of attributes, the first byte of a key.
const (
	sourceFact  = 'f'
	sourceLabel = 'l'
)

// NewAttributes takes labels and facts apart. facts is a map; anything else is no facts.
func NewAttributes(labels map[string]string, facts harp.Value) Attributes {
	taken := map[string]any{}
	if facts.Validate() == nil {
		r := msgpack.NewReader(facts)
		if r.Kind() == msgpack.KindMap {
			takeMap(taken, &r, string(sourceFact))
		}
	}
	for label, value := range labels {
		taken[labelKey(label)] = value
	}
	if len(taken) == 0 {
		return Attributes{}
	}
	a := Attributes{values: make([]unique.Handle[any], 0, len(taken)), addresses: addressesIn(taken[factKey([]string{"addresses"})])}
	var keys strings.Builder
	for _, key := range slices.Sorted(maps.Keys(taken)) {
		keys.WriteString(string(appendText(nil, key)))
		a.values = append(a.values, unique.Make(taken[key]))
	}
	a.keys = unique.Make(keys.String())
	return a
}

// addressesIn returns the addresses in a list of texts.
func addressesIn(value any) (addresses []netip.Addr) {
	encoded, _ := value.(list)
	r := msgpack.NewReader([]byte(encoded))
	for range r.Array() {
		if r.Kind() != msgpack.KindString {
			r.Skip()
			continue
		}
		if addr, err := netip.ParseAddr(string(r.Text())); err == nil {
			addresses = append(addresses, addr.Unmap().WithZone(""))
		}
	}
	return addresses
}

// takeMap takes the entries of a map whose own key is given.
func takeMap(taken map[string]any, r *msgpack.Reader, key string) {
	for range r.Map() {
		word := r.Kind()
		if word != msgpack.KindString {
			r.Skip()
			r.Skip()
			continue
		}
		inner := key + string(appendText(nil, string(r.Text())))
		if _, again := taken[inner]; len(inner) > maxPath || len(taken) >= MaxFacts && !again {
			r.Skip()
			continue
		}
		takeFact(taken, r, inner)
	}
}

// takeFact takes one value, and what is in it if it is a map.
func takeFact(taken map[string]any, r *msgpack.Reader, key string) {
	switch r.Kind() {
	case msgpack.KindNil:
		r.Nil()
	case msgpack.KindString:
		taken[key] = shortText(string(r.Text()))
	case msgpack.KindArray:
		raw := r.Raw()
		taken[key] = present{}
		if len(raw) <= maxList {
			taken[key] = list(raw)
		}
	case msgpack.KindMap:
		taken[key] = present{}
		takeMap(taken, r, key)
	default:
		taken[key] = comparedScalar(r.Any())
	}
}

// shortText returns a text, or that there is one if it is long.
func shortText(text string) any {
	if len(text) > maxText {
		return present{}
	}
	return text
}

// comparedScalar returns a value that targets compare, or that there is one.
func comparedScalar(value any) any {
	switch v := value.(type) {
	case bool, int64, uint64:
		return v
	case float64:
		if !math.IsNaN(v) {
			return v
		}
	}
	return present{}
}

// find returns the number of a key among those of hosts that have these keys, -1 if it is
// not among them.
func find(keys, key string) int {
	for n := 0; keys != ""; n++ {
		size, head := binary.Uvarint([]byte(keys[:min(len(keys), binary.MaxVarintLen64)]))
		if keys[head:head+int(size)] == key {
			return n
		}
		keys = keys[head+int(size):]
	}
	return -1
}

// appendText appends a text after its length.
func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func labelKey(label string) string { return string(sourceLabel) + label }

func factKey(path []string) string {
	key := []byte{sourceFact}
	for _, word := range path {
		key = appendText(key, word)
	}
	return string(key)
}
