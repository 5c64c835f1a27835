package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

var update = flag.Bool("update", false, "write the golden files anew")

// messages are one of each kind with every field set, under the name of its golden
// file.
func messages() map[string]any {
	who := harp.Principal{Kind: "caller", Name: "ci", Auth: "certificate"}
	signed := harp.Submission{Request: []byte{0x81, 0xa1, 'v', 1}, Signature: []byte{2, 3}, KeyID: "key-1", Hosts: []byte("\x00\x05web01")}
	started := wire.Started{Time: 1700000000000000001, Ran: 5e6}
	stopping := wire.Stopping{Cause: wire.CauseTimeout, Since: 1700000000000000002, Limit: 60e9, Left: []int64{4711}}
	held := wire.HeldAttempt{Job: "j", Attempt: 1, State: wire.HeldAlive, Fence: 2, Records: 3, Acked: 4}
	failure := failures.New("remote", "m").Err()
	result := harp.Result{State: "failed", Value: []byte{0xc3}, Err: failure, ExitCode: new(3), Procedure: "p", SubmitTime: at(1), StartTime: at(2), EndTime: at(3)}
	page := wire.Page{Cursor: "c", Limit: 50}
	rows := wire.Rows{{0x80}, {0x81, 0xa1, 'n', 1}}
	return map[string]any{
		"signed": signed,
		"call": wire.Call{
			Submission: signed, Job: "j", Host: "web01", Attempt: 1, Fence: 2, Epoch: 3, SilenceTimeout: 600e9, MaxExecTime: 86400e9, Left: 4,
			Window: wire.Window, Principal: who, Needs: []string{"x"}, Schedule: "s", Fire: at(5),
		},
		"call_direct": wire.Call{Submission: harp.Submission{Request: []byte{0x80}}, Attempt: 1, Window: wire.Window},
		"resume":      wire.Resume{Job: "j", Attempt: 1, Epoch: 2, From: 300, Window: wire.MinWindow, Cancel: &wire.Cancel{By: who, Now: true}},
		"ack":         wire.Ack{Next: 300, Window: wire.Window, End: true},
		"cancel":      wire.Cancel{By: who, Now: true},
		"accepted":    wire.Accepted{Started: &started},
		"refused":     wire.Refused{Failure: failure},
		"not_now":     wire.NotNow{Reason: wire.NotNowBusy},
		"started":     started,
		"records": wire.Records{First: 7, Records: []wire.Record{
			{Time: 1, Value: []byte{0xc3}}, {Time: 2, Kind: "stdout", Value: []byte{0xa1, 'x'}, Partial: true, Truncated: 9},
		}},
		"stopping":       stopping,
		"end":            wire.End{Value: []byte{0xc3}, Failure: failure, Stopped: &stopping, Records: 8, RanFor: 5e9, Dropped: true, Started: &started, Gone: true, Position: 1 << 40},
		"hello_caller":   wire.Hello{Version: 1, Features: []string{"f"}, Software: "harp/0", Instance: "i", Token: "t"},
		"hello_agent":    wire.Hello{Version: 1, Software: "harp/0", Instance: "i", BootID: "b", Journal: "j", Position: 9, Labels: map[string]string{"a": "1"}},
		"welcome":        wire.Welcome{Version: 1, Features: []string{"f"}, Software: "harp/0", Store: "s", Epoch: 2, Heartbeat: 10e9, Reconnect: 10e9, Time: 3, Max: 1024},
		"beat":           wire.Beat{Heartbeat: 50e9},
		"unwelcome":      wire.Unwelcome{Failure: failure},
		"facts":          wire.Facts{Facts: []byte{0x80}, Problems: []harp.HostProblem{{Code: "procedures", Text: "p.yaml: bad"}}},
		"procedures":     wire.Procedures{Procedures: []harp.ProcedureDoc{procedure()}, Last: true},
		"procedure":      procedure(),
		"held":           wire.Held{Attempts: []wire.HeldAttempt{held}, Last: true},
		"forget":         wire.Forget{Attempts: []wire.HeldAttempt{held}, Last: true},
		"ready":          wire.Ready{},
		"failed":         wire.Failed{Failure: failure},
		"server":         harp.ServerInfo{Software: "harp/0", Protocol: 1, Features: []string{"f"}, Store: "s", Time: at(1), Troubles: []string{"t"}, Bounds: []harp.Bound{{Name: "n", Used: 1, Most: 2, Unit: "u", Reason: "r"}}},
		"submitted":      wire.Submitted{ID: "j", Existed: true, Failure: failure, More: rows},
		"job_ref":        wire.JobRef{ID: "j"},
		"cancel_job":     wire.CancelJob{ID: "j", Now: true},
		"result_of":      wire.ResultOf{ID: "j", Wait: true},
		"result":         result,
		"pull":           wire.Pull{ID: "j", RecordQuery: harp.RecordQuery{From: 7, Tail: true, Recent: 10, Wait: true}},
		"pulled":         wire.Pulled{Records: rows, Next: 9, End: 10, Ended: true},
		"pulled_record":  wire.PulledRecord{Seq: 7, Attempt: 2, Missing: 4, Record: wire.Record{Time: 1, Kind: "log", Value: []byte{0xc3}, Partial: true, Truncated: 3}},
		"done":           wire.Done{Live: true, Count: 3},
		"job":            job(who, result),
		"cancel_request": harp.CancelRequest{By: who, Time: at(1), Now: true},
		"attempt":        harp.Attempt{Number: 1, Base: 2, Sent: at(3), Started: at(4), Ended: at(5), Outcome: "lost", Reason: "journal_gone"},
		"jobs_query": wire.JobsQuery{
			Page: page, Queue: []byte{0x80}, JobFilter: harp.JobFilter{
				Host: "web01", Procedure: "p", Batch: "b", States: []harp.State{"queued", "lost"},
				Labels: map[string]string{"a": "1"}, Since: at(1), Until: at(2),
				By: "ada", Args: map[string]string{"to": "3"},
			},
		},
		"jobs":          wire.Jobs{Jobs: rows, Cursor: "c"},
		"batch_ref":     wire.BatchRef{ID: "b", Wait: true},
		"batches_query": wire.BatchesQuery{Page: page, BatchFilter: harp.BatchFilter{States: []harp.BatchState{"running"}, Procedure: "p"}},
		"batches":       wire.Batches{Batches: rows, Cursor: "c"},
		"batch_status": harp.BatchStatus{
			ID: "b", Target: "web*", Procedure: "p", RetryOf: "a", Schedule: "s", DryRun: true, Labels: map[string]string{"a": "1"}, Caller: who,
			State: "paused", Reason: "operator", Since: at(1), Hosts: 9, Reached: 5, Wave: 1, Waves: 2, Parallel: 3, StopAfter: 4, Failures: 1,
			Counts: map[harp.State]int{"failed": 1}, Skipped: map[string]int{"offline": 1},
			Pause:  &harp.BatchPause{By: who, Reason: "r", Time: at(2), Until: at(3)},
			Cancel: &harp.CancelRequest{By: who, Time: at(4), Now: true}, SubmitTime: at(5), EndTime: at(6),
		},
		"batch_pull":   wire.BatchPull{ID: "b", BatchQuery: harp.BatchQuery{From: 7, At: 8, Records: true, Tail: true, Recent: 9, Wait: true}},
		"batch_pulled": wire.BatchPulled{Entries: rows, Next: 9, At: 10, Ended: true},
		"batch_entry": wire.BatchEntry{No: 7, Host: "web01", Job: "j", End: &result, Skipped: true, Record: &wire.PulledRecord{
			Seq: 7, Attempt: 2, Missing: 4, Record: wire.Record{Time: 1, Kind: "log", Value: []byte{0xc3}, Partial: true, Truncated: 3},
		}},
		"change_batch": wire.ChangeBatch{Request: "r", Batch: "b", BatchChange: harp.BatchChange{Kind: "pause", Reason: "w"}},
		"hosts_query":  wire.HostsQuery{Page: page, Target: "web*"},
		"hosts":        wire.Hosts{Hosts: rows, Cursor: "c"},
		"host": harp.HostStatus{
			Name: "web01", Online: true, Address: "10.0.0.1:7442", Labels: map[string]string{"a": "1"}, LabelSources: map[string]harp.LabelSource{"a": "operator"}, Facts: []byte{0x80},
			Procedures: []string{"p", "q"}, LastHeard: at(1), Software: "harp/0", Error: "away", Problems: []harp.HostProblem{{Code: "procedures", Text: "p.yaml: bad"}},
		},
		"explain":        wire.Explain{Target: "web*", Host: "web01"},
		"explained":      wire.Explained{Parts: rows},
		"explained_part": wire.ExplainedPart{Depth: 1, Text: "web*", Hosts: 2, Value: "web01"},
		"preview":        wire.Preview{Target: "web*", Procedure: "p", Args: []byte{0x80}},
		"previewed": wire.Previewed{
			Preview:    harp.Preview{Hosts: 3, Away: 1, Unfit: 1, Dangerous: true, Digest: "d", AwayHosts: []string{"web01"}},
			UnfitHosts: rows,
		},
		"unfit_host":      harp.UnfitHost{Host: "web02", Err: failure},
		"submit_many":     wire.NewSubmit([]harp.Submission{signed, {Request: []byte{0x80}}}),
		"results_of":      wire.ResultsOf{IDs: []string{"j", "k"}},
		"results":         wire.Results{Results: rows},
		"job_result":      wire.JobResult{ID: "j", Result: result, Failure: failure},
		"host_ref":        wire.HostRef{Name: "web01", Page: page},
		"host_procs":      wire.HostProcs{Procedures: rows, Cursor: "c"},
		"refreshed":       wire.Refreshed{Hosts: 3},
		"queues_query":    wire.QueuesQuery{Page: page, Name: []byte{0x80}},
		"queues":          wire.Queues{Queues: rows, Cursor: "c"},
		"queue":           harp.QueueStatus{Name: []byte{0x80}, Concurrency: 1, Running: 2, Waiting: 3, Paused: true},
		"ping_hosts":      wire.PingHosts{Page: page, Target: "web*"},
		"pinged":          wire.Pinged{Hosts: rows, Cursor: "c"},
		"host_ping":       harp.HostPing{Host: "h", Online: true, Answered: true, Took: 3, LastHeard: at(1)},
		"remove_host":     wire.RemoveHost{Name: "h", Request: "r"},
		"queue_ref":       wire.QueueRef{Name: []byte{0x80}, Request: "r"},
		"queue_change":    wire.QueueChange{Request: "r", Name: []byte{0x80}, QueueChange: harp.QueueChange{Paused: new(bool), Concurrency: new(3)}},
		"groups_query":    wire.GroupsQuery{Page: page, Name: "g"},
		"groups":          wire.Groups{Groups: rows, Cursor: "c"},
		"group":           harp.Group{Name: "g", Target: "web*", Changed: at(1), By: who},
		"put_group":       wire.PutGroup{Request: "r", Name: "g", Target: "web*"},
		"delete_group":    wire.DeleteGroup{Request: "r", Name: "g"},
		"schedules_query": wire.SchedulesQuery{Page: page, Name: "s"},
		"schedules":       wire.Schedules{Schedules: rows, Cursor: "c"},
		"schedule":        scheduleStatus(who, failure),
		"put_schedule":    wire.PutSchedule{Request: "r", Schedule: scheduleStatus(who, failure).Schedule},
		"delete_schedule": wire.DeleteSchedule{Request: "r", Name: "s"},
		"change_schedule": wire.ChangeSchedule{Request: "r", Name: "s", ScheduleChange: harp.ScheduleChange{Kind: "pause", Reason: "w", Until: at(1), At: at(2)}},
		"trigger":         wire.Trigger{Batch: "b", Name: "s", Trigger: harp.Trigger{EvenIfRunning: true, EvenIfPaused: true}},
		"backfill":        wire.Backfill{Request: "r", Name: "s", From: at(1), To: at(2)},
		"next_times":      wire.NextTimes{Name: "s", From: at(1), Most: 3},
		"upcoming":        wire.Upcoming{Times: rows},
		"ledger_query":    wire.LedgerQuery{Page: page, LedgerFilter: harp.LedgerFilter{Schedule: "s", Outcomes: []harp.TimeOutcome{"fired"}, From: at(1), To: at(2)}},
		"ledger":          wire.Ledger{Entries: rows, Cursor: "c"},
		"ledger_entry": harp.LedgerEntry{
			Schedule: "s", Kind: "time", Outcome: "failed", Reason: "r", Detail: "d", From: at(1), To: at(2), Count: 3, AtLeast: true,
			At: at(4), Late: 5, Batch: "b", By: who, Err: failure,
		},
		"label_hosts":  wire.LabelHosts{Request: "r", Target: "web*", Set: map[string]string{"a": "1"}, Unset: []string{"b"}},
		"force_lost":   wire.ForceLost{ID: "j", Why: "w"},
		"events_query": wire.EventsQuery{EventFilter: harp.EventFilter{After: "c", Types: []string{"job.*"}, Job: "j", Host: "web01", Batch: "b", Since: at(1)}, Wait: true},
		"events":       wire.Events{Events: rows, Cursor: "c"},
		"event": harp.Event{
			Cursor: "c", Time: at(1), Type: "job.lost", Job: "j", Host: "web01", Procedure: "p", Queue: []byte{0x80},
			State: "lost", Reason: "journal_gone", Attempt: 2, By: who, Labels: map[string]string{"a": "1"},
			Batch: "b", Counts: map[harp.State]int{"lost": 1}, Schedule: "s",
		},
		"prune":  wire.Prune{EndedBefore: at(1)},
		"chunk":  wire.Chunk{Bytes: []byte{1, 2}},
		"copied": wire.Copied{Bytes: 1},
	}
}

