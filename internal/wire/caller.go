package wire

import (
	"time"

	"github.com/harpcaller/harp"
)

// Rows are the items of a listing and the records of a page. Each travels as bin, the
// bytes of its own message, so that the limit of elements holds for each and a page
// is limited by bytes alone.
type Rows [][]byte

// Failed answers any request that failed.
type Failed struct {
	Failure error `msgpack:"failure"`
}

// Submit makes one call, and perhaps more.
type Submit struct {
	harp.Submission
	More []harp.Submission `msgpack:"more,omitempty"`
}

// NewSubmit returns the message for calls, of which there is at least one.
func NewSubmit(calls []harp.Submission) Submit {
	return Submit{Submission: calls[0], More: calls[1:]}
}

// Calls are all of them.
func (m Submit) Calls() []harp.Submission {
	return append([]harp.Submission{m.Submission}, m.More...)
}

// Submitted answers Submit. What became of a single call that was not accepted is said by Failed.
type Submitted struct {
	ID      string `msgpack:"id"`
	Existed bool   `msgpack:"existed,omitempty"`
	Failure error  `msgpack:"failure,omitempty"`
	More    Rows   `msgpack:"more,omitempty"` // of Submitted, of the other calls in their order
}

// NewSubmitted returns the message for what became of calls, of which there is at least one.
func NewSubmitted(done []harp.Submitted) Submitted {
	m := submittedRow(done[0])
	for _, d := range done[1:] {
		m.More = append(m.More, Encode(submittedRow(d)))
	}
	return m
}

func submittedRow(d harp.Submitted) Submitted {
	if d.Err != nil {
		d.Err = NewFailed(d.Err).Failure
	}
	return Submitted{ID: d.ID, Existed: d.Existed, Failure: d.Err}
}

// Outcomes are what became of the calls. The error says what of the message cannot be read.
func (m Submitted) Outcomes() ([]harp.Submitted, error) {
	rest, err := DecodeRows[Submitted](m.More)
	if err != nil {
		return nil, err
	}
	var done []harp.Submitted
	for _, row := range append([]Submitted{m}, rest...) {
		done = append(done, harp.Submitted{ID: row.ID, Existed: row.Existed, Err: row.Failure})
	}
	return done, nil
}

// JobRef names a job: the body of Status and TypeRequest, which a
// harp.JobStatus and a harp.Submission answer.
type JobRef struct {
	ID string `msgpack:"id"`
}

// ResultOf asks for a job's harp.Result, now or when it has ended.
type ResultOf struct {
	ID   string `msgpack:"id"`
	Wait bool   `msgpack:"wait,omitempty"`
}

// ResultsOf asks how jobs ended, when one of them has.
type ResultsOf struct {
	IDs []string `msgpack:"ids"`
}

// Results answers ResultsOf.
type Results struct {
	Results Rows `msgpack:"results"` // of JobResult
}

// JobResult is a harp.JobResult.
type JobResult struct {
	ID      string      `msgpack:"id"`
	Result  harp.Result `msgpack:"result"`
	Failure error       `msgpack:"failure,omitempty"`
}

// NewResults returns the message for results.
func NewResults(results []harp.JobResult) Results {
	var m Results
	for _, r := range results {
		if r.Err != nil {
			r.Err = NewFailed(r.Err).Failure
		}
		m.Results = append(m.Results, Encode(JobResult{ID: r.ID, Result: r.Result, Failure: r.Err}))
	}
	return m
}

// JobResults is what the message holds. The error says what of it cannot be read.
func (m Results) JobResults() ([]harp.JobResult, error) {
	rows, err := DecodeRows[JobResult](m.Results)
	if err != nil {
		return nil, err
	}
	results := make([]harp.JobResult, len(rows))
	for i, r := range rows {
		results[i] = harp.JobResult{ID: r.ID, Result: r.Result, Err: r.Failure}
	}
	return results, nil
}

// Pull asks for committed records.
type Pull struct {
	ID string `msgpack:"id"`
	harp.RecordQuery
}

