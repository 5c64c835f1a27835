//go:build linux

// Package history is what the caller's side of a fault test knows, and the rules
// that it is held against.
package history

import (
	"maps"
	"slices"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// Call is what is known of one call.
type Call struct {
	ID          string
	Host        string
	Queue       string // "": in none
	Concurrency int    // of its queue
	Repeatable  bool   // it may run more than once
	Returns     int    // bytes of its result, beside its name
	Records     int    // it emits

	Acked     bool // the dispatcher has it
	Denied    bool // the dispatcher said that it has not run, and nothing else since
	Cancelled bool // a cancel was acknowledged
	Gaps      int  // records that a follower missed or got twice
	Seen      []Sight
	Final     *Final // nil: it was not looked for
}

// Sight is a state in which a job was seen.
type Sight struct {
	State   harp.State
	Attempt int
	Records uint64
}

// Final is what was found of a job when all had come to rest.
type Final struct {
	Missing bool // there is no such job
	Status  harp.JobStatus
	Value   string // what it returned, as JSON
	Records []harp.Record
	Err     error // it could not be looked at
}

// Attempt names an execution.
type Attempt struct {
	Job    string
	Number int
}

// History is one run. Its methods are safe for concurrent use, the fields are for
// when the run is over.
type History struct {
	mu    sync.Mutex // guards calls
	calls map[string]*Call

	Witness    []witness.Line
	Deaths     map[int]int64    // when a process was dead, by its id
	Journalled map[Attempt]bool // of which an END was in an agent's journal
}

// New returns an empty history.
func New() *History {
	return &History{calls: map[string]*Call{}, Deaths: map[int]int64{}, Journalled: map[Attempt]bool{}}
}

// Invoke notes that a call is about to be made.
func (h *History) Invoke(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[c.ID] = &c
}

// Change notes more of a call.
func (h *History) Change(id string, change func(*Call)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.calls[id])
}

// See notes a state in which a job was seen. One who looks at a job looks at it
// alone, or the order in which it was seen is not known.
func (h *History) See(id string, s harp.JobStatus) {
	h.Change(id, func(c *Call) {
		c.Seen = append(c.Seen, Sight{State: s.State, Attempt: s.Attempt, Records: s.Records})
	})
}

// Died notes that a process is dead.
func (h *History) Died(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Deaths[pid] = witness.Now()
}

// Ended notes that an agent has an END in its journal.
func (h *History) Ended(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Journalled[a] = true
}

// Calls are all calls, by id, which is about the order in which they were made.
func (h *History) Calls() []*Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := slices.Collect(maps.Values(h.calls))
	slices.SortFunc(calls, func(a, b *Call) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return calls
}

// Acked is how many calls were acknowledged.
func (h *History) Acked() int {
	n := 0
	for _, c := range h.Calls() {
		if c.Acked {
			n++
		}
	}
	return n
}
