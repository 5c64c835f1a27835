package dispatcher_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
)

// Windows are made, replaced, listed, ended and deleted, say when they are and what they keep back, and each change is an event.
func TestWindows(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			ctx := t.Context()
			sys := newSystem(t, w, nil, dispatcher.Config{TimeZone: "Europe/Berlin", Hosts: dispatcher.StaticHosts{
				{Name: "db01", Labels: map[string]string{"role": "db"}}, {Name: "web01"},
			}})
			m, now := sys.caller.Maintenance(), time.Now().UTC().Truncate(time.Second)
			calendar := must[[]byte](t)(os.ReadFile("../window/testdata/nextcloud.ics"))
			once := harp.Window{Name: "once", Doc: "d", Reason: "kernel", Target: "role=db", From: now.Add(-time.Hour), To: now.Add(2 * time.Hour), Exempt: []string{"look*"}}
			far := now.In(must[*time.Location](t)(time.LoadLocation("Europe/Berlin"))).Add(12 * time.Hour).Hour() // it is not open now
			night := harp.Window{Name: "night", Target: "web*", Cron: fmt.Sprintf("0 %d * * *", far), For: time.Hour, Mode: harp.WindowRefuse, Only: true, Procedures: []string{"patch"}}
			holidays := harp.Window{Name: "holidays", Target: "role=mail", Calendar: &harp.WindowCalendar{Content: calendar}, TZ: "UTC", SchedulesOnly: true, All: true}
			for _, w := range []harp.Window{{Name: "once", Target: "web01", From: now.Add(time.Hour)}, once, night, holidays} {
				if err := m.Put(ctx, w); err != nil {
					t.Fatalf("put %s: %v", w.Name, err)
				}
			}
			all, err := list(m.List(ctx))
			if err != nil || len(all) != 3 || all[0].Name != "holidays" || all[1].Name != "night" || all[2].Name != "once" {
				t.Fatalf("there are %+v, %v", all, err)
			}
			if all[0].Calendar == nil || all[0].Calendar.Content != nil || all[1].TZ != "Europe/Berlin" || !all[1].Only || all[1].Open || all[1].Span.From.IsZero() {
				t.Errorf("listed are %+v", all[:2])
			}
			got := must[harp.WindowStatus](t)(m.Get(ctx, "once"))
			if got.Reason != "kernel" || !got.Open || !got.Span.From.Equal(once.From) || !got.Span.To.Equal(once.To) || got.Changed.IsZero() || got.Err != nil ||
				(w == loopback) != (got.By.Name != "") && w != inMemory {
				t.Errorf("once is %+v", got)
			}
			if got := must[harp.WindowStatus](t)(m.Get(ctx, "holidays")); string(got.Calendar.Content) != string(calendar) {
				t.Errorf("the calendar has %d bytes", len(got.Calendar.Content))
			}
			spans := must[[]harp.Span](t)(m.Spans(ctx, "night", now, now.AddDate(0, 0, 3)))
			if len(spans) < 3 || len(spans) > 4 || spans[1].To.Sub(spans[1].From) != time.Hour {
				t.Errorf("the nights are %v", spans)
			}
			v := must[harp.Verdict](t)(m.Why(ctx, "db01", "patch", time.Time{}))
			if v.May || v.Mode != harp.WindowHold || !v.Until.Equal(once.To) || len(v.Obstacles) != 1 || v.Obstacles[0].Window != "once" || v.Obstacles[0].Why != "kernel" || v.KnownUntil.Before(now.Add(24*time.Hour)) {
				t.Errorf("of patch on db01: %+v", v)
			}
			for _, free := range [][2]string{{"db01", "look at it"}, {"web01", "look"}} {
				if v := must[harp.Verdict](t)(m.Why(ctx, free[0], free[1], time.Time{})); !v.May || v.Obstacles != nil {
					t.Errorf("of %v: %+v", free, v)
				}
			}
			if err := m.End(ctx, "once"); err != nil {
				t.Error(err)
			}
			if v := must[harp.Verdict](t)(m.Why(ctx, "db01", "patch", time.Time{})); !v.May {
				t.Errorf("ended: %+v", v)
			}
			for _, name := range []string{"once", "night"} {
				if err := m.End(ctx, name); !errors.Is(err, harp.ErrConflict) {
					t.Errorf("to end %s gives %v", name, err)
				}
			}
			for _, name := range []string{"once", "night", "holidays"} {
				if err := m.Delete(ctx, name); err != nil {
					t.Error(err)
				}
			}
			for _, err := range []error{m.Delete(ctx, "once"), m.End(ctx, "once"), second(m.Get(ctx, "once")), second(m.Spans(ctx, "once", now, now.Add(time.Hour)))} {
				if f := harp.FailureOf(err); !errors.Is(err, harp.ErrNotFound) || f.Type != "window" {
					t.Errorf("of one that there is not: %v", err)
				}
			}
			if _, err := m.Why(ctx, "mail01", "patch", time.Time{}); !errors.Is(err, harp.ErrNotFound) {
				t.Errorf("of a host that there is not: %v", err)
			}

			want := []string{
				"window.changed once ", "window.changed once kernel", "window.changed night ", "window.changed holidays ", "window.changed once kernel",
				"window.deleted once ", "window.deleted night ", "window.deleted holidays ",
			}
			if told := toldOfMaintenance(t, sys.caller, harp.EventWindowChanged, harp.EventWindowDeleted); !slices.Equal(told, want) {
				t.Errorf("the events tell of %q", told)
			}
		})
	}
}