// Pulled answers Pull.
type Pulled struct {
	Records Rows   `msgpack:"records,omitempty"` // of PulledRecord
	Next    uint64 `msgpack:"next"`              // where to go on
	End     uint64 `msgpack:"end"`               // one more than the last committed record's number
	Ended   bool   `msgpack:"ended,omitempty"`   // the job has ended and these are its last
}

// sizeHint returns how many bytes the encoded rows take, or a few more.
func (m *Pulled) sizeHint() (n int) {
	const head = 5
	for _, row := range m.Records {
		n += head + len(row)
	}
	return n
}

// PulledRecord is a record with its attempt.
type PulledRecord struct {
	Seq     uint64 `msgpack:"seq"`
	Attempt int    `msgpack:"attempt"`
	Missing uint64 `msgpack:"missing,omitempty"`
	Record
}

// Done answers the requests that change something.
type Done struct {
	Live  bool `msgpack:"live,omitempty"`
	Count int  `msgpack:"count,omitempty"`
}

// CancelJob asks a job to stop.
type CancelJob struct {
	ID  string `msgpack:"id"`
	Now bool   `msgpack:"now,omitempty"` // without a grace
}

// Page asks for a page of a listing.
type Page struct {
	Cursor string `msgpack:"cursor,omitempty"`
	Limit  int    `msgpack:"limit,omitempty"`
}

// JobsQuery asks for jobs, newest first.
type JobsQuery struct {
	Page
	Queue harp.Value `msgpack:"queue,omitempty"` // in the place of the filter's
	harp.JobFilter
}

// Jobs answers JobsQuery; also when short, there is more while Cursor is set.
type Jobs struct {
	Jobs   Rows   `msgpack:"jobs,omitempty"` // of harp.JobStatus
	Cursor string `msgpack:"cursor,omitempty"`
}

// BatchRef asks for the state of a batch, a harp.BatchStatus: now, or when it has ended.
type BatchRef struct {
	ID   string `msgpack:"id"`
	Wait bool   `msgpack:"wait,omitempty"`
}

// BatchesQuery asks for batches, newest first.
type BatchesQuery struct {
	Page
	harp.BatchFilter
}

// Batches answers BatchesQuery.
type Batches struct {
	Batches Rows   `msgpack:"batches,omitempty"` // of harp.BatchStatus
	Cursor  string `msgpack:"cursor,omitempty"`
}

// BatchPull asks for a part of a batch's log.
type BatchPull struct {
	ID string `msgpack:"id"`
	harp.BatchQuery
}

// BatchPulled answers BatchPull.
type BatchPulled struct {
	Entries Rows   `msgpack:"entries,omitempty"` // of BatchEntry
	Next    uint64 `msgpack:"next"`              // where to go on
	At      uint64 `msgpack:"at,omitempty"`      // with which record of its job, if that number tells of records
	Ended   bool   `msgpack:"ended,omitempty"`   // the batch has ended and these are its last
}

// BatchEntry is a record of a member of a batch, or its end.
type BatchEntry struct {
	No      uint64        `msgpack:"no"`
	Host    string        `msgpack:"host"`
	Job     string        `msgpack:"job"`
	Step    int           `msgpack:"step,omitempty"` // of a chain, from 1
	Record  *PulledRecord `msgpack:"record,omitempty"`
	End     *harp.Result  `msgpack:"result,omitempty"`
	Skipped bool          `msgpack:"skipped,omitempty"`
}

// ChangeBatch pauses, resumes or cancels a batch.
type ChangeBatch struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Batch   string `msgpack:"batch"`
	harp.BatchChange
}

// HostsQuery asks for the hosts that a target selects; empty: all.
type HostsQuery struct {
	Page
	Target string `msgpack:"target,omitempty"`
}

// Hosts answers HostsQuery.
type Hosts struct {
	Hosts  Rows   `msgpack:"hosts,omitempty"` // of harp.HostStatus
	Cursor string `msgpack:"cursor,omitempty"`
}

// Explain asks what each part of a target selects: of all hosts, or whether it selects one.
type Explain struct {
	Target string `msgpack:"target"`
	Host   string `msgpack:"host,omitempty"`
}

// Explained answers Explain.
type Explained struct {
	Parts Rows `msgpack:"parts"` // of ExplainedPart, each before those that it is made of
}

