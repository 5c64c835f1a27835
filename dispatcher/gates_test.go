package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/window"
)

// slowDocuments is a store that takes a minute to list documents of a kind.
type slowDocuments struct {
	store.Store
	kind string
}

func (s slowDocuments) ListDocuments(ctx context.Context, kind, cursor string, n int) ([]store.Document, string, error) {
	if kind == s.kind {
		time.Sleep(time.Minute)
	}
	return s.Store.ListDocuments(ctx, kind, cursor, n)
}

// Nobody is dialled before it is known what windows, pauses, groups and labels keep back there.
func TestNobodyIsDialledBeforeWindowsAreRead(t *testing.T) {
	for _, kind := range []string{groupKind, labelKind, windowKind, pauseKind} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialled, begin := make(chan time.Duration, 100), time.Now()
				dial := func(context.Context, string) (net.Conn, error) {
					select {
					case dialled <- time.Since(begin):
					default:
					}
					return nil, errors.New("nobody is there")
				}
				opened(t, slowDocuments{memory.Open(nil), kind}, Config{Hosts: StaticHosts{{Name: "a", Address: "1.1.1.1"}}, Dial: dial, TLS: &tls.Config{}}) //nolint:gosec // nobody answers
				if after := <-dialled; after < time.Minute {
					t.Errorf("it is dialled after %v", after)
				}
			})
		})
	}
}

// What a dispatcher that stops cannot find out keeps back everything, and refuses and skips nothing: that would be final.
func TestADispatcherThatStopsHoldsAndRefusesNothing(t *testing.T) {
	d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}}})
	w := harp.Window{Name: "w", Target: "b", Mode: harp.WindowRefuse, From: time.Now().Add(-time.Hour)}
	if err := d.service(ada).PutWindow(t.Context(), harp.NewID(), w); err != nil {
		t.Fatal(err)
	}
	d.stop(harp.ErrClosed)
	for name, review := range map[string]func(){"of one host": func() { d.reviewHolds(d.hosts.get("a")) }, "of all": d.reviewAllHolds} {
		review()
		v, _ := d.hosts.get("a").judgeStart(window.Start{Procedure: "p"}, d.now())
		if v.May() || len(v.Obstacles) != 0 {
			t.Errorf("%s: it is judged %+v", name, v)
		}
		if err := d.checkRefused(d.hosts.get("a"), &store.Job{Procedure: "p"}, d.now()); err != nil {
			t.Errorf("%s: a call gives %v", name, err)
		}
	}
}

// Where it is too late for a start before a window, the window has its say already: a call is refused, and it is said why.
func TestAWindowThatBeginsWithinTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		s, ctx, begin := d.service(ada), t.Context(), time.Now().Add(time.Minute)
		if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "a", Mode: harp.WindowRefuse, From: begin}); err != nil {
			t.Fatal(err)
		}
		for before, may := range map[time.Duration]bool{window.Margin + 1: true, window.Margin: false, 1: false, 0: false} {
			at := begin.Add(-before)
			v, err := s.JudgeStart(ctx, "a", "p", at)
			if err != nil || v.May != may || !v.At.Equal(at) || !may && (len(v.Obstacles) != 1 || v.Obstacles[0].Window != "w" || v.Mode != harp.WindowRefuse) {
				t.Errorf("%v before the window: %+v, %v", before, v, err)
			}
			if err := d.checkRefused(d.hosts.get("a"), &store.Job{Procedure: "p"}, at); errors.Is(err, harp.ErrRefused) == may {
				t.Errorf("%v before the window a call gives %v", before, err)
			}
		}
	})
}