// toldOfMaintenance is what events of such types tell of windows and hosts, and why.
func toldOfMaintenance(t *testing.T, c *harp.Caller, types ...harp.EventType) (told []string) {
	t.Helper()
	var names []string
	for _, one := range types {
		names = append(names, string(one))
	}
	page := must[harp.EventPage](t)(c.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: names}, false))
	for _, e := range page.Events {
		told = append(told, fmt.Sprint(e.Type, " ", e.Window, e.Host, " ", e.Reason))
	}
	return told
}

// Hosts are paused until a time, or until they are not any more: nothing may run there meanwhile, and a user who asks is told why.
func TestPausedHosts(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			ctx := t.Context()
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "db01"}, {Name: "web01"}}})
			m, now := sys.caller.Maintenance(), time.Now().UTC().Truncate(time.Second)
			hosts := sys.caller.Hosts()
			if n, err := hosts.Pause(ctx, "*", "disk", now.Add(time.Hour)); n != 2 || err != nil {
				t.Errorf("paused %d, %v", n, err)
			}
			if got, err := sys.caller.Target("host.paused=true").Hosts(ctx); err != nil || len(got) != 2 {
				t.Errorf("paused are %v, %v", got, err)
			}
			if v := must[harp.Verdict](t)(m.Why(ctx, "web01", "patch", time.Time{})); v.May || !v.Until.Equal(now.Add(time.Hour)) || v.Obstacles[0].Why != "disk" {
				t.Errorf("on a paused host: %+v", v)
			}
			if n, err := hosts.Unpause(ctx, "web01"); n != 1 || err != nil {
				t.Errorf("unpaused %d, %v", n, err)
			}
			if v := must[harp.Verdict](t)(m.Why(ctx, "web01", "patch", time.Time{})); !v.May {
				t.Errorf("unpaused: %+v", v)
			}
			if h := must[harp.HostStatus](t)(hosts.Get(ctx, "db01")); h.Pause == nil || h.Pause.Reason != "disk" {
				t.Errorf("db01 is %+v", h.Pause)
			}
			want := []string{"host.paused db01 disk", "host.paused web01 disk", "host.unpaused web01 "}
			if told := toldOfMaintenance(t, sys.caller, harp.EventHostPaused, harp.EventHostUnpaused); !slices.Equal(told, want) {
				t.Errorf("the events tell of %q", told)
			}
		})
	}
}

