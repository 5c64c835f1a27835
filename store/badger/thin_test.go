//go:build linux && !race

package badger_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestUnsyncedValueIsNotAcknowledged fills what lies below a file system: that has
// blocks to give and nothing to put them in, as a thin volume. A record in the value log
// that cannot be synced is not acknowledged, while the log of the memtable still can be.
func TestUnsyncedValueIsNotAcknowledged(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	below := disk{"tmpfs", 64}.mount(t)
	image := filepath.Join(below, "image")
	run(t, "truncate", "-s", "10G", image)
	run(t, "mkfs.ext4", "-q", "-O", "^has_journal", image)
	dir := t.TempDir()
	run(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })

	e := openEngine(t, filepath.Join(dir, "store"))
	st, err := rows.Open(e, rows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st.SetGate("h", store.Gate{Open: true, Most: 1})
	j := submit(t, st, "h")
	record := func(n int) error {
		_, err := st.Append(t.Context(), store.Append{
			ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(n), Arrived: time.Now(),
			Records: []harp.Record{{Value: bytes.Repeat([]byte{byte(n)}, 1500<<10)}},
		})
		return err
	}
	if err := record(0); err != nil {
		t.Fatal(err)
	}
	rest := takeRest(t, below)
	err = record(1)
	t.Logf("a record that cannot be synced: %v", err)
	if err == nil {
		t.Error("it was acknowledged")
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	if st.Close() == nil || !badger.CloseAnyway(e) {
		t.Error("closing it writes tables")
	}
}
