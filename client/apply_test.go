package client

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// TestApply checks that documents and what is changed by them read back, over every wiring.
func TestApply(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		sch, w := newSchedule(t, "nightly"), newWindow("patches")
		documents := []harp.Document{{Schedule: &sch}, {Group: &harp.Group{Name: "web", Target: "web*"}}, {Window: &w}}
		want := harp.Applied{Count: 7, Changes: []harp.DocumentChange{
			{Kind: harp.GroupDocument, Name: "web", Action: harp.DocumentMade},
			{Kind: harp.ScheduleDocument, Name: "nightly", Action: harp.DocumentChanged, Fields: []harp.FieldChange{{Field: "cron", Old: `"a"`, New: `"b"`}}},
		}}
		d.schedules.applied = want
		got, err := caller.Schedules().Apply(t.Context(), "ops", documents, harp.ApplyOptions{Prune: true, DryRun: true})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("applied %+v, %v", got, err)
		}
		if sch.Request.ID == "" {
			t.Error("the caller's own schedule was changed")
		}
		sch.Request.ID = ""
		if is := &d.schedules; is.managedBy != "ops" || !reflect.DeepEqual(is.documents, documents) || is.apply != (harp.ApplyOptions{Prune: true, DryRun: true}) {
			t.Errorf("it was asked for %s, %+v, %+v", is.managedBy, is.documents, is.apply)
		}
	})
}

// TestApplyRefuses checks that documents that cannot be are not sent.
func TestApplyRefuses(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		group := func(name string) harp.Document { return harp.Document{Group: &harp.Group{Name: name, Target: "*"}} }
		many := make([]harp.Document, harp.MaxDocuments+1)
		for i := range many {
			many[i] = group(strings.Repeat("x", i%100) + string(rune('a'+i/100)))
		}
		for field, c := range map[string]struct {
			managedBy string
			documents []harp.Document
		}{
			"managed_by":          {"", nil},
			"documents":           {"ops", many},
			"documents[1].kind":   {"ops", []harp.Document{group("a"), {}}},
			"documents[0].kind":   {"ops", []harp.Document{{Group: &harp.Group{}, Window: &harp.Window{}}}},
			"documents[1].name":   {"ops", []harp.Document{group("a"), group("a")}},
			"documents[0].target": {"ops", []harp.Document{{Group: &harp.Group{Name: "a"}}}},
			"documents[0].cron":   {"ops", []harp.Document{{Schedule: &harp.Schedule{Name: "a"}}}},
			"documents[0].from":   {"ops", []harp.Document{{Window: &harp.Window{Name: "a", Target: "*"}}}},
		} {
			_, err := caller.Schedules().Apply(t.Context(), c.managedBy, c.documents, harp.ApplyOptions{})
			var wrong *harp.FieldError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if d.schedules.managedBy != "" {
			t.Error("it was asked for")
		}
	})
}

// TestApplyTooLong checks that documents that are too long for a request are not sent.
func TestApplyTooLong(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		var documents []harp.Document
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			w := newWindow(name)
			w.Calendar = &harp.WindowCalendar{Content: bytes.Repeat([]byte{1}, harp.MaxCalendar)}
			w.Cron, w.For = "", 0
			documents = append(documents, harp.Document{Window: &w})
		}
		_, err := caller.Schedules().Apply(t.Context(), "ops", documents, harp.ApplyOptions{})
		var wrong *harp.FieldError
		if !errors.As(err, &wrong) || wrong.Field != "documents" || f.desk.schedules.managedBy != "" {
			t.Errorf("it is %v", err)
		}
	})
}

// badDocuments are requests to apply documents, with the fields that are wrong.
func badDocuments() []badRequest {
	id := harp.NewID()
	return []badRequest{
		{"apply under a bad id", wire.TypeApply, wire.Apply{Request: "x", ManagedBy: "ops"}, "id"},
		{"apply for nobody", wire.TypeApply, wire.Apply{Request: id}, "managed_by"},
		{"apply nothing", wire.TypeApply, wire.Apply{Request: id, ManagedBy: "ops", Documents: wire.Rows{{0x80}}}, "documents[0].kind"},
		{"apply no document", wire.TypeApply, wire.Apply{Request: id, ManagedBy: "ops", Documents: wire.Rows{{0x80}, {0xc1}}}, "documents[1].request"},
		{"apply too much", wire.TypeApply, wire.Apply{Request: id, ManagedBy: "ops", Documents: make(wire.Rows, harp.MaxDocuments+1)}, "documents"},
	}
}