// Windows that are over are kept as jobs are that have ended; those that somebody manages, or that may come again, stay.
func TestWindowsThatAreOverAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}, Retain: 48 * time.Hour})
		s, ctx, now := d.service(ada), t.Context(), time.Now()
		for _, w := range []harp.Window{
			{Name: "over", From: now, To: now.Add(time.Hour)},
			{Name: "open", From: now},
			{Name: "long", From: now, To: now.Add(3 * time.Hour)},
			{Name: "each day", Cron: "@daily", For: time.Hour},
			{Name: "allowed", From: now, To: now.Add(time.Hour), Only: true},
		} {
			w.Target = "a"
			if err := s.PutWindow(ctx, harp.NewID(), w); err != nil {
				t.Fatal(err)
			}
		}
		managed := []harp.Document{{Window: &harp.Window{Name: "managed", Target: "a", From: now, To: now.Add(time.Hour)}}}
		if _, err := s.ApplyDocuments(ctx, harp.NewID(), "git", managed, harp.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			wait time.Duration
			want string
		}{
			{49*time.Hour - time.Second, "allowed,each day,long,managed,open,over"},
			{upkeepEvery + time.Second, "allowed,each day,long,managed,open"},
			{2*time.Hour + upkeepEvery, "allowed,each day,managed,open"},
		} {
			time.Sleep(c.wait)
			synctest.Wait()
			var names []string
			for _, w := range d.windows.all() {
				names = append(names, w.Window.Name)
			}
			if got := strings.Join(names, ","); got != c.want {
				t.Errorf("after %v there are %s, want %s", time.Since(now), got, c.want)
			}
		}
		page, err := s.Events(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"window.deleted"}}, false)
		if err != nil || len(page.Events) != 2 || page.Events[0].Window != "over" {
			t.Errorf("told are %+v, %v", page.Events, err)
		}
	})
}

// What was done stays done, though its time has passed when it is asked for again.
func TestAWindowThatIsPutAgainWhenItHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		s, ctx, id, pause := d.service(ada), t.Context(), harp.NewID(), harp.NewID()
		w := harp.Window{Name: "w", Target: "a", From: time.Now(), To: time.Now().Add(time.Second)}
		change := harp.HostPauseChange{Until: time.Now().Add(time.Second)}
		for n := range 2 {
			if err := s.PutWindow(ctx, id, w); err != nil {
				t.Errorf("put, time %d: %v", n, err)
			}
			if _, err := s.PauseHosts(ctx, pause, "a", change); err != nil {
				t.Errorf("pause, time %d: %v", n, err)
			}
			time.Sleep(2 * time.Second)
		}
		var field *harp.FieldError
		if err := s.PutWindow(ctx, harp.NewID(), w); !errors.As(err, &field) || field.Field != "to" {
			t.Errorf("a new one gives %v", err)
		}
		w.To = time.Now().Add(time.Hour)
		if err := s.PutWindow(ctx, id, w); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("another one under this id gives %v", err)
		}
	})
}

