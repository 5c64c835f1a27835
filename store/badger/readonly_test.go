//go:build linux && !race

package badger_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestDiskBecomesReadOnly aborts the journal of a file system while a process works on it as
// fast as it can. A sync that is under way then may succeed without having put anything on the
// disk. The store says that a commit failed, acknowledges nothing from then on, is closed though
// its tables cannot be written, and all that it has acknowledged is there.
func TestDiskBecomesReadOnly(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	needs.Programs(t, "fsck.ext4")
	image, mount := filepath.Join(inMemory(t), "image"), t.TempDir()
	run(t, "truncate", "-s", "400M", image)
	run(t, "mkfs.ext4", "-q", image)
	dir, jobs := filepath.Join(mount, "store"), map[string]*acked{}
	const rounds = 10 // one in ten loses something where syncs are not confirmed
	for round := range rounds {
		run(t, "mount", "-o", "loop", image, mount)
		failed := workUntil(t, dir, jobs, 100+10*round, func() { run(t, "mount", "-o", "remount,abort", mount) })
		if len(failed) == 0 {
			t.Error("the store did not fail")
		}
		for _, said := range failed {
			if !strings.HasPrefix(said, "poisoned") || !strings.Contains(said, syscall.EROFS.Error()) && !strings.Contains(said, syscall.EIO.Error()) {
				t.Error(said)
			}
		}
		run(t, "umount", mount)
		mend(t, image)
		run(t, "mount", "-o", "loop", image, mount)
		checkAcked(t, dir, jobs)
		run(t, "umount", mount)
	}
}

// mend repairs the file system in an image.
func mend(t *testing.T, image string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "fsck.ext4", "-y", image).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return // it has repaired something
	}
	if err != nil {
		t.Fatalf("fsck: %v\n%s", err, out)
	}
}

// TestUnconfirmedSyncIsNotAcknowledged has a store ask a file system whose journal was aborted
// whether its syncs were made, after they succeeded. It does not acknowledge them.
func TestUnconfirmedSyncIsNotAcknowledged(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mount := disk{"ext4", 16}.mount(t)
	f, err := os.Create(filepath.Join(mount, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := openEngine(t, t.TempDir())
	write := rows.Write{Key: []byte("key"), Value: []byte("value")}
	undo := badger.Probe(e, f)
	commit(t, e, write)
	run(t, "mount", "-o", "remount,abort", mount)
	if err := e.Commit([]rows.Write{write}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a commit whose sync is not confirmed: %v", err)
	}
	undo()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyIsNotFull asks a store how much space there is when its log needs blocks of a disk
// that has become read-only. That is no lack of space, which would be waited for: the next commit
// fails.
func TestReadOnlyIsNotFull(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mount := disk{"ext4", 16}.mount(t)
	f, err := os.Create(filepath.Join(mount, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := openEngine(t, t.TempDir())
	undo := badger.LogOn(e, f)
	run(t, "mount", "-o", "remount,abort", mount)
	if got := e.Space(); got == store.SpaceFull {
		t.Errorf("the space of a disk that is read-only is %s", got)
	}
	if err := e.Commit([]rows.Write{{Key: []byte("key"), Value: []byte("value")}}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a commit: %v, want EROFS", err)
	}
	undo()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnconfirmedCommitIsShownToNobody has a commit fail after its syncs. What it wrote may
// not be there when the store is opened again, so no view shows it.
func TestUnconfirmedCommitIsShownToNobody(t *testing.T) {
	unwritable, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer unwritable.Close()
	e := openEngine(t, t.TempDir())
	undo := badger.Probe(e, unwritable)
	if err := e.Commit([]rows.Write{{Key: []byte("key"), Value: []byte("value")}}); err == nil {
		t.Fatal("the commit was confirmed")
	}
	snap := view(t, e)
	if value, err := snap.Get([]byte("key")); value != nil || err != nil {
		t.Errorf("a view shows %q, %v", value, err)
	}
	snap.Close()
	undo()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
