package wire

// Rows are the items of a listing and the records of a page. Each travels as bin, the
// bytes of its own message, so that the limit of elements holds for each and a page
// is limited by bytes alone.
type Rows [][]byte

// Failed answers any request that failed.
type Failed struct {
	Failure []byte `msgpack:"failure"`
}

// Server answers Ping.
type Server struct {
	Software string   `msgpack:"software"`
	Version  int64    `msgpack:"v"`
	Features []string `msgpack:"features,omitempty"`
	Store    string   `msgpack:"store"`
	Time     int64    `msgpack:"time"`
	Troubles []string `msgpack:"troubles,omitempty"` // for people
}

// Submitted answers Submit, whose body is a Signed.
type Submitted struct {
	ID string `msgpack:"id"`
}

// JobRef names a job: the body of Status and TypeRequest, which a Signed answers.
type JobRef struct {
	ID string `msgpack:"id"`
}

// ResultOf asks for a job's result, now or when it has ended.
type ResultOf struct {
	ID   string `msgpack:"id"`
	Wait bool   `msgpack:"wait,omitempty"`
}

// Result answers ResultOf.
type Result struct {
	State    string `msgpack:"state"`
	Ended    bool   `msgpack:"ended,omitempty"`
	Value    []byte `msgpack:"value,omitempty"`
	Failure  []byte `msgpack:"failure,omitempty"`
	ExitCode *int64 `msgpack:"exit,omitempty"`
}

// Pull asks for committed records from a number on. With Wait it is answered when
// there is one or the job has ended.
type Pull struct {
	ID     string `msgpack:"id"`
	From   int64  `msgpack:"from,omitempty"`
	Tail   bool   `msgpack:"tail,omitempty"`   // those from now on, From is ignored, and
	Recent int64  `msgpack:"recent,omitempty"` // so many of those that are there
	Wait   bool   `msgpack:"wait,omitempty"`
}

// Pulled answers Pull.
type Pulled struct {
	Records Rows  `msgpack:"records,omitempty"` // of PulledRecord
	Next    int64 `msgpack:"next"`              // where to go on
	End     int64 `msgpack:"end"`               // one more than the last committed record's number
	Ended   bool  `msgpack:"ended,omitempty"`   // the job has ended and these are its last
}

// room is room for the rows with their heads.
func (m *Pulled) room() (n int) {
	const head = 5
	for _, row := range m.Records {
		n += head + len(row)
	}
	return n
}

// PulledRecord is a record with its attempt.
type PulledRecord struct {
	Seq     int64 `msgpack:"seq"`
	Attempt int64 `msgpack:"attempt"`
	Missing int64 `msgpack:"missing,omitempty"`
	Record
}

// Done answers the requests that change something.
type Done struct {
	Live  bool  `msgpack:"live,omitempty"`
	Count int64 `msgpack:"count,omitempty"`
}

// Job is the state of a job.
type Job struct {
	ID          string            `msgpack:"id"`
	Host        string            `msgpack:"host"`
	Procedure   string            `msgpack:"proc"`
	Batch       string            `msgpack:"batch,omitempty"`
	Schedule    string            `msgpack:"schedule,omitempty"`
	RetryOf     string            `msgpack:"retryof,omitempty"`
	DryRun      bool              `msgpack:"dry,omitempty"`
	Principal   Principal         `msgpack:"who"`
	Args        []byte            `msgpack:"args,omitempty"`
	Info        []byte            `msgpack:"info,omitempty"`
	Queue       []byte            `msgpack:"queue,omitempty"`
	State       string            `msgpack:"state"`
	Reason      string            `msgpack:"reason,omitempty"`
	Since       int64             `msgpack:"since,omitempty"`
	UnknownOf   string            `msgpack:"unknownof,omitempty"`
	Started     string            `msgpack:"started,omitempty"`
	Cancel      *CancelRequest    `msgpack:"cancel,omitempty"`
	Attempts    []Attempt         `msgpack:"attempts,omitempty"`
	Attempt     int64             `msgpack:"attempt,omitempty"`
	Failure     []byte            `msgpack:"failure,omitempty"`
	Late        *Result           `msgpack:"late,omitempty"`
	Duplicate   bool              `msgpack:"dup,omitempty"` // it may have run more than once though nobody asked for it
	SubmitTime  int64             `msgpack:"submit"`
	StartTime   int64             `msgpack:"start,omitempty"`
	EndTime     int64             `msgpack:"end,omitempty"`
	Timeout     int64             `msgpack:"timeout,omitempty"`
	MaxExecTime int64             `msgpack:"maxexec,omitempty"`
	QueuePos    int64             `msgpack:"pos,omitempty"`
	Records     int64             `msgpack:"records,omitempty"`
	Labels      map[string]string `msgpack:"labels,omitempty"`
	Survivors   []int64           `msgpack:"survivors,omitempty"`
}