// ExplainedPart is a part of a target.
type ExplainedPart struct {
	Depth int    `msgpack:"depth,omitempty"` // how many parts it is in
	Text  string `msgpack:"text"`
	Hosts int    `msgpack:"hosts,omitempty"`
	Value string `msgpack:"value,omitempty"`
}

// Preview asks what the submission of a batch would meet.
type Preview struct {
	harp.Submission
}

// Previewed answers Preview.
type Previewed struct {
	harp.Preview
	UnfitHosts Rows `msgpack:"unfithosts,omitempty"` // of harp.UnfitHost
}

// LabelHosts sets and unsets labels of the hosts that a target selects.
type LabelHosts struct {
	Request string            `msgpack:"id"` // the same when it is asked again
	Target  string            `msgpack:"target"`
	Set     map[string]string `msgpack:"set,omitempty"`
	Unset   []string          `msgpack:"unset,omitempty"`
}

// HostRef names a host: the body of HostProcs.
type HostRef struct {
	Name string `msgpack:"name"`
	Page
}

// HostProcs answers TypeHostProcs.
type HostProcs struct {
	Procedures Rows   `msgpack:"procs,omitempty"` // of harp.ProcedureDoc
	Cursor     string `msgpack:"cursor,omitempty"`
}

// RemoveHost forgets a host.
type RemoveHost struct {
	Name    string `msgpack:"name"`
	Request string `msgpack:"id"` // the same when it is asked again
}

// PingHosts asks the agents of the hosts that a target selects whether they are there.
type PingHosts struct {
	Page
	Target string `msgpack:"target"`
}

// Pinged answers PingHosts.
type Pinged struct {
	Hosts  Rows   `msgpack:"hosts,omitempty"` // of harp.HostPing
	Cursor string `msgpack:"cursor,omitempty"`
}

// Refreshed answers Refresh.
type Refreshed struct {
	Hosts int `msgpack:"hosts"`
}

// QueuesQuery asks for queues; with a Name for that one.
type QueuesQuery struct {
	Page
	Name harp.Value `msgpack:"name,omitempty"`
}

// Queues answers QueuesQuery.
type Queues struct {
	Queues Rows   `msgpack:"queues,omitempty"` // of harp.QueueStatus
	Cursor string `msgpack:"cursor,omitempty"`
}

// QueueRef names a queue: the body of CancelQueue.
type QueueRef struct {
	Name    harp.Value `msgpack:"name"`
	Request string     `msgpack:"id"` // the same when it is asked again
}

// GroupsQuery asks for groups; with a Name for that one.
type GroupsQuery struct {
	Page
	Name string `msgpack:"name,omitempty"`
}

// Groups answers GroupsQuery.
type Groups struct {
	Groups Rows   `msgpack:"groups,omitempty"` // of harp.Group
	Cursor string `msgpack:"cursor,omitempty"`
}

// PutGroup makes a group or replaces its target.
type PutGroup struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
	Target  string `msgpack:"target"`
}

// DeleteGroup deletes a group.
type DeleteGroup struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}

// ForceLost gives up a job of which nothing is known.
type ForceLost struct {
	ID  string `msgpack:"id"`
	Why string `msgpack:"why"`
}

// EventsQuery asks for events after a cursor. With Wait it is answered when there is
// one.
type EventsQuery struct {
	harp.EventFilter
	Wait bool `msgpack:"wait,omitempty"`
}

// Events answers EventsQuery. The cursor is where to go on, also without events.
type Events struct {
	Events Rows   `msgpack:"events,omitempty"` // of harp.Event
	Cursor string `msgpack:"cursor"`
}

// QueueChange changes what is set in it.
type QueueChange struct {
	Request string     `msgpack:"id"` // the same when it is asked again
	Name    harp.Value `msgpack:"name"`
	harp.QueueChange
}

// Prune deletes jobs that ended before a time.
type Prune struct {
	EndedBefore time.Time `msgpack:"before"`
}

// Chunk is a part of a backup, at most MaxChunk bytes.
type Chunk struct {
	Bytes []byte `msgpack:"b"`
}

// Copied ends a backup, whose chunks came before it: how many bytes they were.
type Copied struct {
	Bytes int64 `msgpack:"bytes"`
}
