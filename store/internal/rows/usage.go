package rows

// kept counts by how much a group changes what jobs store: the bytes under the keys
// of requests, values and records, their pieces with them, and the footprints of the jobs.
type kept struct {
	sizes map[string]int // of what was met or written, by key
	grown int64
}

// isKept reports whether a key is of those.
func isKept(key []byte) bool {
	const inPiece = 3 // behind its prefix and the length of the key that it belongs to
	kind := key[0]
	if kind == prefixPiece && len(key) > inPiece {
		kind = key[inPiece]
	}
	return kind == prefixRequest || kind == prefixValue || kind == prefixRecords
}

// met notes how much is stored under a key.
func (k *kept) met(key []byte, size int) {
	if size == 0 || !isKept(key) {
		return
	}
	if k.sizes == nil {
		k.sizes = map[string]int{}
	}
	k.sizes[string(key)] = size
}

// note counts a write of so many bytes; 0 deletes. What the key had has been met,
// or is nothing.
func (k *kept) note(key []byte, size int) {
	if !isKept(key) {
		return
	}
	k.grown += int64(size - k.sizes[string(key)])
	if size == 0 {
		delete(k.sizes, string(key))
		return
	}
	k.met(key, size)
}
