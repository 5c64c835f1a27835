package rows

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullJob has every field set.
func fullJob() *store.Job {
	code := int64(2)
	principal := harp.Principal{Kind: "caller", Name: "n", Auth: "certificate"}
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	return &store.Job{
		ID: "019ca000-0000-7000-8000-000000000001", No: 9, Host: "h", Procedure: "p", Queue: harp.Value{0x80},
		Concurrency: 2, Priority: -3, NotBefore: at(1), Expires: at(2), OfflineWait: harp.NoLimit,
		SilenceTimeout: time.Second, MaxExecTime: time.Hour, Labels: map[string]string{"k": "v"}, Principal: principal,
		Batch: "b", Index: 1, Chain: &store.ChainPlace{Step: 2, Of: 3, Class: 1, EachStep: true}, Schedule: "s", FireTime: at(3), RetryOf: "r", DryRun: true, Drift: "d", ReadOnly: true, TraceParent: "t", SubmitTime: at(4), SecretArgs: []string{"a"},
		Life: store.Life{
			State: harp.StateLost, Reason: "forced", Since: at(5), UnknownOf: harp.StateSent, Held: "h",
			Started: harp.MayHaveRun, Attempt: 2, Fence: 7,
			Attempts: []store.Attempt{
				{Number: 1, Next: 3, Fence: 1, Sent: at(6), Started: at(7), Ended: at(8), Outcome: "lost", Reason: "too_long"},
				{Number: 2, Base: 3, Next: 4, Fence: 7, Sent: at(9)},
			},
			Retry: harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute},
			Outcome: &store.Outcome{
				State: harp.StateFailed, Reason: "r", Started: harp.DidRun, Failure: failures.New("remote", "m"), HasValue: true,
			},
			Survivor: true, Left: []int{7, 9},
			WakeAt: at(10), Busy: 3, Cancel: &harp.CancelRequest{By: principal, Time: at(11)},
			Stopping: &store.Stopping{Cause: "timeout", Since: at(12), Limit: time.Minute}, StartTime: at(13), EndTime: at(14),
			Failure: harp.Failure{
				Code: "lost", Type: "t", Message: "m", Data: harp.Value{1}, ExitCode: &code, Ran: harp.MayHaveRun, Fault: harp.FaultAgent,
				Host: "h", Stage: "s", Field: "f", Limit: time.Second, LimitOf: "l", JobID: "j",
			},
			HasValue: true, Records: 7, Stored: 700, Full: true,
			Late:  &store.Late{State: harp.StateFailed, Failure: failures.New("remote", "m"), HasValue: true, At: at(15)},
			Class: 3, Counted: 1200,
		},
	}
}

func TestRowsRoundTrip(t *testing.T) {
	want := fullJob()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[store.Job]()) {
		if v := reflect.ValueOf(*want).FieldByIndex(f.Index); v.IsZero() && f.Name != "QueuePos" {
			t.Errorf("the test sets no %s", f.Name)
		}
	}
	i, ok := parseID(want.ID)
	if !ok || i.String() != want.ID {
		t.Fatalf("id %s is %v", want.ID, i)
	}
	var call callRow
	var life lifeRow
	var outcome store.Outcome
	if err := errors.Join(
		decode(encode(newCallRow(want, &[32]byte{1})), &call),
		decode(encode(newLifeRow(&want.Life)), &life),
		decode(encode(*want.Outcome), &outcome),
	); err != nil {
		t.Fatal(err)
	}
	got := call.toJob(i, life.Life)
	if life.Waits {
		got.Outcome = &outcome
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("job is\n%+v, want\n%+v", got, want)
	}
}

