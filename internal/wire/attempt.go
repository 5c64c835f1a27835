package wire

// Request is a call as its caller wrote it. Its bytes are signed, sent and stored
// as they are.
type Request struct {
	Version     int64             `msgpack:"v"`
	ID          string            `msgpack:"id"`
	Host        string            `msgpack:"host"`
	Procedure   string            `msgpack:"proc"`
	Args        []byte            `msgpack:"args,omitempty"`  // a user value
	Queue       []byte            `msgpack:"queue,omitempty"` // canonical
	Info        []byte            `msgpack:"info,omitempty"`  // a user value
	Labels      map[string]string `msgpack:"labels,omitempty"`
	Concurrency int64             `msgpack:"conc,omitempty"`
	Priority    int64             `msgpack:"prio,omitempty"`
	Timeout     int64             `msgpack:"timeout,omitempty"`
	MaxExecTime int64             `msgpack:"maxexec,omitempty"`
	NotBefore   int64             `msgpack:"notbefore,omitempty"`
	Expires     int64             `msgpack:"expires,omitempty"`
	OfflineWait int64             `msgpack:"offwait,omitempty"`
	WhenOffline string            `msgpack:"whenoff,omitempty"`
	TraceParent string            `msgpack:"trace,omitempty"`
	Needs       []string          `msgpack:"needs,omitempty"`
	Retry       *Retry            `msgpack:"retry,omitempty"`
	RetryOf     string            `msgpack:"retryof,omitempty"` // the job that this one does again
	DryRun      bool              `msgpack:"dry,omitempty"`
	Key         string            `msgpack:"idem,omitempty"` // the idempotency key
	KeyTTL      int64             `msgpack:"idemttl,omitempty"`
}

// NeedDryRun is what a request for a dry run needs: an agent that knows it does not
// run the procedure itself.
const NeedDryRun = "dry_run"

// Retry says after which outcomes another attempt may follow.
type Retry struct {
	On         []string `msgpack:"on,omitempty"`
	Attempts   int64    `msgpack:"n,omitempty"` // in all
	Backoff    int64    `msgpack:"pause,omitempty"`
	MaxBackoff int64    `msgpack:"maxpause,omitempty"`
}

// Signed is a request with its optional signature.
type Signed struct {
	Request   []byte `msgpack:"req"`
	Signature []byte `msgpack:"sig,omitempty"`
	KeyID     string `msgpack:"key,omitempty"`
}

// Principal is an authenticated person or program.
type Principal struct {
	Kind string `msgpack:"kind,omitempty"`
	Name string `msgpack:"name,omitempty"`
	Auth string `msgpack:"auth,omitempty"` // how it was authenticated
}

// Call starts an attempt. In a direct session there is no fence and no epoch.
type Call struct {
	Signed
	Attempt     int64     `msgpack:"attempt"`
	Fence       int64     `msgpack:"fence,omitempty"`
	Epoch       int64     `msgpack:"epoch,omitempty"`
	Timeout     int64     `msgpack:"timeout"`        // granted
	MaxExecTime int64     `msgpack:"maxexec"`        // granted
	Left        int64     `msgpack:"left,omitempty"` // until the job expires; without a start by then: NotNow
	Window      int64     `msgpack:"window"`
	Principal   Principal `msgpack:"who"`
	Needs       []string  `msgpack:"needs,omitempty"`
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
	By  Principal `msgpack:"by"`
	Now bool      `msgpack:"now,omitempty"` // a command has no grace, or no more of it
}

// Accepted says that the call is journalled. Started may come with it.
type Accepted struct {
	Started *Started `msgpack:"started,omitempty"`
}

// Refused is final: the procedure was not started and will not be.
type Refused struct {
	Failure []byte `msgpack:"failure"`
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
	Time int64 `msgpack:"time"` // the agent's clock
}

// Records carries consecutive records of an attempt.
type Records struct {
	First   int64    `msgpack:"first"`
	Records []Record `msgpack:"records"`
}

// room is room for the records.
func (m *Records) room() (n int) {
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
	Value   []byte    `msgpack:"value,omitempty"`   // a user value
	Failure []byte    `msgpack:"failure,omitempty"` // set unless the procedure returned a value
	Stopped *Stopping `msgpack:"stopped,omitempty"` // what was journalled before the end: a limit or cancel decided
	Records int64     `msgpack:"records"`           // how many the attempt has
	RanFor  int64     `msgpack:"ran"`               // on the agent's monotonic clock
	Dropped bool      `msgpack:"dropped,omitempty"` // the value was dropped for want of space
	Started *Started  `msgpack:"started,omitempty"`
	Gone    bool      `msgpack:"gone,omitempty"` // there was no end: the process is gone; nothing but Records counts
}
