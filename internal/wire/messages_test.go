package wire_test

import (
	"maps"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
)

// messages are one of each kind with every field set, under the name of its golden
// file.
func messages() map[string]any {
	all := map[string]any{}
	for _, some := range []map[string]any{
		attemptMessages(), sessionMessages(), jobMessages(), batchMessages(), hostMessages(), scheduleMessages(), windowMessages(), retentionMessages(), notificationMessages(), documentMessages(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// What several messages have.
var (
	someCaller = harp.Principal{Kind: "caller", Name: "ci", Auth: "certificate"}
	someSigned = harp.Submission{Request: []byte{0x81, 0xa1, 'v', 1}, Signature: []byte{2, 3}, KeyID: "key-1", Hosts: []byte("\x00\x05web01")}
	errSome    = failures.New("remote", "m").Err()
	someResult = harp.Result{State: "failed", Value: []byte{0xc3}, Err: errSome, ExitCode: new(3), Procedure: "p", SubmitTime: at(1), StartTime: at(2), EndTime: at(3)}
	somePage   = wire.Page{Cursor: "c", Limit: 50}
	someRows   = wire.Rows{{0x80}, {0x81, 0xa1, 'n', 1}}
	someHeld   = wire.HeldAttempt{Job: "j", Attempt: 1, State: wire.HeldAlive, Fence: 2, Records: 3, Acked: 4}
)

// someObstacle has every field, those of each kind.
var someObstacle = harp.Obstacle{
	Reason: "queue", Since: at(1), Until: at(2), Slots: 3, Jobs: []string{"j"}, Ahead: 4, Batch: "b", By: someCaller, Why: "w", Window: "n", Only: true,
}

// attemptMessages are what a dispatcher and an agent say of an attempt.
func attemptMessages() map[string]any {
	started := wire.Started{Time: 1700000000000000001, Ran: 5e6}
	stopping := wire.Stopping{Cause: wire.CauseTimeout, Since: 1700000000000000002, Limit: 60e9, Left: []int64{4711}}
	return map[string]any{
		"signed": someSigned,
		"call": wire.Call{
			Submission: someSigned, Job: "j", Host: "web01", Step: 2, Attempt: 1, Fence: 2, Epoch: 3, SilenceTimeout: 600e9, MaxExecTime: 86400e9, Left: 4, By: 6,
			Window: wire.Window, Principal: someCaller, Needs: []string{"x"}, Schedule: "s", Fire: at(5),
		},
		"call_direct": wire.Call{Submission: harp.Submission{Request: []byte{0x80}}, Attempt: 1, Window: wire.Window},
		"resume":      wire.Resume{Job: "j", Attempt: 1, Epoch: 2, From: 300, Window: wire.MinWindow, Cancel: &wire.Cancel{By: someCaller, Now: true}},
		"ack":         wire.Ack{Next: 300, Window: wire.Window, End: true},
		"cancel":      wire.Cancel{By: someCaller, Now: true},
		"accepted":    wire.Accepted{Started: &started},
		"refused":     wire.Refused{Failure: errSome},
		"not_now":     wire.NotNow{Reason: wire.NotNowBusy},
		"started":     started,
		"records": wire.Records{First: 7, Records: []wire.Record{
			{Time: 1, Value: []byte{0xc3}}, {Time: 2, Kind: "stdout", Value: []byte{0xa1, 'x'}, Partial: true, Truncated: 9},
		}},
		"stopping": stopping,
		"end":      wire.End{Value: []byte{0xc3}, Failure: errSome, Stopped: &stopping, Records: 8, RanFor: 5e9, Dropped: true, Started: &started, Gone: true, Taken: 1 << 40},
	}
}

// sessionMessages are what begins a session, and what is said beside its exchanges.
func sessionMessages() map[string]any {
	return map[string]any{
		"hello_caller": wire.Hello{Version: 1, Features: []string{"f"}, Software: "harp/0", Instance: "i", Token: "t"},
		"hello_agent":  wire.Hello{Version: 1, Software: "harp/0", Instance: "i", BootID: "b", Journal: "j", Labels: map[string]string{"a": "1"}},
		"welcome":      wire.Welcome{Version: 1, Features: []string{"f"}, Software: "harp/0", Store: "s", Epoch: 2, Heartbeat: 10e9, Reconnect: 10e9, Time: 3, Max: 1024},
		"beat":         wire.Beat{Heartbeat: 50e9},
		"unwelcome":    wire.Unwelcome{Failure: errSome},
		"facts":        wire.Facts{Facts: []byte{0x80}, Problems: []harp.HostProblem{{Code: "procedures", Text: "p.yaml: bad"}}},
		"procedures":   wire.Procedures{Procedures: []harp.ProcedureDoc{procedure()}, Last: true},
		"procedure":    procedure(),
		"held":         wire.Held{Attempts: []wire.HeldAttempt{someHeld}, Last: true, Taken: 9},
		"forget":       wire.Forget{Attempts: []wire.HeldAttempt{someHeld}, Last: true},
		"ready":        wire.Ready{},
		"failed":       wire.Failed{Failure: errSome},
		"server":       harp.ServerInfo{Software: "harp/0", Protocol: 1, Features: []string{"f"}, Store: "s", Time: at(1), Troubles: []string{"t"}, Bounds: []harp.Bound{{Name: "n", Used: 1, Most: 2, Unit: "u", Reason: "r"}}},
		"prune":        wire.Prune{EndedBefore: at(1)},
		"chunk":        wire.Chunk{Bytes: []byte{1, 2}},
		"copied":       wire.Copied{Bytes: 1},
	}
}

// jobMessages are what callers and a dispatcher say of jobs and of what happened.
func jobMessages() map[string]any {
	return map[string]any{
		"submitted":      wire.Submitted{ID: "j", Existed: true, Failure: errSome, More: someRows},
		"submit_many":    wire.NewSubmit([]harp.Submission{someSigned, {Request: []byte{0x80}}}),
		"job_ref":        wire.JobRef{ID: "j"},
		"cancel_job":     wire.CancelJob{ID: "j", Now: true},
		"result_of":      wire.ResultOf{ID: "j", Wait: true},
		"result":         someResult,
		"results_of":     wire.ResultsOf{IDs: []string{"j", "k"}},
		"results":        wire.Results{Results: someRows},
		"job_result":     wire.JobResult{ID: "j", Result: someResult, Failure: errSome},
		"pull":           wire.Pull{ID: "j", RecordQuery: harp.RecordQuery{From: 7, Tail: true, Recent: 10, Wait: true}},
		"pulled":         wire.Pulled{Records: someRows, Next: 9, End: 10, Ended: true},
		"pulled_record":  wire.PulledRecord{Seq: 7, Attempt: 2, Missing: 4, Record: wire.Record{Time: 1, Kind: "log", Value: []byte{0xc3}, Partial: true, Truncated: 3}},
		"done":           wire.Done{Live: true, Count: 3},
		"job":            job(someCaller, someResult),
		"cancel_request": harp.CancelRequest{By: someCaller, Time: at(1), Now: true},
		"attempt":        harp.Attempt{Number: 1, Base: 2, Sent: at(3), Started: at(4), Ended: at(5), Outcome: "lost", Reason: "journal_gone"},
		"jobs_query": wire.JobsQuery{
			Page: somePage, Queue: []byte{0x80}, JobFilter: harp.JobFilter{
				Host: "web01", Procedure: "p", Batch: "b", States: []harp.State{"queued", "lost"},
				Labels: map[string]string{"a": "1"}, Since: at(1), Until: at(2),
				By: "ada", Args: map[string]string{"to": "3"},
			},
		},
		"jobs":         wire.Jobs{Jobs: someRows, Cursor: "c"},
		"force_lost":   wire.ForceLost{ID: "j", Why: "w"},
		"events_query": wire.EventsQuery{EventFilter: harp.EventFilter{After: "c", Types: []string{"job.*"}, Job: "j", Host: "web01", Batch: "b", Since: at(1)}, Wait: true},
		"events":       wire.Events{Events: someRows, Cursor: "c"},
		"event": harp.Event{
			Cursor: "c", Time: at(1), Type: "job.lost", Job: "j", Host: "web01", Procedure: "p", Queue: []byte{0x80},
			State: "lost", Reason: "journal_gone", Attempt: 2, By: someCaller, Labels: map[string]string{"a": "1"},
			Batch: "b", Counts: map[harp.State]int{"lost": 1}, Schedule: "s", Window: "w", Notification: "n", Until: at(2),
		},
	}
}

// batchMessages are what callers and a dispatcher say of batches and their targets.
func batchMessages() map[string]any {
	return map[string]any{
		"batch_ref":     wire.BatchRef{ID: "b", Wait: true},
		"batches_query": wire.BatchesQuery{Page: somePage, BatchFilter: harp.BatchFilter{States: []harp.BatchState{"running"}, Procedure: "p"}},
		"batches":       wire.Batches{Batches: someRows, Cursor: "c"},
		"batch_status": harp.BatchStatus{
			ID: "b", Target: "web*", Procedure: "p", Steps: []string{"p", "q"}, RetryOf: "a", Schedule: "s", DryRun: true, Labels: map[string]string{"a": "1"}, Caller: someCaller,
			State: "paused", Reason: "operator", Since: at(1), Hosts: 9, Reached: 5, Gone: 2, Wave: 1, Waves: 2, Parallel: 3, StopAfter: 4, Failures: 1,
			Counts: map[harp.State]int{"failed": 1}, Early: 2, Skipped: map[string]int{"offline": 1},
			Pause:  &harp.BatchPause{By: someCaller, Reason: "r", Time: at(2), Until: at(3)},
			Cancel: &harp.CancelRequest{By: someCaller, Time: at(4), Now: true}, SubmitTime: at(5), EndTime: at(6),
		},
		"batch_pull":   wire.BatchPull{ID: "b", BatchQuery: harp.BatchQuery{From: 7, At: 8, Records: true, Tail: true, Recent: 9, Wait: true}},
		"batch_pulled": wire.BatchPulled{Entries: someRows, Next: 9, At: 10, Ended: true},
		"batch_entry": wire.BatchEntry{No: 7, Host: "web01", Job: "j", Step: 2, End: &someResult, Skipped: true, Record: &wire.PulledRecord{
			Seq: 7, Attempt: 2, Missing: 4, Record: wire.Record{Time: 1, Kind: "log", Value: []byte{0xc3}, Partial: true, Truncated: 3},
		}},
		"change_batch":   wire.ChangeBatch{Request: "r", Batch: "b", BatchChange: harp.BatchChange{Kind: "pause", Reason: "w", Wave: 2}},
		"explain":        wire.Explain{Target: "web*", Host: "web01"},
		"explained":      wire.Explained{Parts: someRows},
		"explained_part": wire.ExplainedPart{Depth: 1, Text: "web*", Hosts: 2, Value: "web01"},
		"preview":        wire.Preview{Submission: harp.Submission{Request: []byte{0x80}, Signature: []byte{1}, KeyID: "k", Hosts: []byte{0, 1, 0x68}}},
		"previewed": wire.Previewed{
			Preview: harp.Preview{Hosts: 3, Away: 1, Unfit: 1, Held: 2, Gone: 1, Dangerous: true, Digest: "d", AwayHosts: []string{"web01"}, GoneHosts: []string{"web09"}, Refusal: harp.Failure{
				Code: "remote", Type: "t", Message: "m", Data: []byte{0xc3}, ExitCode: new(int64(3)), Ran: "no", Fault: "host", Host: "h", Stage: "dial", Field: "f", Limit: 1, LimitOf: "timeout", JobID: "j",
			}},
			UnfitHosts: someRows,
		},
		"unfit_host": harp.UnfitHost{Host: "web02", Err: errSome},
	}
}

// someDrift is the mark of a host.
var someDrift = harp.DriftStatus{Host: "web01", Name: "base", Mark: "dirty", Since: at(1), Checked: at(2), Job: "j"}

// hostMessages are what callers and a dispatcher say of hosts, queues and groups.
func hostMessages() map[string]any {
	return map[string]any{
		"hosts_query": wire.HostsQuery{Page: somePage, Target: "web*"},
		"hosts":       wire.Hosts{Hosts: someRows, Cursor: "c"},
		"host": harp.HostStatus{
			Name: "web01", Online: true, Address: "10.0.0.1:7442", Labels: map[string]string{"a": "1"}, LabelSources: map[string]harp.LabelSource{"a": "operator"}, Facts: []byte{0x80},
			Procedures: []string{"p", "q"}, LastHeard: at(1), Software: "harp/0", Error: "away",
			Pause: &harp.HostPause{By: someCaller, Reason: "r", Since: at(2), Until: at(3)}, Drift: []harp.DriftStatus{someDrift}, Problems: []harp.HostProblem{{Code: "procedures", Text: "p.yaml: bad"}},
		},
		"host_ref":     wire.HostRef{Name: "web01", Page: somePage},
		"host_procs":   wire.HostProcs{Procedures: someRows, Cursor: "c"},
		"refreshed":    wire.Refreshed{Hosts: 3},
		"ping_hosts":   wire.PingHosts{Page: somePage, Target: "web*"},
		"pinged":       wire.Pinged{Hosts: someRows, Cursor: "c"},
		"host_ping":    harp.HostPing{Host: "h", Online: true, Answered: true, Took: 3, LastHeard: at(1)},
		"drift_query":  wire.DriftQuery{Page: somePage, Target: "web*", Name: "base"},
		"drifts":       wire.Drifts{Drifts: someRows, Cursor: "c"},
		"drift":        someDrift,
		"forget_drift": wire.ForgetDrift{Request: "r", Name: "base"},
		"remove_host":  wire.RemoveHost{Name: "h", Request: "r"},
		"label_hosts":  wire.LabelHosts{Request: "r", Target: "web*", Set: map[string]string{"a": "1"}, Unset: []string{"b"}},
		"queues_query": wire.QueuesQuery{Page: somePage, Name: []byte{0x80}},
		"queues":       wire.Queues{Queues: someRows, Cursor: "c"},
		"queue":        harp.QueueStatus{Name: []byte{0x80}, Concurrency: 1, Running: 2, Waiting: 3, Paused: true, Pause: &harp.QueuePause{By: someCaller, Reason: "r", Since: at(2), Until: at(3)}},
		"queue_ref":    wire.QueueRef{Name: []byte{0x80}, Request: "r"},
		"queue_change": wire.QueueChange{Request: "r", Name: []byte{0x80}, QueueChange: harp.QueueChange{Paused: new(bool), Reason: "r", Until: at(1), Concurrency: new(3)}},
		"groups_query": wire.GroupsQuery{Page: somePage, Name: "g"},
		"groups":       wire.Groups{Groups: someRows, Cursor: "c"},
		"group":        harp.Group{Name: "g", Target: "web*", Changed: at(1), By: someCaller, ManagedBy: "ops"},
		"put_group":    wire.PutGroup{Request: "r", Name: "g", Target: "web*"},
		"delete_group": wire.DeleteGroup{Request: "r", Name: "g"},
	}
}

// scheduleMessages are what callers and a dispatcher say of schedules.
func scheduleMessages() map[string]any {
	return map[string]any{
		"schedules_query": wire.SchedulesQuery{Page: somePage, Name: "s"},
		"schedules":       wire.Schedules{Schedules: someRows, Cursor: "c"},
		"schedule":        scheduleStatus(someCaller, errSome),
		"put_schedule":    wire.PutSchedule{Request: "r", Schedule: scheduleStatus(someCaller, errSome).Schedule},
		"delete_schedule": wire.DeleteSchedule{Request: "r", Name: "s"},
		"change_schedule": wire.ChangeSchedule{Request: "r", Name: "s", ScheduleChange: harp.ScheduleChange{Kind: "pause", Reason: "w", Until: at(1), At: at(2)}},
		"trigger":         wire.Trigger{Batch: "b", Name: "s", Trigger: harp.Trigger{EvenIfRunning: true, EvenIfPaused: true}},
		"backfill":        wire.Backfill{Request: "r", Name: "s", From: at(1), To: at(2)},
		"next_times":      wire.NextTimes{Name: "s", From: at(1), Most: 3},
		"upcoming":        wire.Upcoming{Times: someRows},
		"ledger_query":    wire.LedgerQuery{Page: somePage, LedgerFilter: harp.LedgerFilter{Schedule: "s", Outcomes: []harp.TimeOutcome{"fired"}, From: at(1), To: at(2)}},
		"ledger":          wire.Ledger{Entries: someRows, Cursor: "c"},
		"ledger_entry": harp.LedgerEntry{
			Schedule: "s", Kind: "time", Outcome: "failed", Reason: "r", Detail: "d", From: at(1), To: at(2), Count: 3, AtLeast: true,
			At: at(4), Late: 5, Batch: "b", After: "a", By: someCaller, Err: errSome,
		},
	}
}

// windowMessages are what callers and a dispatcher say of maintenance windows and of pauses of hosts.
func windowMessages() map[string]any {
	return map[string]any{
		"windows_query": wire.WindowsQuery{Page: somePage, Name: "w"},
		"windows":       wire.Windows{Windows: someRows, Cursor: "c"},
		"window": harp.WindowStatus{
			Fetch:  &harp.CalendarFetch{At: at(7), Bytes: 8, Since: at(9), Why: "its server answers 500", Stale: true},
			Window: someWindow, ManagedBy: "ops", By: someCaller, Changed: at(4), Open: true, Span: harp.Span{From: at(5), To: at(6), Note: "n"}, Err: errSome,
		},
		"put_window":   wire.PutWindow{Request: "r", Window: someWindow},
		"window_ref":   wire.WindowRef{Request: "r", Name: "w"},
		"window_spans": wire.WindowSpans{Name: "w", From: at(1), To: at(2), Window: &someWindow},
		"spans":        wire.Spans{Spans: someRows},
		"span":         harp.Span{From: at(1), To: at(2), Note: "n"},
		"judge_start":  wire.JudgeStart{Host: "web01", Procedure: "p", At: at(1)},
		"judged": wire.Judged{
			Verdict: harp.Verdict{At: at(1), May: true, Mode: "refuse", Until: at(2), KnownUntil: at(3)}, Obstacles: someRows,
		},
		"obstacle":    someObstacle,
		"pause_hosts": wire.PauseHosts{Request: "r", Target: "web*", HostPauseChange: harp.HostPauseChange{Unpause: true, Reason: "w", Until: at(1)}},
	}
}

// notificationMessages are what callers and a dispatcher say of notifications.
func notificationMessages() map[string]any {
	return map[string]any{
		"notifications_query": wire.NotificationsQuery{Page: somePage, Name: "n", Messages: true},
		"notifications":       wire.Notifications{Notifications: someRows, Messages: someRows, Cursor: "c"},
		"notification": harp.NotificationStatus{
			Notification: someNotification, ManagedBy: "ops", By: someCaller, Changed: at(1), Pause: &harp.NotificationPause{By: someCaller, Reason: "r", Since: at(2)},
			Behind: true, Pending: 1, GivenUp: 2, Away: 3, Gathered: 4, Sent: 5, Answer: "503", Tried: at(3), Err: errSome,
		},
		"put_notification":     wire.PutNotification{Request: "r", Notification: someNotification},
		"notification_ref":     wire.NotificationRef{Request: "r", Name: "n"},
		"change_notification":  wire.ChangeNotification{Request: "r", Name: "n", NotificationChange: harp.NotificationChange{Kind: "retry", Reason: "r", Message: "m"}},
		"notification_changed": harp.NotificationChanged{Count: 1, Taken: true, Answer: "503"},
		"message": harp.MessageStatus{
			Notification: "n", ID: "m", Type: "job.failed", Time: at(1), Subject: "s", Tries: 2, Tried: at(2), Answer: "503", Due: at(3), GivenUp: true,
		},
	}
}

// someNotification has every field, also those of which a notification may have one alone.
var someNotification = harp.Notification{
	Name: "n", Doc: "d", On: []string{"host.away"}, Procedures: []string{"p*"}, Schedules: []string{"s*"}, Target: "web*", States: []harp.State{"failed"},
	Labels: map[string]string{"a": "1"}, For: 3, Digest: 4, Include: []string{"args"},
	To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://example.com", Secrets: []string{"s"}}, Mail: &harp.Mail{To: []string{"a@example.com"}}},
}

// retentionMessages are what callers and a dispatcher say of retention rules.
func retentionMessages() map[string]any {
	return map[string]any{
		"retention_query":  wire.RetentionQuery{Explain: "j"},
		"retention_rules":  wire.RetentionRules{Rules: someRows, Kept: &harp.Kept{ID: "j", Batch: "b", Ended: at(1), Rule: "r", Keep: 2, MaxBytes: 3, Until: at(4)}},
		"retention_rule":   harp.RetentionStatus{RetentionRule: someRule, ManagedBy: "ops", By: someCaller, Changed: at(4), Bytes: 5},
		"set_retention":    wire.SetRetention{Request: "r", Rule: someRule},
		"delete_retention": wire.DeleteRetention{Request: "r", Name: "n"},
	}
}

var someRule = harp.RetentionRule{
	Name: "n", Doc: "d", Order: -1, Procedure: "p*", Schedule: "s*", States: []harp.State{"failed"}, Labels: map[string]string{"k": "v"}, Keep: 2, MaxBytes: 3,
}

// documentMessages are what callers and a dispatcher say of documents.
func documentMessages() map[string]any {
	return map[string]any{
		"apply":   wire.Apply{Request: "r", ManagedBy: "ops", Documents: someRows, ApplyOptions: harp.ApplyOptions{Prune: true, DryRun: true}},
		"applied": wire.Applied{Count: 3, Changes: someRows},
		"document": harp.Document{
			Schedule: new(scheduleStatus(someCaller, errSome).Schedule), Group: &harp.Group{Name: "g", Target: "web*", Changed: at(1), By: someCaller, ManagedBy: "ops"},
			Window: &someWindow, Retention: &someRule, Notification: &someNotification,
		},
		"document_change": harp.DocumentChange{Kind: "schedule", Name: "s", Action: "changed", Fields: []harp.FieldChange{{Field: "cron", Old: "a", New: "b"}}},
	}
}

// someWindow has every field, also those of which a window may have one alone.
var someWindow = harp.Window{
	Name: "w", Doc: "d", Reason: "r", Target: "web*", Mode: "refuse", Only: true, SchedulesOnly: true, Procedures: []string{"p*"}, Exempt: []string{"ping"}, All: true,
	From: at(1), To: at(2), Cron: "30 2 * * *", For: 3, TZ: "Europe/Madrid",
	Calendar: &harp.WindowCalendar{Content: []byte("BEGIN:VCALENDAR"), URL: "https://cal.example.org", Event: "db*", Zones: map[string]string{"Office": "Europe/Madrid"}},
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
			Name: "s", Doc: "d", Cron: "30 2 * * *", After: []harp.Dependency{{Schedule: "o", On: "failed", Within: 1}}, TZ: "Europe/Madrid", From: at(1), Until: at(2), Jitter: 3, Gap: "skip", Repeat: "both",
			Request: scheduled(), Overlap: "queue", CatchUp: 4, CatchUpMost: 5, PauseOnFailure: 6, Expect: 7,
			Labels: map[string]string{"a": "1"},
		},
		ManagedBy: "ops", Version: 8, By: who, Changed: at(9), Through: at(10), Waiting: at(11), Next: harp.Upcoming{
			Time: at(12), Nominal: at(13), Wall: "w", Note: "n", Hosts: 17, Held: 18, HeldBy: "b", HeldUntil: at(19),
		},
		Pause: &harp.SchedulePause{By: who, Reason: "r", Since: at(14), Until: at(15)}, LastBatch: "b", Failures: 16, Err: failure,
		Ends: []harp.DependencyEnd{{Schedule: "o", Batch: "b", State: "failed", At: at(20)}},
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
			Parallel: 1, Rolling: []string{"1"}, WavePause: 2, Approve: true, ApproveFirst: true, Subset: "5", Shuffle: true, Rate: 3, RatePer: 4, StopAfter: "5%",
			OnStop: "cancel", MaxHosts: 6, Confirmed: "c", Probe: true, WhenUnfit: "skip", WhenHeld: "skip", QueuePerHost: true, Drift: "base", Retry: []string{"failed"}, RebootWait: 9, EachStep: true,
			Then: []harp.ChainStep{{Procedure: "q", Args: []byte{0x80}, On: "failed", SilenceTimeout: 1, MaxExecTime: 2, Retry: harp.RetryPolicy{On: []harp.State{"lost"}, Attempts: 3, Backoff: 4, MaxBackoff: 5}}},
		},
	}
}

