package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// calendarServer is a calendar.Source of one calendar.
type calendarServer struct {
	mu      sync.Mutex
	content []byte
	err     error
	hang    chan struct{} // a fetch waits for it, or for its ctx; nil: none does
	asked   []calendar.Version
	given   int // whole copies
}

func (s *calendarServer) Check(url string) error {
	if !strings.HasPrefix(url, "https://") {
		return errors.New("must begin with https://")
	}
	return nil
}

func (s *calendarServer) Fetch(ctx context.Context, _ string, have calendar.Version) (*calendar.Copy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, have)
	if hang := s.hang; hang != nil {
		s.mu.Unlock()
		select {
		case <-hang:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	tag := fmt.Sprint(len(s.content))
	switch {
	case s.err != nil:
		return nil, s.err
	case have.Tag == tag:
		return nil, nil
	}
	s.given++
	return &calendar.Copy{Content: slices.Clone(s.content), Version: calendar.Version{Tag: tag}}, nil
}

func (s *calendarServer) set(content []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content, s.err = content, err
}

func (s *calendarServer) counts() (asked, given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked), s.given
}

var eve = harp.Principal{Kind: "user", Name: "eve"}

// eventCalendar is a calendar of one event.
func eventCalendar(from time.Time, lasts time.Duration) []byte {
	const form = "20060102T150405Z"
	return fmt.Appendf(nil, "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART:%s\r\nDTEND:%s\r\nSUMMARY:%s\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		from.UTC().Format(form), from.Add(lasts).UTC().Format(form), strings.Repeat("x", int(lasts/time.Hour)))
}

const calendarWindowURL = "https://cal.example.org/a.ics"

func calendarWindow() harp.Window {
	return harp.Window{Name: "w", Target: "a", Calendar: &harp.WindowCalendar{URL: calendarWindowURL}}
}

// isHeldNow reports whether a call is kept back on host a.
func isHeldNow(t *testing.T, d *Dispatcher) bool {
	t.Helper()
	v, err := d.service(ada).JudgeStart(t.Context(), "a", "x", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return !v.May
}

func fetchOf(t *testing.T, d *Dispatcher) harp.WindowStatus {
	t.Helper()
	w, err := d.Caller().Maintenance().Get(t.Context(), "w")
	if err != nil || w.Fetch == nil {
		t.Fatalf("it is %+v, %v", w, err)
	}
	return w
}

func eventsOf(t *testing.T, d *Dispatcher, types ...string) (told []string) {
	t.Helper()
	page, err := d.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: types}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		told = append(told, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Window, " ", e.Reason)))
	}
	return told
}

// A calendar of a URL is fetched before the window is put, and each hour: another one counts from then on, and is an event.
func TestCalendarIsFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		server := &calendarServer{content: eventCalendar(begun, time.Hour)}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}, {Name: "b"}}})
		if err := d.Caller().Maintenance().Put(t.Context(), calendarWindow()); err != nil {
			t.Fatal(err)
		}
		if !isHeldNow(t, d) {
			t.Error("in the event of a calendar that was put, a call may start")
		}
		w := fetchOf(t, d)
		if w.Calendar.Content != nil || w.Calendar.URL != calendarWindowURL || !w.Fetch.At.Equal(begun) || w.Fetch.Bytes != len(server.content) || w.Fetch.Why != "" || !w.Open {
			t.Errorf("the window is %+v, %+v", w, w.Fetch)
		}
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		if asked, given := server.counts(); asked != 2 || given != 1 {
			t.Errorf("asked %d times, given %d", asked, given)
		}
		if at := fetchOf(t, d).Fetch.At; at.Sub(begun) < 54*time.Minute || at.Sub(begun) > time.Hour {
			t.Errorf("it is of %v later", at.Sub(begun))
		}
		if isHeldNow(t, d) {
			t.Error("after the event a call waits")
		}
		server.set(eventCalendar(begun.Add(time.Hour), 3*time.Hour), nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if !isHeldNow(t, d) {
			t.Error("in the event of another calendar a call may start")
		}
		want := []string{"window.changed w", fmt.Sprintf("window.changed w its calendar is another now, of %d bytes; 1 hosts are concerned", len(server.content))}
		if told := eventsOf(t, d, "window.changed", "window.stale"); !slices.Equal(told, want) {
			t.Errorf("events %q", told)
		}
	})
}

