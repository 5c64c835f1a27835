package badger

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const (
	staleAfter = 200 * time.Millisecond // how old what is known of the disk may be
	staleBytes = 4 << 20                // and how much may have been written since

	spareFiles = 64 // file descriptors, and inodes of the disk, that are for no table

	// logSpare is what the logs may take before the disk is asked again: two groups are on
	// their way at a time, and a log is given blocks some MiB ahead.
	logSpare = 24 << 20
)

// guard watches the space on the disk. It keeps a ballast there, a file that takes blocks
// for nothing else than to give them back: when the disk is full, what is committed all the
// same and what badger then writes get theirs from it.
//
// What counts is the free space as it is with the whole ballast in place. So that giving
// some of it back does not look like more space.
type guard struct {
	dir  string
	opts Options

	mu      sync.Mutex
	asked   time.Time      // guarded by mu: when the disk was asked
	written uint64         // guarded by mu: bytes since then
	space   store.Space    // guarded by mu
	ballast ballast        // guarded by mu
	unknown bool           // guarded by mu: the disk has not answered
	few     bool           // guarded by mu: file descriptors are, or inodes
	backlog func() backlog // guarded by mu: nil until the database is open
}

// backlog is what badger has still to write, at most, of what has been committed. It
// writes it through memory maps, and does not ask.
type backlog struct {
	flush   uint64 // for memtables to become tables, after which their logs go
	compact uint64 // for the largest compactions that may run then, after which what they read goes
	flatten uint64 // for moving all to one level
	driven  bool   // compactions run only where compactLoop finds room for them
}

// must is what is written whether there is room or not.
func (b backlog) must() uint64 {
	if b.driven {
		return b.flush
	}
	return b.flush + withSpare(b.compact)
}

// hasFiles reports whether there are file descriptors and inodes for what is written: badger
// keeps a table's open, and the store fails with a compaction that could not make all of its tables.
func (g *guard) hasFiles(b backlog) bool {
	needed := spareFiles + (b.flush+b.compact)/baseTableSize
	if left, known := descriptors(); known && uint64(max(left, 0)) < needed {
		return false
	}
	left, known := inodes(g.dir)
	return !known || left >= needed
}

// fewestFiles is more than how many files opening makes, and closing, but for those of
// compactions that badger runs by itself: neither ends while it can make none.
const fewestFiles = 16

// fewFiles is harp.ErrNoSpace where there are too few file descriptors, or inodes of the disk,
// to open a store or close it.
func fewFiles(dir string) error {
	if left, known := descriptors(); known && left < fewestFiles {
		return fmt.Errorf("%w: that makes files, and %d file descriptors are left", harp.ErrNoSpace, left)
	}
	if left, known := inodes(dir); known && left < fewestFiles {
		return fmt.Errorf("%w: that makes files, and %d inodes are left", harp.ErrNoSpace, left)
	}
	return nil
}

// newGuard finds out how much space there is before the store is opened. Errors:
// harp.ErrNoSpace when there is too little to open it.
func newGuard(dir string, opts Options) (*guard, error) {
	g := &guard{dir: dir, opts: opts, space: store.SpacePlenty, ballast: findBallast(dir)}
	g.measure()
	logs, err := logSizes(dir)
	if err != nil {
		return nil, err
	}
	if err := fewFiles(dir); err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	needed := logs.largest + logSpare // they become tables one after the other
	if free, ok := g.haveSpaceLocked(needed); !ok {
		return nil, fmt.Errorf("%w: opening %s takes %d bytes and %d are free", harp.ErrNoSpace, dir, needed, free)
	}
	return g, nil
}

// haveSpaceLocked sees that so much is free, and takes from the ballast what is missing. It
// returns how much is free then, and whether that is enough.
func (g *guard) haveSpaceLocked(needed uint64) (free uint64, ok bool) {
	for {
		free, _, err := g.opts.Disk(g.dir)
		if err != nil || free >= needed {
			return free, true // what is not known has been logged
		}
		if !g.giveBackLocked(needed - free) {
			return free, false
		}
	}
}

// haveSpace is haveLocked.
func (g *guard) haveSpace(needed uint64) (free uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.haveSpaceLocked(needed)
}

// watch has the guard ask what badger has still to write.
func (g *guard) watch(backlog func() backlog) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backlog = backlog
}

// Space implements rows.Engine.
func (g *guard) Space() store.Space {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written >= staleBytes || time.Since(g.asked) >= g.opts.stale {
		g.measureLocked()
	}
	return g.space
}

