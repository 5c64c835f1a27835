package memory

import (
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Test(t, func(*testing.T) store.Store { return Open(nil) })
}

// TestReopen opens stores on a disk that outlives them, so that what only the
// rows say is tried without a disk.
func TestReopen(t *testing.T) {
	storetest.Reopen(t, func(*testing.T) func() (store.Store, error) {
		d := NewDisk()
		return func() (store.Store, error) { return OpenDisk(d, nil), nil }
	})
}

func TestBackup(t *testing.T) {
	storetest.Backup(t, func(*testing.T) store.Store { return Open(nil) },
		func(_ *testing.T, r io.Reader, at time.Time) (store.Store, store.Restored, error) {
			d := NewDisk()
			did, err := Restore(d, r, at, nil)
			if err != nil {
				return nil, did, err
			}
			return OpenDisk(d, nil), did, nil
		})
}

// TestDisk crashes a store: what it had committed is there when the disk is opened
// again, and it commits nothing any more.
func TestDisk(t *testing.T) {
	d := NewDisk()
	first := OpenDisk(d, nil)
	put := func(st store.Store, content string) error {
		return st.PutDocument(t.Context(), "kind", "name", []byte(content))
	}
	if err := put(first, "before"); err != nil {
		t.Fatal(err)
	}
	d.Crash()
	second := OpenDisk(d, nil)
	if err := put(first, "after"); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, ErrCrashed) {
		t.Fatalf("a write after the crash: %v", err)
	}
	if got, err := second.Document(t.Context(), "kind", "name"); err != nil || string(got) != "before" || second.ID() != first.ID() {
		t.Fatalf("after the crash there is %q, %v, id %s of %s", got, err, second.ID(), first.ID())
	}

	d.SetSpace(store.SpaceCritical)
	if err := put(second, "x"); !errors.Is(err, harp.ErrNoSpace) || second.Space() != store.SpaceCritical {
		t.Fatalf("a write without space: %v", err)
	}
	d.SetSpace(store.SpacePlenty)
	if err := put(second, "x"); err != nil {
		t.Fatal(err)
	}

	broken := errors.New("broken")
	d.FailCommits(broken)
	if err := put(second, "y"); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
		t.Fatalf("a write that fails: %v", err)
	}
	d.FailCommits(nil)
	if err := put(second, "y"); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("a write after one that failed: %v", err)
	}
	for _, st := range []store.Store{first, second} {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