func procedure() harp.ProcedureDoc {
	return harp.ProcedureDoc{
		Name: "p", Summary: "s", Doc: "d", Params: []string{"a", "b"}, Args: []byte("{}"), Record: []byte("{}"), Result: []byte("{}"),
		SilenceTimeout: 1, MaxExecTime: 2, Streams: true, Idempotent: true, Traits: []string{"dangerous"},
	}
}

func scheduleStatus(who harp.Principal, failure error) harp.ScheduleStatus {
	return harp.ScheduleStatus{
		Schedule: harp.Schedule{
			Name: "s", Doc: "d", Cron: "30 2 * * *", TZ: "Europe/Madrid", From: at(1), Until: at(2), Jitter: 3, Gap: "skip", Repeat: "both",
			Request: scheduled(), Overlap: "queue", CatchUp: 4, CatchUpMost: 5, PauseOnFailure: 6, Expect: 7,
			Labels: map[string]string{"a": "1"},
		},
		Version: 8, By: who, Changed: at(9), Through: at(10), Waiting: at(11), Next: harp.Upcoming{Time: at(12), Nominal: at(13), Wall: "w", Note: "n"},
		Pause: &harp.SchedulePause{By: who, Reason: "r", Since: at(14), Until: at(15)}, LastBatch: "b", Failures: 16, Err: failure,
	}
}

