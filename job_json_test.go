package harp

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestStatusesReadBack: what a status is written as in JSON is read as the same status.
func TestStatusesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		readsBack(t, anyResult(t))
		s := anyStatus(t)
		readsBack(t, s)
		o := Outcome[map[string]int]{State: s.State, Err: s.Err, EndTime: s.EndTime}
		if o.Err == nil {
			o.Value = rapid.SampledFrom([]map[string]int{nil, {"a": 1}}).Draw(t, "value of the outcome")
		}
		readsBack(t, o)
		readsBack(t, Preview{Hosts: 3, Unfit: 1, Refusal: FailureOf(s.Err), AwayHosts: []string{"db01"}, UnfitHosts: []UnfitHost{{"web01", anyFailure(t)}}})
		readsBack(t, Page[JobStatus]{Items: []JobStatus{s}, Cursor: rapid.String().Draw(t, "cursor")})
	})
}

// readsBack compares by JSON, too: a value is compared as it is printed.
func readsBack[T any](t *rapid.T, v T) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var read T
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	again, err := json.Marshal(read)
	if err != nil || string(again) != string(text) {
		t.Fatalf("%s is read as %s, %v", text, again, err)
	}
	if !reflect.DeepEqual(read, v) {
		t.Fatalf("%s: %#v is read as %#v", text, v, read)
	}
}

func anyResult(t *rapid.T) Result {
	r := Result{State: rapid.SampledFrom([]State{"succeeded", "failed", "lost"}).Draw(t, "state"), Err: anyFailure(t)}
	if rapid.Bool().Draw(t, "has value") {
		r.Value = rapid.SampledFrom([]Value{{0xa1, 'x'}, {0x80}, {0x01}, {0xc3}}).Draw(t, "value")
	}
	if rapid.Bool().Draw(t, "has exit code") {
		r.ExitCode = new(rapid.IntRange(0, 255).Draw(t, "exit code"))
	}
	return r
}

func anyFailure(t *rapid.T) error {
	if !rapid.Bool().Draw(t, "failed") {
		return nil
	}
	f := newFailure(rapid.SampledFrom(codes).Draw(t, "code").name, rapid.StringN(0, 20, 60).Draw(t, "message"))
	f.Type, f.Host = rapid.SampledFrom([]string{"", "unit_failed"}).Draw(t, "type"), rapid.SampledFrom([]string{"", "web01"}).Draw(t, "host")
	return f.Err()
}

func anyStatus(t *rapid.T) JobStatus {
	at := func(name string) time.Time {
		if !rapid.Bool().Draw(t, name+" is known") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, name), rapid.Int64Range(0, 1e9-1).Draw(t, name+" ns")).UTC()
	}
	limits := rapid.OneOf(rapid.SampledFrom([]time.Duration{0, NoLimit, 90 * time.Second}), rapid.Map(rapid.Int64Range(1, 1<<50), func(n int64) time.Duration { return time.Duration(n) }))
	s := JobStatus{
		ID: rapid.String().Draw(t, "id"), Host: "web01", Procedure: "p", Principal: Principal{Kind: "user", Name: "ana", Auth: "certificate"},
		State: rapid.SampledFrom([]State{"queued", "running", "failed"}).Draw(t, "state"), Reason: rapid.String().Draw(t, "reason"),
		Since: at("since"), SubmitTime: at("submitted"), StartTime: at("started"), EndTime: at("ended"),
		Started: rapid.SampledFrom([]Ran{"", DidRun, MayHaveRun}).Draw(t, "ran"), Err: anyFailure(t),
		SilenceTimeout: limits.Draw(t, "timeout"), MaxExecTime: limits.Draw(t, "max_exec_time"),
		HeldBy: rapid.SampledFrom([][]string{nil, {"w"}}).Draw(t, "heldby"), QueuePos: rapid.IntRange(0, 5).Draw(t, "pos"), Records: rapid.Uint64Range(0, 1<<40).Draw(t, "records"), DryRun: rapid.Bool().Draw(t, "dry"),
	}
	if rapid.Bool().Draw(t, "has more") {
		late := anyResult(t)
		s.Late = &late
		s.Args, s.Queue, s.Labels, s.Survivors = Value{0x81, 0xa1, 'a', 0x01}, Value{0x80}, map[string]string{"a": "1"}, []int{7}
		s.Obstacles = []Obstacle{{Reason: ReasonQueue, Slots: 2, Jobs: []string{"j"}, Ahead: 1}, {Reason: ReasonPaused, By: s.Principal, Since: time.Unix(8, 0).UTC(), Why: "w"}}
		s.CancelRequested = &CancelRequest{By: s.Principal, Time: time.Unix(5, 0).UTC(), Now: true}
		s.Attempts = []Attempt{{Number: 1, Base: 2, Sent: time.Unix(6, 7).UTC(), Outcome: "lost", Reason: "journal_gone"}}
	}
	return s
}

// TestLimitsOfNoKind: a status from elsewhere whose limits are none is refused.
func TestLimitsOfNoKind(t *testing.T) {
	for _, text := range []string{`{"silence_timeout":"soon"}`, `{"max_exec_time":"5"}`, `{"silence_timeout":5}`, `[]`} {
		var s JobStatus
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is read as %+v", text, s)
		}
	}
	var r Result
	if err := json.Unmarshal([]byte(`{"error":5}`), &r); err == nil {
		t.Errorf("read as %+v", r)
	}
}

// TestStatusesAreWrittenForPeople: what a shell command has in it is readable in JSON, as an
// encoder that does not escape for HTML writes all else.
func TestStatusesAreWrittenForPeople(t *testing.T) {
	const said = "a > b && c < d"
	failed := newFailure(codeRemote, said).Err()
	for _, v := range []any{JobStatus{Host: "web01", Err: failed}, Result{Err: failed}, HostResult{Result: Result{Err: failed}}, UnfitHost{Err: failed}} {
		text, err := plainJSON(v)
		if err != nil || !strings.Contains(string(text), said) {
			t.Errorf("%T: %s, %v", v, text, err)
		}
	}
}
