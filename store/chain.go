package store

import "github.com/harpcaller/harp"

// BatchStep is a step of a chain behind its first one, of which the batch itself is.
type BatchStep struct {
	Procedure string       `msgpack:"proc"`
	On        harp.Ending  `msgpack:"on,omitempty"` // how the step before it has to end
	Classes   []BatchClass `msgpack:"classes"`      // as those of the batch
}

// ChainPlace is where in a chain a member is, and what the steps before it have come to on its host.
type ChainPlace struct {
	Step    int        `msgpack:"step"`              // from 1
	Of      int        `msgpack:"of"`                // how many steps the chain has
	Class   int        `msgpack:"class,omitempty"`   // of its host
	Decided int        `msgpack:"decided,omitempty"` // the first step before it that did not succeed; 0: all did
	State   harp.State `msgpack:"state,omitempty"`   // in which that one ended

	EachStep bool `msgpack:"each,omitempty"` // windows concern it, whichever step it is
}

// Step is which step of its batch a member is of, from 1; 1 if that is no chain.
func (j *Job) Step() int {
	if j.Chain == nil {
		return 1
	}
	return j.Chain.Step
}

// GoesOn reports whether a member goes on with what has begun: no window concerns it.
func (j *Job) GoesOn() bool { return j.Step() > 1 && !j.Chain.EachStep }

// Decision is how a host ends whose chain is over with this step, and which step says so: the first that did not
// succeed, or else this one.
func (j *Job) Decision() (step int, state harp.State) {
	if j.Chain != nil && j.Chain.Decided > 0 {
		return j.Chain.Decided, j.Chain.State
	}
	return j.Step(), j.State
}

// StepCount is how many steps the batch has; 1 if it is no chain.
func (b *Batch) StepCount() int { return 1 + len(b.Steps) }

// NextStep is which step follows where this one has ended so: the first behind it that wants such an end. It is 0
// if none does, or the host is gone, or the store was restored.
func (b *Batch) NextStep(j *Job) int {
	if j.Reason == harp.LostHostRemoved || j.State == harp.StateLost && j.Reason == harp.LostRestored {
		return 0
	}
	for n := j.Step() + 1; n <= b.StepCount(); n++ {
		if b.Steps[n-2].On.FitsJob(j.State) {
			return n
		}
	}
	return 0
}

// UnbegunLife is the life of a step that has not begun where last is the step of its host that began last.
func (b *Batch) UnbegunLife(last *Job) Life {
	begin := Begin(b.Member.SubmitTime, harp.ReasonChain)
	var e Event
	switch {
	case !last.State.Ended():
		return begin
	case last.State == harp.StateLost && last.Reason == harp.LostRestored:
		e = Event{Kind: Lose, At: last.EndTime, Reason: harp.LostRestored}
	default:
		e = Event{Kind: CancelReq, At: last.EndTime, Reason: harp.ReasonChain}
	}
	after, _, err := begin.Next(e)
	if err != nil {
		panic("store: a waiting job can be cancelled and lost: " + err.Error())
	}
	return after
}
