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

// receivers are what messages are sent to, by the URLs of their webhooks. How one answers is said by the test.
type receivers struct {
	mu     sync.Mutex
	answer func(ctx context.Context, url string, m notify.Message) error // nil: it is taken
	tries  int
	got    map[string][]notify.Message
	at     map[string][]time.Time
}

func (r *receivers) Accepts(to harp.Receiver) bool { return to.Webhook != nil }

func (r *receivers) Check(to harp.Receiver) error {
	if strings.HasPrefix(to.Webhook.URL, "https:") {
		return nil
	}
	return &harp.FieldError{Field: "to.webhook.url", Message: "must be https"}
}

func (r *receivers) Send(ctx context.Context, to harp.Receiver, m notify.Message) error {
	r.mu.Lock()
	answer := r.answer
	r.tries++
	r.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, to.Webhook.URL, m); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[to.Webhook.URL] = append(r.got[to.Webhook.URL], m)
	r.at[to.Webhook.URL] = append(r.at[to.Webhook.URL], time.Now())
	return nil
}

func (r *receivers) answers(with func(ctx context.Context, url string, m notify.Message) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = with
}

// subjects are those of the messages that were taken, in their order.
func (r *receivers) subjects(url string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got[url] {
		all = append(all, m.Subject)
	}
	return all
}

func (r *receivers) taken(url string) []notify.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got[url])
}

const hook = "https://receiver.example/hook"

func to(url string) harp.Receiver {
	return harp.Receiver{Webhook: &harp.Webhook{URL: url, Secrets: []string{"s"}}}
}

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
