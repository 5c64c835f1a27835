package dispatcher

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// A schedule that is stored and cannot be read, or whose zone is gone, fires nothing and is shown with why; Health says so, until it is put
// anew or deleted. The ledger tells of its times until then, then.
func TestABrokenScheduleIsShown(t *testing.T) {
	st := memory.Open(nil)
	past := time.Now().Add(-time.Hour)
	sch := everyMinute(t, "zone")
	sch.TZ = "Mars/Phobos"
	for name, document := range map[string][]byte{"zone": wire.Encode(putSchedule{Schedule: sch}), "bytes": []byte("nothing")} {
		step := store.ScheduleStep{Name: name, Document: document, State: store.ScheduleState{Version: 7, ScheduleLife: store.ScheduleLife{Through: past}}}
		if _, err := st.StepSchedule(t.Context(), step, past); err != nil {
			t.Fatal(err)
		}
	}
	d := opened(t, st, Config{})
	s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
	page, err := s.ListSchedules(ctx, "", "")
	if err != nil || len(page.Items) != 2 || page.Items[0].Err == nil || page.Items[1].Err == nil || page.Items[1].Cron != "* * * * *" || page.Items[0].Name != "bytes" {
		t.Fatalf("listed are %+v, %v", page.Items, err)
	}
	if err := d.Health(ctx).Checks["schedules"]; err == nil || !strings.Contains(err.Error(), "2 schedules") || !d.Health(ctx).Ready {
		t.Errorf("the check says %v", err)
	}
	var field *harp.FieldError
	if _, err := s.TriggerSchedule(ctx, harp.NewID(), "zone", harp.Trigger{}); !errors.As(err, &field) || field.Field != "tz" {
		t.Errorf("a run by hand: %v", err)
	}
	if _, err := s.NextTimes(ctx, "zone", time.Time{}, 1); !errors.As(err, &field) {
		t.Errorf("the times to come: %v", err)
	}
	if err := s.ChangeSchedule(ctx, harp.NewID(), "zone", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
		t.Errorf("a pause: %v", err)
	}
	sch.TZ = "UTC"
	if err := s.PutSchedule(ctx, harp.NewID(), sch); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSchedule(ctx, harp.NewID(), "bytes"); err != nil {
		t.Fatal(err)
	}
	page, err = s.ListSchedules(ctx, "", "")
	if err != nil || len(page.Items) != 1 || page.Items[0].Err != nil || page.Items[0].Version != 8 || !page.Items[0].Through.After(past) || page.Items[0].Pause == nil {
		t.Errorf("then listed are %+v, %v", page.Items, err)
	}
	if err := d.Health(ctx).Checks["schedules"]; err != nil {
		t.Errorf("the check says %v", err)
	}
	ledger := ledgerOf(t, s, "zone")
	if len(ledger) != 1 {
		t.Fatalf("of the hour the ledger has %+v", ledger)
	}
	e := ledger[0]
	if e.Outcome != harp.TimeFailed || e.Reason != harp.TimeZone || e.From.Sub(past) > time.Second || e.To.Sub(past) < time.Hour || e.Count != 0 || !e.AtLeast || e.Err == nil {
		t.Errorf("of the hour the ledger has %+v", e)
	}
}

// A schedule that was settled while the clock was a year ahead, or restored then, fires nothing for a year: Health says so, and that it can be put
// anew.
func TestAScheduleThatIsAheadOfTheClockIsTold(t *testing.T) {
	then := time.Now().AddDate(1, 0, 0)
	for name, life := range map[string]store.ScheduleLife{"settled": {Through: then}, "restored": {Through: time.Now(), Restored: then}} {
		st := memory.Open(nil)
		sch := everyMinute(t, "ahead")
		sch.TZ = "UTC"
		step := store.ScheduleStep{Name: "ahead", Document: wire.Encode(putSchedule{Schedule: sch}), State: store.ScheduleState{ScheduleLife: life}}
		if _, err := st.StepSchedule(t.Context(), step, time.Now()); err != nil {
			t.Fatal(err)
		}
		d := opened(t, st, Config{})
		s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
		if err := d.Health(ctx).Checks["schedules"]; err == nil || !strings.Contains(err.Error(), "the first is ahead, through "+then.UTC().Format(time.RFC3339)) {
			t.Errorf("%s: the check says %v", name, err)
		}
		if err := s.DeleteSchedule(ctx, harp.NewID(), "ahead"); err != nil {
			t.Fatal(err)
		}
		if err := s.PutSchedule(ctx, harp.NewID(), sch); err != nil {
			t.Fatal(err)
		}
		if err := d.Health(ctx).Checks["schedules"]; err != nil {
			t.Errorf("%s: put anew, the check says %v", name, err)
		}
	}
}

// A schedule that comes after others fires for what ends from now on, however far it is ahead of the clock: Health does not say otherwise.
func TestAScheduleAfterOthersIsNotAheadOfTheClock(t *testing.T) {
	then := time.Now().AddDate(1, 0, 0)
	st := memory.Open(nil)
	step := store.ScheduleStep{
		Name: "next", Document: wire.Encode(putSchedule{Schedule: after(t, "next", "s")}), State: store.ScheduleState{ScheduleLife: store.ScheduleLife{Through: then, Restored: then}},
	}
	if _, err := st.StepSchedule(t.Context(), step, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, st, Config{}).Health(t.Context()).Checks["schedules"]; err != nil {
		t.Errorf("the check says %v", err)
	}
}

// There are at most so many schedules, and bytes of them.
func TestSchedulesAreBounded(t *testing.T) {
	ss := newSchedules()
	for n := range maxSchedules {
		ss.set(&scheduled{name: harp.NewID(), document: make([]byte, n%2)})
	}
	if err := ss.takeRoom("one more", harp.Principal{Kind: processKind}, 1, documentRoom{}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("one too many: %v", err)
	}
	one, _ := ss.page("", "", 1)
	ss.remove(one[0].name)
	if ss.takeTurn("another"); ss.takeRoom("another", harp.Principal{Kind: processKind}, 1, documentRoom{}) != nil {
		t.Error("there is no room in the place of another")
	}
	if err := ss.takeRoom("one more", harp.Principal{Kind: processKind}, 1, documentRoom{}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("while another is being put: %v", err)
	}
	ss.endTurn("another")
	if err := ss.takeRoom("one more", harp.Principal{Kind: processKind}, 1, documentRoom{}); err != nil {
		t.Errorf("in the place of another: %v", err)
	}
	if err := ss.takeRoom("one more", harp.Principal{Kind: processKind}, maxScheduleBytes, documentRoom{}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("too many bytes: %v", err)
	}
}
