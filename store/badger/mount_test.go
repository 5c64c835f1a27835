//go:build linux

package badger_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// insideEnv is set in a test process that has a mount namespace of its own.
const insideEnv = "HARP_TEST_STORE_INSIDE"

// inNamespace runs a test again in a process that may mount what it likes, whose mounts
// are gone when it is, and which a full disk may kill. It is true in there. Where a
// namespace cannot be made the test is skipped, and fails in CI.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	needs.Root(t)
	needs.Programs(t, "mount", "mkfs.ext4")
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if len(out) > 20_000 {
		out = out[:20_000]
	}
	t.Logf("in a mount namespace of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(out), "--- SKIP") {
		needs.Missing(t, "it was skipped in there")
	}
	return false
}

// disk is a file system of a size.
type disk struct {
	kind string
	mebi int
}

func (d disk) String() string { return fmt.Sprintf("%s-%d", d.kind, d.mebi) }

// mount makes the disk, in memory, and returns where it is.
func (d disk) mount(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var source, options string
	if d.kind == "tmpfs" {
		source, options = "tmpfs", fmt.Sprintf("size=%dm", d.mebi)
	} else {
		source, options = filepath.Join(inMemory(t), "image"), "loop"
		run(t, "truncate", "-s", fmt.Sprintf("%dM", d.mebi), source)
		run(t, "mkfs."+d.kind, "-q", source)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", d.kind, "-o", options, source, dir).CombinedOutput(); err != nil {
		needs.Missing(t, fmt.Sprintf("mount %s: %v: %s", d, err, out))
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// inMemory is a directory for the image of a disk, which syncs as fast as memory.
func inMemory(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8g"); err != nil {
		needs.Missing(t, fmt.Sprintf("mount: %v", err))
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// takeRest makes a file that takes what a disk has left, to the last byte.
func takeRest(t *testing.T, dir string) (file string) {
	t.Helper()
	file = filepath.Join(dir, "rest")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{1 << 20, 4 << 10} {
		for {
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if syscall.Fallocate(int(f.Fd()), 0, info.Size(), size) != nil {
				break
			}
		}
	}
	return file
}
