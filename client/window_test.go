package client

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// newWindow is a window with much in it.
func newWindow(name string) harp.Window {
	return harp.Window{
		Name: name, Doc: "for people", Reason: "patching", Target: "role=db", Mode: harp.WindowRefuse, Only: true, SchedulesOnly: true, All: true,
		Procedures: []string{"backup*"}, Exempt: []string{"backup.status"}, TZ: "Europe/Madrid",
		Calendar: &harp.WindowCalendar{Content: []byte("BEGIN:VCALENDAR"), Event: "db*", Zones: map[string]string{"Office": "Europe/Madrid"}},
	}
}

// TestWindowReadsBack: what is put is what is got, also as long as it may be.
func TestWindowReadsBack(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *desk, caller *harp.Caller) {
		m, ctx := caller.Maintenance(), t.Context()
		long := newWindow("long")
		long.Target, long.Calendar.Content = strings.Repeat("x", harp.MaxTarget), bytes.Repeat([]byte("x"), harp.MaxCalendar)
		weekly := harp.Window{Name: "weekly", Target: "*", Cron: "0 2 * * 6", For: 90 * time.Minute}
		once := harp.Window{Name: "once", Target: "*", From: at(1), To: at(2)}
		for _, want := range []harp.Window{newWindow("calendar"), long, weekly, once} {
			if err := m.Put(ctx, want); err != nil {
				t.Fatal(want.Name, err)
			}
			got, err := m.Get(ctx, want.Name)
			if err != nil {
				t.Fatal(want.Name, err)
			}
			if !reflect.DeepEqual(got, harp.WindowStatus{Window: want, Open: true, Span: harp.Span{From: at(1), To: at(2), Note: "moved"}}) {
				t.Errorf("%s: got %+v", want.Name, got)
			}
		}
		if _, err := m.Get(ctx, "daily"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestWindowsArePaged(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 2
		failure := &harp.FieldError{Field: "tz", Message: "no such zone"}
		for n := range 5 {
			w := newWindow(fmt.Sprint(n))
			w.Calendar.Content = bytes.Repeat([]byte("x"), harp.MaxCalendar) // two of these are more than an answer holds
			d.windows.all = append(d.windows.all, harp.WindowStatus{Window: w, Changed: at(n), Err: failure})
		}
		n := 0
		for w, err := range caller.Maintenance().List(t.Context()) {
			if err != nil || w.Name != fmt.Sprint(n) || !w.Changed.Equal(at(n)) || !errors.Is(w.Err, harp.ErrInvalid) || w.Err.Error() != failure.Error() {
				t.Fatal(w.Name, w.Changed, w.Err, err)
			}
			n++
		}
		if n != 5 {
			t.Errorf("%d windows", n)
		}
	})
}

func TestWindowsAreChanged(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		m, ctx := caller.Maintenance(), t.Context()
		if err := errors.Join(m.End(ctx, "once"), m.Delete(ctx, "once")); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(d.windows.ended, []string{"once"}) || d.count("DeleteWindow") != 1 {
			t.Errorf("ended %q, deleted %d", d.windows.ended, d.count("DeleteWindow"))
		}
		spans, err := m.Spans(ctx, "weekly", at(1), at(harp.MaxWindowSpans))
		if err != nil || len(spans) != harp.MaxWindowSpans-1 || spans[1] != (harp.Span{From: at(2), To: at(2).Add(time.Minute), Note: "weekly"}) {
			t.Error(len(spans), err)
		}
		if spans, err := m.Preview(ctx, newWindow("new"), at(1), at(2)); err != nil || len(spans) != 1 || spans[0] != (harp.Span{From: at(1), To: at(2), Note: "new " + newWindow("").Target}) {
			t.Error(spans, err)
		}
		if d.count("PutWindow") != 0 {
			t.Error("a preview has put a window")
		}
		d.failing("EndWindow", harp.ErrConflict)
		if err := m.End(ctx, "once"); !errors.Is(err, harp.ErrConflict) {
			t.Error(err)
		}
	})
}

// TestStartIsJudged: more obstacles than a message has room for elements come whole.
func TestStartIsJudged(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		got, err := caller.Maintenance().Why(t.Context(), "web01", "backup", at(3))
		if err != nil {
			t.Fatal(err)
		}
		want, err := d.service().JudgeStart(t.Context(), "web01", "backup", at(3))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %d obstacles of %+v, %v", len(got.Obstacles), got, err)
		}
	})
}

