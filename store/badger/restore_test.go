package badger_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/storetest"
)

func TestBackup(t *testing.T) {
	storetest.Backup(t,
		func(t *testing.T) store.Store { return open(t, t.TempDir(), badger.Options{}) },
		func(t *testing.T, r io.Reader, at time.Time) (store.Store, store.Restored, error) {
			dir := filepath.Join(t.TempDir(), "restored")
			did, err := badger.RestoreAt(dir, r, at, quiet(badger.Options{}))
			if err != nil {
				if files, also := os.ReadDir(dir); also != nil || len(files) > 0 {
					t.Errorf("a backup that was refused left %v, %v", files, also)
				}
				return nil, did, err
			}
			st, err := badger.Open(dir, quiet(badger.Options{}))
			return st, did, err
		})
}

func backupOf(t *testing.T) []byte {
	t.Helper()
	st := open(t, t.TempDir(), badger.Options{})
	defer st.Close()
	submit(t, st, "h")
	var backup bytes.Buffer
	if err := st.Backup(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	return backup.Bytes()
}

// TestRestoreNotEmpty leaves alone what is there.
func TestRestoreNotEmpty(t *testing.T) {
	backup, dir := backupOf(t), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := badger.Restore(dir, bytes.NewReader(backup), quiet(badger.Options{})); !errors.Is(err, badger.ErrNotEmpty) {
		t.Fatalf("restoring into it: %v, want ErrNotEmpty", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Fatalf("the file is %q, %v", got, err)
	}
}

// TestRestoreCrash looks at what a crash half way would leave: nothing that opens.
func TestRestoreCrash(t *testing.T) {
	backup, dir, left := backupOf(t), filepath.Join(t.TempDir(), "store"), t.TempDir()
	in := readerFunc(func(b []byte) (int, error) {
		if err := os.CopyFS(filepath.Join(left, "at"), os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		return 0, io.ErrUnexpectedEOF
	})
	most := io.MultiReader(bytes.NewReader(backup[:len(backup)-1]), in)
	if _, err := badger.Restore(dir, most, quiet(badger.Options{})); err == nil {
		t.Fatal("half a backup was restored")
	}
	if st, err := badger.Open(filepath.Join(left, "at"), quiet(badger.Options{})); err == nil {
		t.Errorf("what a crash left was opened, and closed: %v", st.Close())
	}
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestRestoreNoSpace ends with ErrNoSpace before the disk is full.
func TestRestoreNoSpace(t *testing.T) {
	full := badger.Options{Disk: func(string) (uint64, uint64, error) { return 1, 1 << 40, nil }}
	_, err := badger.Restore(filepath.Join(t.TempDir(), "store"), bytes.NewReader(backupOf(t)), quiet(full))
	if !errors.Is(err, harp.ErrNoSpace) {
		t.Fatalf("restoring to a full disk: %v, want ErrNoSpace", err)
	}
}
