//go:build linux && !race

package hostile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// rowsOf are how many rows there are of a class, and how many bytes.
type rowsOf struct{ count, bytes int64 }

// stored are rows by class: what their keys begin with.
type stored map[string]rowsOf

func (s stored) String() string {
	var all []string
	for _, class := range slices.Sorted(maps.Keys(s)) {
		all = append(all, fmt.Sprintf("%s %d (%d KiB)", class, s[class].count, s[class].bytes>>10))
	}
	return strings.Join(all, ", ")
}

// countRows counts the rows of the dispatcher's store in a backup of it.
func (s *stage) countRows(t *testing.T) stored {
	t.Helper()
	all := stored{}
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.caller.Backup(t.Context(), w)) }()
	must(t, errors.Join(all.read(r), r.Close()))
	return all
}

// read reads a backup: a line, and frames of a kind, a length, the content, and a checksum.
func (s stored) read(from io.Reader) error {
	in := bufio.NewReaderSize(from, 1<<20)
	if _, err := in.ReadBytes('\n'); err != nil {
		return err
	}
	var header [5]byte
	for {
		_, err := io.ReadFull(in, header[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content := make([]byte, binary.BigEndian.Uint32(header[1:])+4)
		if _, err := io.ReadFull(in, content); err != nil {
			return err
		}
		if header[0] == 'r' {
			s.add(content[:len(content)-4])
		}
	}
}

// add counts the rows of a frame: keys and values, each after its length.
func (s stored) add(content []byte) {
	for in := bytes.NewBuffer(content); in.Len() > 0; {
		key := next(in)
		class := string(key[:1])
		if class == "i" {
			class = string(key[:2])
		}
		r := s[class]
		s[class] = rowsOf{r.count + 1, r.bytes + int64(len(key)+len(next(in)))}
	}
}

func next(in *bytes.Buffer) []byte {
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil
	}
	return in.Next(int(size))
}
