package harp

// State is where a job is in its life. An unknown word, from a newer dispatcher,
// is kept as it is.
type State string

// The states. A job that has not ended is one of the first five; an ended job
// never changes again.
const (
	StateQueued     State = "queued"     // waits to start; its reason says for what
	StateSent       State = "sent"       // on its way to the agent
	StateRunning    State = "running"    // the procedure has begun
	StateCancelling State = "cancelling" // asked to stop, not stopped yet
	StateUnknown    State = "unknown"    // the host is silent

	StateSucceeded State = "succeeded" // returned a value
	StateFailed    State = "failed"    // the procedure failed
	StateTimedOut  State = "timed_out" // a limit stopped it
	StateCancelled State = "cancelled"
	StateExpired   State = "expired"  // not started in time
	StateRejected  State = "rejected" // the agent refused it; not started
	StateLost      State = "lost"     // what happened cannot be known
)

// Ended reports whether s is a final state.
func (s State) Ended() bool {
	switch s {
	case StateSucceeded, StateFailed, StateTimedOut, StateCancelled, StateExpired, StateRejected, StateLost:
		return true
	default:
		return false
	}
}

// Why a queued job waits: JobStatus.Reason.
const (
	ReasonQueue      = "queue"       // its queue is full
	ReasonOffline    = "offline"     // its host is away
	ReasonStartAfter = "start_after" // its time has not come
	ReasonAgentBusy  = "agent_busy"  // the agent takes no call now
	ReasonBackoff    = "backoff"     // between two attempts
	ReasonPaused     = "paused"      // its queue is paused; of an expired member of a batch: its host was when its turn came
	ReasonBatch      = "batch"       // it is a member of a batch, which has not come to it, or has no slot for it
	ReasonChain      = "chain"       // a step of its chain before it has not ended; of a cancelled one: the chain did not come to it
	ReasonWindow     = "window"      // a maintenance window, or a pause of its host, keeps it from starting
)

// ReasonUnfit is the reason of a job that was left out of its batch as its host cannot run it: it
// lacks the procedure, or the arguments do not fit.
const ReasonUnfit = "unfit"

// ReasonValueDropped is the reason of a job that succeeded and whose value is gone:
// its host had no room to keep it until it was delivered.
const ReasonValueDropped = "value_dropped"

// Why a job is lost: JobStatus.Reason.
const (
	LostAgentRestarted = "agent_restarted"
	LostAgentStopped   = "agent_stopped" // the agent was told to stop, and stopped the procedure
	LostJournalGone    = "journal_gone"
	LostTooLong        = "too_long"
	LostForced         = "forced"
	LostRestored       = "restored"
	LostHostRemoved    = "host_removed" // an operator removed the host
)

// Principal is an authenticated person or program.
type Principal struct {
	Kind string `json:"kind" msgpack:"kind,omitempty"` // caller, agent, dispatcher, process
	Name string `json:"name" msgpack:"name,omitempty"`
	Auth string `json:"auth" msgpack:"auth,omitempty"` // how it was authenticated: certificate, process
}