// A calendar that cannot be fetched for a day stays in force, over a restart too; that is told once, and when it is over.
func TestCalendarOfAServerThatIsAwayForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, disk := time.Now(), memory.NewDisk()
		server := &calendarServer{content: eventCalendar(begun, 100*time.Hour)}
		config := Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}}
		d := opened(t, memory.OpenDisk(disk, nil), config)
		if err := d.Caller().Maintenance().Put(t.Context(), calendarWindow()); err != nil {
			t.Fatal(err)
		}
		server.set(server.content, errors.New("its server answers 500 Internal Server Error"))
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if w := fetchOf(t, d); w.Fetch.Since.Sub(begun) > time.Hour || w.Fetch.Since.IsZero() || w.Fetch.Stale || !strings.Contains(w.Fetch.Why, "500") || !w.Fetch.At.Equal(begun) {
			t.Errorf("after 23 hours it is %+v", w.Fetch)
		}
		if err := d.Health(t.Context()).Checks["windows"]; err != nil {
			t.Errorf("before a day is over the health says %v", err)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		disk.Crash()
		d = opened(t, memory.OpenDisk(disk, nil), config)
		if !isHeldNow(t, d) {
			t.Error("after a restart the copy is not in force")
		}
		if w := fetchOf(t, d); !strings.Contains(w.Fetch.Why, "500") || !w.Fetch.At.Equal(begun) {
			t.Errorf("after a restart it is %+v", w.Fetch)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if w := fetchOf(t, d); !w.Fetch.Stale || !isHeldNow(t, d) {
			t.Errorf("after 25 hours it is %+v", w.Fetch)
		}
		if err := d.Health(t.Context()).Checks["windows"]; err == nil || !strings.Contains(err.Error(), "window w: its calendar cannot be fetched since 2000-01-01T00:5") || !strings.Contains(err.Error(), "500") {
			t.Errorf("the health says %v", err)
		}
		time.Sleep(24 * time.Hour)
		told := eventsOf(t, d, "window.stale")
		if len(told) != 1 || !strings.HasPrefix(told[0], "window.stale w its calendar cannot be fetched since ") || !strings.Contains(told[0], "500") {
			t.Errorf("told is %q", told)
		}
		server.set(server.content, nil)
		time.Sleep(calendarRetry + time.Second)
		synctest.Wait()
		if w := fetchOf(t, d); w.Fetch.Stale || !w.Fetch.Since.IsZero() || w.Fetch.Why != "" || time.Since(w.Fetch.At) > calendarRetry {
			t.Errorf("in the end it is %+v", w.Fetch)
		}
		if err := d.Health(t.Context()).Checks["windows"]; err != nil {
			t.Errorf("in the end the health says %v", err)
		}
		if told := eventsOf(t, d, "window.changed"); len(told) != 2 || told[1] != "window.changed w its calendar can be fetched again" {
			t.Errorf("told is %q", told)
		}
	})
}

