package wire

import (
	"time"

	"github.com/harpcaller/harp"
)

// Call starts an attempt. In a direct session there is no fence and no epoch.
type Call struct {
	harp.Submission
	Job            string         `msgpack:"job,omitempty"`  // of a member of a batch: its id
	Host           string         `msgpack:"host,omitempty"` // and its host, as the request is that of all members
	Step           int64          `msgpack:"step,omitempty"` // and of a chain which of its steps, if not the first
	Attempt        int64          `msgpack:"attempt"`
	Fence          int64          `msgpack:"fence,omitempty"`
	Epoch          int64          `msgpack:"epoch,omitempty"`
	SilenceTimeout int64          `msgpack:"timeout"`        // granted
	MaxExecTime    int64          `msgpack:"maxexec"`        // granted
	Left           int64          `msgpack:"left,omitempty"` // until the job expires, or a window begins; without a start by then: NotNow
	By             int64          `msgpack:"by,omitempty"`   // until a window begins, counted from when WELCOME was sent; 0: none is known
	Window         int64          `msgpack:"window"`
	Principal      harp.Principal `msgpack:"who"`
	Needs          []string       `msgpack:"needs,omitempty"`
	Schedule       string         `msgpack:"schedule,omitempty"` // that caused it
	Fire           time.Time      `msgpack:"fire,omitempty"`     // the nominal time that it is the run of
}

// Resume asks for an attempt's records from a number on, and its end.
type Resume struct {
	Job     string  `msgpack:"job"`
	Attempt int64   `msgpack:"attempt"`
	Epoch   int64   `msgpack:"epoch,omitempty"`
	From    int64   `msgpack:"from"`
	Window  int64   `msgpack:"window"`
	Cancel  *Cancel `msgpack:"cancel,omitempty"` // the first thing that the agent hears of it
}

// Ack says what is committed.
type Ack struct {
	Next   int64 `msgpack:"next"`             // the first record not yet committed
	Window int64 `msgpack:"window,omitempty"` // bytes that may now be unacknowledged
	End    bool  `msgpack:"end,omitempty"`    // the End is committed too
}

// Cancel asks to stop the attempt. A second one may ask for it to be now.
type Cancel struct {
	By  harp.Principal `msgpack:"by"`
	Now bool           `msgpack:"now,omitempty"` // a command has no grace, or no more of it
}

// Accepted says that the call is journalled. Started may come with it.
type Accepted struct {
	Started *Started `msgpack:"started,omitempty"`
}

// Refused is final: the procedure was not started and will not be.
type Refused struct {
	Failure error `msgpack:"failure"`
}

// NotNow says that the procedure was not started and may be asked for again.
type NotNow struct {
	Reason string `msgpack:"reason"` // one of the NotNow words
}

// Why an agent does not take a call now.
const (
	NotNowBusy        = "busy"
	NotNowDraining    = "draining"
	NotNowNoSpace     = "no_space"
	NotNowStartBefore = "start_before"
)

// Started says that the procedure has begun.
type Started struct {
	Time int64 `msgpack:"time"`          // the agent's clock
	Ran  int64 `msgpack:"ran,omitempty"` // how long ago that is
}

// Records carries consecutive records of an attempt.
type Records struct {
	First   int64    `msgpack:"first"`
	Records []Record `msgpack:"records"`
}

// sizeHint returns how many bytes the encoded records take, or a few more.
func (m *Records) sizeHint() (n int) {
	for i := range m.Records {
		n += RecordRoom + len(m.Records[i].Value)
	}
	return n
}

// RecordRoom is room for what a [PulledRecord] holds beside its kind and value.
const RecordRoom = 76

// Record is one partial result.
type Record struct {
	Time      int64  `msgpack:"t"`
	Kind      string `msgpack:"k,omitempty"` // "" is data
	Value     []byte `msgpack:"v,omitempty"`
	Partial   bool   `msgpack:"p,omitempty"` // a line that goes on in the next record of its kind, or ended without a line feed
	Truncated int64  `msgpack:"x,omitempty"` // bytes that were dropped before this record
}

// Stopping says that a limit or cancel was journalled and the procedure asked to
// stop, and again later which processes of it outlive KILL. Those of one that has ended by
// itself are told without a Cause.
type Stopping struct {
	Cause string  `msgpack:"cause"` // one of the Cause words
	Since int64   `msgpack:"since"` // the agent's clock
	Limit int64   `msgpack:"limit,omitempty"`
	Left  []int64 `msgpack:"left,omitempty"` // the processes' numbers, at most MaxLeft
}

// MaxLeft is how many processes that outlive KILL are told of.
const MaxLeft = 100

// Why a procedure is stopped.
const (
	CauseCancel      = "cancel"
	CauseTimeout     = "timeout"
	CauseMaxExecTime = "max_exec_time"
)

// End says how an attempt ended. Its ACK lets the agent forget the attempt.
type End struct {
	Value   harp.Value `msgpack:"value,omitempty"`
	Failure error      `msgpack:"failure,omitempty"` // set unless the procedure returned a value
	Stopped *Stopping  `msgpack:"stopped,omitempty"` // what was journalled before the end: a limit or cancel decided
	Records int64      `msgpack:"records"`           // how many the attempt has
	RanFor  int64      `msgpack:"ran"`               // on the agent's monotonic clock
	Dropped bool       `msgpack:"dropped,omitempty"` // the value was dropped for want of space
	Started *Started   `msgpack:"started,omitempty"`
	Gone    bool       `msgpack:"gone,omitempty"` // there was no end: the process is gone; nothing but Records counts

	// Taken is that of Held, when this was sent. It is not journalled.
	Taken int64 `msgpack:"taken,omitempty"`
}
