package supervisor

import "errors"

// spool keeps the records of one attempt until they were taken, and notes of what
// else is to be known. Its methods but count, keep, sync and those of a cursor are called by one
// at a time.
type spool interface {
	// add appends a record. Until the next flush nobody sees it. It returns how many
	// bytes wait for that.
	add(r *Record) (pending int)
	// flush makes what was added visible. What there was no room for is dropped: it
	// returns how many bytes of output that was.
	flush() (lost int64)
	// count is how many records there are to be seen.
	count() int64
	// full reports whether there is no room for so many bytes more, and whether there
	// would be if all that can be seen were kept.
	full(size int64) (full, passes bool)
	// keep lets go of the records before next.
	keep(next int64)
	// cursor reads from a record on.
	cursor(from int64) cursor

	// note writes something else that is to be known: there is room for it.
	note(kind byte, v any, raw []byte) error
	noteEnd(end End) error
	sync() error
	Close() error
}

// cursor reads records in their order. It is used by one goroutine, and beside all
// that happens to the spool.
type cursor interface {
	// read hands over the records before to, which must be there. Their values are
	// valid until fn returns. The error is errKept if some were let go of, that of fn,
	// or that of the medium.
	read(to int64, fn func(n int64, r Record) error) error
}

var errKept = errors.New("the records are not here any more: they are kept elsewhere")

// OutputSize is how many bytes of output a record is, without those dropped before it.
func (r *Record) OutputSize() int64 { return outputSize(r) }

// outputSize is how many bytes of output a record is.
func outputSize(r *Record) int64 {
	n := int64(len(r.Value))
	if !r.Partial {
		n++
	}
	return n
}

// Kinds of frames in a spool.
const (
	entryHeader  = 'H'
	entryRecord  = 'R'
	entryGo      = 'G' // the command is executed next
	entryStarted = 'S'
	entryFailed  = 'F' // it was not executed after all
	entryStop    = 'P'
	entryEnd     = 'E'
)
