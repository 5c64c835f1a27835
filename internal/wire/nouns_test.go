package wire_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
)

// The generators draw nouns as a Service returns them: times in UTC, what is empty
// is nil, values are valid.
var (
	genText   = rapid.StringN(0, 12, -1)
	genTexts  = orNil(rapid.SliceOfN(genText, 1, 3))
	genLabels = rapid.Map(rapid.MapOfN(genText, genText, 0, 3), func(m map[string]string) map[string]string {
		if len(m) == 0 {
			return nil
		}
		return m
	})
	genTime = rapid.OneOf(
		rapid.Just(time.Time{}),
		rapid.Map(rapid.Int64(), func(n int64) time.Time {
			if n == 0 {
				return time.Time{}
			}
			return time.Unix(0, n).UTC()
		}),
	)
	genValue = rapid.Custom(func(t *rapid.T) harp.Value {
		v, err := harp.NewValue(rapid.OneOf(
			rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.String().AsAny(),
			rapid.SliceOf(rapid.Byte()).AsAny(), rapid.SliceOf(rapid.String()).AsAny(), rapid.MapOf(rapid.String(), rapid.Int()).AsAny(),
		).Draw(t, "any"))
		if err != nil {
			panic(err)
		}
		return v
	})
	genSeq       = rapid.Uint64Range(0, math.MaxInt64)
	genDuration  = rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
	genExit      = rapid.OneOf(rapid.Just[*int](nil), rapid.Ptr(rapid.Int(), false))
	genSchema    = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"type":"object"}`), json.RawMessage("true")})
	genPrincipal = rapid.Custom(func(t *rapid.T) harp.Principal {
		return harp.Principal{Kind: genText.Draw(t, "kind"), Name: genText.Draw(t, "name"), Auth: genText.Draw(t, "auth")}
	})
	genErr = rapid.Custom(func(t *rapid.T) error {
		f := failures.New(rapid.SampledFrom([]string{"remote", "timeout", "lost", "internal", "later"}).Draw(t, "code"), genText.Draw(t, "message"))
		f.Data, f.Type, f.Host = genValue.Draw(t, "data"), genText.Draw(t, "type"), genText.Draw(t, "host")
		return rapid.SampledFrom([]error{nil, f.Err()}).Draw(t, "err")
	})
	genState = rapid.Map(genText, func(s string) harp.State { return harp.State(s) })
)

func orNil[T any](g *rapid.Generator[[]T]) *rapid.Generator[[]T] {
	return rapid.OneOf(rapid.Just[[]T](nil), g)
}

func genResult(t *rapid.T) harp.Result {
	return harp.Result{State: genState.Draw(t, "state"), Value: genValue.Draw(t, "value"), Err: genErr.Draw(t, "err"), ExitCode: genExit.Draw(t, "exit")}
}

func genRecord(t *rapid.T) harp.Record {
	return harp.Record{
		Seq: genSeq.Draw(t, "seq"), Attempt: rapid.Int().Draw(t, "attempt"), Time: genTime.Draw(t, "time"),
		Kind:  harp.RecordKind(rapid.StringN(1, 8, -1).Draw(t, "kind")),
		Value: genValue.Draw(t, "value"), Partial: rapid.Bool().Draw(t, "partial"), Truncated: genSeq.Draw(t, "truncated"),
	}
}

func genJob(t *rapid.T) harp.JobStatus {
	s := harp.JobStatus{
		ID: genText.Draw(t, "id"), Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"),
		Batch: genText.Draw(t, "batch"), Schedule: genText.Draw(t, "schedule"), RetryOf: genText.Draw(t, "retry of"),
		Principal: genPrincipal.Draw(t, "principal"),
		Args:      genValue.Draw(t, "args"), Info: genValue.Draw(t, "info"), Queue: genValue.Draw(t, "queue"),
		State: genState.Draw(t, "state"), Reason: genText.Draw(t, "reason"), Started: harp.Ran(genText.Draw(t, "started")),
		Since: genTime.Draw(t, "since"), UnknownOf: genState.Draw(t, "unknown of"),
		Attempt: rapid.Int().Draw(t, "attempt"), Err: genErr.Draw(t, "err"),
		SubmitTime: genTime.Draw(t, "submit"), StartTime: genTime.Draw(t, "start"), EndTime: genTime.Draw(t, "end"),
		SilenceTimeout: genDuration.Draw(t, "timeout"), MaxExecTime: genDuration.Draw(t, "max"),
		HeldBy: rapid.SampledFrom([][]string{nil, {"w"}}).Draw(t, "heldby"), QueuePos: rapid.Int().Draw(t, "pos"), Records: genSeq.Draw(t, "records"), Labels: genLabels.Draw(t, "labels"),
	}
	if rapid.Bool().Draw(t, "cancelled") {
		s.CancelRequested = &harp.CancelRequest{By: genPrincipal.Draw(t, "by"), Time: genTime.Draw(t, "at")}
	}
	if rapid.Bool().Draw(t, "waits") {
		s.Obstacles = []harp.Obstacle{{
			Reason: genText.Draw(t, "obstacle"), Since: genTime.Draw(t, "since"), Until: genTime.Draw(t, "until"), Slots: rapid.Int().Draw(t, "slots"),
			Ahead: rapid.Int().Draw(t, "ahead"), Batch: genText.Draw(t, "of"), By: genPrincipal.Draw(t, "pauses"), Why: genText.Draw(t, "why"),
		}}
	}
	s.DuplicatePossible = rapid.Bool().Draw(t, "duplicate")
	if rapid.Bool().Draw(t, "late") {
		late := genResult(t)
		s.Late = &late
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		s.Attempts = append(s.Attempts, harp.Attempt{
			Number: rapid.Int().Draw(t, "number"), Base: genSeq.Draw(t, "base"), Sent: genTime.Draw(t, "sent"),
			Started: genTime.Draw(t, "started"), Ended: genTime.Draw(t, "ended"), Outcome: genText.Draw(t, "outcome"), Reason: genText.Draw(t, "why"),
		})
	}
	return s
}

func genEvent(t *rapid.T) harp.Event {
	return harp.Event{
		Cursor: genText.Draw(t, "cursor"), Time: genTime.Draw(t, "time"), Type: harp.EventType(genText.Draw(t, "type")),
		Job: genText.Draw(t, "job"), Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"),
		Queue: genValue.Draw(t, "queue"), State: genState.Draw(t, "state"), Reason: genText.Draw(t, "reason"),
		Attempt: rapid.Int().Draw(t, "attempt"), By: genPrincipal.Draw(t, "by"), Labels: genLabels.Draw(t, "labels"),
		Batch: genText.Draw(t, "batch"), Counts: rapid.MapOfN(genState, rapid.Int(), 1, 3).Draw(t, "counts"),
		Schedule: genText.Draw(t, "schedule"),
	}
}

// travels draws messages, sends each as bytes and compares.
func travels[M any](t *testing.T, draw func(*rapid.T) M) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		var got M
		want := draw(t)
		if err := wire.DecodeRow(wire.Encode(want), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v, want\n%+v", got, want)
		}
	})
}

// TestNounsTravel: every noun comes out of its message as it went in.
func TestNounsTravel(t *testing.T) {
	t.Run("JobStatus", func(t *testing.T) { travels(t, genJob) })
	t.Run("Result", func(t *testing.T) { travels(t, genResult) })
	t.Run("Event", func(t *testing.T) { travels(t, genEvent) })
	t.Run("QueueStatus", func(t *testing.T) {
		travels(t, func(t *rapid.T) harp.QueueStatus {
			return harp.QueueStatus{
				Name: genValue.Draw(t, "name"), Concurrency: rapid.Int().Draw(t, "concurrency"),
				Running: rapid.Int().Draw(t, "running"), Waiting: rapid.Int().Draw(t, "waiting"), Paused: rapid.Bool().Draw(t, "paused"),
				Pause: rapid.OneOf(rapid.Just[*harp.QueuePause](nil), rapid.Ptr(rapid.Custom(func(t *rapid.T) harp.QueuePause {
					return harp.QueuePause{By: genPrincipal.Draw(t, "by"), Reason: genText.Draw(t, "reason"), Since: genTime.Draw(t, "since"), Until: genTime.Draw(t, "until")}
				}), false)).Draw(t, "pause"),
			}
		})
	})
}

// TestNounsOfHostsTravel: those of hosts do, and of what they and the dispatcher offer.
func TestNounsOfHostsTravel(t *testing.T) {
	t.Run("HostStatus", func(t *testing.T) {
		travels(t, func(t *rapid.T) harp.HostStatus {
			return harp.HostStatus{
				Name: genText.Draw(t, "name"), Online: rapid.Bool().Draw(t, "online"), Address: genText.Draw(t, "address"),
				Labels: genLabels.Draw(t, "labels"), Facts: genValue.Draw(t, "facts"), Procedures: genTexts.Draw(t, "procedures"),
				LastHeard: genTime.Draw(t, "heard"), Software: genText.Draw(t, "software"), Error: genText.Draw(t, "error"),
				Problems: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) harp.HostProblem {
					return harp.HostProblem{Code: genText.Draw(t, "code"), Text: genText.Draw(t, "text")}
				}), 1, 3).Draw(t, "problems"),
			}
		})
	})
	t.Run("HostPing", func(t *testing.T) {
		travels(t, func(t *rapid.T) harp.HostPing {
			return harp.HostPing{
				Host: genText.Draw(t, "host"), Online: rapid.Bool().Draw(t, "online"), Answered: rapid.Bool().Draw(t, "answered"),
				Took: genDuration.Draw(t, "took"), LastHeard: genTime.Draw(t, "heard"),
			}
		})
	})
	t.Run("ProcedureDoc", func(t *testing.T) {
		travels(t, func(t *rapid.T) harp.ProcedureDoc {
			return harp.ProcedureDoc{
				Name: genText.Draw(t, "name"), Summary: genText.Draw(t, "summary"), Doc: genText.Draw(t, "doc"), Params: genTexts.Draw(t, "params"),
				Args: genSchema.Draw(t, "args"), Record: genSchema.Draw(t, "record"), Result: genSchema.Draw(t, "result"),
				SilenceTimeout: genDuration.Draw(t, "timeout"), MaxExecTime: genDuration.Draw(t, "max"),
				Streams: rapid.Bool().Draw(t, "streams"), Idempotent: rapid.Bool().Draw(t, "idempotent"), Traits: genTexts.Draw(t, "traits"),
			}
		})
	})
	t.Run("ServerInfo", func(t *testing.T) {
		travels(t, func(t *rapid.T) harp.ServerInfo {
			return harp.ServerInfo{
				Software: genText.Draw(t, "software"), Protocol: rapid.Int().Draw(t, "protocol"), Features: genTexts.Draw(t, "features"),
				Store: genText.Draw(t, "store"), Time: genTime.Draw(t, "time"), Troubles: genTexts.Draw(t, "troubles"),
				Bounds: orNil(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) harp.Bound {
					return harp.Bound{Name: genText.Draw(t, "name"), Used: rapid.Int64().Draw(t, "used"), Most: rapid.Int64().Draw(t, "most"), Unit: genText.Draw(t, "unit"), Reason: genText.Draw(t, "reason")}
				}), 1, 3)).Draw(t, "bounds"),
			}
		})
	})
}

// TestQueriesTravel: what callers ask comes out of its message as it went in.
func TestQueriesTravel(t *testing.T) {
	t.Run("Pull", func(t *testing.T) {
		travels(t, func(t *rapid.T) wire.Pull {
			return wire.Pull{ID: genText.Draw(t, "id"), RecordQuery: harp.RecordQuery{
				From: rapid.Uint64().Draw(t, "from"), Tail: rapid.Bool().Draw(t, "tail"),
				Recent: rapid.Uint64().Draw(t, "recent"), Wait: rapid.Bool().Draw(t, "wait"),
			}}
		})
	})
	t.Run("EventsQuery", func(t *testing.T) {
		travels(t, func(t *rapid.T) wire.EventsQuery {
			return wire.EventsQuery{Wait: rapid.Bool().Draw(t, "wait"), EventFilter: harp.EventFilter{
				After: genText.Draw(t, "after"), Types: genTexts.Draw(t, "types"), Job: genText.Draw(t, "job"), Host: genText.Draw(t, "host"),
			}}
		})
	})
	t.Run("QueueChange", func(t *testing.T) {
		travels(t, func(t *rapid.T) wire.QueueChange {
			return wire.QueueChange{Request: genText.Draw(t, "id"), Name: harp.Value{0x80}, QueueChange: harp.QueueChange{
				Paused: rapid.OneOf(rapid.Just[*bool](nil), rapid.Ptr(rapid.Bool(), false)).Draw(t, "paused"),
				Reason: genText.Draw(t, "reason"), Until: genTime.Draw(t, "until"),
				Concurrency: rapid.OneOf(rapid.Just[*int](nil), rapid.Ptr(rapid.Int(), false)).Draw(t, "concurrency"),
			}}
		})
	})
	t.Run("JobsQuery", func(t *testing.T) {
		travels(t, func(t *rapid.T) wire.JobsQuery {
			return wire.JobsQuery{
				Page: wire.Page{Cursor: genText.Draw(t, "cursor"), Limit: rapid.Int().Draw(t, "limit")}, Queue: genValue.Draw(t, "queue"),
				JobFilter: harp.JobFilter{
					Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"), Labels: genLabels.Draw(t, "labels"),
					States: orNil(rapid.SliceOfN(genState, 1, 3)).Draw(t, "states"),
					Since:  genTime.Draw(t, "since"), Until: genTime.Draw(t, "until"),
				},
			}
		})
	})
}

// TestPagesTravel: every row of a page comes out of it as it went in.
func TestPagesTravel(t *testing.T) {
	t.Run("RecordPage", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := harp.RecordPage{Next: genSeq.Draw(t, "next"), End: genSeq.Draw(t, "end"), Ended: rapid.Bool().Draw(t, "ended"), Records: []harp.Record{}}
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				want.Records = append(want.Records, genRecord(t))
			}
			var m wire.Pulled
			if err := wire.Decode(wire.Encode(wire.NewPulled(want)), &m); err != nil {
				t.Fatal(err)
			}
			if got, err := m.Page(); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got\n%+v, %v, want\n%+v", got, err, want)
			}
		})
	})
	t.Run("EventPage", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := orNil(rapid.SliceOfN(rapid.Custom(genEvent), 1, 3)).Draw(t, "events")
			m := wire.NewEvents(harp.EventPage{Events: want, Cursor: "c"})
			if got, err := wire.DecodeRows[harp.Event](m.Events); err != nil || m.Cursor != "c" || !reflect.DeepEqual(got, want) {
				t.Fatalf("got\n%+v, %v, want\n%+v", got, err, want)
			}
		})
	})
}

// TestOutOfRange: what the noun cannot hold is refused, and the field named.
func TestOutOfRange(t *testing.T) {
	type fields map[string]any
	bad := []byte{0xc1}
	for _, c := range []struct {
		path    string
		message fields
		into    any
	}{
		{".seq", fields{"seq": -1}, new(wire.PulledRecord)},
		{".next", fields{"next": -1}, new(wire.Pulled)},
		{".from", fields{"from": -1}, new(wire.Pull)},
		{".recent", fields{"recent": -1}, new(wire.Pull)},
		{".records", fields{"records": -1}, new(harp.JobStatus)},
		{".attempts[0].base", fields{"attempts": []any{fields{"base": -1}}}, new(harp.JobStatus)},
		{".args", fields{"args": bad}, new(harp.JobStatus)},
		{".args", fields{"args": 1}, new(harp.JobStatus)},
		{".info", fields{"info": bad}, new(harp.JobStatus)},
		{".queue", fields{"queue": bad}, new(harp.JobStatus)},
		{".failure", fields{"failure": bad}, new(harp.JobStatus)},
		{".failure", fields{"failure": fields{"code": "remote", "data": bad}}, new(harp.JobStatus)},
		{".late.value", fields{"late": fields{"value": bad}}, new(harp.JobStatus)},
		{".facts", fields{"facts": bad}, new(harp.HostStatus)},
		{".name", fields{"name": bad}, new(harp.QueueStatus)},
		{".result", fields{"result": []byte("{")}, new(harp.ProcedureDoc)},
		{".value", fields{"value": bad}, new(wire.End)},
	} {
		var de *msgpack.DecodeError
		if err := wire.Decode(wire.Encode(c.message), c.into); !errors.As(err, &de) || de.Path != c.path || errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%v into %T: %v", c.message, c.into, err)
		}
	}
	for _, row := range [][]byte{bad, wire.Encode(wire.PulledRecord{Record: wire.Record{Value: bad}})} {
		m := wire.Pulled{Records: wire.Rows{row}}
		if _, err := m.Page(); !errors.Is(err, msgpack.ErrMalformed) || errors.Is(err, harp.ErrInvalid) {
			t.Errorf("row %x: %v", row, err)
		}
	}
}

// TestUnwelcomeIsReadByEveryVersion: a peer of another version is told why it is refused, in the
// form that UNWELCOME had from the first version on.
func TestUnwelcomeIsReadByEveryVersion(t *testing.T) {
	refusal := failures.New("refused", "version 9 is not spoken here")
	var first struct {
		Failure []byte `msgpack:"failure"`
	}
	if err := wire.Decode(wire.Encode(wire.Unwelcome{Failure: refusal.Err()}), &first); err != nil {
		t.Fatal(err)
	}
	var got harp.Failure
	if err := wire.Decode(first.Failure, &got); err != nil || !reflect.DeepEqual(got, refusal) {
		t.Errorf("it is told %+v, %v", got, err)
	}
	var m wire.Unwelcome
	if err := wire.Decode(wire.Encode(first), &m); err != nil || !errors.Is(m.Failure, harp.ErrRefused) {
		t.Errorf("it tells %v, %v", m.Failure, err)
	}
	for _, wrong := range [][]byte{{0xc1}, {5}, {0x81}, append(wire.Encode(refusal), 0xc0)} {
		first.Failure = wrong
		if err := wire.Decode(wire.Encode(first), &m); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%x is read as %v, %v", wrong, m.Failure, err)
		}
	}
}

// TestPageOfRecords: a page is cut to what an answer holds, at least one record, and
// Next is where it was cut.
func TestPageOfRecords(t *testing.T) {
	records := func(n, size int) harp.RecordPage {
		p := harp.RecordPage{Ended: true}
		for i := range n {
			p.Records = append(p.Records, harp.Record{Seq: uint64(100 + i), Value: wire.Encode(make([]byte, size))})
		}
		p.Next, p.End = uint64(100+n), uint64(100+n)
		return p
	}
	for _, c := range []struct{ n, size, want int }{
		{0, 0, 0},
		{10, 100, 10},
		{100, harp.MaxRecord, 15},
		{wire.MaxRows + 1, 1, wire.MaxRows},
		{3, wire.MaxMessage - 10, 1},
	} {
		m := wire.NewPulled(records(c.n, c.size))
		body := wire.Encode(m)
		if len(m.Records) != c.want || len(body) > wire.MaxBody(wire.TypeReply) {
			t.Errorf("%d of %d bytes: %d in %d bytes, want %d", c.n, c.size, len(m.Records), len(body), c.want)
		}
		var back wire.Pulled
		if err := wire.Decode(body, &back); err != nil {
			t.Fatal(err)
		}
		page, err := back.Page()
		if err != nil {
			t.Fatal(err)
		}
		if page.Next != uint64(100+c.want) || page.Ended != (c.want == c.n) || page.End != uint64(100+c.n) {
			t.Errorf("%d of %d bytes: %d %d %v", c.n, c.size, page.Next, page.End, page.Ended)
		}
	}
}