// A window that cannot be is refused before it is stored, and the error names the field and what is wrong.
func TestWindowsThatCannotBeAreRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, m, now := t.Context(), sys.caller.Maintenance(), time.Now()
		if err := errors.Join(sys.caller.Groups().Put(ctx, "away", "not host.online=true"), sys.caller.Groups().Put(ctx, "outer", "@away or db*")); err != nil {
			t.Fatal(err)
		}
		event := func(lines string) *harp.WindowCalendar {
			return &harp.WindowCalendar{Content: []byte("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\n" + lines + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")}
		}
		const at = "DTSTART:20261201T220000Z\r\nDTEND:20261202T060000Z\r\n"
		whole := string(event(at + "SUMMARY:x").Content)
		for _, bad := range []struct {
			field, says string
			window      harp.Window
		}{
			{"name", "empty", harp.Window{From: now}},
			{"name", "control", harp.Window{Name: "a\nb", From: now}},
			{"name", "128", harp.Window{Name: strings.Repeat("n", 129), From: now}},
			{"target", "empty", harp.Window{Target: "-", From: now}},
			{"target", "at byte", harp.Window{Target: "web01 web02", From: now}},
			{"target", `group "none"`, harp.Window{Target: "@none", From: now}},
			{"target", "host.online", harp.Window{Target: "host.online=true", From: now}},
			{"target", "host.heard", harp.Window{Target: "web* and not host.heard<1h", From: now}},
			{"target", "host.paused", harp.Window{Target: "host.paused=true", From: now}},
			{"target", "host.online in group away", harp.Window{Target: "@outer", From: now}},
			{"target", "", harp.Window{Target: strings.Repeat("w", harp.MaxTarget+1), From: now}},
			{"mode", "refuse", harp.Window{Mode: "sometimes", From: now}},
			{"procedures", "64", harp.Window{Procedures: make([]string, 65), From: now}},
			{"procedures", "empty", harp.Window{Procedures: []string{""}, From: now}},
			{"exempt", "", harp.Window{Exempt: []string{strings.Repeat("p", harp.MaxProcedureName+1)}, From: now}},
			{"from", "exactly one", harp.Window{}},
			{"from", "exactly one", harp.Window{From: now, Cron: "* * * * *", For: time.Hour}},
			{"to", "past", harp.Window{From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour)}},
			{"to", "later than from", harp.Window{From: now.Add(2 * time.Hour), To: now.Add(time.Hour)}},
			{"to", "needs from", harp.Window{To: now.Add(time.Hour), Cron: "* * * * *", For: time.Hour}},
			{"for", "second", harp.Window{Cron: "* * * * *"}},
			{"for", "needs cron", harp.Window{From: now, For: time.Hour}},
			{"for", "overlap", harp.Window{Cron: "* * * * *", For: 24 * time.Hour}},
			{"tz", "needs", harp.Window{From: now, TZ: "UTC"}},
			{"tz", "Mars/Phobos", harp.Window{Cron: "* * * * *", For: time.Second, TZ: "Mars/Phobos"}},
			{"cron", "never", harp.Window{Cron: "0 0 30 2 *", For: time.Hour}},
			{"cron", "", harp.Window{Cron: "TZ=UTC * * * * *", For: time.Hour}},
			{"cron", "", harp.Window{Cron: "61 * * * *", For: time.Hour}},
			{"calendar", "empty", harp.Window{Calendar: &harp.WindowCalendar{}}},
			{"calendar", fmt.Sprint(harp.MaxCalendar), harp.Window{Calendar: &harp.WindowCalendar{Content: make([]byte, harp.MaxCalendar+1)}}},
			{"calendar", "no iCalendar", harp.Window{Calendar: &harp.WindowCalendar{Content: []byte("<!DOCTYPE html><html><body>Sign in</body></html>")}}},
			{"calendar", "cut off", harp.Window{Calendar: &harp.WindowCalendar{Content: []byte(whole[:len(whole)-len("END:VCALENDAR\r\n")])}}},
			{"calendar", "line 6: RRULE", harp.Window{Calendar: event(at + "RRULE:FREQ=HOURLY")}},
			{"calendar", "line 6: RRULE", harp.Window{Calendar: event(at + "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")}},
			{"calendar", "line 4: DTSTART", harp.Window{Calendar: event("DTSTART;TZID=\"Mars:20261201T220000")}},
			{"calendar", "Mars", harp.Window{Calendar: event("DTSTART;TZID=Mars:20261201T220000\r\nDURATION:PT1H")}},
			{"zones", "", harp.Window{Calendar: &harp.WindowCalendar{Content: []byte(whole), Zones: map[string]string{"Mars": "Phobos/Mars"}}}},
			{"tz", "Mars", harp.Window{TZ: "Mars", Calendar: event(at + "SUMMARY:x")}},
		} {
			w := bad.window
			if w.Name == "" && bad.field != "name" {
				w.Name = "w"
			}
			switch w.Target {
			case "":
				w.Target = "*"
			case "-":
				w.Target = ""
			}
			err := m.Put(ctx, w)
			var field *harp.FieldError
			if !errors.As(err, &field) || field.Field != bad.field || !strings.Contains(err.Error(), bad.says) || !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("want %s, %q: it gives %v", bad.field, bad.says, err)
			}
		}
		if all, err := list(m.List(ctx)); err != nil || len(all) != 0 {
			t.Errorf("there are %v, %v", all, err)
		}
		for _, err := range []error{
			second(m.Get(ctx, "")), m.Delete(ctx, ""), m.End(ctx, ""), second(m.Spans(ctx, "w", now, now)), second(m.Spans(ctx, "w", now, now.AddDate(3, 0, 0))),
			second(m.Why(ctx, "", "p", now)), second(m.Why(ctx, "h", "", now)), second(sys.caller.Hosts().Pause(ctx, "web01 web02", "", time.Time{})),
			second(sys.caller.Hosts().Pause(ctx, "*", strings.Repeat("w", harp.MaxWhy+1), time.Time{})),
		} {
			if !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("it gives %v", err)
			}
		}
		if _, err := sys.caller.Hosts().Pause(ctx, "nobody", "", time.Time{}); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("a pause of nobody gives %v", err)
		}
	})
}