// noteWritten notes that so many bytes went to the disk.
func (g *guard) noteWritten(size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written += uint64(size)
}

func (g *guard) measure() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.measureLocked()
}

// measureLocked asks how much is free, and makes the ballast whole if there is room for it.
func (g *guard) measureLocked() {
	g.asked, g.written = time.Now(), 0
	free, total, err := g.opts.Disk(g.dir)
	if err != nil {
		if !g.unknown {
			g.opts.Logger.Error("free space on disk is not known", "dir", g.dir, "err", err)
		}
		g.unknown, g.space = true, store.SpacePlenty
		return
	}
	g.unknown = false
	var open backlog
	if g.backlog != nil {
		open = g.backlog()
	}
	if must := open.must() + logSpare; free < must && g.backlog != nil {
		free, _ = g.haveSpaceLocked(must)
	}
	before := g.space
	g.space = g.spaceLocked(free, total, open)
	if before != g.space {
		g.opts.Logger.Warn("space on disk", "dir", g.dir, "space", g.space.String(), "free", free)
	}
	if size := g.opts.ballast(total); g.ballast.size < size && g.space >= store.SpaceLow {
		if err := g.ballast.grow(size); err != nil {
			g.opts.Logger.Error("ballast", "dir", g.dir, "err", err)
		}
	}
}

// spaceLocked is how much room there is on a disk with so much free. While less is free
// than badger may write by itself, nothing is taken that would make that more.
func (g *guard) spaceLocked(free, total uint64, open backlog) store.Space {
	if g.backlog != nil && free+g.ballast.size < open.flush+logSpare {
		return store.SpaceFull
	}
	low, critical := g.opts.lines(total)
	if g.backlog != nil {
		critical = max(critical, open.flush+withSpare(open.compact)+logSpare)
	}
	size := g.opts.ballast(total)
	free -= min(free, size-min(size, g.ballast.size))
	switch {
	case g.few || free < critical:
		return store.SpaceCritical
	case free < max(low, critical):
		return store.SpaceLow
	}
	return store.SpacePlenty
}

// withSpare is what must be free for compactions that write so much: tables have an
// index, which may be larger than those of the tables before.
func withSpare(size uint64) uint64 {
	if size == 0 {
		return 0
	}
	return size + size/16 + 4<<20
}

// noteFiles finds out whether there are file descriptors and inodes for what badger writes.
func (g *guard) noteFiles() {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.few
	if g.few = !g.hasFiles(g.backlog()); g.few && !before {
		g.opts.Logger.Error("file descriptors, or inodes of the disk, are few: the store takes only cancels and deletes, and compacts nothing, until there are more", "dir", g.dir)
	}
}

// hasRoom reports whether all may be moved to one level, as far as what that writes goes.
func (g *guard) hasRoom(open backlog) bool {
	if !g.hasFiles(open) {
		return false
	}
	free, _, err := g.opts.Disk(g.dir)
	return err != nil || free >= open.flush+withSpare(open.flatten)
}

// allocate gives a file blocks, from the ballast if there are no others.
func (g *guard) allocate(f *os.File, from, to int64) error {
	for {
		err := allocate(f, from, to-from)
		switch {
		case err == nil || errors.Is(err, errors.ErrUnsupported):
			return nil // where it cannot be done badger finds out when it writes
		case errors.Is(err, syscall.EINTR):
		case !isFull(err) || !g.giveBack(uint64(to-from)):
			return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
		}
	}
}

// giveBack takes so much from the ballast. It is false if there is nothing left.
func (g *guard) giveBack(size uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.giveBackLocked(size)
}

func (g *guard) giveBackLocked(size uint64) bool {
	had := g.ballast.size
	if had == 0 {
		return false
	}
	if err := g.ballast.shrink(size); err != nil {
		g.opts.Logger.Error("ballast", "dir", g.dir, "err", err)
	}
	return g.ballast.size < had
}

// lines are how many free bytes are low and how many are critical.
func (o *Options) lines(total uint64) (low, critical uint64) {
	low, critical = o.LowSpace, o.CriticalSpace
	if low == 0 {
		low = min(max(total/20, min(256<<20, total/4)), 5<<30)
	}
	if critical == 0 {
		critical = low / 4
	}
	return low, critical
}

// ballast is how large the ballast is.
func (o *Options) ballast(total uint64) uint64 {
	switch {
	case o.Ballast > 0:
		return uint64(o.Ballast)
	case o.Ballast < 0:
		return 0
	}
	return min(total/4, 96<<20)
}
