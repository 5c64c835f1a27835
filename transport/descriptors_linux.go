package transport

import (
	"math"
	"net"
	"syscall"
)

// filesInUse returns how many percent of the files that the process may have open are in use, at least: a connection has the lowest
// number that was free. It is 0 if that is not known.
func filesInUse(nc net.Conn) (percent int) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur == 0 {
		return 0
	}
	most := uintptr(min(limit.Cur, math.MaxInt32))
	_ = raw.Control(func(fd uintptr) { percent = int(100 * fd / most) }) // it is closed already
	return percent
}
