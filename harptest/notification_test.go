package harptest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/notify"
)

// notified runs a test in virtual time, with a host whose procedure fails.
func notified(t *testing.T, cfg dispatcher.Config, test func(t *testing.T, sys *harptest.System, r *receivers)) {
	synctest.Test(t, func(t *testing.T) {
		r := &receivers{got: map[string][]notify.Message{}, at: map[string][]time.Time{}}
		cfg.Senders = []notify.Sender{r}
		sys := harptest.New(t, harptest.Options{
			Agents:     []string{"web01"},
			Dispatcher: cfg,
			Register: func(a *agent.Agent) {
				agent.Handle(a, harp.NewProc[struct{ N int }, string]("fail"), func(_ context.Context, args struct{ N int }) (string, error) {
					return "", fmt.Errorf("no. %d", args.N)
				})
			},
		})
		test(t, sys, r)
	})
}

func putNotification(t *testing.T, sys *harptest.System, n harp.Notification) {
	t.Helper()
	if err := sys.Caller().Notifications().Put(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// fail has a job of web01 fail, and returns its id.
func fail(t *testing.T, sys *harptest.System, n int) string {
	t.Helper()
	job, err := sys.Caller().Host("web01").Call(t.Context(), "fail", harp.Args{"N": n}, harp.OfflineWait(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(t.Context()); err != nil && t.Context().Err() != nil {
		t.Fatal(err)
	}
	return job.ID()
}

func status(t *testing.T, sys *harptest.System, name string) harp.NotificationStatus {
	t.Helper()
	s, err := sys.Caller().Notifications().Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// events are the types and reasons of what has happened to notifications.
func notificationEvents(t *testing.T, sys *harptest.System) (all []string) {
	t.Helper()
	f := harp.EventFilter{After: harp.EventsFromStart, Types: []string{"notification.*"}}
	for {
		page, err := sys.Caller().EventsPage(t.Context(), f, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if e.Type != harp.EventNotificationChanged {
				all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Notification, e.Reason))
			}
		}
		if page.Cursor == f.After {
			return all
		}
		f.After = page.Cursor
	}
}

// TestEachEventIsToldOnce: the receivers are down for an hour in which 500 jobs fail and the dispatcher is killed twice. Afterwards
// each failure was told once by its id: one by one, and in digests where that is asked for.
func TestEachEventIsToldOnce(t *testing.T) {
	const jobs = 500
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		const gathered = "https://receiver.example/digests"
		r.answers(func(context.Context, string, notify.Message) error { return &notify.Error{Answer: "503"} })
		putNotification(t, sys, harp.Notification{Name: "each", On: []string{"job.failed"}, To: to(hook)})
		putNotification(t, sys, harp.Notification{Name: "digests", On: []string{"job.fail*"}, Digest: 10 * time.Minute, To: to(gathered)})
		ids := map[string]int{}
		for n := range jobs {
			ids[fail(t, sys, n)] = 0
			time.Sleep(time.Hour / jobs)
			if n == jobs/3 || n == 2*jobs/3 {
				sys.CrashDispatcher()
				time.Sleep(time.Minute)
				sys.StartDispatcher()
				sys.WaitOnline("web01")
			}
		}
		r.answers(nil)
		time.Sleep(5 * 24 * time.Hour)

		byID := map[string]string{}
		for _, m := range r.taken(hook) {
			var data struct{ Type, Job string }
			if err := json.Unmarshal(m.Data, &data); err != nil || data.Type != "job.failed" || m.Type != data.Type {
				t.Fatalf("%s: %v", m.Data, err)
			}
			if was, again := byID[m.ID]; again {
				if was != data.Job {
					t.Errorf("message %s is about %s and %s", m.ID, was, data.Job)
				}
				continue // sent again after a kill between the answer and the commit
			}
			byID[m.ID] = data.Job
			ids[data.Job]++
		}
		for id, n := range ids {
			if n != 1 {
				t.Errorf("the end of %s was told %d times", id, n)
			}
		}
		count, seen := 0, map[string]bool{}
		for _, m := range r.taken(gathered) {
			var data struct {
				Count  int
				Counts map[string]int
				Events []harp.Event
			}
			if err := json.Unmarshal(m.Data, &data); err != nil || m.Type != "digest" || data.Counts["job.failed"] != data.Count || len(data.Events) != min(data.Count, 50) {
				t.Errorf("a digest is %s, %v", m.Data, err)
			}
			if !seen[m.ID] {
				count += data.Count
			}
			seen[m.ID] = true
		}
		if count != jobs || len(seen) < 5 || len(seen) > 8 {
			t.Errorf("%d digests tell of %d jobs", len(seen), count)
		}
		for _, name := range []string{"each", "digests"} {
			if s := status(t, sys, name); s.Pending != 0 || s.GivenUp != 0 || s.Behind || s.Sent != uint64(len(r.taken(s.To.Webhook.URL))) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestTries: a message is tried after 5 s, 5 min and so on, later where the receiver asks for it, and then given up until somebody
// says so.
func TestTries(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		var at []time.Duration
		begun := time.Now()
		r.answers(func(context.Context, string, notify.Message) error {
			at = append(at, time.Since(begun).Round(time.Second))
			if len(at) == 2 {
				return &notify.Error{Answer: "later", After: 20 * time.Minute}
			}
			return errors.New("refused\r\nby its host")
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		begun = time.Now()
		fail(t, sys, 1)
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		s, m, h := time.Second, time.Minute, time.Hour
		var want []time.Duration
		for _, after := range []time.Duration{0, 5 * s, 20 * m, 30 * m, 2 * h, 5 * h, 10 * h, 14 * h, 20 * h, 24 * h} {
			if want = append(want, after); len(want) > 1 {
				want[len(want)-1] += want[len(want)-2]
			}
		}
		if !slices.Equal(at, want) {
			t.Errorf("it was tried at %v, want %v", at, want)
		}
		if s := status(t, sys, "n"); s.Pending != 0 || s.GivenUp != 1 || s.Answer != "refused by its host" {
			t.Errorf("%+v", s)
		}
		var all []harp.MessageStatus
		for m, err := range sys.Caller().Notifications().Messages(t.Context(), "n") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		if len(all) != 1 || !all[0].GivenUp || all[0].Tries != 10 || all[0].Answer != "refused by its host" || all[0].Subject != "job.failed: fail on web01" {
			t.Fatalf("%+v", all)
		}
		if got := notificationEvents(t, sys); len(got) != 1 || !strings.HasPrefix(got[0], "notification.failed n: message "+all[0].ID+", job.failed: fail on web01, was given up after 10 tries: refused by") {
			t.Errorf("%q", got)
		}
		r.answers(nil)
		sys.RestartDispatcher()
		time.Sleep(h)
		if r.subjects(hook) != nil {
			t.Error("it was sent without a retry")
		}
		if _, err := sys.Caller().Notifications().Retry(t.Context(), "n", "msg_none"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		if n, err := sys.Caller().Notifications().Retry(t.Context(), "n", all[0].ID); n != 1 || err != nil {
			t.Error(n, err)
		}
		time.Sleep(s)
		if got := r.taken(hook); len(got) != 1 || got[0].ID != all[0].ID {
			t.Errorf("%+v", got)
		}
		if s := status(t, sys, "n"); s.GivenUp != 0 || s.Sent != 1 || s.Answer != "" {
			t.Errorf("%+v", s)
		}
	})
}

// TestWaitForAReceiverIsBounded: a receiver that asks for a longer pause than a day is tried again after a day.
func TestWaitForAReceiverIsBounded(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(context.Context, string, notify.Message) error {
			return &notify.Error{Answer: "503", After: 1000 * time.Hour}
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(time.Second)
		r.answers(nil)
		time.Sleep(23 * time.Hour)
		if n := len(r.taken(hook)); n != 0 {
			t.Errorf("%d messages were taken before their time", n)
		}
		time.Sleep(time.Hour)
		if n := len(r.taken(hook)); n != 1 {
			t.Errorf("%d messages were taken after a day", n)
		}
	})
}

// TestRetryStartsOver: a message that was given up is tried as often as a new one when it is retried.
func TestRetryStartsOver(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(context.Context, string, notify.Message) error { return &notify.Error{Answer: "503"} })
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		for _, want := range []int{10, 20} {
			time.Sleep(5 * 24 * time.Hour)
			r.mu.Lock()
			tries := r.tries
			r.mu.Unlock()
			if s := status(t, sys, "n"); tries != want || s.GivenUp != 1 {
				t.Fatalf("it was tried %d times, want %d: %+v", tries, want, s)
			}
			if n, err := sys.Caller().Notifications().Retry(t.Context(), "n", ""); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	})
}

// TestBehind: beyond 1,000 messages a notification waits itself, and says so once; when they are taken it goes on where it was, and
// says that too. Another one is not kept waiting.
func TestBehind(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		const other = "https://other.example/"
		r.answers(func(_ context.Context, url string, _ notify.Message) error {
			if url == hook {
				return &notify.Error{Answer: "503", After: time.Hour}
			}
			return nil
		})
		putNotification(t, sys, harp.Notification{Name: "stuck", On: []string{"job.failed"}, To: to(hook)})
		putNotification(t, sys, harp.Notification{Name: "other", On: []string{"job.*"}, States: []harp.State{harp.StateFailed}, To: to(other)})
		for n := range 1100 {
			fail(t, sys, n)
		}
		time.Sleep(2 * time.Minute)
		if s := status(t, sys, "stuck"); s.Pending != 1000 || !s.Behind {
			t.Errorf("%+v", s)
		}
		if n := len(r.taken(other)); n != 1100 {
			t.Errorf("the other receiver has %d", n)
		}
		info, err := sys.Caller().Ping(t.Context())
		if err != nil || len(info.Troubles) != 1 || info.Troubles[0] != "notifications: stuck: is behind: messages wait for its receiver" {
			t.Errorf("troubles are %q, %v", info.Troubles, err)
		}
		sys.RestartDispatcher()
		time.Sleep(time.Minute)
		r.answers(nil)
		if n, err := sys.Caller().Notifications().Retry(t.Context(), "stuck", ""); n < 900 || err != nil {
			t.Error(n, err)
		}
		time.Sleep(2 * time.Hour)
		ids := map[string]bool{}
		for _, m := range r.taken(hook) {
			ids[m.ID] = true
		}
		if len(ids) != 1100 {
			t.Errorf("%d were told", len(ids))
		}
		want := []string{"notification.behind stuck: 1000 messages wait: what happens from now on is looked at when they were taken", "notification.caught_up stuck: "}
		if got := notificationEvents(t, sys); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if s := status(t, sys, "stuck"); s.Behind || s.Pending != 0 || s.Sent != 1100 {
			t.Errorf("%+v", s)
		}
	})
}

// TestGap: where retention has deleted events that a notification has not looked at, it says how many, and goes on.
func TestGap(t *testing.T) {
	notified(t, dispatcher.Config{Retain: time.Hour}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(context.Context, string, notify.Message) error {
			return &notify.Error{Answer: "503", After: 24 * time.Hour}
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		for n := range 1010 {
			fail(t, sys, n)
		}
		time.Sleep(3 * time.Hour)
		r.answers(nil)
		if _, err := sys.Caller().Notifications().Retry(t.Context(), "n", ""); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		id := fail(t, sys, 2000)
		time.Sleep(time.Minute)
		var gaps []string
		for _, e := range notificationEvents(t, sys) {
			if strings.HasPrefix(e, "notification.gap") {
				gaps = append(gaps, e)
			}
		}
		var count int
		if len(gaps) != 1 {
			t.Fatalf("%q", gaps)
		}
		if _, err := fmt.Sscanf(gaps[0], "notification.gap n: %d events were deleted for their age before they were looked at", &count); err != nil || count < 10 || count > 60 {
			t.Errorf("%q, %v", gaps, err)
		}
		got := r.taken(hook)
		if len(got) != 1001 || !strings.Contains(string(got[1000].Data), id) {
			t.Errorf("%d messages", len(got))
		}
	})
}

// TestPauses: a receiver that wants no more messages is left alone, and what happens meanwhile is told when it is unpaused. A pause by
// hand is the same.
func TestPauses(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		ns := sys.Caller().Notifications()
		r.answers(func(context.Context, string, notify.Message) error {
			return &notify.Error{Answer: "410 Gone", Gone: true}
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(time.Minute)
		fail(t, sys, 2)
		time.Sleep(time.Hour)
		s := status(t, sys, "n")
		if s.Pause == nil || s.Pause.By != (harp.Principal{}) || s.Pause.Reason != "its receiver wants no more messages: 410 Gone" || s.Pending != 2 || r.tries != 1 {
			t.Errorf("%+v after %d tries", s, r.tries)
		}
		r.answers(nil)
		if err := ns.Pause(t.Context(), "n", "night"); err != nil {
			t.Error(err)
		}
		if taken, answer, err := ns.Test(t.Context(), "n"); !taken || answer != "" || err != nil {
			t.Error(taken, answer, err)
		}
		sys.RestartDispatcher()
		time.Sleep(time.Hour)
		if s := status(t, sys, "n"); s.Pause == nil || s.Pause.By.Name != harptest.CallerName || s.Pause.Reason != "night" || len(r.subjects(hook)) != 1 {
			t.Errorf("%+v, %q", s, r.subjects(hook))
		}
		if err := ns.Unpause(t.Context(), "n"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if got := r.subjects(hook); len(got) != 3 || got[0] != "test of notification n" {
			t.Errorf("%q", got)
		}
		want := []string{"notification.paused n: its receiver wants no more messages: 410 Gone", "notification.paused n: night", "notification.unpaused n: "}
		if got := notificationEvents(t, sys); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// TestFinal: a message that will never be taken is given up at once, and the others go on.
func TestFinal(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		first := true
		r.answers(func(context.Context, string, notify.Message) error {
			if first {
				first = false
				return &notify.Error{Answer: "413", Final: true}
			}
			return nil
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(time.Second)
		fail(t, sys, 2)
		time.Sleep(time.Second)
		if s := status(t, sys, "n"); s.GivenUp != 1 || s.Pending != 0 || s.Sent != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestFor: of hosts that are away only those are told that are so for long, and when they are back; over a kill, too.
func TestFor(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"host.away"}, For: 10 * time.Minute, To: to(hook)})
		away := func(d time.Duration, meanwhile func()) {
			sys.StopAgent("web01")
			time.Sleep(d)
			meanwhile()
			sys.StartAgent("web01")
			sys.WaitOnline("web01")
			time.Sleep(time.Minute)
		}
		away(9*time.Minute, func() {
			if s := status(t, sys, "n"); s.Away != 1 || s.Pending != 0 {
				t.Errorf("%+v", s)
			}
		})
		if got := r.subjects(hook); got != nil {
			t.Errorf("%q", got)
		}
		away(5*time.Minute, func() {
			sys.CrashDispatcher()
			sys.StartDispatcher()
			time.Sleep(4*time.Minute + 50*time.Second)
			if got := r.subjects(hook); got != nil {
				t.Errorf("%q before its time", got)
			}
			time.Sleep(time.Minute)
			if got := r.subjects(hook); !slices.Equal(got, []string{"host.away: web01"}) {
				t.Errorf("%q", got)
			}
			sys.CrashDispatcher()
			sys.StartDispatcher()
		})
		if got := r.subjects(hook); !slices.Equal(got, []string{"host.away: web01", "host.online: web01"}) {
			t.Errorf("%q", got)
		}
		if s := status(t, sys, "n"); s.Away != 0 || s.Sent != 2 {
			t.Errorf("%+v", s)
		}
		sys.RestartDispatcher() // counts what it reads
		time.Sleep(time.Minute)
		if got := notificationEvents(t, sys); got != nil {
			t.Errorf("%q is told", got)
		}
	})
}

// TestDeletedNotification: nothing is sent of one that is deleted, though the dispatcher be killed before its messages are gone; one
// that is put anew under its name has none of them.
func TestDeletedNotification(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(context.Context, string, notify.Message) error { return &notify.Error{Answer: "503"} })
		n := harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)}
		putNotification(t, sys, n)
		for i := range 20 {
			fail(t, sys, i)
		}
		if err := sys.Caller().Notifications().Delete(t.Context(), "n"); err != nil {
			t.Error(err)
		}
		sys.CrashDispatcher()
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		r.answers(nil)
		if _, err := sys.Caller().Notifications().Get(t.Context(), "n"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		putNotification(t, sys, n)
		time.Sleep(time.Hour)
		if s := status(t, sys, "n"); s.Pending != 0 || r.subjects(hook) != nil {
			t.Errorf("%+v, %q", s, r.subjects(hook))
		}
		fail(t, sys, 21)
		time.Sleep(time.Second)
		if got := r.subjects(hook); len(got) != 1 {
			t.Errorf("%q", got)
		}
	})
}

