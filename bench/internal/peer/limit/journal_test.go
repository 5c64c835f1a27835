package limit

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// readJournal returns how many entries of each kind there are of jobs, and fails for one that
// is not as it was written.
func readJournal(t *testing.T, path string) map[byte]map[uint64][]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[byte]map[uint64][]byte{began: {}, ended: {}}
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b))
		body := b[8 : 8+n]
		if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[4:]) {
			t.Fatal("an entry is damaged")
		}
		out[body[0]][binary.BigEndian.Uint64(body[1:])] = body[headSize-8:]
		b = b[8+n:]
	}
	return out
}

// TestJournalBeforeAndAfter checks that the beginning of a job is in the file when it runs,
// and its result when it is returned, each behind a sync.
func TestJournalBeforeAndAfter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	answer := j.wrap(func(b []byte) ([]byte, error) {
		if got := readJournal(t, path); !bytes.Equal(got[began][1], b) || len(got[ended]) != 0 {
			t.Errorf("as it runs there is %v", got)
		}
		return []byte("result"), nil
	})
	if got, err := answer([]byte("job")); err != nil || string(got) != "result" {
		t.Errorf("%q, %v", got, err)
	}
	if got := readJournal(t, path); string(got[ended][1]) != "result" {
		t.Errorf("afterwards there is %v", got)
	}
	if err := j.Close(); err != nil || j.syncs != 2 {
		t.Errorf("%d syncs, want 2: %v", j.syncs, err)
	}
}

// TestJournalOfMany checks that each of many jobs is journalled.
func TestJournalOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 200
	answer := j.wrap(echo)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			if got, err := answer([]byte("job")); err != nil || string(got) != "job" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if got := readJournal(t, path); len(got[began]) != jobs || len(got[ended]) != jobs {
		t.Errorf("%d began and %d ended, want %d", len(got[began]), len(got[ended]), jobs)
	}
}

// TestJournalMerges checks that what waits is synced together.
func TestJournalMerges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const waiting = 100
	j := &journal{f: f, adds: make(chan add, most)}
	done := make(chan error, waiting)
	for n := range uint64(waiting) {
		j.adds <- add{began, n, []byte("job"), done}
	}
	j.done.Go(j.loop)
	if err := j.Close(); err != nil || j.syncs != 1 {
		t.Errorf("%d syncs, want 1: %v", j.syncs, err)
	}
	for range waiting {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := readJournal(t, path); len(got[began]) != waiting {
		t.Errorf("%d are in the file, want %d", len(got[began]), waiting)
	}
}

// TestJournalThatFails checks that no job runs whose beginning is not on the disk.
func TestJournalThatFails(t *testing.T) {
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
	answer := j.wrap(func([]byte) ([]byte, error) {
		t.Error("it ran")
		return nil, nil
	})
	if _, err := answer([]byte("job")); err == nil {
		t.Error("it was answered")
	}
	_ = j.Close() // it was closed before
}
