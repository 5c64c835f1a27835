package badger_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// TestCloseAfterReadingDamage reads a long value of which the log says another length than it
// has. That is damage, and the store can be closed all the same.
func TestCloseAfterReadingDamage(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, badger.Options{})
	s := submission("h")
	s.Request.Request = bytes.Repeat([]byte{7}, 8<<10)
	out, err := st.Submit(t.Context(), []store.Submission{s}, time.Now())
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	for range 2 { // the log is not the newest any more
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open(t, dir, badger.Options{})
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// The header of the log is of 20 bytes, that of its first entry begins with two of flags
	// and the length of the key in one.
	const valueLength = 20 + 2 + 1
	content[valueLength] ^= 0x40
	overwrite(t, name, content)

	st = open(t, dir, badger.Options{})
	if _, err := st.Request(t.Context(), out[0].Job.ID); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("the request: %v, want ErrDamaged", err)
	}
	closed := make(chan error)
	go func() { closed <- st.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the store does not close")
	}
}