// A window whose document cannot be read, or says nothing that is known, keeps everything back and is told, until it is put anew or deleted.
func TestBrokenWindows(t *testing.T) {
	st := memory.Open(nil)
	now := time.Now()
	good := windowDocument{Window: harp.Window{Name: "good", Target: "b", From: now.Add(-time.Hour)}}
	zone := windowDocument{Window: harp.Window{Name: "zone", Target: "a", Cron: "0 0 1 1 *", For: time.Hour, TZ: "Mars/Phobos", Only: true}}
	target := windowDocument{Window: harp.Window{Name: "target", Target: "a and", From: now.Add(time.Hour), Procedures: []string{"x"}}}
	source := windowDocument{Window: harp.Window{Name: "source", Target: "a", Only: true}}
	group := windowDocument{Window: harp.Window{Name: "group", Target: "@gone", From: now.Add(-time.Hour)}}
	other := windowDocument{Window: harp.Window{Name: "another", Target: "b", From: now.Add(time.Hour)}}
	for name, content := range map[string][]byte{
		"good": wire.Encode(good), "zone": wire.Encode(zone), "target": wire.Encode(target), "source": wire.Encode(source), "group": wire.Encode(group),
		"bytes": []byte("nothing"), "empty": {0x80}, "name": wire.Encode(other),
	} {
		if err := st.PutDocument(t.Context(), windowKind, name, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.PutDocument(t.Context(), pauseKind, "c", []byte("nothing")); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
	s, ctx := d.service(ada), t.Context()
	page, err := s.ListWindows(ctx, "", "")
	if err != nil || len(page.Items) != 8 {
		t.Fatalf("there are %d, %v", len(page.Items), err)
	}
	keeps := func(host, procedure string) (names []string) {
		v, err := s.JudgeStart(ctx, host, procedure, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range v.Obstacles {
			names = append(names, o.Window)
		}
		return names
	}
	for _, w := range page.Items {
		if (w.Err == nil) != (w.Name == "good") {
			t.Errorf("%s: it says %v", w.Name, w.Err)
		}
	}
	if got := strings.Join(keeps("a", "x"), " "); got != "bytes empty group name source target zone" {
		t.Errorf("on a: %s", got)
	}
	if got := strings.Join(keeps("a", "y"), " "); got != "bytes empty group name source zone" {
		t.Errorf("on a, of another procedure: %s", got)
	}
	if got := strings.Join(keeps("b", "x"), " "); got != "bytes empty good group name source target zone" {
		t.Errorf("on b: %s", got)
	}
	if err := d.Health(ctx).Checks["windows"]; err == nil || !strings.HasPrefix(err.Error(), "7 windows") || !d.Health(ctx).Ready {
		t.Errorf("the check says %v", err)
	}
	if err := s.PutGroup(ctx, harp.NewID(), "some", "a or b"); err != nil {
		t.Errorf("a group that no window uses: %v", err)
	}
	if err := s.PutGroup(ctx, harp.NewID(), "gone", "b"); err != nil {
		t.Errorf("the group that is missing: %v", err)
	}
	good.Window.Name = "target"
	if err := s.PutWindow(ctx, harp.NewID(), good.Window); err != nil {
		t.Errorf("put anew: %v", err)
	}
	for _, name := range []string{"bytes", "empty", "name", "source", "zone"} {
		if err := s.EndWindow(ctx, harp.NewID(), name); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("end %s: %v", name, err)
		}
		if _, err := s.WindowSpans(ctx, name, now, now.Add(time.Hour)); err == nil {
			t.Errorf("the spans of %s can be told", name)
		}
		if err := s.DeleteWindow(ctx, harp.NewID(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if err := d.Health(ctx).Checks["windows"]; err != nil {
		t.Errorf("then the check says %v", err)
	}
	if got := keeps("a", "x"); got != nil {
		t.Errorf("then on a: %v", got)
	}
	if got := strings.Join(keeps("b", "x"), " "); got != "good group target" {
		t.Errorf("then on b: %v", got)
	}
	if v, err := s.JudgeStart(ctx, "c", "x", time.Time{}); err != nil || v.May || v.Obstacles[0].Why == "" {
		t.Errorf("of a pause that cannot be read: %+v, %v", v, err)
	}
	if _, err := s.PauseHosts(ctx, harp.NewID(), "c", harp.HostPauseChange{Unpause: true}); err != nil {
		t.Errorf("to end that pause: %v", err)
	}
	if got := keeps("c", "x"); got != nil {
		t.Errorf("then on c: %v", got)
	}
	if docs, _, err := st.ListDocuments(ctx, windowKind, "", 100); err != nil || len(docs) != 3 {
		t.Errorf("stored are %d, %v", len(docs), err)
	}
}

// removingStore is a store that cannot remove a host at first.
type removingStore struct {
	store.Store
	trouble atomic.Bool
}

func (s *removingStore) RemoveHost(ctx context.Context, name string, op store.Operation) (store.HostRemoved, error) {
	if s.trouble.Load() {
		return store.HostRemoved{}, errors.New("trouble")
	}
	return s.Store.RemoveHost(ctx, name, op)
}

// A host that could not be removed stays paused; one that was is not, when it comes again.
func TestThePauseOfAHostThatIsRemoved(t *testing.T) {
	st := &removingStore{Store: memory.Open(nil)}
	if _, err := st.OpenSession(t.Context(), store.Session{Host: "a"}); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, Config{})
	s, ctx := d.service(ada), t.Context()
	if _, err := s.PauseHosts(ctx, harp.NewID(), "a", harp.HostPauseChange{Reason: "disk"}); err != nil {
		t.Fatal(err)
	}
	id := harp.NewID()
	st.trouble.Store(true)
	if _, err := s.RemoveHost(ctx, id, "a"); err == nil {
		t.Fatal("it was removed")
	}
	if _, err := st.Document(ctx, pauseKind, "a"); err != nil || d.hosts.get("a").currentPause() == nil {
		t.Errorf("it is not paused any more: %v", err)
	}
	st.trouble.Store(false)
	for range 2 {
		if _, err := s.RemoveHost(ctx, id, "a"); err != nil {
			t.Errorf("removed, it gives %v", err)
		}
	}
	if _, err := st.Document(ctx, pauseKind, "a"); !errors.Is(err, harp.ErrNotFound) || d.hosts.get("a").currentPause() != nil {
		t.Errorf("it is paused: %v", err)
	}
}

// Why says of which moments it can be asked.
func TestWhyOfAMomentThatIsNotKnown(t *testing.T) {
	d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
	s, ctx, now := d.service(ada), t.Context(), time.Now()
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "a", From: now.Add(20 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{now.Add(-2 * time.Hour), now.Add(26 * time.Hour), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), now.AddDate(100, 0, 0)} {
		var field *harp.FieldError
		_, err := s.JudgeStart(ctx, "a", "p", at)
		if !errors.As(err, &field) || field.Field != "at" || strings.Contains(field.Message, "before") != at.After(now) {
			t.Errorf("at %v: %v", at, err)
		}
	}
	for _, at := range []time.Time{{}, now.Add(-30 * time.Minute), now.Add(23 * time.Hour)} {
		if v, err := s.JudgeStart(ctx, "a", "p", at); err != nil || v.May != at.Before(now.Add(20*time.Hour)) {
			t.Errorf("at %v: %+v, %v", at, v, err)
		}
	}
}

// datesCalendar is a calendar of one event on many dates, each of which lasts.
func datesCalendar(first time.Time, n int, step time.Duration, lasts string) []byte {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART:20200101T000000Z\r\nDURATION:" + lasts + "\r\nRDATE:")
	for i := range n {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(first.Add(time.Duration(i) * step).UTC().Format("20060102T150405Z"))
	}
	b.WriteString("\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
	return []byte(b.String())
}

// A window of which the next day cannot be told is refused, and of one of which that comes later it is said that it is in the way.
func TestWindowsOfTooManySpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		s, ctx, now := d.service(ada), t.Context(), time.Now()
		w := harp.Window{Name: "w", Target: "a", Calendar: &harp.WindowCalendar{Content: datesCalendar(now.Add(-3*time.Hour), 10_500, time.Second, "P1D")}}
		var field *harp.FieldError
		if err := s.PutWindow(ctx, harp.NewID(), w); !errors.As(err, &field) || field.Field != "calendar" {
			t.Errorf("it gives %v", err)
		}
		w.Calendar.Content = datesCalendar(now.Add(48*time.Hour), 10_500, time.Second, "P1D")
		if err := s.PutWindow(ctx, harp.NewID(), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48*time.Hour + 3*time.Hour)
		v, err := s.JudgeStart(ctx, "a", "p", time.Time{})
		if err != nil || v.May || len(v.Obstacles) != 1 || v.Obstacles[0].Window != "w" {
			t.Errorf("it is judged %+v, %v", v, err)
		}
	})
}

// All windows together select hosts by so much at most, however they are put.
func TestWindowsThatSelectByTooMuch(t *testing.T) {
	d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
	s, ctx := d.service(ada), t.Context()
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "h%d,", i)
		}
		return b.String() + "a"
	}
	if err := s.PutGroup(ctx, harp.NewID(), "big", names(60_000)); err != nil {
		t.Fatal(err)
	}
	put := 0
	var err error
	for ; put < 20 && err == nil; put++ {
		err = s.PutWindow(ctx, harp.NewID(), harp.Window{Name: fmt.Sprint(put), Target: fmt.Sprintf("@big or x%d", put), From: time.Now()})
	}
	if !errors.Is(err, harp.ErrRefused) || put != 17 {
		t.Errorf("window %d gives %v", put, err)
	}
	if err := s.PutGroup(ctx, harp.NewID(), "big", names(64_000)); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("a larger group gives %v", err)
	}
	if err := s.PutGroup(ctx, harp.NewID(), "big", names(10)); err != nil {
		t.Errorf("a smaller group gives %v", err)
	}
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "more", Target: "@big", From: time.Now()}); err != nil {
		t.Errorf("then a window gives %v", err)
	}
	if err := s.PutGroup(ctx, harp.NewID(), "big", names(60_000)); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("a larger group gives %v", err)
	}
}

