package harp

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzHostList reads what may be the hosts of a batch: what is taken is written in one way.
func FuzzHostList(f *testing.F) {
	for _, names := range [][]string{nil, {"a"}, {"web01", "web02"}} {
		b, err := EncodeHosts(names)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, len(names))
	}
	f.Add([]byte{0xff, 0xff, 'a'}, 1)
	f.Add([]byte{0, 1, 'b', 0, 1, 'a'}, 2)
	f.Fuzz(func(t *testing.T, hosts []byte, count int) {
		l := HostList{Count: count, Digest: digestOfHosts(hosts)}
		names, err := l.Names(hosts)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := EncodeHosts(names); err != nil || !bytes.Equal(again, hosts) || len(names) != count {
			t.Errorf("%q are %x, not %x: %v", names, again, hosts, err)
		}
	})
}
