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
		switch class {
		case "i":
			class = string(key[:2])
		case "d": // a text, behind its length in two bytes: the kind
			class += " " + string(key[3:3+key[2]])
			if head, _, many := strings.Cut(class, " of "); many { // a kind for each notification
				class = head
			}
		}
		r := s[class]
		s[class] = rowsOf{r.count + 1, r.bytes + int64(len(key)+len(next(in)))}
	}
}

// remembered are the classes of what is remembered of what is not there any more: for a month of jobs that were pruned, and of operations; and the epoch
// of each host that was removed, above which that of its next session must be.
var remembered = []string{"t", "ix", "x", "c", "ic", "k", "ik", "h"}

// checkGrowth fails if there is more of a class than twice what there was.
func (s stored) checkGrowth(t *testing.T, was stored) {
	t.Helper()
	for class, is := range s {
		if slices.Contains(remembered, class) {
			continue
		}
		if had := was[class]; is.count > 2*had.count+2000 || is.bytes > 2*had.bytes+32*mebi {
			t.Errorf("rows %s grow from %d (%d KiB) after the first round to %d (%d KiB) after the last", class, had.count, had.bytes>>10, is.count, is.bytes>>10)
		}
	}
}

func next(in *bytes.Buffer) []byte {
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil
	}
	return in.Next(int(size))
}
