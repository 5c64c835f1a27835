//go:build linux && !race

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/needs"
)

// TestJournalOnADiskThatBecomesReadOnly aborts the journal of the file system while a file of
// an agent's journal is appended to and synced. What was synced is there when it is mounted
// again, though a sync that is under way then may succeed without having put it on the disk.
func TestJournalOnADiskThatBecomesReadOnly(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	needs.Programs(t, "fsck.ext4")
	image, mount := filepath.Join(t.TempDir(), "image"), t.TempDir()
	command(t, "truncate", "-s", "64M", image)
	command(t, "mkfs.ext4", "-q", image)
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	const rounds = 20 // one in five loses something where syncs are not confirmed
	for round := range rounds {
		mounted(t, "-o", "loop", image, mount)
		disk, name := journal.Disk(mount), fmt.Sprint(round)
		synced := appendUntilAborted(t, disk, name, mount)
		command(t, "umount", mount)
		command(t, "sh", "-c", `fsck.ext4 -y "$0" || [ $? = 1 ]`, image) // 1: it has repaired something
		mounted(t, "-o", "loop", image, mount)
		content, err := os.ReadFile(filepath.Join(mount, name))
		if err != nil || !bytes.HasPrefix(content, synced) {
			t.Errorf("of %d bytes that were synced in round %d not all are there: %v", len(synced), round, err)
		}
		must(t, disk.Remove(name))
		command(t, "umount", mount)
	}
}

// appendUntilAborted appends to a file until that fails, and returns what was synced.
func appendUntilAborted(t *testing.T, disk journal.FS, name, mount string) (synced []byte) {
	t.Helper()
	f, err := disk.Create(name)
	must(t, err)
	defer f.Close()
	must(t, disk.SyncDir())
	many, failed := make(chan bool), make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			entry := bytes.Repeat([]byte{byte(n)}, 3000)
			if _, err := f.Write(entry); err != nil {
				failed <- err
				return
			}
			if err := f.Sync(); err != nil {
				failed <- err
				return
			}
			if synced = append(synced, entry...); n == 20 {
				close(many)
			}
		}
	}()
	select {
	case <-many:
	case err := <-failed:
		t.Fatal(err)
	}
	command(t, "mount", "-o", "remount,abort", mount)
	if err := <-failed; !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EIO) {
		t.Errorf("a journal that was aborted: %v", err)
	}
	return synced
}
