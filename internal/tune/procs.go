package tune

import (
	"os"
	"runtime"
)

// spare is how many goroutines of a program wait for a disk at a time: the one that
// commits, or journals, and one that writes tables.
const spare = 2

// RaiseProcs lets so many more goroutines run at once than there are CPUs. One that waits in
// fsync or msync keeps another from running until the runtime has found it there twice
// (sysmon in runtime/proc.go looks every 20 µs to 10 ms): on a good disk that is as long
// as the call takes. Where there are two CPUs, a store and a journal that sync stop all
// else. Badger's documentation asks for a high GOMAXPROCS for the same reason
// (docs/troubleshooting.md, "Are there any Go specific settings that I should use?").
//
// A GOMAXPROCS in the environment holds instead. From now on the number does not follow
// the CPUs that the system lets the program have, until the function that is returned has
// undone it.
func RaiseProcs() (undo func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spare)
	return runtime.SetDefaultGOMAXPROCS
}
