//go:build linux

package supervisor

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRemains reads what may be left of a spool file whose frames are as somebody wrote them: it is told to be damaged, or has as many
// records as there are.
func FuzzRemains(f *testing.F) {
	head, err := json.Marshal(header{Version: spoolVersion, Reserve: 1024, Spec: Spec{MaxSpool: 1 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	record := appendRecord(nil, &Record{Value: []byte("x")})
	f.Add(head, make([]byte, 2*slotSize), []byte{entryGo}, []byte("{}"), record, []byte("torn"))
	f.Add(head, []byte{1}, []byte{entryEnd}, []byte(`{"records":9223372036854775807}`), record, []byte{})
	f.Add([]byte(`{"version":1,"reserve":-1}`), []byte{}, []byte{entryStop}, []byte("{}"), record, record)
	f.Add([]byte(`{"version":1,"reserve":9223372036854775807,"spec":{"max_spool":-9223372036854775808}}`), []byte{}, []byte{0}, []byte{}, record, []byte{})
	f.Fuzz(func(t *testing.T, head, slots, notes, note, record, rest []byte) {
		written := func(body []byte) func([]byte) []byte { return func(b []byte) []byte { return append(b, body...) } }
		b := appendFrame(nil, entryHeader, written(head))
		b = append(b, slots...)
		at := len(b)
		for _, kind := range notes {
			b = appendFrame(b, kind, written(note))
		}
		var h header
		if json.Unmarshal(head, &h) == nil && h.Reserve > 0 && h.Reserve < 1<<16 {
			b = append(b, make([]byte, max(0, h.Reserve-int64(len(b)-at)-int64(len(slots))))...)
		}
		b = append(appendFrame(b, entryRecord, written(record)), rest...)
		path := filepath.Join(t.TempDir(), "spool")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readRemains(path)
		if err != nil {
			if !errors.Is(err, ErrVersion) && !errors.As(err, new(*DamagedError)) {
				t.Errorf("%v", err)
			}
			return
		}
		defer drop(m.f)
		if m.next.n < m.gone.n || len(m.marks) > len(b) {
			t.Errorf("%d bytes have records from %+v to %+v", len(b), m.gone, m.next)
		}
	})
}
