package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/synced"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// engine is a rows.Engine over a badger database.
type engine struct {
	*guard
	db       *badger.DB
	log      *logger
	manifest *manifest

	open  context.Context // ends with Close
	shut  context.CancelFunc
	loops sync.WaitGroup

	views  *views
	driven bool // badger compacts nothing by itself; compactLoop has it compact

	probe *os.File // by which the syncs of a commit are confirmed

	failed atomic.Pointer[error] // that of the first commit that badger did not make

	logs sync.Mutex
	mem  logAhead // guarded by logs
	vlog logAhead // guarded by logs

	unusedMem atomic.Int64 // blocks of the memtable's log that nothing has been written to
	unused    atomic.Int64 // and those of the value log with them
	unflushed atomic.Int64 // bytes that were written to the value log since Compact wrote the tables of memory

	widest atomic.Pointer[[maxLevels]uint64] // how much of each level a table above overlaps

	flattening sync.Mutex
	collecting sync.Mutex
	commits    sync.Mutex // held by a commit, and while there may be none

	mu         sync.Mutex
	isClosed   bool        // guarded by mu
	compacting *compaction // guarded by mu: under way
}

func newEngine(db *badger.DB, g *guard, log *logger, m *manifest) (*engine, error) {
	e := &engine{
		guard: g, db: db, log: log, manifest: m, views: newViews(db, &m.discard), driven: db.Opts().NumCompactors == 0,
		mem:  logAhead{dir: g.dir, format: memFormat, precreate: true},
		vlog: logAhead{dir: g.dir, format: vlogFormat},
	}
	if err := errors.Join(e.mem.findLogs(), e.vlog.findLogs(), e.openProbe()); err != nil {
		return nil, errors.Join(err, e.closeDB())
	}
	e.open, e.shut = context.WithCancel(context.Background())
	e.noteOverlaps()
	g.watch(e.unwritten)
	e.reserveManifest()
	e.loops.Go(e.collectLoop)
	e.loops.Go(e.watchLoop)
	if e.driven {
		e.loops.Go(e.compactLoop)
	}
	return e, nil
}

// View implements rows.Engine.
func (e *engine) View() (rows.Snapshot, error) { return e.views.now(), nil }

// Space implements rows.Engine. Nothing is taken that the logs have no blocks for. That a disk
// has failed is for a commit to say, after which the store is closed: space would be waited for.
func (e *engine) Space() store.Space {
	space := e.guard.Space()
	if space == store.SpaceFull {
		return space
	}
	err := e.reserve(2*rows.MaxCommit, 2*rows.MaxCommit) // one group is committed while another forms
	if err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EIO) {
		return store.SpaceFull
	}
	return space
}

// reserve sees that the logs have blocks for so many bytes more.
func (e *engine) reserve(mem, vlog int64) error {
	e.logs.Lock()
	defer e.logs.Unlock()
	defer e.noteUnusedLocked()
	if err := e.mem.reserve(mem, e.allocate); err != nil {
		return err
	}
	return e.vlog.reserve(vlog, e.allocate)
}

// manifestAhead is how many bytes of blocks the manifest has behind its end: what some
// thousand tables take.
const manifestAhead = 64 << 10

// reserveManifest sees that badger can append to the manifest: with an entry that was
// written in part, and others behind it, the store would not open.
func (e *engine) reserveManifest() {
	f, err := os.OpenFile(filepath.Join(e.dir, badger.ManifestFilename), os.O_RDWR, 0)
	if err != nil {
		return // it is being replaced, or badger will say so
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		err = e.allocate(f, info.Size(), info.Size()+manifestAhead)
		if err != nil {
			e.opts.Logger.Debug("manifest", "dir", e.dir, "err", err)
		}
	}
}

func (e *engine) noteUnusedLocked() {
	e.unusedMem.Store(e.mem.unused())
	e.unused.Store(e.mem.unused() + e.vlog.unused())
}

// probeName is the file by which syncs are confirmed. It is none of the logs: those would
// wait for the file system's journal at every sync, also where nothing else of theirs is in it.
const probeName = "PROBE"