// A group that a window uses, by another group too, cannot be deleted, nor ask what a host is at the moment.
func TestGroupsThatWindowsUse(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, m, groups := t.Context(), sys.caller.Maintenance(), sys.caller.Groups()
		if err := errors.Join(
			groups.Put(ctx, "inner", "web*"), groups.Put(ctx, "outer", "@inner"), groups.Put(ctx, "free", "web*"),
			m.Put(ctx, harp.Window{Name: "w", Target: "not @outer", From: time.Now()}),
		); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"inner", "outer"} {
			if err := groups.Delete(ctx, name); !errors.Is(err, harp.ErrConflict) {
				t.Errorf("to delete %s gives %v", name, err)
			}
			err := groups.Put(ctx, name, "host.online=true")
			if f := harp.FailureOf(err); !errors.Is(err, harp.ErrInvalid) || f.Field != "target" || !strings.Contains(err.Error(), "window w") {
				t.Errorf("to change %s gives %v", name, err)
			}
		}
		if err := errors.Join(groups.Put(ctx, "free", "host.online=true"), groups.Put(ctx, "inner", "db*"), m.Delete(ctx, "w"), groups.Put(ctx, "inner", "host.online=true"), groups.Delete(ctx, "outer")); err != nil {
			t.Error(err)
		}
	})
}

// What windows take to be matched with each host is bounded, however often groups in their targets use others.
func TestWindowsWithGroupsThatUseOthersOften(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, text := t.Context(), "web*"
		for n := range 4 {
			name := fmt.Sprint("m", n)
			ok(t, sys.caller.Groups().Put(ctx, name, text))
			text = "@" + name + strings.Repeat(",@"+name, 9)
		}
		w := harp.Window{Target: "@m3", From: time.Now(), To: time.Now().Add(time.Hour)}
		for n := range 4 {
			w.Name = fmt.Sprint("w", n)
			ok(t, sys.caller.Maintenance().Put(ctx, w))
		}
		w.Name = "w4"
		if err := sys.caller.Maintenance().Put(ctx, w); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one window too many: %v", err)
		}
	})
}

