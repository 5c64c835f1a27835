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
	fakeLow      = 256 << 20
	fakeCritical = 64 << 20
	fakeBallast  = 16 << 20
)

func (d *fakeDisk) options() badger.Options {
	return badger.Options{LowSpace: fakeLow, CriticalSpace: fakeCritical, Ballast: fakeBallast, Disk: d.space}
}

func (d *fakeDisk) space(dir string) (free, total uint64, err error) {
	d.asked.Add(1)
	if free = uint64(d.free.Load()); free == 0 {
		select {
		case d.empty <- struct{}{}:
		default:
		}
	}
	return free - min(free, uint64(ballastBlocks(dir))), 1 << 40, nil
}

func ballastBlocks(dir string) int64 {
	n, err := badger.Blocks(filepath.Join(dir, badger.BallastName))
	if err != nil {
		return 0
	}
	return n
}

// TestBallast follows the ballast down to a disk that is full and up again: it is there
// below the critical line, goes as far as badger needs room, is not taken for space, and is
// made whole when there is space again.
func TestBallast(t *testing.T) {
	dir, disk := t.TempDir(), newFakeDisk(fakeLow+fakeBallast)
	st := open(t, dir, disk.options())
	defer st.Close()
	j := submit(t, st, "away")
	const none, some, whole = 0, 1, 2
	check := func(free int64, space store.Space, held int) {
		t.Helper()
		disk.free.Store(free)
		if err := st.PutDocument(t.Context(), "kind", "name", nil); (err != nil) != (space <= store.SpaceCritical) {
			t.Fatalf("a write with %d bytes free: %v", free, err)
		}
		if got := st.Space(); got != space {
			t.Fatalf("with %d bytes free the space is %s, want %s", free, got, space)
		}
		got, blocks := some, ballastBlocks(dir)
		switch {
		case blocks == 0:
			got = none
		case blocks >= fakeBallast:
			got = whole
		}
		if got != held {
			t.Fatalf("with %d bytes free the ballast takes %d bytes", free, blocks)
		}
	}
	check(fakeLow+fakeBallast, store.SpacePlenty, whole)
	check(fakeLow+fakeBallast-1, store.SpaceLow, whole)
	check(fakeCritical+fakeBallast, store.SpaceLow, whole)
	check(fakeCritical+fakeBallast-1, store.SpaceCritical, whole)
	check(badger.LogSpare+fakeBallast/2, store.SpaceCritical, some)
	check(badger.LogSpare-1, store.SpaceFull, none)
	changes, err := st.Apply(t.Context(), store.Transition{ID: j.ID, Event: store.Event{Kind: store.CancelReq, At: time.Now()}})
	if err != nil || !errors.Is(changes[0].Err, harp.ErrNoSpace) {
		t.Fatalf("a cancel on a full disk: %v %v", err, changes)
	}
	if active, err := st.Active(t.Context(), ""); err != nil || len(active) > 0 {
		t.Fatalf("reading on a full disk: %d jobs, %v", len(active), err)
	}
	check(fakeCritical+fakeBallast-1, store.SpaceCritical, none)
	check(fakeCritical+fakeBallast, store.SpaceLow, whole)
	check(fakeLow+fakeBallast, store.SpacePlenty, whole)
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
	defer disk.free.Store(1 << 30) // without space it is not closed
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
	defer disk.free.Store(1 << 30) // without space it is not closed
	if ballastBlocks(dir) == 0 {
		t.Fatal("there is no ballast")
	}
	disk.free.Store(0)
	select {
	case <-disk.empty:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody asks")
	}
	if st.Space() != store.SpaceFull || ballastBlocks(dir) > 0 { // Space waits for who asks
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