// The clock was ahead by a month as a calendar was fetched, and was set right: it was told a month later that its server is away.
func TestACalendarFetchedInTheFutureIsStaleAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		server := &calendarServer{content: eventCalendar(time.Now(), time.Hour)}
		d := opened(t, nil, Config{
			Calendars: server, Hosts: StaticHosts{{Name: "a"}}, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		if err := d.Caller().Maintenance().Put(t.Context(), calendarWindow()); err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(30 * 24 * time.Hour))
		time.Sleep(90 * time.Minute)
		ahead.Store(0)
		server.set(server.content, errors.New("its server answers 500 Internal Server Error"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if w := fetchOf(t, d); w.Fetch.At.After(time.Now()) || w.Fetch.Since.After(time.Now()) || w.Fetch.Stale {
			t.Errorf("after two hours it is %+v", w.Fetch)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if told := eventsOf(t, d, "window.stale"); len(told) != 1 || d.Health(t.Context()).Checks["windows"] == nil {
			t.Errorf("after a day told is %q", told)
		}
	})
}

// What is fetched and cannot be read leaves the last good one in force; where there is none, nothing is put.
func TestCalendarThatCannotBeRead(t *testing.T) {
	good := eventCalendar(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), 50*time.Hour)
	for what, c := range map[string]struct {
		content []byte
		err     error
		field   string
	}{
		"cut off":                      {good[:len(good)-len("END:VCALENDAR\r\n")], nil, "calendar"},
		"is empty":                     {nil, nil, "calendar"},
		"has no event":                 {[]byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"), nil, "calendar"}, // it was emptied
		"no iCalendar file":            {[]byte("<!DOCTYPE html><html><body>Sign in</body></html>"), nil, "calendar"},
		"RRULE":                        {[]byte(strings.Replace(string(good), "SUMMARY", "RRULE:FREQ=HOURLY\r\nSUMMARY", 1)), nil, "calendar"},
		"the next hours cannot be":     {datesCalendar(time.Date(1999, 12, 31, 21, 0, 0, 0, time.UTC), 10_500, time.Second, "P1D"), nil, "calendar"},
		"is longer than 786432 bytes":  {good, errors.New("is longer than 786432 bytes"), "calendar.url"},
		"is redirected to https://b.c": {good, errors.New("is redirected to https://b.c, which is another host"), "calendar.url"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &calendarServer{content: c.content, err: c.err}
				d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
				m := d.Caller().Maintenance()
				var field *harp.FieldError
				if err := m.Put(t.Context(), calendarWindow()); !errors.As(err, &field) || field.Field != c.field || !strings.Contains(field.Message, what) {
					t.Errorf("put gives %v", err)
				}
				if _, err := m.Get(t.Context(), "w"); !errors.Is(err, harp.ErrNotFound) || isHeldNow(t, d) {
					t.Errorf("there is something: %v", err)
				}
				server.set(good, nil)
				if err := m.Put(t.Context(), calendarWindow()); err != nil {
					t.Fatal(err)
				}
				server.set(c.content, c.err)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if w := fetchOf(t, d); !strings.Contains(w.Fetch.Why, what) || w.Fetch.Bytes != len(good) || !isHeldNow(t, d) {
					t.Errorf("it is %+v", w.Fetch)
				}
				w := calendarWindow()
				w.Reason = "new"
				if err := m.Put(t.Context(), w); err != nil { // what was fetched before is good for it, too
					t.Error(err)
				}
				if w := fetchOf(t, d); w.Reason != "new" || !strings.Contains(w.Fetch.Why, what) || w.Fetch.Bytes != len(good) || !isHeldNow(t, d) {
					t.Errorf("put anew it is %+v", w.Fetch)
				}
				w.Calendar.URL += "x"
				if err := m.Put(t.Context(), w); !errors.As(err, &field) || field.Field != c.field || !isHeldNow(t, d) {
					t.Errorf("of another URL: %v", err)
				}
			})
		})
	}
}

// TestAnEmptiedCalendarEndedItsWindow: a calendar none of whose events is selected any more leaves the last good one in force, as one that cannot be
// fetched, and is told after a day. One of which all events are cancelled, or past, is a calendar.
func TestAnEmptiedCalendarEndedItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := eventCalendar(time.Now(), 50*time.Hour)
		server := &calendarServer{content: good}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
		m, ctx := d.Caller().Maintenance(), t.Context()
		w := calendarWindow()
		w.Calendar.Event = "x*"
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ok(m.Put(ctx, w))
		server.set([]byte(strings.Replace(string(good), "SUMMARY:", "SUMMARY:y", 1)), nil)
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		why := `has no event like "x*", of 1`
		if f := fetchOf(t, d).Fetch; !strings.Contains(f.Why, why) || !f.Stale || !isHeldNow(t, d) {
			t.Errorf("it is %+v", f)
		}
		if told := eventsOf(t, d, "window.stale"); len(told) != 1 || !strings.Contains(told[0], why) {
			t.Errorf("told is %q", told)
		}
		if err := d.Health(ctx).Checks["windows"]; err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("the health says %v", err)
		}
		server.set([]byte(strings.Replace(string(good), "SUMMARY:", "STATUS:CANCELLED\r\nSUMMARY:", 1)), nil)
		time.Sleep(calendarRetry + time.Second)
		synctest.Wait()
		if f := fetchOf(t, d).Fetch; f.Why != "" || isHeldNow(t, d) {
			t.Errorf("with its event cancelled it is %+v", f)
		}
		server.set(eventCalendar(time.Now().AddDate(-1, 0, 0), time.Hour), nil)
		w.Calendar.URL += "x"
		ok(m.Put(ctx, w))
		for pattern, content := range map[string][]byte{"": []byte("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"), "Holiday*": good} {
			var field *harp.FieldError
			file := harp.Window{Name: "f", Target: "a", Calendar: &harp.WindowCalendar{Content: content, Event: pattern}}
			if err := m.Put(ctx, file); !errors.As(err, &field) || field.Field != "calendar" || !strings.Contains(field.Message, "has no event") {
				t.Errorf("a file with none is put: %v", err)
			}
			documents := []harp.Document{{Window: &file}}
			if _, err := d.Caller().Schedules().Apply(ctx, "ops", documents, harp.ApplyOptions{DryRun: true}); !errors.As(err, &field) || field.Field != "documents[0].calendar" {
				t.Errorf("a file with none is applied: %v", err)
			}
		}
	})
}

