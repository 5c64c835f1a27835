package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// A store for a test, or for a service that needs to keep nothing.
func ExampleOpen() {
	st := memory.Open(nil)
	fmt.Println(len(st.ID()) > 0, st.Close())
	// Output: true <nil>
}

// A disk in memory outlives its store, so that a test can crash a dispatcher and open
// the next one.
func ExampleNewDisk() {
	disk := memory.NewDisk()
	st := memory.OpenDisk(disk, nil)
	id := st.ID()

	disk.Crash()
	_, err := st.OpenSession(context.Background(), store.Session{Host: "web01"})
	fmt.Println(errors.Is(err, memory.ErrCrashed))
	_ = st.Close() // of a crashed store: what it returns says nothing new

	st = memory.OpenDisk(disk, nil)
	fmt.Println(st.ID() == id, st.Close())
	// Output:
	// true
	// true <nil>
}
