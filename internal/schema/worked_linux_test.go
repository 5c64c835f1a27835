package schema_test

import (
	"runtime"
	"syscall"
	"time"
)

// worked returns how much time of a processor f takes in its own thread.
func worked(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	f()
	return threadTime() - begun
}

func threadTime() time.Duration {
	const ofThread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(ofThread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
