package supervisor

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/agent/internal/proc"
)

const noFollow = syscall.O_NOFOLLOW

// asUser calls fn with the rights that the command's user has on files, on a thread that
// is not used for anything else after that.
func asUser(command proc.Spec, fn func() error) error {
	uid, gid, err := command.Owner()
	if err != nil {
		return err
	}
	if uid == os.Geteuid() {
		return fn()
	}
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		failed <- func() error {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return errno
			}
			if err := unix.Setfsgid(gid); err != nil {
				return err
			}
			if err := unix.Setfsuid(uid); err != nil {
				return err
			}
			return fn()
		}()
	}()
	return <-failed
}
