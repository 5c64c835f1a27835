package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// hugeJobs is a Service whose jobs are longer than any answer.
type hugeJobs struct{ harp.Service }

func (hugeJobs) JobStatus(context.Context, string) (harp.JobStatus, error) {
	return harp.JobStatus{Args: wire.Encode(make([]byte, 5<<20))}, nil
}

// TestAnswerTooLong: an answer that no frame carries is a failure, not the end of the
// session.
func TestAnswerTooLong(t *testing.T) {
	_, err := makeReply(t.Context(), hugeJobs{}, transport.Frame{Type: wire.TypeStatus, Body: wire.Encode(wire.JobRef{ID: harp.NewID()})})
	if !errors.Is(err, harp.ErrRefused) {
		t.Error(err)
	}
}

// FuzzAnswer: no request makes the server panic or leaves its caller without an
// answer that fits.
func FuzzAnswer(f *testing.F) {
	id := harp.NewID()
	for typ, m := range map[transport.Type]any{
		wire.TypeSubmit: harp.Submission{Request: harp.Request{ID: id, Host: "h", Procedure: "p"}.Encode()},
		wire.TypeStatus: wire.JobRef{ID: id}, wire.TypeResult: wire.ResultOf{ID: id}, wire.TypePull: wire.Pull{ID: id, RecordQuery: harp.RecordQuery{From: 1}},
		wire.TypeJobs:  wire.JobsQuery{Queue: []byte{0x80}, JobFilter: harp.JobFilter{States: []harp.State{"queued"}}, Page: wire.Page{Cursor: mark{Key: "k"}.cursor(), Limit: 1}},
		wire.TypeHosts: wire.HostsQuery{Target: "h"}, wire.TypeExplain: wire.Explain{Target: "h and i", Host: "h"}, wire.TypePreview: wire.Preview{Submission: harp.Submission{Request: harp.Request{ID: id, Target: "h", Procedure: "p", Needs: []string{harp.NeedBatch}}.Encode()}}, wire.TypeHostProcs: wire.HostRef{Name: "h"}, wire.TypeRemoveHost: wire.RemoveHost{Name: "other", Request: id}, wire.TypeQueues: wire.QueuesQuery{Name: []byte{0x80}},
		wire.TypeCancelQueue: wire.QueueRef{Name: []byte{0x80}, Request: id}, wire.TypeCancelJob: wire.JobRef{ID: id}, 5: nil,
		wire.TypeRequest: wire.JobRef{ID: id}, wire.TypeForceLost: wire.ForceLost{ID: id, Why: "w"}, wire.TypePrune: wire.Prune{EndedBefore: time.Unix(1, 0)},
		wire.TypeEvents: wire.EventsQuery{EventFilter: harp.EventFilter{After: "start", Types: []string{"job.*"}}}, wire.TypeChangeQueue: wire.QueueChange{Request: id, Name: []byte{0x80}, QueueChange: harp.QueueChange{Paused: new(bool)}},
		wire.TypeWindows: wire.WindowsQuery{Name: "w"}, wire.TypePutWindow: wire.PutWindow{Request: id, Window: harp.Window{Name: "w", Target: "h", From: time.Unix(1, 0)}},
		wire.TypeDeleteWindow: wire.WindowRef{Request: id, Name: "w"}, wire.TypeEndWindow: wire.WindowRef{Request: id, Name: "w"},
		wire.TypeWindowSpans: wire.WindowSpans{Name: "w", From: time.Unix(1, 0), To: time.Unix(2, 0)}, wire.TypeJudgeStart: wire.JudgeStart{Host: "h", Procedure: "p"},
		wire.TypeApply:          wire.NewApply(id, "ops", []harp.Document{{Group: &harp.Group{Name: "g", Target: "h"}}}, harp.ApplyOptions{Prune: true}),
		wire.TypeRetentionRules: wire.RetentionQuery{Explain: id}, wire.TypeSetRetention: wire.SetRetention{Request: id, Rule: harp.RetentionRule{Name: "r", Keep: 1}},
		wire.TypeDeleteRetention: wire.DeleteRetention{Request: id, Name: "r"},
		wire.TypeDrift:           wire.DriftQuery{Target: "h", Name: "base"}, wire.TypeForgetDrift: wire.ForgetDrift{Request: id, Name: "base"},
		wire.TypePauseHosts: wire.PauseHosts{Request: id, Target: "h", HostPauseChange: harp.HostPauseChange{Reason: "r"}},
	} {
		f.Add(uint8(typ), wire.Encode(m))
	}
	st := memory.Open(nil)
	if _, err := st.OpenSession(f.Context(), store.Session{Host: "h"}); err != nil {
		f.Fatal(err)
	}
	d, err := Open(f.Context(), st, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			f.Error(err)
		}
	})
	s := d.service(harp.Principal{})
	if _, err := s.Submit(f.Context(), []harp.Submission{{Request: harp.Request{ID: id, Host: "h", Procedure: "p"}.Encode()}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiting struct {
			Wait bool `msgpack:"wait"`
		}
		if wire.Decode(body, &waiting) == nil && waiting.Wait {
			cancel() // what would be waited for never comes
		}
		got, err := makeReply(ctx, s, transport.Frame{Type: transport.Type(typ), Body: body})
		if err != nil {
			got = wire.Encode(wire.NewFailed(err))
			if len(got) > wire.MaxBody(wire.TypeFailed) {
				t.Fatal("a failure that does not fit")
			}
		}
		if err := msgpack.Validate(got, msgpack.ProtocolLimits); err != nil {
			t.Fatalf("the answer would end the session: %v", err)
		}
	})
}

