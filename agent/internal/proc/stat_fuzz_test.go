//go:build linux

package proc

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzStat reads what the kernel says of a process whose name is what its program likes: that changes nothing else.
func FuzzStat(f *testing.F) {
	f.Add("sh", 1, 2, 3, uint64(4))
	f.Add(") Z 1 2 3 (", 7, 7, 7, uint64(1)<<63)
	f.Add("a\nb) R 1", 0, -1, 1<<22, uint64(0))
	f.Fuzz(func(t *testing.T, name string, parent, group, session int, start uint64) {
		if strings.ContainsRune(name, 0) {
			return // it ends the name
		}
		text := fmt.Sprintf("7 (%s) S %d %d %d%s 1 0 %d 0 0\n", name, parent, group, session, strings.Repeat(" 0", 13), start)
		m, err := parseStat(7, []byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := member{pid: 7, name: name, parent: parent, group: group, session: session, start: start}
		if m != want {
			t.Errorf("%q is %+v", text, m)
		}
	})
}

// FuzzStatText reads what may be no such text.
func FuzzStatText(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 2 3" + strings.Repeat(" 0", 20)))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parseStat(7, text); err == nil && m.pid != 7 {
			t.Errorf("%q is %+v", text, m)
		}
	})
}
