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
	owner, err := command.Owner()
	if err != nil {
		return err
	}
	if owner.UID == os.Geteuid() {
		return fn()
	}
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		failed <- func() error {
			if err := unix.Setgroups(owner.Groups); err != nil { // of this thread alone
				return err
			}
			if err := unix.Setfsgid(owner.GID); err != nil {
				return err
			}
			if err := unix.Setfsuid(owner.UID); err != nil {
				return err
			}
			return fn()
		}()
	}()
	return <-failed
}