// All windows may open at the same moment, whatever their reasons and names are: each is told.
func TestAllWindowsOpenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		s, ctx, begin := d.service(ada), t.Context(), time.Now().Add(time.Hour)
		for n := range maxWindows {
			w := harp.Window{Name: fmt.Sprintf("%0*d", harp.MaxWindowName, n), Reason: strings.Repeat("r", harp.MaxWhy), Target: "a", From: begin, To: begin.Add(time.Hour)}
			d.windows.set(newOpenWindow(windowDocument{Window: w}, 1))
		}
		if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "one more", Target: "a", From: begin}); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one more gives %v", err)
		}
		d.reviewAllHolds()
		time.Sleep(3 * time.Hour)
		for _, what := range []harp.EventType{harp.EventWindowOpened, harp.EventWindowClosed} {
			told := map[string]int{}
			for cursor := harp.EventsFromStart; ; {
				page, err := s.Events(ctx, harp.EventFilter{After: cursor, Types: []string{string(what)}}, false)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page.Events {
					told[e.Window]++
				}
				if cursor = page.Cursor; len(page.Events) == 0 {
					break
				}
			}
			if len(told) != maxWindows {
				t.Errorf("%s is told of %d windows", what, len(told))
			}
			for name, n := range told {
				if n != 1 {
					t.Fatalf("%s of %s is told %d times", what, name, n)
				}
			}
		}
	})
}

