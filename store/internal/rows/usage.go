package rows

// usage counts by how much a group changes what jobs store: the bytes under the keys
// of requests, values and records, their pieces with them, and the footprints of the jobs.
type usage struct {
	sizes map[string]int // of what was read or written, by key
	grown int64
}

// isCounted reports whether a key is of those.
func isCounted(key []byte) bool {
	const inPiece = 3 // behind its prefix and the length of the key that it belongs to
	kind := key[0]
	if kind == prefixPiece && len(key) > inPiece {
		kind = key[inPiece]
	}
	return kind == prefixRequest || kind == prefixValue || kind == prefixRecords
}

// noteStored notes how much is stored under a key.
func (u *usage) noteStored(key []byte, size int) {
	if size == 0 || !isCounted(key) {
		return
	}
	if u.sizes == nil {
		u.sizes = map[string]int{}
	}
	u.sizes[string(key)] = size
}

// countWrite counts a write of so many bytes; 0 deletes. What the key had was noted,
// or is nothing.
func (u *usage) countWrite(key []byte, size int) {
	if !isCounted(key) {
		return
	}
	u.grown += int64(size - u.sizes[string(key)])
	if size == 0 {
		delete(u.sizes, string(key))
		return
	}
	u.noteStored(key, size)
}
