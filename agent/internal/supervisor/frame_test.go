package supervisor

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// FuzzFrames checks that whatever is read is a frame as it was written, or an error, and
// that neither costs more memory than was read.
func FuzzFrames(f *testing.F) {
	text, err := os.ReadFile(transcript)
	if err != nil {
		f.Fatal(err)
	}
	for s := range strings.Lines(string(text)) {
		_, digits, _ := strings.Cut(strings.TrimSpace(s), " ")
		b, _ := hex.DecodeString(digits)
		f.Add(b)
	}
	f.Add([]byte{0x03, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'R'})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := unbuffered(bytes.NewReader(b))
		rest := b
		for {
			fr, err := in.next()
			if err != nil {
				if cap(in.buf) > 2*len(b)+4*readStep {
					t.Fatalf("%d bytes made it take %d", len(b), cap(in.buf))
				}
				if errors.Is(err, io.EOF) && len(rest) > 0 {
					t.Fatalf("the end before the last %d bytes", len(rest))
				}
				return
			}
			again := appendFrame(nil, fr.kind, func(b []byte) []byte { return append(b, fr.body...) })
			if !bytes.HasPrefix(rest, again) {
				t.Fatalf("%x was read of %x", again, rest)
			}
			rest = rest[len(again):]
			_, _, _ = understand(fr)
			if _, r, ok := recordOf(fr); ok && !bytes.Equal(appendRecord(nil, &r), fr.body) {
				t.Fatalf("record %x is %+v", fr.body, r)
			}
		}
	})
}

// recordOf is the record that a frame of a spool file is.
func recordOf(fr frame) (kind byte, r Record, ok bool) {
	if fr.kind != entryRecord || len(fr.body) > 9 && fr.body[0]&flagTruncated != 0 {
		return fr.kind, r, false // a length can be written in several ways
	}
	r, err := decodeRecord(fr.body)
	return fr.kind, r, err == nil
}
