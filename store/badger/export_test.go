package badger

import (
	"os"
	"time"

	"github.com/harpcaller/harp/store/internal/rows"
)

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

// Probe has an engine confirm its syncs by another file, until undo is called.
func Probe(e rows.Engine, f *os.File) (undo func()) {
	had := e.(*engine).probe
	e.(*engine).probe = f
	return func() { e.(*engine).probe = had }
}
