package badger_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// fakeDisk is a disk whose free space a test sets, less what the ballast takes.
type fakeDisk struct {
	free  atomic.Int64
	asked atomic.Int64
	empty chan struct{} // gets one when it was asked and had nothing free
}

func newFakeDisk(free int64) *fakeDisk {
	d := &fakeDisk{empty: make(chan struct{}, 1)}
	d.free.Store(free)
	return d
}

const (
	fakeLow      = 64 << 20
	fakeCritical = 16 << 20
	fakeBallast  = 4 << 20 // a quarter of it
)

func (d *fakeDisk) options() badger.Options {
	return badger.Options{LowSpace: fakeLow, CriticalSpace: fakeCritical, Disk: d.space}
}

func (d *fakeDisk) space(dir string) (free, total uint64, err error) {
	d.asked.Add(1)
	if free = uint64(d.free.Load()); free == 0 {
		select {
		case d.empty <- struct{}{}:
		default:
		}
	}
	if ballastBlocks(dir) > 0 {
		free -= min(free, fakeBallast)
	}
	return free, 1 << 40, nil
}

func ballastBlocks(dir string) int64 {
	n, err := badger.Blocks(filepath.Join(dir, badger.BallastName))
	if err != nil {
		return 0
	}
	return n
}

// TestBallast follows the ballast down to a disk that is almost full and up again:
// it goes when the critical line is reached, its going is not taken for space, and it
// comes back when there is plenty.
func TestBallast(t *testing.T) {
	dir, disk := t.TempDir(), newFakeDisk(fakeLow+fakeBallast)
	st := open(t, dir, disk.options())
	defer st.Close()
	put := func() error { return st.PutDocument(t.Context(), "kind", "name", nil) }
	check := func(free int64, space store.Space, isHeld bool) {
		t.Helper()
		disk.free.Store(free)
		if err := put(); (err != nil) != (space == store.SpaceCritical) {
			t.Fatalf("a write with %d bytes free: %v", free, err)
		}
		if got := st.Space(); got != space {
			t.Fatalf("with %d bytes free the space is %s, want %s", free, got, space)
		}
		blocks := ballastBlocks(dir)
		if isHeld && blocks < fakeBallast || !isHeld && blocks != 0 {
			t.Fatalf("with %d bytes free the ballast takes %d bytes", free, blocks)
		}
	}
	check(fakeLow+fakeBallast, store.SpacePlenty, true)
	check(fakeLow+fakeBallast-1, store.SpaceLow, true)
	check(fakeCritical+fakeBallast, store.SpaceLow, true)
	check(fakeCritical+fakeBallast-1, store.SpaceCritical, false)
	check(fakeCritical+fakeBallast-1, store.SpaceCritical, false)
	check(fakeCritical+fakeBallast, store.SpaceLow, false)
	check(fakeLow+fakeBallast-1, store.SpaceLow, false)
	check(fakeLow+fakeBallast, store.SpacePlenty, true)
}

// TestSpaceIsAskedSeldom checks that a commit does not ask the disk each time, and that
// much that is written does.
func TestSpaceIsAskedSeldom(t *testing.T) {
	disk := newFakeDisk(1 << 30)
	o := disk.options()
	o.Logger = slog.New(slog.DiscardHandler)
	o.Lazy()
	st, err := badger.Open(t.TempDir(), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	const documents = 200
	before := disk.asked.Load()
	for range documents {
		if err := st.PutDocument(t.Context(), "kind", "name", nil); err != nil {
			t.Fatal(err)
		}
	}
	if asked := disk.asked.Load() - before; asked > documents/4 { // by the clock
		t.Errorf("%d writes asked the disk %d times", documents, asked)
	}
	disk.free.Store(0)
	content := make([]byte, 1<<20)
	for n := 0; ; n++ {
		err := st.PutDocument(t.Context(), "kind", "name", content)
		if errors.Is(err, harp.ErrNoSpace) {
			break
		}
		if err != nil || n > badger.StaleBytes/len(content)+1 {
			t.Fatalf("after %d MiB more: %v, want ErrNoSpace", n, err)
		}
	}
}

// TestSpaceIsWatched fills a disk while nothing is written: the ballast goes all the
// same.
func TestSpaceIsWatched(t *testing.T) {
	dir, disk := t.TempDir(), newFakeDisk(1<<30)
	st := open(t, dir, disk.options())
	defer st.Close()
	if ballastBlocks(dir) == 0 {
		t.Fatal("there is no ballast")
	}
	disk.free.Store(0)
	select {
	case <-disk.empty:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody asks")
	}
	if st.Space() != store.SpaceCritical || ballastBlocks(dir) > 0 { // Space waits for who asks
		t.Fatalf("space is %s, the ballast takes %d bytes", st.Space(), ballastBlocks(dir))
	}
}

// TestOpenFull does not open a store where that would fill the disk.
func TestOpenFull(t *testing.T) {
	dir, disk := t.TempDir(), newFakeDisk(1<<30)
	st := open(t, dir, disk.options())
	left := filepath.Join(t.TempDir(), "left") // as after a crash, its log not yet in tables
	if err := st.PutDocument(t.Context(), "kind", "name", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	disk.free.Store(1000)
	o := disk.options()
	if _, err := badger.Open(left, quiet(o)); !errors.Is(err, harp.ErrNoSpace) {
		t.Fatalf("opening on a full disk: %v, want ErrNoSpace", err)
	}
	disk.free.Store(1 << 30)
	st = open(t, left, disk.options())
	if _, err := st.Document(t.Context(), "kind", "name"); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