// TestRowsGolden holds the bytes of every row: a store that was written must be
// read by what comes after. A change needs a new format version.
func TestRowsGolden(t *testing.T) {
	j := fullJob()
	i, _ := parseID(j.ID)
	host := store.Host{
		Name: "h", Fingerprint: "f", Owner: "o", Epoch: 1, Instance: "i", Boot: "b", Journal: "j", Software: "s",
		Labels: map[string]string{"k": "v"}, Facts: harp.Value{0x80}, LastHeard: noon, Connected: true,
		Procedures: []harp.ProcedureDoc{{Name: "p", Summary: "s", Params: []string{"a"}, Args: []byte(`{}`), SilenceTimeout: 1, Streams: true}},
	}
	queue := queueRow{Concurrency: 2, Fixed: true, Paused: true, Marks: []schedule.Mark{{Through: 3, By: j.Principal, At: fromNanos(4)}}}
	first, _ := split([]byte("key"), []byte("payload"))
	var b strings.Builder
	show := func(what string, value []byte) { fmt.Fprintf(&b, "%s\n%s", what, hex.Dump(value)) }
	call, life := newCallRow(j, &[32]byte{1}), newLifeRow(&j.Life)
	call.Request, life.Value = &harp.Submission{Request: []byte("r"), Signature: []byte("s"), KeyID: "k"}, []byte{1}
	show("call", encode(call))
	show("life", encode(life))
	show("outcome", encode(*j.Outcome))
	show("request", encode(harp.Submission{Request: []byte("r"), Signature: []byte("s"), KeyID: "k"}))
	show("queue", encode(queue))
	queue.Pause, queue.Keeper = &harp.QueuePause{By: j.Principal, Reason: "r", Since: noon, Until: noon}, j.Principal
	show("queue", encode(queue))
	show("host", encode(host))
	show("format", encode(formatRow{Version: formatVersion, ID: "id"}))
	show("records", encodeChunk([]harp.Record{{Time: noon, Kind: "data", Value: harp.Value{1}}, {Truncated: 5}}, noon))
	show("sealed", first)
	var told feedRows
	for no := range uint64(2) {
		told.addEvent(no, encode(eventRow{At: 1, Type: "t", Job: i[:], Host: "h", Procedure: "p", Queue: j.Queue, State: "s", Reason: "r", Attempt: 2, By: &j.Principal, Labels: j.Labels, Schedule: "s", Held: &heldRow{Window: "w", Until: 9, Notification: "n"}}))
	}
	for _, w := range told.writes() {
		show("key", w.Key)
		show("events", w.Value)
	}
	together := cohort{first: 9}
	together.addJob(i)
	for _, w := range append(endedRows([]ended{{j.Class, nanos(j.EndTime), j.No, i}}), together.write()) {
		show("key", w.Key)
		show("jobs", w.Value)
	}
	batch := store.Batch{
		No: 1, Target: "h*", Hosts: 2, Gone: 3, SkipAway: true, SkipHeld: true, QueuePerHost: true, EachStep: true, Member: *j,
		Plan:    store.BatchPlan{Waves: []int{1, 2}, WavePause: 1, Approve: true, ApproveFirst: true, Parallel: 2, Rate: 3, RatePer: 4, StopAfter: 5, StopCancel: true, MaxPause: 6, StartAfter: noon},
		Classes: []store.BatchClass{{SilenceTimeout: 1, MaxExecTime: 2, Retry: j.Retry, SecretArgs: []string{"s"}, ReadOnly: true}},
	}
	batchLife := store.BatchLife{
		State: harp.BatchPaused, Reason: "r", Since: noon, Wave: 1, Reached: 2, Skipped: map[string]int{"offline": 1}, Failures: 1, Stopped: "s",
		Counts: store.MemberCounts{Queued: 1, Sent: 2, Running: 3, Cancelling: 4, Unknown: 5, Succeeded: 6, Failed: 7, TimedOut: 8, Cancelled: 9, Expired: 10, Rejected: 11, Lost: 12},
		WakeAt: noon, Rated: 1, RatedAt: noon, Pause: &harp.BatchPause{By: j.Principal, Reason: "r", Time: noon, Until: noon}, Cancel: j.Cancel, EndTime: noon,
	}
	show("batch", encode(batchRow{Batch: batch, Digest: []byte{1}}))
	show("batch life", encode(batchLifeRow{BatchLife: batchLife, Log: 3}))
	show("batch names", encode(newNames([]store.BatchHost{{Name: "a"}, {Name: "b", Class: 1, Unfit: "unfit"}})[0]))
	show("batch log", appendEntry(nil, &store.BatchEntry{Kind: store.BatchMemberRecords, Index: 1, First: 2, Count: 3}))
	for _, key := range [][]byte{i.key(prefixBatch), namesKey(i, 1), i.key(prefixBatchLife), logKey(i, 2), indexKey(byBatch), indexKey(byBatchEnd)} {
		show("key", key)
	}
	for _, key := range append(entries(j), endedKey(j), i.key(prefixCall), i.recordsKey(2, 3), documentKey("k", "n"), pieceKey([]byte("key"), 1)) {
		show("key", key)
	}
	state := store.ScheduleState{
		Version: 1, LastBatch: "b", BackfillBy: j.Principal, Runs: []store.ScheduleRun{{Batch: "b", Since: noon, Fires: store.FireBackfill, Late: true}},
		ScheduleLife: store.ScheduleLife{
			Through: noon, Waiting: noon, Skips: []time.Time{noon}, Backfill: []time.Time{noon}, Restored: noon, Lost: []time.Time{noon}, Failures: 1,
			Pauses:    []store.SchedulePause{{By: j.Principal, Reason: "r", Since: noon, Until: noon, Over: true}},
			Run:       store.LedgerRun{Outcome: harp.TimeSkipped, Reason: "r", Detail: "d", From: noon, To: noon, Count: 2, AtLeast: true},
			WaitedRun: store.LedgerRun{Outcome: harp.TimeMissed, From: noon, To: noon, Count: 1},
			Ends:      []store.ScheduleEnd{{Schedule: "s", Batch: "b", State: harp.BatchSucceeded, At: noon}}, Waits: []store.ScheduleEnd{{Schedule: "s", Batch: "b", At: noon}},
		},
	}
	show("schedule", encode(store.Schedule{Revision: 2, KeptFrom: noon, ScheduleState: state}))
	entry := newLedgerRow(&harp.LedgerEntry{
		Kind: harp.LedgerManual, Outcome: harp.TimeFailed, Reason: "r", Detail: "d", From: noon, To: noon, Count: 2, AtLeast: true, At: noon, Late: 1,
		Batch: j.ID, By: j.Principal, Err: j.Failure.Err(),
	})
	show("ledger", encode(entry))
	key := entry.keyOf("s")
	after := newLedgerRow(&harp.LedgerEntry{Kind: harp.LedgerAfter, Outcome: harp.TimeSkipped, From: noon, To: noon, Count: 1, At: noon, After: j.ID})
	show("ledger", encode(after))
	left := newLedgerRow(&harp.LedgerEntry{Kind: harp.LedgerBackfill, From: noon, To: noon, Count: 2, At: noon})
	for _, key := range [][]byte{scheduleKey("s"), key, ledgerEntryKey(key), after.keyOf("s"), left.keyOf("s")} {
		show("key", key)
	}
	isGolden(t, "testdata/rows.golden", b.String())
}