// scheduled is a request with every field, also those that no schedule may have.
func scheduled() harp.Request {
	return harp.Request{
		List: &harp.HostList{Count: 1, Digest: "d"},
		ID:   "i", Host: "h", Target: "web*", Procedure: "p", Args: []byte{0x80}, Queue: []byte{0x80}, Info: []byte{0xc0},
		Labels: map[string]string{"a": "1"}, Concurrency: 1, Priority: 2, SilenceTimeout: 3, MaxExecTime: 4, StartAfter: at(5), StartBefore: at(6),
		OfflineWait: 7, WhenOffline: "fail", TraceParent: "t", Needs: []string{"batch"}, Retry: harp.RetryPolicy{On: []harp.State{"lost"}, Attempts: 2, Backoff: 3, MaxBackoff: 4}, RetryOf: "o",
		DryRun: true, IdempotencyKey: "k", IdempotencyTTL: 8,
		Batch: harp.BatchOptions{
			Parallel: 1, Rolling: []string{"1"}, WavePause: 2, Approve: true, Subset: "5", Shuffle: true, Rate: 3, RatePer: 4, StopAfter: "5%",
			OnStop: "cancel", MaxHosts: 6, Confirmed: "c", Probe: true, WhenUnfit: "skip", QueuePerHost: true, Retry: []string{"failed"},
		},
	}
}

