package store

// Restored is what restoring a backup did.
type Restored struct {
	From string // id of the store that was backed up
	ID   string // of the restored one
	Rows int    // that the backup had
	Lost int    // jobs that had not ended, which are lost(restored) now
}