// The calendars of all windows have so many bytes at most.
func TestCalendarsOfTooManyBytes(t *testing.T) {
	d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
	s, ctx := d.service(harp.Principal{Kind: processKind}), t.Context()
	content := []byte("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART:20300101T000000Z\r\nDURATION:PT1H\r\nEND:VEVENT\r\n" +
		strings.Repeat("X-FILL:"+strings.Repeat("x", 60)+"\r\n", 11_000) + "END:VCALENDAR\r\n")
	most := maxWindowBytes / len(content)
	for n := range most {
		if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: fmt.Sprint(n), Target: "a", Calendar: &harp.WindowCalendar{Content: content}}); err != nil {
			t.Fatalf("window %d gives %v", n, err)
		}
	}
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "more", Target: "a", Calendar: &harp.WindowCalendar{Content: content}}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("one more gives %v", err)
	}
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "0", Target: "a", Calendar: &harp.WindowCalendar{Content: content}}); err != nil {
		t.Errorf("one in the place of another gives %v", err)
	}
}

// Gates know what comes as time passes, and after the clock was set.
func TestGatesKnowWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}, Now: now})
		s, ctx := d.service(ada), t.Context()
		noon := now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
		if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "a", Cron: "0 12 * * *", For: 2 * time.Hour, TZ: "UTC"}); err != nil {
			t.Fatal(err)
		}
		look := func(what string) {
			t.Helper()
			synctest.Wait()
			v, err := s.JudgeStart(ctx, "a", "p", time.Time{})
			if into := now().Sub(noon) % (24 * time.Hour); err != nil || v.May == (into >= 0 && into < 2*time.Hour) || v.KnownUntil.Sub(now()) < gatesAhead-gatesRenewed {
				t.Errorf("%s, %v after noon: %+v, %v", what, into, v, err)
			}
		}
		for range 100 {
			time.Sleep(time.Hour)
			look("as time passes")
		}
		for _, by := range []time.Duration{100 * time.Hour, -50 * time.Hour, 26 * time.Hour, -2 * time.Hour} {
			ahead.Add(int64(by))
			d.now() // finds out
			look(fmt.Sprint("set by ", by))
		}
	})
}