// at is a time by its nanoseconds.
func at(n int64) time.Time { return time.Unix(0, n).UTC() }

func job(who harp.Principal, late harp.Result) harp.JobStatus {
	return harp.JobStatus{
		ID: "j", Host: "web01", Procedure: "p", Batch: "b", Schedule: "s", DryRun: true, RetryOf: "r", Principal: who,
		Args: []byte{0x80}, Info: []byte{0xc0}, Queue: []byte{0x80}, State: "lost", Reason: "too_long", Since: at(1),
		UnknownOf: "running", Started: "maybe", CancelRequested: &harp.CancelRequest{By: who, Time: at(2), Now: true},
		Attempts: []harp.Attempt{{Number: 1, Base: 0, Sent: at(3), Started: at(4), Ended: at(5), Outcome: "lost", Reason: "too_long"}}, Attempt: 1,
		Err: late.Err, Late: &late, DuplicatePossible: true, SubmitTime: at(6), StartTime: at(7), EndTime: at(8), SilenceTimeout: 9, MaxExecTime: 10,
		QueuePos: 11, Obstacles: []harp.Obstacle{{Reason: "queue", Since: at(1), Until: at(2), Slots: 3, Jobs: []string{"j"}, Ahead: 4, Batch: "b", By: who, Why: "w"}}, Records: 12, Labels: map[string]string{"a": "1"}, Survivors: []int{4711},
	}
}

