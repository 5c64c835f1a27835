package journal

import (
	"math"
	"slices"
	"time"
)

// tombs are the attempts of which nothing is left but that they were here. A host
// may have had millions in a week, so one takes little, its key in binary and of the
// time only its age, and of very many only the newest are kept. Else each is kept as long
// as it has to be, and an eighth of that more at most.
type tombs struct {
	keep time.Duration
	most int
	ages []*age // the oldest first
	n    int
}

// age is the tombs of one span of time: at most an eighth of what is kept, by time and by
// number.
type age struct {
	from, until int64                  // when the first and the last were made, in Unix nanoseconds
	uuids       map[binaryKey]struct{} // their keys
	odd         map[Key]struct{}       // which have no binary key
}

// binaryKey is the key of an attempt whose job's id is a UUID.
type binaryKey struct {
	job     [16]byte
	attempt uint32
}

func newTombs(keep time.Duration, most int) tombs { return tombs{keep: keep, most: most} }

// past reports whether the time of a tomb that was made at a time, in Unix nanoseconds,
// has passed.
func (t *tombs) past(at int64, now time.Time) bool { return now.UnixNano()-at >= int64(t.keep) }

// add makes a tomb at a time, in Unix nanoseconds, unless that is too long ago. The
// oldest give way.
func (t *tombs) add(k Key, at int64, now time.Time) {
	if t.past(at, now) {
		return
	}
	a := t.age(at)
	before := a.len()
	if n, ok := binaryOf(k); ok {
		a.uuids[n] = struct{}{}
	} else {
		a.odd[k] = struct{}{}
	}
	t.n += a.len() - before
	for t.n > t.most {
		t.dropOldest()
	}
}

// age returns the age of tombs that are made at a time. There is a new one where the
// one before is complete.
func (t *tombs) age(at int64) *age {
	i := len(t.ages)
	for i > 0 && t.ages[i-1].from > at {
		i--
	}
	if i > 0 {
		if a := t.ages[i-1]; a.len() < max(t.most/8, 1) && at-a.from < int64(t.keep)/8 {
			a.until = max(a.until, at)
			return a
		}
	}
	a := &age{from: at, until: at, uuids: map[binaryKey]struct{}{}, odd: map[Key]struct{}{}}
	t.ages = slices.Insert(t.ages, i, a)
	return a
}

func (t *tombs) dropOldest() {
	t.n -= t.ages[0].len()
	t.ages = slices.Delete(t.ages, 0, 1)
}

// has reports whether there is a tomb.
func (t *tombs) has(k Key, now time.Time) bool {
	n, ok := binaryOf(k)
	for _, a := range t.ages {
		_, is := a.odd[k]
		if ok {
			_, is = a.uuids[n]
		}
		if is && !t.past(a.until, now) {
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
	for len(t.ages) > 0 && t.past(t.ages[0].until, now) {
		t.dropOldest()
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
