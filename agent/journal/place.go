package journal

import "crypto/rand"

// isOf reports whether the head is of a journal with an id, or of a copy that was made of it.
func (e *entry) isOf(id string) bool { return e.id == id || e.was == id }

// settlePlace gives the journal another id if its last segment says that it is elsewhere: then it is a
// copy, or was put back, and lacks what the original has written since. One that does not say where it
// is, as older software has written it, is followed by one that does.
func (j *Journal) settlePlace(said string) {
	is := placeOf(j.file)
	if is == "" || is == said {
		return
	}
	if j.due = true; said != "" {
		j.was, j.id, j.copied = j.id, rand.Text(), true
	}
}

// placeOf is which file this is, and in which directory, as no copy of either is; empty: that is not
// known.
func placeOf(f File) string {
	if on, is := f.(diskFile); is {
		return on.place()
	}
	return ""
}

func (f diskFile) place() string {
	inDir, inFile := birthOfDir(f.dir), birthOf(f.File)
	if inDir == "" || inFile == "" {
		return ""
	}
	return inDir + " " + inFile
}