// at is a time by its nanoseconds.
func at(n int64) time.Time { return time.Unix(0, n).UTC() }

func job(who harp.Principal, late harp.Result) harp.JobStatus {
	return harp.JobStatus{
		ID: "j", Host: "web01", Procedure: "p", Batch: "b", Step: 2, Schedule: "s", DryRun: true, RetryOf: "r", Principal: who,
		Args: []byte{0x80}, Info: []byte{0xc0}, Queue: []byte{0x80}, State: "lost", Reason: "too_long", Since: at(1),
		UnknownOf: "running", Started: "maybe", CancelRequested: &harp.CancelRequest{By: who, Time: at(2), Now: true},
		Attempts: []harp.Attempt{{Number: 1, Base: 0, Sent: at(3), Started: at(4), Ended: at(5), Outcome: "lost", Reason: "too_long"}}, Attempt: 1,
		Err: late.Err, Late: &late, DuplicatePossible: true, SubmitTime: at(6), StartTime: at(7), EndTime: at(8), SilenceTimeout: 9, MaxExecTime: 10,
		HeldBy: []string{"w"}, QueuePos: 11, Obstacles: []harp.Obstacle{someObstacle}, Records: 12, Labels: map[string]string{"a": "1"}, Survivors: []int{4711},
	}
}