// CancelJob asks a job to stop.
type CancelJob struct {
	ID  string `msgpack:"id"`
	Now bool   `msgpack:"now,omitempty"` // without a grace
}

// CancelRequest is who asked when.
type CancelRequest struct {
	By   Principal `msgpack:"by"`
	Time int64     `msgpack:"time"`
	Now  bool      `msgpack:"now,omitempty"`
}

// Attempt is one try at running a job.
type Attempt struct {
	Number  int64  `msgpack:"n"`
	Base    int64  `msgpack:"base,omitempty"`
	Sent    int64  `msgpack:"sent,omitempty"`
	Started int64  `msgpack:"started,omitempty"`
	Ended   int64  `msgpack:"ended,omitempty"`
	Outcome string `msgpack:"outcome,omitempty"`
	Reason  string `msgpack:"reason,omitempty"`
}

// Page asks for a page of a listing.
type Page struct {
	Cursor string `msgpack:"cursor,omitempty"`
	Limit  int64  `msgpack:"limit,omitempty"`
}

// JobsQuery asks for jobs, newest first.
type JobsQuery struct {
	Page
	Host      string            `msgpack:"host,omitempty"`
	Procedure string            `msgpack:"proc,omitempty"`
	Queue     []byte            `msgpack:"queue,omitempty"`
	States    []string          `msgpack:"states,omitempty"`
	Labels    map[string]string `msgpack:"labels,omitempty"`
	Since     int64             `msgpack:"since,omitempty"` // submitted at or after
	Until     int64             `msgpack:"until,omitempty"` // submitted before
}

// Jobs answers JobsQuery; also when short, there is more while Cursor is set.
type Jobs struct {
	Jobs   Rows   `msgpack:"jobs,omitempty"` // of Job
	Cursor string `msgpack:"cursor,omitempty"`
}

// HostsQuery asks for hosts by name; empty: all.
type HostsQuery struct {
	Page
	Name string `msgpack:"name,omitempty"`
}

// Hosts answers HostsQuery.
type Hosts struct {
	Hosts  Rows   `msgpack:"hosts,omitempty"` // of Host
	Cursor string `msgpack:"cursor,omitempty"`
}

// Host is what is known of a host.
type Host struct {
	Name       string            `msgpack:"name"`
	Online     bool              `msgpack:"online,omitempty"`
	Address    string            `msgpack:"addr,omitempty"`
	Labels     map[string]string `msgpack:"labels,omitempty"`
	Facts      []byte            `msgpack:"facts,omitempty"`
	Procedures []string          `msgpack:"procs,omitempty"`
	LastHeard  int64             `msgpack:"heard,omitempty"`
	Software   string            `msgpack:"software,omitempty"`
	Error      string            `msgpack:"error,omitempty"` // why the dispatcher could not reach it, last
}

// HostRef names a host: the body of HostProcs.
type HostRef struct {
	Name string `msgpack:"name"`
	Page
}

// HostProcs answers TypeHostProcs.
type HostProcs struct {
	Procedures Rows   `msgpack:"procs,omitempty"` // of Procedure
	Cursor     string `msgpack:"cursor,omitempty"`
}

// Refreshed answers Refresh.
type Refreshed struct {
	Hosts int64 `msgpack:"hosts"`
}

// QueuesQuery asks for queues; with a Name for that one.
type QueuesQuery struct {
	Page
	Name []byte `msgpack:"name,omitempty"`
}

// Queues answers QueuesQuery.
type Queues struct {
	Queues Rows   `msgpack:"queues,omitempty"` // of Queue
	Cursor string `msgpack:"cursor,omitempty"`
}

// Queue is the state of a queue.
type Queue struct {
	Name        []byte `msgpack:"name"`
	Concurrency int64  `msgpack:"conc"`
	Running     int64  `msgpack:"running,omitempty"`
	Waiting     int64  `msgpack:"waiting,omitempty"`
	Paused      bool   `msgpack:"paused,omitempty"`
}

// QueueRef names a queue: the body of CancelQueue.
type QueueRef struct {
	Name    []byte `msgpack:"name"`
	Request string `msgpack:"id"` // the same when it is asked again
}