// A window that is put anew, or applied, with a pattern that selects none of the events of its calendar is refused as the first time, whatever
// the calendar's server says, and stays as it was.
func TestAWindowPutAnewSelectsNoEvent(t *testing.T) {
	good := func() []byte { return eventCalendar(time.Now(), 50*time.Hour) }
	for name, set := range map[string]func(server *calendarServer){
		"nothing is new": func(*calendarServer) {},
		"a new copy":     func(server *calendarServer) { server.set(append(good(), "\r\n"...), nil) },
		"it is away":     func(server *calendarServer) { server.set(nil, errors.New("away")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &calendarServer{content: good()}
				d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
				put := d.Caller().Maintenance().Put
				if err := put(t.Context(), calendarWindow()); err != nil {
					t.Fatal(err)
				}
				set(server)
				w := calendarWindow()
				w.Calendar.Event = "Holiday*"
				var field *harp.FieldError
				if err := put(t.Context(), w); !errors.As(err, &field) || field.Field != "calendar" || !strings.Contains(field.Message, "has no event like") {
					t.Errorf("it is put: %v", err)
				}
				_, err := d.Caller().Schedules().Apply(t.Context(), "ops", []harp.Document{{Window: &w}}, harp.ApplyOptions{})
				if !errors.As(err, &field) || field.Field != "documents[0].calendar" {
					t.Errorf("it is applied: %v", err)
				}
				if is := fetchOf(t, d); is.Calendar.Event != "" || !isHeldNow(t, d) {
					t.Errorf("it is %+v", is)
				}
				w.Calendar.Event = "x*"
				if err := put(t.Context(), w); err != nil || !isHeldNow(t, d) {
					t.Errorf("a pattern that selects the event: %v", err)
				}
			})
		})
	}
}

// A URL that may not be fetched is refused, also where nothing is fetched at all.
func TestCalendarURLsThatAreRefused(t *testing.T) {
	w := calendarWindow()
	w.Calendar.URL = "http://127.0.0.1/"
	var field *harp.FieldError
	for what, d := range map[string]*Dispatcher{"must begin with https": opened(t, nil, Config{Calendars: &calendarServer{}}), "fetches no calendars": opened(t, nil, Config{})} {
		err := d.Caller().Maintenance().Put(t.Context(), w)
		if !errors.As(err, &field) || field.Field != "calendar.url" || !strings.Contains(field.Message, what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A window that is put anew or deleted while its calendar is fetched again is not made what it was.
func TestCalendarOfAWindowThatChangesMeanwhile(t *testing.T) {
	for what, change := range map[string]func(m *harp.Maintenance, ctx context.Context) error{
		"put": func(m *harp.Maintenance, ctx context.Context) error {
			return m.Put(ctx, harp.Window{Name: "w", Target: "a", Cron: "@yearly", For: time.Minute})
		},
		"deleted": func(m *harp.Maintenance, ctx context.Context) error { return m.Delete(ctx, "w") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &calendarServer{content: eventCalendar(time.Now(), time.Hour)}
				d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
				m := d.Caller().Maintenance()
				if err := m.Put(t.Context(), calendarWindow()); err != nil {
					t.Fatal(err)
				}
				hang := make(chan struct{})
				server.mu.Lock()
				server.hang = hang
				server.mu.Unlock()
				server.set(eventCalendar(time.Now(), 9*time.Hour), nil)
				time.Sleep(time.Hour)
				synctest.Wait() // it is being fetched
				if asked, _ := server.counts(); asked != 2 {
					t.Fatalf("asked %d times", asked)
				}
				if err := change(m, t.Context()); err != nil {
					t.Fatal(err)
				}
				close(hang)
				synctest.Wait()
				if w, err := m.Get(t.Context(), "w"); w.Fetch != nil || w.Calendar != nil || (what == "deleted") != errors.Is(err, harp.ErrNotFound) || isHeldNow(t, d) {
					t.Errorf("it is %+v, %v", w, err)
				}
			})
		})
	}
}

