package badger

import (
	"fmt"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const (
	staleAfter = 200 * time.Millisecond // how old what is known of the disk may be
	staleBytes = 4 << 20                // and how much may have been written since
)

// guard watches the space on the disk and keeps the ballast there: a file that takes
// blocks for nothing else than to give them back when they are needed.
//
// What counts is the free space as it is with the ballast in place. So that giving it
// back does not look like more space; it is made again when there is plenty beside
// it.
type guard struct {
	dir  string
	opts Options

	mu      sync.Mutex
	asked   time.Time   // guarded by mu: when the disk was asked
	written uint64      // guarded by mu: bytes since then
	space   store.Space // guarded by mu
	ballast ballast     // guarded by mu
	unknown bool        // guarded by mu: the disk has not answered
}

// newGuard finds out how much space there is before the store is opened. Errors:
// harp.ErrNoSpace when it would fill the disk by being opened.
func newGuard(dir string, opts Options) (*guard, error) {
	g := &guard{dir: dir, opts: opts, space: store.SpacePlenty, ballast: findBallast(dir)}
	g.ask()
	needed, err := replaySize(dir)
	if err != nil {
		return nil, err
	}
	free, _, err := opts.Disk(dir)
	if err == nil && free < needed {
		return nil, fmt.Errorf("%w: opening %s takes %d bytes and %d are free", harp.ErrNoSpace, dir, needed, free)
	}
	return g, nil
}

// Space is how much room there is, as of a moment ago.
func (g *guard) Space() store.Space {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written >= staleBytes || time.Since(g.asked) >= g.opts.stale {
		g.askLocked()
	}
	return g.space
}

// wrote notes that so many bytes went to the disk.
func (g *guard) wrote(size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written += uint64(size)
}

func (g *guard) ask() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.askLocked()
}

// askLocked asks how much is free, and gives the ballast back or makes it by that.
func (g *guard) askLocked() {
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
	low, critical := g.opts.lines(total)
	size := g.opts.ballast(critical)
	if !g.ballast.held {
		free -= min(free, size)
	}
	before := g.space
	g.space = spaceOf(free, low, critical)
	if before != g.space {
		g.opts.Logger.Warn("space on disk", "dir", g.dir, "space", g.space.String(), "free", free)
	}
	switch {
	case g.space == store.SpaceCritical && g.ballast.held:
		err = g.ballast.drop()
	case g.space == store.SpacePlenty && !g.ballast.held && size > 0:
		err = g.ballast.make(size)
	}
	if err != nil {
		g.opts.Logger.Error("ballast", "dir", g.dir, "err", err)
	}
}

func spaceOf(free, low, critical uint64) store.Space {
	switch {
	case free < critical:
		return store.SpaceCritical
	case free < low:
		return store.SpaceLow
	}
	return store.SpacePlenty
}

// lines are how many free bytes are low and how many are critical.
func (o *Options) lines(total uint64) (low, critical uint64) {
	low, critical = o.LowSpace, o.CriticalSpace
	if low == 0 {
		low = min(max(total/20, 256<<20), 5<<30)
	}
	if critical == 0 {
		critical = low / 4
	}
	return low, critical
}

// ballast is how large the ballast is.
func (o *Options) ballast(critical uint64) uint64 {
	switch {
	case o.Ballast > 0:
		return uint64(o.Ballast)
	case o.Ballast < 0:
		return 0
	}
	return min(critical/4, 64<<20)
}