// TestNotificationWhenTheClockIsSet: a message that waits is tried when its time has gone by, whatever the wall clock says.
func TestNotificationWhenTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			var mu sync.Mutex
			ahead := time.Duration(0)
			now := func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(ahead)
			}
			notified(t, dispatcher.Config{Now: now}, func(t *testing.T, sys *harptest.System, r *receivers) {
				r.answers(func(context.Context, string, notify.Message) error {
					return &notify.Error{Answer: "503", After: time.Hour}
				})
				putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
				putNotification(t, sys, harp.Notification{Name: "gathers", On: []string{"job.failed"}, Digest: 2 * time.Hour, To: to(hook + "/2")})
				fail(t, sys, 1)
				time.Sleep(time.Second)
				mu.Lock()
				ahead = by
				mu.Unlock()
				time.Sleep(50 * time.Minute)
				r.answers(nil)
				if n := r.tries; n != 1 {
					t.Errorf("%d tries", n)
				}
				time.Sleep(15 * time.Minute)
				if got := r.subjects(hook); len(got) != 1 {
					t.Errorf("%q", got)
				}
				sys.RestartDispatcher() // set back, the digest lasts as long again at most
				time.Sleep(2*time.Hour + time.Minute)
				if got := r.subjects(hook + "/2"); len(got) != 1 {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// TestRestoredNotification: the notifications of a backup go on in the store that is restored from it, and lose nothing that it has.
func TestRestoredNotification(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(2 * time.Minute)
		var backup strings.Builder
		if err := sys.Caller().Backup(t.Context(), &backup); err != nil {
			t.Fatal(err)
		}
		sys.StopDispatcher()
		sys.RestoreDispatcher(strings.NewReader(backup.String()))
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		fail(t, sys, 2)
		time.Sleep(time.Minute)
		if got := r.taken(hook); len(got) != 2 || got[0].ID == got[1].ID {
			t.Errorf("%+v", got)
		}
		if got := notificationEvents(t, sys); got != nil {
			t.Errorf("%q", got)
		}
	})
}