// isGolden compares what was shown of the format with the file that has it.
func isGolden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the format has changed; it is\n%s", got)
	}
}

func TestPieces(t *testing.T) {
	for _, size := range []int{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 5*pieceSize + 3} {
		payload := bytes.Repeat([]byte{1, 2, 3}, size/3+1)[:size]
		key := []byte("key")
		value, more := split(key, payload)
		stored := map[string][]byte{}
		for i, p := range more {
			k := pieceKey(key, i)
			stored[string(k)] = seal(k, p)
		}
		get := func(key []byte) ([]byte, error) { return stored[string(key)], nil }
		first, err := unseal(key, value)
		if err != nil {
			t.Fatal(err)
		}
		got, n, err := join(key, first, get)
		if err != nil || n != len(more) || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes in %d pieces came back as %d: %v", size, len(more), len(got), err)
		}
		if len(more) == 0 {
			continue
		}
		delete(stored, string(pieceKey([]byte("key"), 0)))
		if _, _, err := join([]byte("key"), first, get); !errors.Is(err, ErrDamaged) {
			t.Errorf("with a piece missing: %v", err)
		}
	}
}

// TestPlaces checks that places order as times and numbers do, and that the one
// before is the one before.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "time"), rapid.Int64().Draw(t, "time")
		n, m := rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "number")
		p, q := placeOf(a, n), placeOf(b, m)
		if less := a < b || a == b && n < m; less != (bytes.Compare(p[:], q[:]) < 0) {
			t.Fatalf("(%d, %d) and (%d, %d) order otherwise", a, n, b, m)
		}
		if before, ok := p.before(); ok && n > 0 && before != placeOf(a, n-1) {
			t.Fatalf("before (%d, %d) is %v", a, n, before)
		}
	})
	if _, ok := (place{}).before(); ok {
		t.Error("there is a place before the first")
	}
}

