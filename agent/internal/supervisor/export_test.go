package supervisor

// Inside returns options under which commands run inside this process, also where supervisors
// can be had.
func Inside() Options { return Options{inside: true} }

// NoteAndRead notes the file that is where a command will leave its result, and reads its result.
func NoteAndRead(spec Spec) (note func() error, read func() (value []byte, why string)) {
	e := newEngine(spec, newMemory(1), secretDir{}, "")
	return e.noteOldResult, e.fileResult
}

// NewCgroup makes a cgroup for an attempt, where that can be.
var NewCgroup = newCgroup