// pageSpy notes how much its caller could take.
type pageSpy struct {
	harp.Service
	most, records int
}

func (s *pageSpy) Records(_ context.Context, _ string, q harp.RecordQuery) (harp.RecordPage, error) {
	s.most, s.records = q.MaxBytes, q.MaxRecords
	return harp.RecordPage{}, nil
}

// TestManyFollowersGetLittleEach: what is on its way to followers that do not read is
// bounded, however many they are.
func TestManyFollowersGetLittleEach(t *testing.T) {
	for pulls, want := range map[int64]int{1: 1 << 20, 8: 1 << 20, 32: 256 << 10, 4096: 64 << 10} {
		spy := &pageSpy{}
		g := &limitedService{Service: spy}
		g.pulls.Store(pulls)
		if _, err := g.Records(t.Context(), "", harp.RecordQuery{}); err != nil || spy.most != want {
			t.Errorf("with %d followers a page has %d bytes, want %d: %v", pulls, spy.most, want, err)
		}
		if spy.records != wire.MaxRows {
			t.Errorf("%d records are asked for, an answer holds %d", spy.records, wire.MaxRows)
		}
	}
}

// TestListingIsWhole: however a listing is cut into answers, following its cursors
// shows every item that is there all the time, in order, also when others
// come and go between two answers.
func TestListingIsWhole(t *testing.T) {
	padding := strings.Repeat("x", 1<<20)
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			ID   string `msgpack:"id"`
			Time int64
			Pad  string
		}
		var stays, all []item
		next := int64(1000)
		draw := func(label string) item {
			next -= rapid.Int64Range(0, 1).Draw(t, "older")
			return item{ID: label, Time: next, Pad: padding[:rapid.SampledFrom([]int{10, 10, 10, 10, 10, 400 << 10, 1 << 20}).Draw(t, "size")]}
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
			fetch: func(cursor string) (harp.Page[item], error) { // as a store pages: after an item, by place
				if fetched++; fetched > 1 && rapid.Bool().Draw(t, "change") {
					all = append([]item{{ID: "new" + strconv.Itoa(fetched), Time: 2000}}, removeOne(t, all, stays)...)
				}
				from := 0
				if cursor != "" {
					at, err := strconv.ParseInt(cursor, 10, 64)
					if err != nil {
						return harp.Page[item]{}, &harp.FieldError{Field: "cursor", Message: "is none"}
					}
					for from < len(all) && all[from].Time >= at {
						from++
					}
				}
				to := min(from+pageSize, len(all))
				for to < len(all) && all[to].Time == all[to-1].Time {
					to++ // the cursor of this store is a time
				}
				p := harp.Page[item]{Items: append([]item(nil), all[from:to]...)}
				if to < len(all) {
					p.Cursor = strconv.FormatInt(all[to-1].Time, 10)
				}
				return p, nil
			},
			mark:   func(it item) mark { return mark{Key: it.ID, Time: time.Unix(it.Time, 0).UTC()} },
			before: func(a, b mark) bool { return a.Time.After(b.Time) },
		}
		var got []string
		cursor := ""
		for {
			rows, next, err := l.page(wire.Page{Cursor: cursor, Limit: rapid.IntRange(0, 4).Draw(t, "limit")})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, row := range rows {
				size += len(row)
				var m wire.JobRef
				if err := wire.Decode(row, &m); err != nil {
					t.Fatal(err)
				}
				got = append(got, m.ID)
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
	m := mark{Cursor: "c", Key: "k", Time: time.Unix(0, -1).UTC()}
	if got := markIn(m.cursor()); got != m {
		t.Errorf("%+v", got)
	}
	l := listing[int]{fetch: func(string) (harp.Page[int], error) { return harp.Page[int]{}, errors.New("asked") }}
	_, _, err := l.page(wire.Page{Limit: -1})
	var field *harp.FieldError
	if !errors.As(err, &field) || field.Field != "limit" {
		t.Error(err)
	}
}