// TestGolden: the bytes of a message are a promise to every peer that is not of
// this build. A golden file changes only when the protocol does.
func TestGolden(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			got := hex.Dump(wire.Encode(message))
			path := filepath.Join("testdata", "golden", name+".hex")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("bytes have changed:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A key that comes twice in a message is refused: a reader of the first and one of the last would
// not hear the same.
func TestKeysThatComeTwice(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			b := wire.Encode(message)
			r := msgpack.NewReader(b)
			if r.Kind() != msgpack.KindMap {
				t.Fatal("it is no map")
			}
			n := r.Map()
			var entries [][]byte
			for range n {
				key := r.Raw()
				entries = append(entries, slices.Concat(key, r.Raw()))
			}
			if n == 0 {
				return // it says nothing
			}
			twice := append([]byte{0xde, 0, byte(n + 1)}, slices.Concat(append(entries, entries[0])...)...)
			err := wire.Decode(twice, reflect.New(reflect.TypeOf(message)).Interface())
			var refused *msgpack.FormatError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "twice") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGoldenFiles: no golden file is without its message.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	known := messages()
	for _, f := range files {
		if _, ok := known[strings.TrimSuffix(filepath.Base(f), ".hex")]; !ok {
			t.Errorf("%s belongs to no message", f)
		}
	}
}

// TestRoundTrip: what is encoded is decoded to the same, also with every field
// empty, and every key is within what a receiver accepts.
func TestRoundTrip(t *testing.T) {
	for name, message := range messages() {
		t.Run(name, func(t *testing.T) {
			for _, m := range []any{message, reflect.Zero(reflect.TypeOf(message)).Interface()} {
				b := wire.Encode(m)
				got := reflect.New(reflect.TypeOf(m))
				if err := wire.Decode(b, got.Interface()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.Elem().Interface(), m) {
					t.Errorf("got %+v, want %+v", got.Elem(), m)
				}
			}
		})
	}
}

// TestEveryFieldIsGolden: a golden message leaves no field empty, so that none can
// change unseen.
func TestEveryFieldIsGolden(t *testing.T) {
	partial := map[string]bool{"request_plain": true, "call_direct": true, "hello_caller": true, "hello_agent": true}
	for name, message := range messages() {
		if !partial[name] {
			fieldsSet(t, name, reflect.ValueOf(message))
		}
	}
}

func fieldsSet(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("msgpack") == "-" {
			continue
		}
		if v.Field(i).IsZero() {
			t.Errorf("%s.%s is empty", path, f.Name)
		}
		fieldsSet(t, path+"."+f.Name, v.Field(i))
	}
}

// TestUnknownKeys: a receiver ignores keys it does not know, so that messages can
// grow.
func TestUnknownKeys(t *testing.T) {
	b := wire.Encode(map[string]any{"id": "j", "wait": true, "later": map[string]any{"deep": []any{1, "x"}}})
	var got wire.ResultOf
	if err := wire.Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	if got != (wire.ResultOf{ID: "j", Wait: true}) {
		t.Errorf("got %+v", got)
	}
}

