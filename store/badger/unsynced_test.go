//go:build linux && !race

package badger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// unsyncedEnv says what a child fails to sync: its manifest, or all that it maps.
const unsyncedEnv = "HARP_TEST_STORE_UNSYNCED"

func init() {
	switch os.Getenv(unsyncedEnv) {
	case "manifest":
		childDisk = func(string) (free, total uint64, err error) { return 1 << 30, 1 << 30, nil } // a small one
		inChild = loseManifest
	case "maps":
		inChild = func(string, store.Store) {
			time.Sleep(20 * time.Millisecond)
			failCalls(unix.SYS_MSYNC, nil)
		}
	}
}

// loseManifest has a store write its manifest, first with success, and then not.
func loseManifest(dir string, st store.Store) {
	ctx := context.Background()
	for n := 0; ; n++ {
		time.Sleep(20 * time.Millisecond)
		if err := st.Compact(ctx); err != nil {
			return
		}
		if n == 3 {
			failSyncsOf(filepath.Join(dir, badger.ManifestFilename))
		}
	}
}

// failSyncsOf has each fsync of an open file fail from now on.
func failSyncsOf(name string) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	at := slices.IndexFunc(fds, func(fd string) bool {
		to, err := os.Readlink(fd)
		return err == nil && to == name
	})
	if err != nil || at < 0 {
		fmt.Println("filter", name, "is not open", err)
		return
	}
	fd, err := strconv.ParseUint(filepath.Base(fds[at]), 10, 32)
	if err != nil {
		fmt.Println("filter", err)
		return
	}
	first := uint32(fd)
	failCalls(unix.SYS_FSYNC, &first)
}

// failCalls has a system call fail from now on, with this first argument or with any.
func failCalls(number uint32, first *uint32) {
	const atNumber, atFirst = 0, 16 // in what a filter is given
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: atNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if first != nil {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: atFirst},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: *first, Jt: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EIO)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Println("filter", err)
		return
	}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		fmt.Println("filter", failed)
	}
}

// TestManifestCannotBeSynced lets the disk fail once the manifest is synced, which badger has
// written by then and does not take back: it names tables that badger removes. The store fails,
// can be closed, and all that it has acknowledged is there when it is opened again.
func TestManifestCannotBeSynced(t *testing.T) {
	goesOnAfter(t, "manifest", badger.ManifestFilename)
}

// TestMapsCannotBeSynced lets the disk fail whatever is synced of what a store maps, its logs
// and tables. The store fails, and is closed without writing tables: in a compaction badger
// would drop each that cannot be synced, and with them all rows.
func TestMapsCannotBeSynced(t *testing.T) {
	goesOnAfter(t, "maps", syscall.EIO.Error())
}

// goesOnAfter has a child fail to sync something, and opens its store again.
func goesOnAfter(t *testing.T, unsynced, why string) {
	t.Helper()
	dir, jobs := t.TempDir(), map[string]*acked{}
	runChild(t, dir, jobs, 100)
	t.Setenv(unsyncedEnv, unsynced)
	failed := workUntil(t, dir, jobs, 1, func() {})
	if len(failed) == 0 {
		t.Error("the store did not fail")
	}
	for _, said := range failed {
		if strings.HasPrefix(said, "filter") {
			needs.Missing(t, said)
		}
		if !strings.HasPrefix(said, "poisoned") || !strings.Contains(said, why) {
			t.Error(said)
		}
	}
	t.Setenv(unsyncedEnv, "")
	checkAcked(t, dir, jobs)
}
