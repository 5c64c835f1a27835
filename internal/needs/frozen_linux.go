package needs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FrozenDisk is for a test that needs processes which cannot be ended: those that write to
// the directory sleep, and not even KILL wakes them, until thaw is called.
func FrozenDisk(t testing.TB) (dir string, thaw func()) {
	t.Helper()
	Root(t)
	Programs(t, "mount", "mkfs.ext4", "truncate")
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, argv := range [][]string{{"truncate", "-s", "16M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			Missing(t, argv, err, string(out))
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const freeze, unfreeze = 0xC0045877, 0xC0045878 // FIFREEZE, FITHAW
	if err := unix.IoctlSetInt(int(f.Fd()), freeze, 0); err != nil {
		_ = f.Close() // it was only opened
		Missing(t, "freeze: ", err)
	}
	thaw = func() {
		if f != nil {
			_ = unix.IoctlSetInt(int(f.Fd()), unfreeze, 0) // it was frozen here
			_ = f.Close()
			f = nil
		}
	}
	t.Cleanup(thaw)
	return dir, thaw
}