// TestFrameCaps: what the limits allow fits its frame, and no frame is longer than a
// transport carries.
func TestFrameCaps(t *testing.T) {
	for typ := range transport.Type(127) {
		if n := wire.MaxBody(typ); n < 1 || n > transport.MaxFrame {
			t.Errorf("type %d: %d", typ, n)
		}
	}
	biggest := harp.Request{ID: "j", Args: bytes.Repeat([]byte{1}, wire.MaxMessage), Info: bytes.Repeat([]byte{1}, harp.MaxInfo), Queue: make([]byte, harp.MaxQueueName)}
	call := wire.Call{Submission: harp.Submission{Request: biggest.Encode(), Signature: make([]byte, 64)}}
	for typ, m := range map[transport.Type]any{
		wire.TypeSubmit: call.Submission,
		wire.TypeCall:   call,
		wire.TypeChunk:  wire.Chunk{Bytes: make([]byte, wire.MaxChunk)},
		wire.TypeEnd:    wire.End{Value: make([]byte, wire.MaxMessage), Failure: harp.Failure{Code: "remote", Data: make([]byte, wire.MaxMessage)}.Err()},
	} {
		if n := len(wire.Encode(m)); n > wire.MaxBody(typ) {
			t.Errorf("type %d: %d bytes, cap %d", typ, n, wire.MaxBody(typ))
		}
	}
}

// TestRows: a row may hold more elements than a message.
func TestRows(t *testing.T) {
	names := make([]string, 2*msgpack.ProtocolLimits.Elements)
	row := wire.Encode(harp.HostStatus{Name: "web01", Procedures: names})
	var host harp.HostStatus
	if err := wire.Decode(row, &host); err == nil {
		t.Error("a message of so many elements was accepted")
	}
	if err := wire.DecodeRow(row, &host); err != nil || len(host.Procedures) != len(names) {
		t.Error(len(host.Procedures), err)
	}
	answer := wire.Encode(wire.Hosts{Hosts: wire.Rows{row, row}})
	var hosts wire.Hosts
	if err := wire.Decode(answer, &hosts); err != nil || len(hosts.Hosts) != 2 {
		t.Error(len(hosts.Hosts), err)
	}
}

// TestText: a string that is not UTF-8 never leaves, and is refused when it comes as
// bytes.
func TestText(t *testing.T) {
	const bad, good = "disk \xff full", "disk \ufffd full"
	message := harp.JobStatus{
		ID: bad, Labels: map[string]string{bad: bad}, CancelRequested: &harp.CancelRequest{By: harp.Principal{Name: bad}},
		Attempts: []harp.Attempt{{Outcome: bad}, {Outcome: "lost"}}, Args: []byte{0xc3},
	}
	var got harp.JobStatus
	if err := wire.Decode(wire.Encode(message), &got); err != nil {
		t.Fatal(err)
	}
	want := harp.JobStatus{
		ID: good, Labels: map[string]string{good: good}, CancelRequested: &harp.CancelRequest{By: harp.Principal{Name: good}},
		Attempts: []harp.Attempt{{Outcome: good}, {Outcome: "lost"}}, Args: []byte{0xc3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if message.ID != bad || message.Attempts[0].Outcome != bad {
		t.Error("the message given was changed")
	}
	bytesForString := wire.Encode(map[string][]byte{"id": []byte(bad)})
	if err := wire.Decode(bytesForString, &got); !errors.Is(err, transport.ErrMalformed) {
		t.Error(err)
	}
	if b := wire.Encode([]any{bad, nil, 3}); !bytes.Contains(b, []byte(good)) {
		t.Errorf("%q", b)
	}
}

// FuzzDecode: no bytes from outside make any message panic, and what was accepted
// can be sent on.
func FuzzDecode(f *testing.F) {
	kinds := messages()
	for _, m := range kinds {
		f.Add(wire.Encode(m))
	}
	f.Add([]byte{0xde, 0xff, 0xff})
	f.Add([]byte{0x81, 0x91, 0xc0, 0xc0}) // a key that cannot be hashed
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, m := range kinds {
			got := reflect.New(reflect.TypeOf(m))
			if wire.Decode(b, got.Interface()) != nil {
				continue
			}
			again := reflect.New(reflect.TypeOf(m))
			if err := wire.Decode(wire.Encode(got.Elem().Interface()), again.Interface()); err != nil {
				t.Errorf("%s: what was accepted is refused when sent on: %v", name, err)
			}
		}
	})
}
