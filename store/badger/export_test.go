package badger

import (
	"cmp"
	"os"
	"reflect"
	"time"
	"unsafe"

	"github.com/harpcaller/harp/store/internal/rows"
)

// ErrUnmade is the error of a compaction that has not made all of its tables.
var ErrUnmade = errUnmade

// CheckMerge looks for what is missing in the tables in a directory that were made of others.
// Given is the level of each before and after, and up to which version what was deleted is left out.
func CheckMerge(dir string, before, after map[uint64]uint32, discard uint64) error {
	m := &manifest{dir: dir, levels: before}
	m.discard.Store(discard)
	return m.checkMerge(after)
}

// CheckCutOff looks at what badger would cut off from a manifest.
var CheckCutOff = checkCutOff

// WithFlushAfter are options with which Compact writes the tables of memory after so many bytes of values.
func WithFlushAfter(o Options, bytes int64) Options {
	o.flushAfter = bytes
	return o
}

// KeptName is the second name of the manifest.
const KeptName = keptName

// MakeAnew has badger make its manifest anew with the next change, as it does after thousands.
func MakeAnew(e rows.Engine) {
	deletions := reflect.ValueOf(e.(*engine).db).Elem().FieldByName("manifest").Elem().FieldByName("manifest").FieldByName("Deletions")
	*(*int)(unsafe.Pointer(deletions.UnsafeAddr())) = 1 << 30
}

// DieAtNextChange kills the process when a manifest has a new change that was not looked at.
func DieAtNextChange() {
	syncManifest = func(*os.File) error {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			return err
		}
		select {}
	}
}

// FailLogSync has the sync of a log that was cut off fail, until what it returns is called.
func FailLogSync(err error) (mend func()) {
	had := syncLog
	syncLog = func(*os.File) error { return err }
	return func() { syncLog = had }
}

// HoldManifest lets no manifest be synced until what it returns is called, with the error of those that waited.
func HoldManifest() (release func(error)) {
	released, had := make(chan struct{}), syncManifest
	var failed error
	syncManifest = func(f *os.File) error {
		select {
		case <-released:
			return had(f)
		default:
		}
		<-released
		return cmp.Or(failed, had(f))
	}
	return func(err error) {
		failed = err
		close(released)
	}
}

// RestoreAt is Restore at a given time.
var RestoreAt = restoreAt

// BallastName is the name of the ballast.
const BallastName = ballastName

// Eager makes a store ask its disk each time.
func (o *Options) Eager() { o.stale = -1 }

// Lazy makes a store ask its disk only after so much was written.
func (o *Options) Lazy() { o.stale = time.Hour }

// StaleBytes is how much that is.
const StaleBytes = staleBytes

// LogSpare is what the logs may take before the disk is asked again.
const LogSpare = logSpare

// Blocks is how many bytes of disk a file takes.
var Blocks = blocks

// ValueThreshold is how long a value is that lies in the value log.
const ValueThreshold = valueThreshold

// CheckEntries looks for damage in a file of the value log.
var CheckEntries = checkEntries

// CheckMem looks for damage in the log of a memory table.
var CheckMem = checkMem

// CheckTable looks for damage in a table, CheckTableContent in what is mapped of one.
var (
	CheckTable        = checkTable
	CheckTableContent = checkTableContent
)

// OpenEngine opens the database without what rows makes of it.
func OpenEngine(dir string, o *Options) (rows.Engine, error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	return openEngine(dir, o.filled())
}

// Say makes the database of an engine say that something went wrong.
func Say(e rows.Engine, format string, args ...any) {
	e.(*engine).db.Opts().Logger.Errorf(format, args...)
}

// CloseAnyway closes the database of an engine that was closed; false if that had closed it.
func CloseAnyway(e rows.Engine) bool {
	defer e.(*engine).manifest.leave()
	e.(*engine).log.calls.Wait()
	db := e.(*engine).db
	return !db.IsClosed() && db.Close() == nil
}

// Probe has an engine confirm its syncs by another file, until undo is called.
func Probe(e rows.Engine, f *os.File) (undo func()) {
	had := e.(*engine).probe
	e.(*engine).probe = f
	return func() { e.(*engine).probe = had }
}

// LogOn has an engine ask for blocks of its newest log in another file, until undo is called.
func LogOn(e rows.Engine, f *os.File) (undo func()) {
	of := e.(*engine)
	of.logs.Lock()
	defer of.logs.Unlock()
	had := of.mem
	of.mem.file, of.mem.used, of.mem.allocated = f, 0, 0
	return func() {
		of.logs.Lock()
		defer of.logs.Unlock()
		of.mem = had
	}
}
