package harp

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	genValue = rapid.Map(anyValue(2), func(v any) Value {
		made, err := NewValue(v)
		if err != nil {
			panic(err)
		}
		return made
	})
	genSeq       = rapid.Uint64Range(0, math.MaxInt64)
	genDuration  = rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
	genExit      = rapid.OneOf(rapid.Just[*int](nil), rapid.Ptr(rapid.Int(), false))
	genSchema    = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"type":"object"}`), json.RawMessage("true")})
	genPrincipal = rapid.Custom(func(t *rapid.T) Principal {
		return Principal{genText.Draw(t, "kind"), genText.Draw(t, "name"), genText.Draw(t, "auth")}
	})
	genErr = rapid.Custom(func(t *rapid.T) error {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		all := failures()
		return all[rapid.SampledFrom(codes).Draw(t, "code").name].Err()
	})
	genState = rapid.Map(genText, func(s string) State { return State(s) })
)

func orNil[T any](g *rapid.Generator[[]T]) *rapid.Generator[[]T] {
	return rapid.OneOf(rapid.Just[[]T](nil), g)
}

func genResult(t *rapid.T) Result {
	return Result{State: genState.Draw(t, "state"), Value: genValue.Draw(t, "value"), Err: genErr.Draw(t, "err"), ExitCode: genExit.Draw(t, "exit")}
}

func genRecord(t *rapid.T) Record {
	return Record{
		Seq: genSeq.Draw(t, "seq"), Attempt: rapid.Int().Draw(t, "attempt"), Time: genTime.Draw(t, "time"),
		Kind:  RecordKind(rapid.StringN(1, 8, -1).Draw(t, "kind")),
		Value: genValue.Draw(t, "value"), Partial: rapid.Bool().Draw(t, "partial"), Truncated: genSeq.Draw(t, "truncated"),
	}
}

func genJob(t *rapid.T) JobStatus {
	s := JobStatus{
		ID: genText.Draw(t, "id"), Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"),
		Batch: genText.Draw(t, "batch"), Schedule: genText.Draw(t, "schedule"), RetryOf: genText.Draw(t, "retry of"),
		Principal: genPrincipal.Draw(t, "principal"),
		Args:      genValue.Draw(t, "args"), Info: genValue.Draw(t, "info"), Queue: genValue.Draw(t, "queue"),
		State: genState.Draw(t, "state"), Reason: genText.Draw(t, "reason"), Started: Ran(genText.Draw(t, "started")),
		Since: genTime.Draw(t, "since"), UnknownOf: genState.Draw(t, "unknown of"),
		Attempt: rapid.Int().Draw(t, "attempt"), Err: genErr.Draw(t, "err"),
		SubmitTime: genTime.Draw(t, "submit"), StartTime: genTime.Draw(t, "start"), EndTime: genTime.Draw(t, "end"),
		Timeout: genDuration.Draw(t, "timeout"), MaxExecTime: genDuration.Draw(t, "max"),
		QueuePos: rapid.Int().Draw(t, "pos"), Records: genSeq.Draw(t, "records"), Labels: genLabels.Draw(t, "labels"),
	}
	if rapid.Bool().Draw(t, "cancelled") {
		s.CancelRequested = &CancelRequest{By: genPrincipal.Draw(t, "by"), Time: genTime.Draw(t, "at")}
	}
	s.DuplicatePossible = rapid.Bool().Draw(t, "duplicate")
	if rapid.Bool().Draw(t, "late") {
		late := genResult(t)
		s.Late = &late
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		s.Attempts = append(s.Attempts, Attempt{
			Number: rapid.Int().Draw(t, "number"), Base: genSeq.Draw(t, "base"), Sent: genTime.Draw(t, "sent"),
			Started: genTime.Draw(t, "started"), Ended: genTime.Draw(t, "ended"), Outcome: genText.Draw(t, "outcome"), Reason: genText.Draw(t, "why"),
		})
	}
	return s
}

func genEvent(t *rapid.T) Event {
	return Event{
		Cursor: genText.Draw(t, "cursor"), Time: genTime.Draw(t, "time"), Type: EventType(genText.Draw(t, "type")),
		Job: genText.Draw(t, "job"), Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"),
		Queue: genValue.Draw(t, "queue"), State: genState.Draw(t, "state"), Reason: genText.Draw(t, "reason"),
		Attempt: rapid.Int().Draw(t, "attempt"), By: genPrincipal.Draw(t, "by"), Labels: genLabels.Draw(t, "labels"),
	}
}

// travels draws nouns, sends each through the bytes of its message and compares.
func travels[W, T any](t *testing.T, draw func(*rapid.T) T, to func(T) W, from func(W) (T, error)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t)
		var w W
		if err := wire.DecodeRow(wire.Encode(to(want)), &w); err != nil {
			t.Fatal(err)
		}
		got, err := from(w)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v, want\n%+v", got, want)
		}
	})
}

// TestNounsTravel: every noun comes out of its message as it went in.
func TestNounsTravel(t *testing.T) {
	t.Run("JobStatus", func(t *testing.T) { travels(t, genJob, jobToWire, jobFromWire) })
	t.Run("Result", func(t *testing.T) { travels(t, genResult, resultToWire, resultFromWire) })
	t.Run("Record", func(t *testing.T) { travels(t, genRecord, recordToWire, recordFromWire) })
	t.Run("HostStatus", func(t *testing.T) {
		travels(t, func(t *rapid.T) HostStatus {
			return HostStatus{
				Name: genText.Draw(t, "name"), Online: rapid.Bool().Draw(t, "online"), Address: genText.Draw(t, "address"),
				Labels: genLabels.Draw(t, "labels"), Facts: genValue.Draw(t, "facts"), Procedures: genTexts.Draw(t, "procedures"),
				LastHeard: genTime.Draw(t, "heard"), Software: genText.Draw(t, "software"), Error: genText.Draw(t, "error"),
			}
		}, hostToWire, hostFromWire)
	})
	t.Run("ProcedureDoc", func(t *testing.T) {
		travels(t, func(t *rapid.T) ProcedureDoc {
			return ProcedureDoc{
				Name: genText.Draw(t, "name"), Summary: genText.Draw(t, "summary"), Doc: genText.Draw(t, "doc"), Params: genTexts.Draw(t, "params"),
				Args: genSchema.Draw(t, "args"), Record: genSchema.Draw(t, "record"), Result: genSchema.Draw(t, "result"),
				Timeout: genDuration.Draw(t, "timeout"), MaxExecTime: genDuration.Draw(t, "max"),
				Streams: rapid.Bool().Draw(t, "streams"), Idempotent: rapid.Bool().Draw(t, "idempotent"), Traits: genTexts.Draw(t, "traits"),
			}
		}, procedureToWire, procedureFromWire)
	})
	t.Run("QueueStatus", func(t *testing.T) {
		travels(t, func(t *rapid.T) QueueStatus {
			return QueueStatus{
				Name: genValue.Draw(t, "name"), Concurrency: rapid.Int().Draw(t, "concurrency"),
				Running: rapid.Int().Draw(t, "running"), Waiting: rapid.Int().Draw(t, "waiting"), Paused: rapid.Bool().Draw(t, "paused"),
			}
		}, queueToWire, queueFromWire)
	})
	t.Run("ServerInfo", func(t *testing.T) {
		travels(t, func(t *rapid.T) ServerInfo {
			return ServerInfo{
				Software: genText.Draw(t, "software"), Protocol: rapid.Int().Draw(t, "protocol"), Features: genTexts.Draw(t, "features"),
				Store: genText.Draw(t, "store"), Time: genTime.Draw(t, "time"),
			}
		}, serverToWire, serverFromWire)
	})
	t.Run("RecordQuery", func(t *testing.T) {
		travels(t, func(t *rapid.T) RecordQuery {
			return RecordQuery{
				From: genSeq.Draw(t, "from"), Tail: rapid.Bool().Draw(t, "tail"),
				Recent: genSeq.Draw(t, "recent"), Wait: rapid.Bool().Draw(t, "wait"),
			}
		}, func(q RecordQuery) wire.Pull { return queryToWire("id", q) }, queryFromWire)
	})
	t.Run("RecordPage", func(t *testing.T) {
		travels(t, func(t *rapid.T) RecordPage {
			p := RecordPage{Next: genSeq.Draw(t, "next"), End: genSeq.Draw(t, "end"), Ended: rapid.Bool().Draw(t, "ended")}
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				p.Records = append(p.Records, genRecord(t))
			}
			return p
		}, recordsToWire, recordsFromWire)
	})
	t.Run("Event", func(t *testing.T) { travels(t, genEvent, eventToWire, eventFromWire) })
	t.Run("EventPage", func(t *testing.T) {
		travels(t, func(t *rapid.T) EventPage {
			return EventPage{Events: orNil(rapid.SliceOfN(rapid.Custom(genEvent), 1, 3)).Draw(t, "events"), Cursor: genText.Draw(t, "cursor")}
		}, eventsToWire, eventsFromWire)
	})
	t.Run("EventFilter", func(t *testing.T) {
		travels(t, func(t *rapid.T) EventFilter {
			return EventFilter{After: genText.Draw(t, "after"), Types: genTexts.Draw(t, "types"), Job: genText.Draw(t, "job"), Host: genText.Draw(t, "host")}
		}, func(f EventFilter) wire.EventsQuery { return eventQueryToWire(f, true) }, eventQueryFromWire)
	})
	t.Run("QueueChange", func(t *testing.T) {
		travels(t, func(t *rapid.T) QueueChange {
			return QueueChange{
				Paused:      rapid.OneOf(rapid.Just[*bool](nil), rapid.Ptr(rapid.Bool(), false)).Draw(t, "paused"),
				Concurrency: rapid.OneOf(rapid.Just[*int](nil), rapid.Ptr(rapid.Int(), false)).Draw(t, "concurrency"),
			}
		}, func(c QueueChange) wire.QueueChange { return queueChangeToWire(Value{0x80}, c) }, queueChangeFromWire)
	})
	t.Run("JobFilter", func(t *testing.T) {
		travels(t, func(t *rapid.T) JobFilter {
			f := JobFilter{
				Host: genText.Draw(t, "host"), Procedure: genText.Draw(t, "procedure"), Labels: genLabels.Draw(t, "labels"),
				States: orNil(rapid.SliceOfN(genState, 1, 3)).Draw(t, "states"),
				Since:  genTime.Draw(t, "since"), Until: genTime.Draw(t, "until"),
			}
			if rapid.Bool().Draw(t, "queue") {
				queue, err := QueueName(map[string]any{"k": rapid.Int().Draw(t, "k")})
				if err != nil {
					t.Fatal(err)
				}
				f.Queue = queue
			}
			return f
		}, func(f JobFilter) wire.JobsQuery {
			w, err := filterToWire(f, "cursor")
			if err != nil {
				t.Fatal(err)
			}
			return w
		}, filterFromWire)
	})
}

// TestOutOfRange: a number that the noun cannot hold is refused, never cut.
func TestOutOfRange(t *testing.T) {
	bad := Value{0xc1}
	for field, from := range map[string]func() error{
		"seq":            second(recordFromWire, wire.PulledRecord{Seq: -1}),
		"truncated":      second(recordFromWire, wire.PulledRecord{Record: wire.Record{Truncated: -1}}),
		"value":          second(recordFromWire, wire.PulledRecord{Record: wire.Record{Value: bad}}),
		"next":           second(recordsFromWire, wire.Pulled{Next: -1}),
		"end":            second(recordsFromWire, wire.Pulled{End: -1}),
		"from":           second(queryFromWire, wire.Pull{From: -1}),
		"recent":         second(queryFromWire, wire.Pull{Recent: -1}),
		"records":        second(jobFromWire, wire.Job{Records: -1}),
		"attempts.base":  second(jobFromWire, wire.Job{Attempts: []wire.Attempt{{Base: -1}}}),
		"args":           second(jobFromWire, wire.Job{Args: bad}),
		"info":           second(jobFromWire, wire.Job{Info: bad}),
		"queue":          second(jobFromWire, wire.Job{Queue: bad}),
		"failure":        second(jobFromWire, wire.Job{Failure: bad}),
		"failure.data":   second(jobFromWire, wire.Job{Failure: wire.Encode(Failure{Code: codeRemote, Data: bad})}),
		"facts":          second(hostFromWire, wire.Host{Facts: bad}),
		"name":           second(queueFromWire, wire.Queue{Name: bad}),
		"result":         second(procedureFromWire, wire.Procedure{Result: []byte("{")}),
		"late, its part": second(jobFromWire, wire.Job{Late: &wire.Result{Value: bad}}),
	} {
		t.Run(field, func(t *testing.T) {
			err := from()
			if field == "late, its part" {
				field = "value"
			}
			wantField(t, err, field)
		})
	}
	var r reader
	if strconv.IntSize == 32 {
		if r.number("n", 1<<40); r.err == nil {
			t.Error("a number that does not fit was accepted")
		}
	}
	if _, err := recordsFromWire(wire.Pulled{Records: wire.Rows{{0xc1}}}); err == nil {
		t.Error("a malformed row was accepted")
	}
}

func second[W, T any](from func(W) (T, error), w W) func() error {
	return func() error {
		_, err := from(w)
		return err
	}
}

// TestWidening: numbers and times beyond what the wire can say become the last that
// it can, which are as far away as makes no difference.
func TestWidening(t *testing.T) {
	w := queryToWire("id", RecordQuery{From: math.MaxUint64, Recent: math.MaxUint64})
	if w.From != math.MaxInt64 || w.Recent != math.MaxInt64 {
		t.Error(w)
	}
	for _, c := range []struct {
		in   time.Time
		want int64
	}{
		{time.Time{}, 0},
		{time.Unix(0, 0), 1},
		{time.Unix(0, 5), 5},
		{time.Unix(0, -5), -5},
		{time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64},
		{time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), math.MinInt64},
		{firstTime, math.MinInt64},
		{lastTime, math.MaxInt64},
	} {
		if got := nanos(c.in); got != c.want {
			t.Errorf("%v: got %d, want %d", c.in, got, c.want)
		}
	}
}

// TestPageOfRecords: a page is cut to what an answer holds, at least one record, and
// Next is where it was cut.
func TestPageOfRecords(t *testing.T) {
	records := func(n, size int) RecordPage {
		p := RecordPage{Ended: true}
		for i := range n {
			p.Records = append(p.Records, Record{Seq: uint64(100 + i), Value: mustValue(t, make([]byte, size))})
		}
		p.Next, p.End = uint64(100+n), uint64(100+n)
		return p
	}
	for _, c := range []struct{ n, size, want int }{
		{0, 0, 0},
		{10, 100, 10},
		{100, wire.MaxRecord, 15},
		{wire.MaxRows + 1, 1, wire.MaxRows},
		{3, wire.MaxMessage - 10, 1},
	} {
		w := recordsToWire(records(c.n, c.size))
		body := wire.Encode(w)
		if len(w.Records) != c.want || len(body) > wire.MaxBody(wire.TypeReply) {
			t.Errorf("%d of %d bytes: %d in %d bytes, want %d", c.n, c.size, len(w.Records), len(body), c.want)
		}
		var back wire.Pulled
		if err := wire.Decode(body, &back); err != nil {
			t.Fatal(err)
		}
		page, err := recordsFromWire(back)
		if err != nil {
			t.Fatal(err)
		}
		if page.Next != uint64(100+c.want) || page.Ended != (c.want == c.n) || page.End != uint64(100+c.n) {
			t.Errorf("%d of %d bytes: %d %d %v", c.n, c.size, page.Next, page.End, page.Ended)
		}
	}
}

// TestListingIsWhole: however a listing is cut into answers, following its cursors
// shows every item that is there all the time, in order, also when others
// come and go between two answers.
func TestListingIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			ID   string
			Time int64
			Size int
		}
		var stays, all []item
		next := int64(1000)
		draw := func(label string) item {
			next -= rapid.Int64Range(0, 1).Draw(t, "older")
			return item{ID: label, Time: next, Size: rapid.SampledFrom([]int{10, 10, 10, 10, 10, 400 << 10, 1 << 20}).Draw(t, "size")}
		}
		for i := range rapid.IntRange(0, 25).Draw(t, "items") {
			it := draw("i" + strconv.Itoa(i))
			if all = append(all, it); rapid.Bool().Draw(t, "stays") {
				stays = append(stays, it)
			}
		}
		const pageSize = 7
		fetched := 0
		l := listing[item]{
			fetch: func(cursor string) (Page[item], error) { // as a store pages: after an item, by place
				if fetched++; fetched > 1 && rapid.Bool().Draw(t, "change") {
					all = append([]item{{ID: "new" + strconv.Itoa(fetched), Time: 2000}}, removeOne(t, all, stays)...)
				}
				from := 0
				if cursor != "" {
					at, err := strconv.ParseInt(cursor, 10, 64)
					if err != nil {
						return Page[item]{}, &FieldError{Field: "cursor", Message: "is none"}
					}
					for from < len(all) && all[from].Time >= at {
						from++
					}
				}
				to := min(from+pageSize, len(all))
				for to < len(all) && all[to].Time == all[to-1].Time {
					to++ // the cursor of this store is a time
				}
				p := Page[item]{Items: append([]item(nil), all[from:to]...)}
				if to < len(all) {
					p.Cursor = strconv.FormatInt(all[to-1].Time, 10)
				}
				return p, nil
			},
			message: func(it item) any { return map[string]any{"id": it.ID, "pad": make([]byte, it.Size)} },
			mark:    func(it item) mark { return mark{Key: it.ID, Time: it.Time} },
			before:  func(a, b mark) bool { return a.Time > b.Time },
		}
		var got []string
		cursor := ""
		for {
			rows, next, err := l.page(wire.Page{Cursor: cursor, Limit: rapid.Int64Range(0, 4).Draw(t, "limit")})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, row := range rows {
				size += len(row)
				var m map[string]any
				if err := wire.Decode(row, &m); err != nil {
					t.Fatal(err)
				}
				got = append(got, m["id"].(string))
			}
			if len(rows) > 1 && size > wire.MaxPage {
				t.Fatalf("%d bytes in a page", size)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		i := 0
		for _, id := range got {
			if i < len(stays) && id == stays[i].ID {
				i++
			}
		}
		if i != len(stays) {
			t.Fatalf("of %v only %v", stays, got)
		}
	})
}

// removeOne takes out of all one item that need not stay.
func removeOne[T comparable](t *rapid.T, all, stays []T) []T {
	for i := range all {
		keep := false
		for _, s := range stays {
			keep = keep || s == all[i]
		}
		if !keep && rapid.Bool().Draw(t, "remove") {
			return append(append([]T(nil), all[:i]...), all[i+1:]...)
		}
	}
	return all
}

// TestCursors: what is no cursor of ours is the Service's to judge.
func TestCursors(t *testing.T) {
	for _, c := range []string{"", "x", "within.", "within.!!", "within.AA", "within." + "gaFj"} {
		if m := markIn(c); m != (mark{Cursor: c}) {
			t.Errorf("%q: %+v", c, m)
		}
	}
	m := mark{Cursor: "c", Key: "k", Time: -1}
	if got := markIn(m.cursor()); got != m {
		t.Errorf("%+v", got)
	}
	l := listing[int]{fetch: func(string) (Page[int], error) { return Page[int]{}, errors.New("asked") }}
	_, _, err := l.page(wire.Page{Limit: -1})
	wantField(t, err, "limit")
}