// A pause is of its host alone, though others are in the same windows.
func TestHostsThatShareAGate(t *testing.T) {
	d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
	s, ctx := d.service(ada), t.Context()
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "*", From: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PauseHosts(ctx, harp.NewID(), "b", harp.HostPauseChange{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, host := range []string{"a", "b", "c"} {
			if v, err := s.JudgeStart(ctx, host, "p", time.Time{}); err != nil || v.May == (host == "b") {
				t.Errorf("on %s: %+v, %v", host, v, err)
			}
		}
		d.renewAllHolds()
	}
}

// Outside of a window with Only that has ended long ago nothing starts, until it is deleted.
func TestAnOnlyThatIsOver(t *testing.T) {
	st := memory.Open(nil)
	w := windowDocument{Window: harp.Window{Name: "w", Target: "a", Only: true, From: time.Now().Add(-72 * time.Hour), To: time.Now().Add(-48 * time.Hour)}}
	if err := st.PutDocument(t.Context(), windowKind, "w", wire.Encode(w)); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, Config{Hosts: StaticHosts{{Name: "a"}}})
	s := d.service(ada)
	if v, err := s.JudgeStart(t.Context(), "a", "p", time.Time{}); err != nil || v.May || len(v.Obstacles) != 1 {
		t.Errorf("it is judged %+v, %v", v, err)
	}
	if err := s.DeleteWindow(t.Context(), harp.NewID(), "w"); err != nil {
		t.Error(err)
	}
	if v, err := s.JudgeStart(t.Context(), "a", "p", time.Time{}); err != nil || !v.May {
		t.Errorf("deleted, it is judged %+v, %v", v, err)
	}
}

// A start is judged once for all hosts that share a gate: those in the same windows, and those that were paused together.
func TestStartsOnHostsThatShareAGate(t *testing.T) {
	var hosts StaticHosts
	for n := range 20 {
		hosts = append(hosts, HostSpec{Name: fmt.Sprintf("h%02d", n)})
	}
	d := opened(t, nil, Config{Hosts: hosts})
	s, ctx := d.service(ada), t.Context()
	if err := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "h0*", From: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PauseHosts(ctx, harp.NewID(), "h0[5-9],h1[0-4]", harp.HostPauseChange{Reason: "disk"}); err != nil {
		t.Fatal(err)
	}
	found, err := d.fleet.findCandidates(ctx, "*", "p", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := d.startsAmong(found, window.Start{Procedure: "p"})
	now, later := all.heldAt(time.Now()), all.heldAt(time.Now().Add(2*time.Hour))
	if len(all.kinds) != 3 || now.fit != 20 || now.hosts != 10 || now.by != "" || later.hosts != 15 || later.by != "w" {
		t.Errorf("there are %d kinds, %+v held now, %+v later", len(all.kinds), now, later)
	}
}