func TestHostsArePaused(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		h, ctx := caller.Hosts(), t.Context()
		paused, err := h.Pause(ctx, "web*", "disk", at(5))
		resumed, err2 := h.Unpause(ctx, "db")
		if err := errors.Join(err, err2); err != nil || paused != len("web*") || resumed != len("db") {
			t.Error(paused, resumed, err)
		}
		if want := []harp.HostPauseChange{{Reason: "disk", Until: at(5)}, {Unpause: true}}; !reflect.DeepEqual(d.windows.pauses, want) {
			t.Errorf("got %+v", d.windows.pauses)
		}
	})
}

// TestWrongWindows: what cannot be is refused before anything is sent, naming the field.
func TestWrongWindows(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		m, h, ctx := caller.Maintenance(), caller.Hosts(), t.Context()
		wrong := newWindow("w")
		wrong.Mode = "x"
		_, noName := m.Get(ctx, "")
		_, backwards := m.Spans(ctx, "w", at(1), at(1))
		_, wrongPreview := m.Preview(ctx, wrong, at(1), at(2))
		_, backwardsPreview := m.Preview(ctx, newWindow("w"), at(2), at(1))
		_, noHost := m.Why(ctx, "", "p", at(1))
		_, noProcedure := m.Why(ctx, "h", "", at(1))
		_, noTarget := h.Pause(ctx, "", "r", at(1))
		_, badReason := h.Pause(ctx, "*", "\xff", at(1))
		for _, c := range []struct {
			err   error
			field string
		}{
			{m.Put(ctx, wrong), "mode"},
			{noName, "name"},
			{m.Delete(ctx, ""), "name"},
			{m.End(ctx, ""), "name"},
			{backwards, "to"},
			{wrongPreview, "mode"},
			{backwardsPreview, "to"},
			{noHost, "host"},
			{noProcedure, "procedure"},
			{noTarget, "target"},
			{badReason, "reason"},
		} {
			var field *harp.FieldError
			if !errors.As(c.err, &field) || field.Field != c.field {
				t.Errorf("%s: %v", c.field, c.err)
			}
		}
		if delete(d.asked, "Ping"); len(d.asked) != 0 {
			t.Errorf("sent %v", d.asked)
		}
	})
}

// badWindows are requests of windows and pauses that are wrong, and in which field.
func badWindows() []badRequest {
	id := harp.NewID()
	long := newWindow("n")
	long.Calendar.Content = make([]byte, harp.MaxCalendar+1)
	return []badRequest{
		{"windows with a bad limit", wire.TypeWindows, wire.WindowsQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"put a window under a bad id", wire.TypePutWindow, wire.PutWindow{Request: "x", Window: newWindow("n")}, "id"},
		{"put no window", wire.TypePutWindow, wire.PutWindow{Request: id}, "name"},
		{"put a long calendar", wire.TypePutWindow, wire.PutWindow{Request: id, Window: long}, "calendar"},
		{"delete a window under a bad id", wire.TypeDeleteWindow, wire.WindowRef{Request: "x", Name: "n"}, "id"},
		{"end a window under a bad id", wire.TypeEndWindow, wire.WindowRef{Request: "x", Name: "n"}, "id"},
		{"spans of no name", wire.TypeWindowSpans, wire.WindowSpans{From: at(1), To: at(2)}, "name"},
		{"spans backwards", wire.TypeWindowSpans, wire.WindowSpans{Name: "n", From: at(2), To: at(1)}, "to"},
		{"spans of years", wire.TypeWindowSpans, wire.WindowSpans{Name: "n", From: at(0), To: at(20000)}, "to"},
		{"spans of a window with a long calendar", wire.TypeWindowSpans, wire.WindowSpans{Window: &long, From: at(1), To: at(2)}, "calendar"},
		{"spans of a window backwards", wire.TypeWindowSpans, wire.WindowSpans{Window: new(newWindow("n")), From: at(2), To: at(1)}, "to"},
		{"judge a start on no host", wire.TypeJudgeStart, wire.JudgeStart{Procedure: "p"}, "host"},
		{"judge a start of nothing", wire.TypeJudgeStart, wire.JudgeStart{Host: "h"}, "procedure"},
		{"pause under a bad id", wire.TypePauseHosts, wire.PauseHosts{Request: "x", Target: "*"}, "id"},
		{"pause for a long reason", wire.TypePauseHosts, wire.PauseHosts{
			Request: id, Target: "*", HostPauseChange: harp.HostPauseChange{Reason: strings.Repeat("x", harp.MaxWhy+1)},
		}, "reason"},
	}
}
