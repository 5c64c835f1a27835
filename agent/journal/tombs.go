package journal

import (
	"math"
	"time"
)

// tombs are the attempts of which nothing is left but that they were here. A host
// may have had millions in a week, so one takes little: its key in binary, and of the
// time only its age. Each is kept as long as it has to be, and an eighth of that more
// at most.
type tombs struct {
	keep time.Duration
	ages map[int64]*age // by the number of spans since 1970 when they were made
	n    int
}

// age is the tombs of one span.
type age struct {
	uuids map[binaryKey]struct{}
	odd   map[Key]struct{} // which have no binary key
}

// binaryKey is the key of an attempt whose job's id is a UUID.
type binaryKey struct {
	job     [16]byte
	attempt uint32
}

func newTombs(keep time.Duration) tombs { return tombs{keep: keep, ages: map[int64]*age{}} }

// span is how long an age lasts, in nanoseconds.
func (t *tombs) span() int64 { return max(int64(t.keep)/8, 1) }

// past reports whether the time of a tomb that was made at a time has passed.
func (t *tombs) past(at int64, now time.Time) bool { return t.over(at/t.span(), now) }

// over reports whether the time of the tombs of an age has passed.
func (t *tombs) over(number int64, now time.Time) bool {
	end := (number + 1) * t.span()
	return now.UnixNano()-end >= int64(t.keep)
}

// add makes a tomb at a time, in Unix nanoseconds, unless that is too long ago.
func (t *tombs) add(k Key, at int64, now time.Time) {
	number := at / t.span()
	if t.over(number, now) {
		return
	}
	a := t.ages[number]
	if a == nil {
		a = &age{uuids: map[binaryKey]struct{}{}, odd: map[Key]struct{}{}}
		t.ages[number] = a
	}
	before := a.len()
	if n, ok := binaryOf(k); ok {
		a.uuids[n] = struct{}{}
	} else {
		a.odd[k] = struct{}{}
	}
	t.n += a.len() - before
}

// has reports whether there is a tomb.
func (t *tombs) has(k Key, now time.Time) bool {
	n, ok := binaryOf(k)
	for number, a := range t.ages {
		_, is := a.odd[k]
		if ok {
			_, is = a.uuids[n]
		}
		if is && !t.over(number, now) {
			return true
		}
	}
	return false
}

// remove undoes add.
func (t *tombs) remove(k Key) {
	n, ok := binaryOf(k)
	for _, a := range t.ages {
		before := a.len()
		if ok {
			delete(a.uuids, n)
		} else {
			delete(a.odd, k)
		}
		t.n += a.len() - before
	}
}

// expire drops those whose time has passed.
func (t *tombs) expire(now time.Time) {
	for number, a := range t.ages {
		if t.over(number, now) {
			t.n -= a.len()
			delete(t.ages, number)
		}
	}
}

func (a *age) len() int { return len(a.uuids) + len(a.odd) }

// binaryOf is the binary key of an attempt. It has none unless its job's id is a UUID
// as it is usually written.
func binaryOf(k Key) (n binaryKey, ok bool) {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(k.Job) != len(form) || k.Attempt < 0 || k.Attempt > math.MaxUint32 {
		return binaryKey{}, false
	}
	n.attempt = uint32(k.Attempt)
	digits := 0
	for i := range len(form) {
		c := k.Job[i]
		switch {
		case form[i] == '-' && c == '-':
			continue
		case form[i] == '-':
			return binaryKey{}, false
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return binaryKey{}, false
		}
		n.job[digits/2] = n.job[digits/2]<<4 | c
		digits++
	}
	return n, true
}
