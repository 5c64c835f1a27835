package store

import (
	"time"

	"github.com/harpcaller/harp"
)

// Attempt is one try.
type Attempt struct {
	Number  int       `msgpack:"n"`
	Base    uint64    `msgpack:"base,omitempty"` // number of its first record
	Next    uint64    `msgpack:"next,omitempty"` // of its own numbers: how many it has
	Fence   uint64    `msgpack:"fence,omitempty"`
	Sent    time.Time `msgpack:"sent,omitempty"`
	Started time.Time `msgpack:"started,omitempty"`
	Ended   time.Time `msgpack:"ended,omitempty"`
	Outcome string    `msgpack:"outcome,omitempty"` // a state, or "not_now"
	Reason  string    `msgpack:"reason,omitempty"`  // of the outcome
}

// Outcome is how an attempt ended.
type Outcome struct {
	State    harp.State   `msgpack:"state"`
	Reason   string       `msgpack:"reason,omitempty"`
	Started  harp.Ran     `msgpack:"started"`
	Failure  harp.Failure `msgpack:"failure"`
	HasValue bool         `msgpack:"value,omitempty"` // the store has a value
}

// Stopping says why a procedure was asked to stop by its agent.
type Stopping struct {
	Cause string        `msgpack:"cause"` // cancel, timeout, max_exec_time
	Since time.Time     `msgpack:"since,omitempty"`
	Limit time.Duration `msgpack:"limit,omitempty"`
}

// Late is what an agent said about a job that had ended as lost.
type Late struct {
	State    harp.State   `msgpack:"state"`
	Failure  harp.Failure `msgpack:"failure"`
	HasValue bool         `msgpack:"value,omitempty"` // the store has a value
	At       time.Time    `msgpack:"at"`
}

// Kind names what can happen to a job.
type Kind string

// The events. Those about an attempt name it and its fence.
const (
	Claimed   Kind = "claimed"   // may start: its slot is taken, Fence is the new one
	Started   Kind = "started"   // the procedure has begun, At
	NotNow    Kind = "not_now"   // proven not started; Reason start_before: expired; window: a window or a pause begins at Wake; else ask again at Wake
	Refused   Kind = "refused"   // final, not started: Failure
	CancelReq Kind = "cancel"    // By asked for it, At; Reason batch: for the batch that it is a member of
	Stop      Kind = "stopping"  // the agent stops it: Stopping; or Left outlives that, or its own end
	End       Kind = "end"       // the procedure is over: Failure or a value; Stopping if one was journalled first
	Expire    Kind = "expire"    // not started in time; Reason offline if the host's absence was to blame
	Silent    Kind = "silent"    // nothing heard of the host; given up at Wake
	Withdrawn Kind = "withdrawn" // reconciliation: proven not started
	Alive     Kind = "alive"     // reconciliation: it runs; Stopping if a limit or cancel was journalled
	Gone      Kind = "gone"      // reconciliation: an attempt that was given up is over, of a job that waits for another
	Lose      Kind = "lose"      // what happened cannot be known: Reason, one of harp.Lost...; Attempt 0: whichever is the last
)

// Event is one thing that happened to a job. Which fields count depends on Kind.
type Event struct {
	Kind     Kind
	At       time.Time // the dispatcher's clock
	Attempt  int
	Fence    uint64
	Reason   string
	Wake     time.Time
	By       harp.Principal
	Now      bool // CancelReq: without a grace
	Stopping *Stopping
	Left     []int        // Stop: processes that outlive KILL
	Failure  harp.Failure // zero: succeeded
	Value    harp.Value   // End; the store puts it beside the row
	Dropped  bool         // End: the agent had no room for the value
	RanFor   time.Duration
	Jitter   float64 // from 0 to 1: how much of the pause before another attempt is waited
	Text     string  // of an operator who gave the job up
	Taken    uint64  // End, Gone, Lose: how many calls of this store the journal of the host's agent has taken, as that says; 0: it does not
}

// Effect is what a change asks of others.
type Effect struct {
	Takes  bool // a slot of the queue
	Gives  bool // the slot back
	Ends   bool // the job has ended
	Tell   bool // the agent must be told to cancel
	Late   bool // the job had ended; only Late was noted
	Resume bool // the agent is to be asked for the rest
}
