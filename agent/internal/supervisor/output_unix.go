//go:build unix

package supervisor

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// readNow reads what is there, whatever the deadline of a pipe was. It waits for nothing: the
// error is unix.EAGAIN then. At the end it is nil, and nothing was read.
func readNow(pipe *os.File, b []byte) (n int, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := pipe.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	control := raw.Read(func(fd uintptr) bool {
		for n, err = unix.Read(int(fd), b); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), b)
		}
		return true
	})
	return max(n, 0), errors.Join(control, err)
}
