package badger

import "time"

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

// Blocks is how many bytes of disk a file takes.
var Blocks = blocks
