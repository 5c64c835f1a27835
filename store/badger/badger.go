// Package badger is a store.Store in a directory of one process, embedded: the
// database below is github.com/dgraph-io/badger.
//
// What a method acknowledges has been synced to the disk. The disk being full
// would kill the process, so space is watched: below a low line no new jobs are
// taken, below a critical one, which is at least what the database may write by itself,
// only cancels and deletes are written, for which a file of ballast makes room. When
// there is space again, all goes on.
package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// ErrInUse is what Open returns for a directory that another process has open, or this one
// though it was closed, as its disk had failed.
var ErrInUse = errors.New("store/badger: the directory is in use by another process")

// Options of a store; the zero value is the default.
type Options struct {
	// MaxStored is how many bytes of records a job stores; what comes after is
	// only counted. 0: 256 MiB.
	MaxStored int64

	// LowSpace is how many free bytes on the disk refuse new jobs with
	// harp.ErrNoSpace. 0: the larger of 5 % and 256 MiB, or a quarter of a disk of less
	// than 1 GiB, at most 5 GiB.
	LowSpace uint64

	// CriticalSpace is how many free bytes refuse all but cancels and deletes.
	// 0: a quarter of the low line. It is more while compactions may need more.
	CriticalSpace uint64

	// Ballast is how many bytes of disk are kept in a file that gives them back when
	// there are no others, so that cancels and deletes still fit and the store can be
	// closed and opened, and takes them again when there is space. 0: a quarter of the
	// disk, at most 96 MiB; negative: none.
	Ballast int64

	// Disk says how much is free on the disk that holds a directory, and how
	// much it has in all. nil: the operating system's answer.
	Disk func(dir string) (free, total uint64, err error)

	// Logger gets what nobody asked for. nil: slog.Default.
	Logger *slog.Logger

	stale      time.Duration // how old what is known of the disk may be
	flushAfter int64         // bytes in the value log after which Compact writes the tables of memory, too
}

// magic marks the directory as harp's.
const magic = 0x6872

// Open opens the store in a directory, which is made if there is none. It reads
// what has not ended, not what has. Errors: ErrInUse; harp.ErrNoSpace where the disk is
// too full to open it, or file descriptors or inodes are too few; store.ErrDamaged where a
// table is; fs.ErrPermission where it cannot be written. A store that is damaged otherwise, or that older or newer software has written in
// another format, is refused with a message that says so.
func Open(dir string, opts *Options) (store.Store, error) {
	o := opts.filled()
	if err := prepare(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, unfinished)); err == nil {
		return nil, fmt.Errorf("store/badger: restoring a backup into %s was cut short: empty it and restore again", dir)
	}
	e, err := openEngine(dir, o)
	if err != nil {
		return nil, err
	}
	s, err := rows.Open(e, o.rows())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return s, nil
}

// filled returns the options with their defaults.
func (o *Options) filled() Options {
	if o == nil {
		o = &Options{}
	}
	out := *o
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.Disk == nil {
		out.Disk = diskSpace
	}
	if out.stale == 0 {
		out.stale = staleAfter
	}
	if out.flushAfter == 0 {
		out.flushAfter = flushAfter
	}
	return out
}

func (o *Options) rows() rows.Options {
	return rows.Options{MaxStored: o.MaxStored, Logger: o.Logger}
}

// openEngine opens the database in a directory that was prepared.
func openEngine(dir string, o Options) (*engine, error) {
	g, err := newGuard(dir, o)
	if err != nil {
		return nil, err
	}
	log := newLogger(o.Logger.With("dir", dir))
	m, err := watchManifest(dir, log.fail)
	if err != nil {
		return nil, err
	}
	settings := settings(dir, log)
	if isSmall(dir, o) {
		settings = small(settings)
	}
	db, err := openDB(settings, log, m)
	if err != nil {
		return nil, err
	}
	return newEngine(db, g, log, m)
}

// openDB opens the database. One that can make no table of what is in its logs is closed again, whenever that can be.
func openDB(settings badger.Options, log *logger, m *manifest) (*badger.DB, error) {
	var db *badger.DB
	var openErr error
	closeLater := func() {
		defer m.leave()
		if openErr == nil {
			db.Close() //nolint:errcheck // its logs hold all, and why it is not open was said
		}
	}
	err := log.unless(&log.stuck, func() error {
		db, openErr = badger.OpenManaged(settings)
		if openErr != nil {
			m.leave()
			return opening(settings.Dir, openErr)
		}
		return nil
	}, closeLater)
	if err != nil {
		return nil, err
	}
	return db, nil
}

