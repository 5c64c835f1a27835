//go:build unix

package proc

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	firstPause = time.Millisecond
	longPause  = 100 * time.Millisecond
	slowPause  = time.Second // between two looks at survivors
)

// killFor is how long what was sent KILL may take before it is called a survivor.
const killFor = 5 * time.Second

// tree is a command with all that came of it.
type tree interface {
	// find returns what is alive of it now. What was seen of it before is of it, though
	// nothing else may show that any more.
	find(seen func(key) bool) ([]member, error)
	term(m member) bool // asks m to end; false if it had ended, or could not be asked
	kill(m member) bool // ends m; false if it had ended, or may not be ended
	killAll()           // ends all at once where that can be done
}

// tally is what was done to the processes of a command.
type tally struct {
	asked          map[key]string // the program that was
	killed, strays map[key]bool
}

func newTally() tally {
	return tally{asked: map[key]string{}, killed: map[key]bool{}, strays: map[key]bool{}}
}

// has reports whether anything was done to a process.
func (t tally) has(k key) bool {
	_, asked := t.asked[k]
	return asked || t.killed[k]
}

// ended is to how many processes anything was done.
func (t tally) ended() int {
	all := maps.Clone(t.killed)
	for k := range t.asked {
		all[k] = true
	}
	return len(all)
}

// ending ends a tree. One goroutine runs it, others may hasten it and wait for it.
type ending struct {
	tree   tree
	leader int             // the number of the group whose members are no strays
	given  <-chan struct{} // closed when it is given up; nil: never

	// survivors is told what outlives KILL, which is sent again and again. nil: that is an
	// error, and the end of it.
	survivors func([]int)
	told      []int

	mu       sync.Mutex
	deadline time.Time     // from when on KILL is sent
	sooner   chan struct{} // the deadline was moved

	done chan struct{} // closed when run has returned
}

func newEnding(t tree, leader int, deadline time.Time) *ending {
	return &ending{
		tree: t, leader: leader, deadline: deadline,
		sooner: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// hasten moves the deadline, if that is earlier.
func (e *ending) hasten(deadline time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !deadline.Before(e.deadline) {
		return
	}
	e.deadline = deadline
	select {
	case e.sooner <- struct{}{}:
	default:
	}
}

func (e *ending) left() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.deadline)
}

// run asks everything to end, and ends what is there after the deadline. It returns when
// two looks in a row found nothing: a process may be born behind the back of the first.
// Where it gives up, a *[LeftError] says that something would not go; any other error, that
// nothing could be seen.
func (e *ending) run(t tally) error {
	var killing time.Time
	pause := firstPause
	for empty := 0; empty < 2; {
		began := time.Now()
		found, err := e.tree.find(t.has)
		if err == nil && len(found) == 0 {
			empty++
			continue
		}
		empty = 0
		left := e.left()
		if left <= 0 && killing.IsZero() {
			killing, pause = began, firstPause
		}
		if !killing.IsZero() && began.Sub(killing) > killFor {
			if e.survivors == nil {
				return cmp.Or(err, leftError(found))
			}
			e.reportSurvivors(found, err)
		}
		slices.SortFunc(found, byAge)
		if left > 0 {
			e.ask(found, t)
		} else {
			e.kill(found, t)
		}
		// A look costs the more the more processes there are: a tenth of the time at most.
		most := longPause
		if len(e.told) > 0 {
			most = slowPause
		}
		pause = min(2*pause, max(most, 10*time.Since(began)))
		if e.pause(pause, left); e.givenUp() {
			return leftError(found)
		}
	}
	e.reportSurvivors(nil, nil)
	return nil
}

// reportSurvivors tells of survivors, unless the same were told of last. While nothing can be seen they
// are the last that were.
func (e *ending) reportSurvivors(found []member, unseen error) {
	pids := make([]int, len(found))
	for i, m := range found {
		pids[i] = m.pid
	}
	slices.Sort(pids)
	if e.survivors == nil || unseen != nil || slices.Equal(pids, e.told) {
		return
	}
	e.told = pids
	e.survivors(pids)
}

func (e *ending) givenUp() bool {
	select {
	case <-e.given:
		return true
	default:
		return false
	}
}

// unasked is in the place of a program that could not be asked. It is longer than any name that the kernel keeps.
const unasked = "could not be asked"

// ask sends TERM once, as many programs take a second one for more. But what became
// another program since was between a fork and an exec, where TERM is easily lost: a shell
// has its own traps in force there. So is what could not be asked, for want of files, say.
func (e *ending) ask(found []member, t tally) {
	for _, m := range found {
		if name, asked := t.asked[m.key()]; asked && name == m.name {
			continue
		}
		t.asked[m.key()] = m.name
		e.note(m, t)
		if !e.tree.term(m) {
			t.asked[m.key()] = unasked
		}
	}
}

func (e *ending) kill(found []member, t tally) {
	for _, m := range found {
		if e.tree.kill(m) {
			t.killed[m.key()] = true
			e.note(m, t)
		}
	}
	e.tree.killAll()
}

func (e *ending) note(m member, t tally) {
	if m.group != e.leader {
		t.strays[m.key()] = true
	}
}

// pause waits for a while, and no longer than to the deadline if that is ahead.
func (e *ending) pause(d, left time.Duration) {
	if left > 0 {
		d = min(d, left)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.sooner:
	case <-e.given:
	}
}

func leftError(found []member) error {
	e := &LeftError{}
	for _, m := range found {
		e.Left = append(e.Left, Identity{PID: m.pid, Start: m.start, Boot: BootID()})
	}
	return e
}