// FuzzUnseal changes stored bytes: what comes back is the row that was written, or
// ErrDamaged.
func FuzzUnseal(f *testing.F) {
	j := fullJob()
	key := []byte("key")
	value, _ := split(key, encode(newLifeRow(&j.Life)))
	f.Add(uint(0), byte(1), uint(0))
	f.Add(uint(len(value)-1), byte(0x80), uint(3))
	f.Fuzz(func(t *testing.T, at uint, flip byte, cut uint) {
		broken := bytes.Clone(value)
		broken[at%uint(len(broken))] ^= flip
		broken = broken[:uint(len(broken))-cut%uint(len(broken))]
		payload, err := unseal(key, broken)
		switch {
		case bytes.Equal(broken, value):
			if err != nil {
				t.Fatal(err)
			}
		case err == nil:
			t.Fatalf("%d bytes changed at %d are taken for good: %x", len(broken), at, payload)
		case !errors.Is(err, ErrDamaged):
			t.Fatal(err)
		}
	})
}

// FuzzDecode gives the decoders bytes whose checksum is right: they may refuse
// them, and must not fall over.
func FuzzDecode(f *testing.F) {
	j := fullJob()
	f.Add(encode(newLifeRow(&j.Life)))
	f.Add(encodeChunk([]harp.Record{{Value: harp.Value{1}}}, noon))
	var told feedRows
	told.addEvent(1, encode(eventRow{Host: "h"}))
	f.Add(told[0].events)
	f.Add(make([]byte, cohortMost*len(id{})))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 1<<10 {
			return
		}
		r := reading{most: store.ReadLimit{Bytes: 1 << 20}}
		if _, err := r.readChunk(payload, 1, 0); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if events, ok := splitEvents(1, payload); ok {
			for _, e := range events {
				e.at()
			}
		}
		for _, prefix := range [][]byte{cohortKey(1), indexKey(byEnded)} {
			item := Item{prefix, seal(prefix, payload)}
			_, cohort := openCohort(item)
			_, ended := openEnded(item)
			for _, err := range []error{cohort, ended} {
				if err != nil && !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
			}
		}
		if _, _, err := join([]byte("key"), payload, func([]byte) ([]byte, error) { return nil, nil }); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

// Events and entries of ledgers are read that were written before they had all their fields.
func TestRowsThatGrew(t *testing.T) {
	e := eventRow{At: 1, Type: "t", Host: "h", Labels: map[string]string{"k": "v"}, Schedule: "s"}
	shortened := func(b []byte, before, after int) []byte {
		head := len(msgpack.AppendArray(nil, before))
		return append(msgpack.AppendArray(nil, after), b[head:len(b)-(before-after)]...) // what is left out is nil
	}
	var event eventRow
	if err := decode(shortened(encode(e), 15, 14), &event); err != nil || !reflect.DeepEqual(event, e) {
		t.Errorf("an event is read as %+v, %v", event, err)
	}
	var held heldRow
	if err := decode([]byte{0x92, 0xa1, 'w', 9}, &held); err != nil || held != (heldRow{Window: "w", Until: 9}) {
		t.Errorf("what an event says of a window is read as %+v, %v", held, err)
	}
	l := ledgerRow{From: 1, Kind: "time", Outcome: "fired", To: 1, Count: 1, At: 2, Batch: make([]byte, 16)}
	var entry ledgerRow
	if err := decode(shortened(encode(l), 14, 13), &entry); err != nil || !reflect.DeepEqual(entry, l) {
		t.Errorf("an entry is read as %+v, %v", entry, err)
	}
}
