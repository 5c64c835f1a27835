package journal

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

// played is what the files hold after the script, and what the journal says then.
func played(t *testing.T, opts Options) (*Memory, model, int64) {
	t.Helper()
	mem, h := NewMemory(), newHistory()
	j, err := Open(mem, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := play(j, h); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return mem, h.now, j.Position()
}

// TestDamage: bytes are flipped or cut off. The journal refuses, naming the file, or
// opens with what it once held: all of it, or its position tells.
func TestDamage(t *testing.T) {
	t.Run("one segment", func(t *testing.T) { damage(t, Options{}, 300, 300) })
	t.Run("many segments", func(t *testing.T) { damage(t, small, 900, 0) })
}

func damage(t *testing.T, opts Options, refusedLeast, openedLeast int) {
	whole, want, position := played(t, opts)
	names, _ := whole.List()
	opened, refused := 0, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		mem := NewMemory()
		victim := names[r.IntN(len(names))]
		for _, name := range names {
			data := whole.Bytes(name)
			if name == victim && r.IntN(2) == 0 {
				data = data[:r.IntN(len(data))]
			} else if name == victim {
				data[r.IntN(len(data))] ^= byte(1 + r.IntN(255))
			}
			mem.Put(name, data)
		}
		j, err := Open(mem, opts)
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			if !strings.HasSuffix(corrupt.File, suffix) || !strings.Contains(err.Error(), corrupt.File) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			refused++
			continue
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		}
		opened++
		got, err := look(j, universe)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !once(got) {
			t.Fatalf("seed %d: it never held\n%+v", seed, got)
		}
		if j.Position() == position && len(got) != len(want) || j.Position() > position {
			t.Fatalf("seed %d: position %d of %d", seed, j.Position(), position)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d refused, %d opened", refused, opened)
	if refused < refusedLeast || opened < openedLeast {
		t.Errorf("%d refused, %d opened", refused, opened)
	}
}

// once reports whether each attempt is as it was at some moment of the script.
func once(got model) bool {
	h := newHistory()
	h.since = []model{{}}
	for _, o := range script() {
		o.model(h.now)
		h.since = append(h.since, h.now.clone())
	}
	return h.allows(got) == nil
}

// TestDamagedRead: a byte that flips while the journal is open is noticed when it
// is read.
func TestDamagedRead(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(Disk(dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	k := Key{"a", 1}
	if err := j.AcceptStart(k, Accept{}, now()); err != nil {
		t.Fatal(err)
	}
	c, err := j.Append(k, 0, []byte("needle"))
	if err := wait(c, err); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, segmentName(1))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), "needle", "noodle", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Records(k, 0, 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reading it: %v", err)
	}
}

// TestMissingSegment: a segment that was taken away is missed.
func TestMissingSegment(t *testing.T) {
	whole, _, _ := played(t, small)
	names, _ := whole.List()
	for _, victim := range names[:len(names)-1] {
		mem := NewMemory()
		for _, name := range names {
			if name != victim {
				mem.Put(name, whole.Bytes(name))
			}
		}
		if j, err := Open(mem, small); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), victim) {
			t.Errorf("without %s of %v: %v", victim, names, err)
			if err == nil {
				_ = j.Close()
			}
		}
	}
}
