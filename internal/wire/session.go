package wire

import "github.com/harpcaller/harp"

// Hello is the first frame of a session: the agent's, or the connecting caller's.
type Hello struct {
	Version  int64    `msgpack:"v"`
	Features []string `msgpack:"features,omitempty"`
	Software string   `msgpack:"software,omitempty"` // name and version, for people
	Instance string   `msgpack:"instance,omitempty"` // one per process
	Token    string   `msgpack:"token,omitempty"`    // a caller's

	// An agent's only.
	BootID  string            `msgpack:"boot,omitempty"`
	Journal string            `msgpack:"journal,omitempty"`
	Labels  map[string]string `msgpack:"labels,omitempty"`
}

// Welcome answers Hello.
type Welcome struct {
	Version   int64    `msgpack:"v"`
	Features  []string `msgpack:"features,omitempty"`
	Software  string   `msgpack:"software,omitempty"`
	Store     string   `msgpack:"store,omitempty"` // the store's id
	Epoch     int64    `msgpack:"epoch,omitempty"` // of the host's session
	Heartbeat int64    `msgpack:"beat,omitempty"`  // interval
	Reconnect int64    `msgpack:"recon,omitempty"` // the longest pause between attempts to reconnect
	Time      int64    `msgpack:"time,omitempty"`  // the sender's clock
	Max       int64    `msgpack:"max,omitempty"`   // attempts that may be sent and not ended
}

// FeatureBeat is the feature of an agent that answers Beat.
const FeatureBeat = "beat"

// Beat tells an agent another interval of heartbeats than Welcome did. The agent
// answers with the one that it holds to from now on.
type Beat struct {
	Heartbeat int64 `msgpack:"beat"` // interval
}

// Unwelcome refuses a Hello; the session is closed after it. Peers of every version read it:
// its form never changes.
type Unwelcome struct {
	Failure Enclosed `msgpack:"failure"`
}

// Enclosed is an error that travels as bytes, which hold the map of its harp.Failure.
type Enclosed interface{ error }

// Facts is what an agent knows of its host.
type Facts struct {
	Facts    harp.Value         `msgpack:"facts,omitempty"`    // a map
	Problems []harp.HostProblem `msgpack:"problems,omitempty"` // what is wrong now
}

// Bounds of what an agent says is wrong: how many problems, and bytes of the code and the text of each.
const (
	MaxProblems    = 16
	MaxProblemCode = 32
	MaxProblemText = 256
)

// Procedures is one page of what an agent offers.
type Procedures struct {
	Procedures []harp.ProcedureDoc `msgpack:"procs,omitempty"`
	Last       bool                `msgpack:"last,omitempty"`
}

// Held is one page of the attempts an agent holds: reconciliation.
type Held struct {
	Attempts []HeldAttempt `msgpack:"attempts,omitempty"`
	Last     bool          `msgpack:"last,omitempty"`
	Taken    int64         `msgpack:"taken,omitempty"` // with Last: how many calls of the dispatcher's store the journal has ever taken
}

// HeldAttempt is one attempt in an agent's journal.
type HeldAttempt struct {
	Job     string `msgpack:"job"`
	Attempt int64  `msgpack:"attempt"`
	State   string `msgpack:"state"` // one of the Held words
	Fence   int64  `msgpack:"fence,omitempty"`
	Records int64  `msgpack:"records,omitempty"` // how many it has numbered
	Acked   int64  `msgpack:"acked,omitempty"`   // how many were acked
}

// What a journal may hold of an attempt.
const (
	HeldWithdrawn = "withdrawn" // accepted, not started, and now never will be
	HeldAlive     = "alive"
	HeldStopping  = "stopping" // alive, a limit or cancel journalled
	HeldGone      = "gone"     // started, no end, and the process is gone
	HeldEnded     = "ended"
)

// HeldStates are all of them.
var HeldStates = []string{HeldWithdrawn, HeldAlive, HeldStopping, HeldGone, HeldEnded}

// Forget tells an agent which attempts nobody will ask for again.
type Forget struct {
	Attempts []HeldAttempt `msgpack:"attempts,omitempty"`
	Last     bool          `msgpack:"last,omitempty"`
}

// Ready says that the session may carry calls, and again later that an agent that
// answered NotNow takes calls once more.
type Ready struct{}
