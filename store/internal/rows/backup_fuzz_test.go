package rows

import (
	"bytes"
	"testing"
)

// FuzzRestore restores what may be a backup, of which all frames are as somebody wrote them: there is a store then, or an error, and never
// half a store.
func FuzzRestore(f *testing.F) {
	s := opened(f, newTrial(), Options{})
	row := func(key, value string) []byte {
		return append(append([]byte{byte(len(key))}, key...), append([]byte{byte(len(value))}, value...)...)
	}
	f.Add(encode(headRow{Store: s.id, Format: formatVersion}), byte(frameRows), row("!n", "x"), encode(tailRow{Rows: 1}))
	f.Add(encode(headRow{Format: formatVersion}), byte(frameRows), row("q\x81\xa1q\x01", ""), encode(tailRow{Rows: 1}))
	f.Add(encode(headRow{Format: formatVersion}), byte(frameTail), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, head []byte, kind byte, content, tail []byte) {
		var b bytes.Buffer
		b.WriteString(backupTitle)
		w := &frameWriter{ctx: t.Context(), w: &b}
		for _, frame := range []struct {
			kind    byte
			payload []byte
		}{{frameHead, head}, {kind, content}, {frameTail, tail}} {
			if err := w.frame(frame.kind, frame.payload); err != nil {
				t.Fatal(err)
			}
		}
		e := newTrial()
		did, err := Restore(e, &b, noon, Options{})
		if err == nil && did.ID == "" {
			t.Errorf("%+v", did)
		}
	})
}

// FuzzOpenCursor opens what may be cursors of listings.
func FuzzOpenCursor(f *testing.F) {
	s := opened(f, newTrial(), Options{})
	f.Add(s.eventCursor(7))
	f.Add(makeCursor('n', []byte("name")))
	f.Fuzz(func(t *testing.T, cursor string) {
		for kind := range 256 {
			if says, err := openCursor(byte(kind), cursor); err == nil && makeCursor(byte(kind), says) != cursor {
				t.Errorf("%q says %q", cursor, says)
			}
		}
		_, _ = s.openEventCursor(cursor)
	})
}
