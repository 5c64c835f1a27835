package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
)

const (
	// putOffTime is how long a call is put off again and again: limits of its own may be why the machine never has
	// enough for it, or nobody sees to what is in its way.
	putOffTime = 10 * time.Minute

	// putOffPause is after which it is not known any more of a procedure whether what was in the way of its calls
	// still is: a dispatcher has one of them tried every 30 s.
	putOffPause = 2 * time.Minute

	// maxPutOff is of how many calls the agent knows since when they are put off.
	maxPutOff = 4096
)

// postponement is a time in which something was put off again and again.
type postponement struct{ since, last time.Time }

// extend is the postponement when it is put off once more. After a pause in which it was not it begins anew.
func (p postponement) extend(now time.Time, pause time.Duration) postponement {
	if now.Sub(p.last) >= pause {
		p.since = now
	}
	p.last = now
	return p
}

// postponements are those of calls, and of procedures of which none could be begun meanwhile: what is in the
// way of one is in that of those that wait behind it, which would be put off one after the other.
type postponements struct {
	mu         sync.Mutex // guards what follows
	calls      map[journal.Key]postponement
	procedures map[string]postponement
}

func newPostponements() postponements {
	return postponements{calls: map[journal.Key]postponement{}, procedures: map[string]postponement{}}
}

// extend notes that a call is put off once more, and reports whether that was for less than putOffTime: of the
// call, and of its procedure.
func (p *postponements) extend(procedure string, k journal.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if _, known := p.calls[k]; !known {
		maps.DeleteFunc(p.calls, func(_ journal.Key, is postponement) bool {
			return now.Sub(is.last) >= putOffTime || len(p.calls) >= maxPutOff
		})
		maps.DeleteFunc(p.procedures, func(_ string, is postponement) bool { return now.Sub(is.last) >= putOffTime })
	}
	call, all := p.calls[k].extend(now, putOffTime), p.procedures[procedure].extend(now, putOffPause)
	p.calls[k], p.procedures[procedure] = call, all
	return now.Sub(call.since) < putOffTime && now.Sub(all.since) < putOffTime
}

// noteBegun notes that what was called was begun.
func (p *postponements) noteBegun(procedure string, k journal.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, k)
	delete(p.procedures, procedure)
}

// putsOff reports whether a call that was not begun is to be asked for again. One that never can be is not, and
// others are for a while, also where the disk is full, which may be for good. Where what was in the way had passed, and
// comes again, the time begins anew.
func (a *Agent) putsOff(procedure string, k journal.Key, err error) bool {
	var exec *supervisor.ExecError
	switch {
	case errors.As(err, &exec) && !proc.IsShort(err):
		return false
	case errors.Is(err, context.Canceled): // the agent stops
		return true
	}
	return a.putOff.extend(procedure, k)
}