// A window and a pause are put once: a repeat, which a lost connection makes, does not undo what another operator has done since.
func TestAWindowIsPutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		ctx, m, hosts := t.Context(), sys.caller.Maintenance(), sys.caller.Hosts()
		try := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		w := harp.Window{Name: "w", Target: "*", From: time.Now()}
		lostOnce(t, sys, func(far *harp.Caller) error { return far.Maintenance().Put(ctx, w) }, func() { try(m.Delete(ctx, "w")) })
		if _, err := m.Get(ctx, "w"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("deleted, it is back: %v", err)
		}
		try(m.Put(ctx, w))
		lostOnce(t, sys, func(far *harp.Caller) error { return far.Maintenance().End(ctx, "w") }, func() { try(m.Put(ctx, w)) })
		if got := must[harp.WindowStatus](t)(m.Get(ctx, "w")); !got.Open {
			t.Errorf("put anew, it has ended again: %+v", got)
		}
		lostOnce(t, sys, func(far *harp.Caller) error { return far.Maintenance().Delete(ctx, "w") }, func() { try(m.Put(ctx, w)) })
		must[harp.WindowStatus](t)(m.Get(ctx, "w"))
		lostOnce(t, sys, func(far *harp.Caller) error { return second(far.Hosts().Pause(ctx, "*", "", time.Time{})) }, func() { try(second(hosts.Unpause(ctx, "*"))) })
		if h := must[harp.HostStatus](t)(hosts.Get(ctx, "web01")); h.Pause != nil {
			t.Errorf("unpaused, it is paused again: %+v", h.Pause)
		}
	})
}

// reasonOf is a job's state with its reason.
func reasonOf(t *testing.T, job *harp.Job) string {
	t.Helper()
	synctest.Wait()
	s := must[harp.JobStatus](t)(job.Status(t.Context()))
	return fmt.Sprintf("%s(%s)", s.State, s.Reason)
}

// What a host is found to be, or made, brings it into windows at once, and out of them: facts, procedures, the registry.
func TestHostsThatComeIntoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := new(changing)
		sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: registry})
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		synctest.Wait()
		ctx, m := t.Context(), sys.caller.Maintenance()
		refresh := func(specs ...dispatcher.HostSpec) {
			registry.set(nil, specs...)
			must[int](t)(sys.caller.Hosts().Refresh(ctx))
		}
		for name, c := range map[string]struct {
			target   string
			into, of func()
		}{
			"facts": {
				"fact.os=plan9",
				func() {
					a.sendFrame(t, wire.TypeFacts, wire.Facts{Facts: wire.Encode(map[string]string{"os": "plan9"})})
				},
				func() { a.sendFrame(t, wire.TypeFacts, wire.Facts{}) },
			},
			"procedures": {
				"host.proc=format",
				func() {
					a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "format"}, {Name: "work"}}, Last: true})
				},
				func() {
					a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "work"}}, Last: true})
				},
			},
			"registry": {
				"role=db",
				func() { refresh(dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"role": "db"}}) },
				func() { refresh() },
			},
		} {
			if err := m.Put(ctx, harp.Window{Name: "w", Target: c.target, From: time.Now()}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, in := range []bool{false, true, false} {
				if in {
					c.into()
				} else {
					c.of()
				}
				synctest.Wait()
				if v := must[harp.Verdict](t)(m.Why(ctx, "web01", "work", time.Time{})); v.May == in {
					t.Errorf("%s: in the window, %t: %+v", name, in, v)
				}
			}
		}
	})
}

// An agent whose host was never seen is in its windows from its first moment on, and so after a restart and a reconnect.
func TestANewHostIsInItsWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{})
		ctx := t.Context()
		if err := sys.caller.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "kind=new", From: time.Now()}); err != nil {
			t.Fatal(err)
		}
		sys.agentWith("web01", agent.Config{Labels: map[string]string{"kind": "new"}}, greeter)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "hello", helloArgs{Name: "Ada"}))
		if got := reasonOf(t, job); got != "queued(window)" {
			t.Errorf("it is %s", got)
		}
		sys.cutHost()
		sys.online.wait("web01")
		if got := reasonOf(t, job); got != "queued(window)" {
			t.Errorf("connected again it is %s", got)
		}
		if err := sys.caller.Maintenance().Delete(ctx, "w"); err != nil {
			t.Error(err)
		}
		must[harp.Value](t)(job.Get(ctx))
	})
}

// A host is in the windows of the address from which its agent has connected.
func TestAWindowByAddress(t *testing.T) {
	sys := newSystem(t, loopback, nil, dispatcher.Config{})
	if err := sys.caller.Maintenance().Put(t.Context(), harp.Window{Name: "w", Target: "127.0.0.0/8", From: time.Now()}); err != nil {
		t.Fatal(err)
	}
	sys.agent("web01", greeter)
	if v := must[harp.Verdict](t)(sys.caller.Maintenance().Why(t.Context(), "web01", "hello", time.Time{})); v.May {
		t.Errorf("it is judged %+v", v)
	}
}