func (e *engine) openProbe() (err error) {
	if e.probe, err = os.OpenFile(filepath.Join(e.dir, probeName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err = e.allocate(e.probe, 0, 1); err != nil {
		return errors.Join(err, e.probe.Close())
	}
	return nil
}

// Commit implements rows.Engine. A group is far below what badger takes in one
// transaction.
func (e *engine) Commit(writes []rows.Write) error {
	mem, vlog := logBytes(writes)
	if err := e.reserve(mem, vlog); err != nil {
		return err
	}
	defer e.noteWritten(mem, vlog)
	e.commits.Lock()
	defer e.commits.Unlock()
	if err := e.failure(); err != nil {
		return err
	}
	last := e.views.lastVersion()
	if err := e.log.unless(&e.log.broken, func() error { return e.write(writes, last) }, nil); err != nil {
		return err
	}
	if err := e.log.failure(); err != nil {
		return err
	}
	if err := synced.Confirm(e.probe); err != nil {
		return err
	}
	e.views.committed(last + 1) // what may not be on the disk is shown to nobody
	return nil
}

// write has badger commit writes behind the last version.
func (e *engine) write(writes []rows.Write, last uint64) error {
	txn := e.db.NewTransactionAt(last, true)
	defer txn.Discard()
	entries := make([]badger.Entry, len(writes))
	for n, w := range writes {
		entries[n].Key, entries[n].Value = w.Key, w.Value
		if err := set(txn, &entries[n]); err != nil {
			return fmt.Errorf("write of %d: %w", len(writes), err)
		}
	}
	err := txn.CommitAt(last+1, nil)
	if err != nil {
		e.failed.CompareAndSwap(nil, &err)
	}
	return err
}

// noteWritten notes what went to the logs.
func (e *engine) noteWritten(mem, vlog int64) {
	e.logs.Lock()
	e.mem.noteWritten(mem)
	e.vlog.noteWritten(vlog)
	e.noteUnusedLocked()
	e.logs.Unlock()
	e.unflushed.Add(vlog)
	e.guard.noteWritten(int(mem + vlog))
}

// logBytes is how many bytes writes take in the logs, at most.
func logBytes(writes []rows.Write) (mem, vlog int64) {
	const (
		entry   = 22 + 8 + 4 // a header, a version and a checksum
		pointer = 12         // to the value log
	)
	mem = 100 // the end of the transaction
	for _, w := range writes {
		key, value := int64(entry+len(w.Key)), int64(len(w.Value))
		if value < valueThreshold {
			mem += key + value
			continue
		}
		mem += key + pointer
		vlog += key + value
	}
	return mem, vlog
}

func set(txn *badger.Txn, e *badger.Entry) error {
	if e.Value == nil {
		return txn.Delete(e.Key)
	}
	return txn.SetEntry(e)
}

// unwritten is what badger has still to write of what has been committed. All of level zero
// is compacted at once, with all of the level that it goes to; from there on it is a
// table at a time, with those of the next level that it overlaps. That may be all of them: of
// a few rows that lie far apart one table is made.
func (e *engine) unwritten() backlog {
	logs, err := logSizes(e.dir)
	if err != nil {
		e.opts.Logger.Error("logs of memtables", "dir", e.dir, "err", err)
	}
	in := logs.all - min(logs.all, uint64(e.unusedMem.Load()))
	top := in
	var next, nextFlat uint64
	levels := e.db.Levels()
	for i, l := range levels {
		switch {
		case i == 0 || l.IsBaseLevel:
			top += uint64(l.Size)
		case l.Size > 0:
			above := levels[i-1]
			one := uint64(min(above.Size, above.TargetFileSize))
			next = max(next, e.overlapped(l, above)+one)
			nextFlat = max(nextFlat, uint64(l.Size)+one)
		}
	}
	if e.driven {
		next = nextFlat
	}
	if next == 0 && top == in {
		return backlog{flush: in, driven: e.driven} // nothing to compact with
	}
	return backlog{flush: in, compact: top + next, flatten: top + nextFlat, driven: e.driven}
}

// usualOverlap is how many tables of the next level one overlaps, at most, where badger has
// looked: it ends a table where it would be more than ten, but looks every 5,000 keys.
const usualOverlap = 12

// overlapped is how much of a level a table of the level above overlaps, at most, where badger
// compacts by itself: those that there are, once their level is full.
func (e *engine) overlapped(l, above badger.LevelInfo) uint64 {
	most := uint64(min(l.Size, usualOverlap*l.TargetFileSize))
	if widest := e.widest.Load(); widest != nil && (above.IsBaseLevel || above.Size+above.TargetFileSize >= above.TargetSize) {
		most = max(most, widest[l.Level])
	}
	return most
}

// noteOverlaps finds out how much of each level a table of the level above overlaps.
func (e *engine) noteOverlaps() {
	if e.driven {
		return // all of a level is counted
	}
	widest := overlaps(e.db.Tables())
	e.widest.Store(&widest)
}

// overlaps is how many bytes of each level one table of the level above overlaps, at most.
func overlaps(tables []badger.TableInfo) (widest [maxLevels]uint64) {
	var levels [maxLevels][]badger.TableInfo
	for _, t := range tables {
		levels[t.Level] = append(levels[t.Level], t)
	}
	for i := 2; i < maxLevels; i++ {
		below := levels[i]
		slices.SortFunc(below, func(a, b badger.TableInfo) int { return bytes.Compare(a.Left, b.Left) })
		sums := make([]uint64, len(below)+1)
		for n, t := range below {
			sums[n+1] = sums[n] + uint64(t.OnDiskSize)
		}
		for _, t := range levels[i-1] {
			from := sort.Search(len(below), func(n int) bool { return bytes.Compare(row(below[n].Right), row(t.Left)) >= 0 })
			to := sort.Search(len(below), func(n int) bool { return bytes.Compare(row(below[n].Left), row(t.Right)) > 0 })
			if from < to {
				widest[i] = max(widest[i], sums[to]-sums[from])
			}
		}
	}
	return widest
}

// maxLevels is how many levels badger has.
const maxLevels = 7

// row is the key of a row in one of badger's, which has a version behind it.
func row(key []byte) []byte { return key[:max(0, len(key)-8)] }

// failure is why the disk has failed, nil if it has not. Nothing is committed any more, and no
// tables are written as the store is closed: badger would try that for ever.
func (e *engine) failure() error {
	if err := e.failed.Load(); err != nil {
		return *err
	}
	return e.log.failure()
}

// Close implements rows.Engine. It writes what is in memory tables to tables. Without room
// for that, and where the disk has failed or become read-only, the database is left as it is:
// its logs hold all, and opening reads them. Errors: harp.ErrNoSpace where there is no room.
func (e *engine) Close() error {
	e.mu.Lock()
	e.isClosed = true
	e.mu.Unlock()
	e.shut()
	e.loops.Wait()
	e.logs.Lock()
	defer e.logs.Unlock()
	e.mem.close()
	e.vlog.close()
	if err := synced.Confirm(e.probe); err != nil {
		// Badger would try for ever.
		return errors.Join(fmt.Errorf("closing %s, all of which is in the logs there: %w", e.dir, err), e.probe.Close())
	}
	if err := e.failure(); err != nil {
		return errors.Join(fmt.Errorf("closing %s, all of which is in the logs there: %w", e.dir, err), e.probe.Close())
	}
	if err := fewFiles(e.dir); err != nil {
		return fmt.Errorf("closing %s, all of which is in the logs there: %w", e.dir, err)
	}
	needed := withSpare(e.unwritten().must())
	if free, ok := e.haveSpace(needed); !ok {
		return fmt.Errorf("%w: closing %s takes %d bytes and %d are free; all of it is in the logs there", harp.ErrNoSpace, e.dir, needed, free)
	}
	return errors.Join(e.closeDB(), e.failure(), e.probe.Close())
}

// closeDB closes the database. Where it cannot write what is in memory it is left to that, and closed whenever that can be.
func (e *engine) closeDB() error {
	return e.log.unless(&e.log.stuck, func() error {
		defer e.manifest.leave()
		return e.db.Close()
	}, nil)
}

// watchEvery is how often the disk is asked when nothing is written: others may fill
// it.
const watchEvery = time.Second

func (e *engine) watchLoop() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.noteFiles()
			e.reserveManifest()
			e.noteOverlaps()
			e.measure()
		case <-e.open.Done():
			return
		}
	}
}
