//go:build linux && !race

package badger_test

import (
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// TestCompactWithoutDescriptors compacts a store in a process that has next to no file
// descriptors left. Badger would drop what it could not make a table of, without an error,
// and ends the process where it cannot make a log. Whatever was acknowledged is there, and
// nothing more is taken until there are descriptors again.
func TestCompactWithoutDescriptors(t *testing.T) {
	if !inNamespace(t) { // the limit is the process's
		return
	}
	f := &fullDisk{t: t, dir: disk{"tmpfs", 400}.mount(t), load: rowsLoad, jobs: map[string]*told{}}
	f.open()
	for range 8 {
		for n := 0; n < 60; {
			f.await(store.SpacePlenty)
			if err := f.work(); err == nil {
				n++
			} else if f.wanted(err) != nil {
				t.FailNow()
			}
		}
		giveBack := useUpDescriptors(t)
		err := f.st.Compact(t.Context())
		giveBack()
		if err != nil {
			t.Error("compaction without descriptors:", err)
		}
		f.check()
	}
	giveBack := useUpDescriptors(t)
	f.await(store.SpaceCritical)
	giveBack()
	f.await(store.SpacePlenty)
	f.close()
	f.open()
	f.check()
	if err := f.st.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.check()
	f.close()
}

// TestCloseWithoutDescriptors closes a store in a process that has next to no file descriptors
// left, which badger would wait for. It is closed when there are some.
func TestCloseWithoutDescriptors(t *testing.T) {
	if !inNamespace(t) { // the limit is the process's
		return
	}
	st := open(t, t.TempDir(), badger.Options{})
	submit(t, st, "h")
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(l syscall.Rlimit) {
		t.Helper()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	limit(syscall.Rlimit{Cur: 3, Max: before.Max})
	closed := make(chan error, 1)
	go func() { closed <- st.Close() }()
	select {
	case err := <-closed:
		refused(t, "closing", err)
	case <-time.After(time.Minute):
		t.Error("it does not close, and says nothing")
	}
	limit(before)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// await waits until there is so much space.
func (f *fullDisk) await(space store.Space) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); f.st.Space() != space; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("the space is %s, want %s", f.st.Space(), space)
		}
	}
}

// useUpDescriptors takes all file descriptors of the process but two, and every now and then
// those as well, until it is told to give them back.
func useUpDescriptors(t *testing.T) (giveBack func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: 256, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	taken := takeDescriptors()
	for _, f := range taken[:6] {
		f.Close() //nolint:errcheck // nothing was written
	}
	stop := make(chan struct{})
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			all := takeDescriptors()
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			for _, f := range all {
				f.Close() //nolint:errcheck // nothing was written
			}
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		}
	})
	return func() {
		close(stop)
		taking.Wait()
		for _, f := range taken[6:] {
			f.Close() //nolint:errcheck // nothing was written
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
}

// takeDescriptors takes all that there are.
func takeDescriptors() (taken []*os.File) {
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return taken
		}
		taken = append(taken, f)
	}
}