// settings of the database. MemTableSize must never shrink: the log that an
// unclean stop leaves behind has to fit when it is opened again. It cannot be
// smaller either: a commit takes at most 15 % of it. Tables are read through memory
// maps: there is nothing that a cache of badger's would spare. An entry of the value log is
// verified before its header is read: by a damaged one badger would keep the lock of the log,
// and never close.
func settings(dir string, log badger.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithMemTableSize(memTableSize).WithNumMemtables(3).WithBaseTableSize(baseTableSize).WithBlockSize(16 << 10).
		WithBlockCacheSize(0).WithIndexCacheSize(0).WithNumCompactors(2).
		WithCompression(options.None).
		WithValueThreshold(valueThreshold).WithValueLogFileSize(64 << 20).
		WithDetectConflicts(false).WithMetricsEnabled(false).WithVerifyValueChecksum(true).
		WithExternalMagic(magic).WithCompactL0OnClose(true).
		WithLogger(log)
}

// smallDisk is how large a disk is on which compactions are bounded and wait for room.
const smallDisk = 8 << 30

// isSmall reports whether a store is on a small disk, or on one with so little left.
func isSmall(dir string, o Options) bool {
	free, total, err := o.Disk(dir)
	return err == nil && (total < smallDisk || free < smallDisk/8)
}

// small is the settings on a small disk: few memory tables wait, tables and the files of
// the value log are small, and badger compacts nothing by itself. Where many tables lie
// in level zero it would stop and wait for a compaction that has no room.
func small(o badger.Options) badger.Options {
	o.TableSizeMultiplier = 1
	return o.WithNumMemtables(1).WithNumCompactors(0).WithCompactL0OnClose(false).
		WithNumLevelZeroTables(1).WithNumLevelZeroTablesStall(1 << 20).
		WithBaseTableSize(baseTableSize).WithValueLogFileSize(16 << 20)
}

const (
	// maxVerified is how many bytes of tables are verified before the store is opened. When
	// a block is found damaged later, badger treats what was in it as absent; and a job whose
	// rows are all absent may be submitted, and run, again. Large stores are spared the reading.
	maxVerified = 1 << 30

	memTableSize = 32 << 20

	baseTableSize = 2 << 20 // of the smallest tables

	// valueThreshold is how long a value is that lies in the value log: chunks of
	// records, long requests and results. They are written once and never moved by
	// compaction, for which badger has up to 26 tables at a time in memory, each in a
	// buffer that a value longer than a block makes several times as large: a store
	// that took records as fast as it could reached 2.5 GiB that way, a third as fast.
	// The rows of jobs, which are written again and again, are shorter.
	valueThreshold = 4 << 10
)

// prepare makes the directory, or frees it of what a kill may have left in it: files that were
// made and not yet given their size, which badger does not open. Errors: ErrInUse,
// store.ErrDamaged, the system's.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkWritable(dir); err != nil {
		return err
	}
	if err := takeBackLast(dir); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := removeOrphans(dir, files); err != nil {
		return err
	}
	for _, f := range files {
		if ext := filepath.Ext(f.Name()); ext == ".mem" || ext == ".vlog" {
			if err := removeIfEmpty(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	if err := checkLogs(dir); err != nil {
		return err
	}
	return checkTables(dir)
}

// checkWritable returns an error that is fs.ErrPermission if nothing can be written into a
// directory: what badger says of that is a text.
func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return nil // as for want of space, which is looked at below
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func removeIfEmpty(name string) error {
	info, err := os.Stat(name)
	if err != nil || info.Size() > 0 {
		return err
	}
	return os.Remove(name)
}

// opening says more of what badger says of a directory.
func opening(dir string, err error) error {
	unlock, lockErr := lock(dir)
	if lockErr != nil {
		return lockErr // it was taken since prepare had it
	}
	unlock()
	return fmt.Errorf("store/badger: open %s: %w", dir, err)
}