// What is fetched and cannot be stored is not in force; the dispatcher goes on, and tries again.
func TestCalendarThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, disk := time.Now(), memory.NewDisk()
		server := &calendarServer{content: eventCalendar(begun, 200*time.Hour)}
		d := opened(t, memory.OpenDisk(disk, nil), Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
		if err := d.Caller().Maintenance().Put(t.Context(), calendarWindow()); err != nil {
			t.Fatal(err)
		}
		disk.SetSpace(store.SpaceCritical)
		server.set(eventCalendar(begun, time.Minute), nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if w := fetchOf(t, d); !strings.Contains(w.Fetch.Why, "cannot be stored") || !isHeldNow(t, d) {
			t.Errorf("on a full disk it is %+v", w.Fetch)
		}
		disk.SetSpace(store.SpacePlenty)
		time.Sleep(calendarRetry)
		synctest.Wait()
		if w := fetchOf(t, d); w.Fetch.Why != "" || isHeldNow(t, d) || len(server.content) != w.Fetch.Bytes {
			t.Errorf("with room it is %+v", w.Fetch)
		}
	})
}

// Documents have calendars by URL: a dry run fetches and stores nothing, what has not changed is not fetched, and nobody else waits
// while a server does not answer.
func TestApplyCalendars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &calendarServer{content: eventCalendar(time.Now(), time.Hour)}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
		s, ctx, w := d.service(ada), t.Context(), calendarWindow()
		documents := []harp.Document{{Window: &w}}
		if done, err := s.ApplyDocuments(ctx, "", "ops", documents, harp.ApplyOptions{DryRun: true}); err != nil || done.Count != 1 || len(d.windows.all()) != 0 {
			t.Errorf("a dry run gives %+v, %v", done, err)
		}
		for range 2 {
			if _, err := s.ApplyDocuments(ctx, harp.NewID(), "ops", documents, harp.ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if asked, _ := server.counts(); asked != 2 || !isHeldNow(t, d) || fetchOf(t, d).ManagedBy != "ops" {
			t.Errorf("asked %d times", asked)
		}
		server.set(eventCalendar(time.Now(), 7*time.Hour), nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if w := fetchOf(t, d); w.Fetch.Bytes != len(server.content) || w.ManagedBy != "ops" {
			t.Errorf("one that is managed is %+v", w.Fetch)
		}

		hang, applied := make(chan struct{}), make(chan error)
		server.mu.Lock()
		server.hang = hang
		server.mu.Unlock()
		w.Reason = "new"
		go func() {
			_, err := s.ApplyDocuments(ctx, harp.NewID(), "ops", documents, harp.ApplyOptions{})
			applied <- err
		}()
		synctest.Wait() // it is being fetched
		if err := d.service(eve).PutWindow(ctx, harp.NewID(), harp.Window{Name: "other", Target: "a", From: time.Now()}); err != nil {
			t.Error(err)
		}
		close(hang)
		if err := <-applied; err != nil || fetchOf(t, d).Reason != "new" {
			t.Error(err)
		}
		server.set(nil, errors.New("no such host"))
		w.Calendar = &harp.WindowCalendar{URL: "https://elsewhere.example.org/"}
		var field *harp.FieldError
		if _, err := s.ApplyDocuments(ctx, harp.NewID(), "ops", documents, harp.ApplyOptions{}); !errors.As(err, &field) || field.Field != "documents[0].calendar.url" || !isHeldNow(t, d) {
			t.Errorf("one that cannot be fetched gives %v", err)
		}
	})
}

// While the calendars of a set of documents were fetched, none of the schedules of the set fired, those neither that stayed as they were.
func TestSchedulesWaitForNoCalendarOfTheirSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &calendarServer{content: eventCalendar(time.Now(), time.Hour), hang: make(chan struct{})}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
		s, w, often := d.service(ada), calendarWindow(), batchSchedule(t, "often", "hello", nil)
		often.Cron, often.CatchUpMost = "* * * * * *", 1000
		if _, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(often)); err != nil {
			t.Fatal(err)
		}
		applied := make(chan error)
		go func() {
			_, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(often), harp.Document{Window: &w})
			applied <- err
		}()
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: "often"}, "")
		if err != nil || len(page.Items) != 1 || page.Items[0].Count != 3 {
			t.Errorf("after 3 seconds the ledger is %+v, %v", page.Items, err)
		}
		close(server.hang)
		if err := <-applied; err != nil {
			t.Error(err)
		}
	})
}

// One principal has one calendar fetched at a time, so that others are not kept waiting by servers that do not answer.
func TestCalendarsOfOnePrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots, ctx := newCalendarSlots(), t.Context()
		leave, err := slots.enter(ctx, ada)
		if err != nil {
			t.Fatal(err)
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := slots.enter(within, ada); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second one: %v", err)
		}
		other, err := slots.enter(ctx, eve)
		if err != nil {
			t.Fatal(err)
		}
		other()
		leave()
		if len(slots.byWho) != 0 || len(slots.all) != 0 {
			t.Errorf("left are %v, %d", slots.byWho, len(slots.all))
		}
	})
}
