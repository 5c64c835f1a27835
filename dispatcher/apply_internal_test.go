package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
)

// batchSchedule is a schedule that does not fire in a test by itself.
func batchSchedule(t *testing.T, name, procedure string, args harp.Args) harp.Schedule {
	t.Helper()
	req, err := harp.NewBatchRequest("web*", procedure, args)
	if err != nil {
		t.Fatal(err)
	}
	req.ID = ""
	return harp.Schedule{Name: name, Cron: "0 3 1 1 *", Request: req}
}

func applyTo(t *testing.T, s *service, by string, o harp.ApplyOptions, documents ...harp.Document) (harp.Applied, error) {
	t.Helper()
	return s.ApplyDocuments(t.Context(), harp.NewID(), by, documents, o)
}

func scheduleDocument(s harp.Schedule) harp.Document { return harp.Document{Schedule: &s} }

// A secret is not shown where it became known as such after it was put, nor where no host says any more that it is one.
func TestApplyHidesSecretsThatOneSideKnows(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	login := func(password string) harp.Document {
		return scheduleDocument(batchSchedule(t, "s", "login", harp.Args{"user": "ada", "password": password}))
	}
	check := func(what string, got harp.Applied, err error) {
		t.Helper()
		if text := fmt.Sprintf("%+v", got); err != nil || got.Count != 1 || strings.Contains(text, "swordfish") || strings.Contains(text, "plugh") {
			t.Errorf("%s: %s, %v", what, text, err)
		}
	}
	if _, err := applyTo(t, s, "ops", harp.ApplyOptions{}, login("swordfish")); err != nil {
		t.Fatal(err)
	}
	offers := d.hosts.catalogues.catalogueOf([]harp.ProcedureDoc{{
		Name: "login", Args: json.RawMessage(`{"type":"object","properties":{"user":{"type":"string"},"password":{"type":"string","writeOnly":true}}}`),
	}})
	other := scheduleDocument(batchSchedule(t, "s", "other", harp.Args{"user": "ada"}))
	got, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: true}, other)
	check("another procedure", got, err)
	got, err = applyTo(t, s, "ops", harp.ApplyOptions{}, login("xyzzy"))
	check("it is known", got, err)
	for key := range d.hosts.catalogues.known {
		d.hosts.catalogues.mu.Lock()
		delete(d.hosts.catalogues.known, key)
		d.hosts.catalogues.mu.Unlock()
	}
	got, err = applyTo(t, s, "ops", harp.ApplyOptions{}, login("plugh"))
	check("nobody knows it any more", got, err)
	page, err := s.ListSchedules(t.Context(), "s", "")
	if text := fmt.Sprintf("%s", page.Items[0].Request.Args); err != nil || strings.Contains(text, "plugh") {
		t.Errorf("the schedule shows %s, %v", text, err)
	}
	runtime.KeepAlive(offers)
}

// Documents wait for a schedule whose step takes long; groups, windows and other schedules do not, and who gives up waiting is gone.
func TestApplyWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stuckStore{Store: memory.Open(nil), goOn: make(chan struct{})}
		d := opened(t, st, Config{})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		putEverySecond(t, s, "slow")
		slow := "slow"
		st.stuck.Store(&slow)
		time.Sleep(2 * time.Second)
		applied := make(chan error)
		go func() {
			_, err := applyTo(t, s, "ops", harp.ApplyOptions{}, scheduleDocument(batchSchedule(t, "slow", "hello", nil)))
			applied <- err
		}()
		synctest.Wait()
		asked, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 3)
		go func() { done <- s.PutGroup(asked, harp.NewID(), "g", "web*") }()
		go func() {
			done <- s.PutWindow(asked, harp.NewID(), harp.Window{Name: "w", Target: "*", Cron: "@daily", For: time.Hour})
		}()
		go func() {
			_, err := s.ApplyDocuments(asked, harp.NewID(), "others", nil, harp.ApplyOptions{Prune: true})
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			done <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(done) != 3 {
			t.Errorf("%d of 3 are over", len(done))
		}
		st.stuck.Store(nil)
		close(st.goOn)
		if err := <-applied; err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// Nobody manages more than a set may have, so that one can always be pruned.
func TestApplyManagesASet(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	set := func(from, n int) (documents []harp.Document) {
		for i := range n {
			labels := map[string]string{}
			for k := range harp.MaxLabels {
				labels[fmt.Sprintf("%d%s", k, strings.Repeat("k", harp.MaxLabelKey-2))] = strings.Repeat("v", 16)
			}
			one := batchSchedule(t, fmt.Sprint("s", from+i), "hello", nil)
			one.Labels = labels
			documents = append(documents, scheduleDocument(one))
		}
		return documents
	}
	const half = harp.MaxDocuments / 2
	for i := range 2 {
		if got, err := applyTo(t, s, "ops", harp.ApplyOptions{}, set(i*half, half)...); err != nil || got.Count != half {
			t.Fatalf("half %d: %d, %v", i, got.Count, err)
		}
	}
	for _, dry := range []bool{true, false} {
		if _, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: dry}, set(2*half, 1)...); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one more: %v", err)
		}
		if _, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: dry, Prune: true}, set(half, 1)...); err != nil {
			t.Errorf("fewer: %v", err)
		}
	}
}

// Room for schedules is looked at as it will be, by a dry run too.
func TestApplyTakesRoomOfWhatItDeletes(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	if _, err := applyTo(t, s, "ops", harp.ApplyOptions{}, scheduleDocument(batchSchedule(t, "a", "hello", harp.Args{"x": strings.Repeat("x", 1000)}))); err != nil {
		t.Fatal(err)
	}
	d.schedules.mu.Lock()
	d.schedules.size += maxScheduleBytes - d.schedules.size
	d.schedules.mu.Unlock()
	b, c := scheduleDocument(batchSchedule(t, "b", "hello", nil)), scheduleDocument(batchSchedule(t, "c", "hello", harp.Args{"x": strings.Repeat("x", 1000)}))
	for _, dry := range []bool{true, false} {
		if _, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: dry}, b); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("dry %t, beyond what there may be: %v", dry, err)
		}
		if _, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: dry, Prune: true}, b, c); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("dry %t, both: %v", dry, err)
		}
	}
	for _, dry := range []bool{true, false} {
		if got, err := applyTo(t, s, "ops", harp.ApplyOptions{DryRun: dry, Prune: true}, b); err != nil || got.Count != 2 {
			t.Errorf("dry %t, one in the place of another: %+v, %v", dry, got, err)
		}
	}
}

// Documents in another time zone are the same, and nothing of them is shared with who gave them.
func TestApplyKeepsItsOwn(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	zone := time.FixedZone("", 3600)
	from := time.Now().Add(time.Hour)
	sch := batchSchedule(t, "s", "hello", nil)
	sch.From = from
	for i, want := range []int{2, 0} {
		w := harp.Window{Name: "w", Target: "*", From: from, To: from.Add(time.Hour), Procedures: []string{"hello"}}
		got, err := applyTo(t, s, "ops", harp.ApplyOptions{}, scheduleDocument(sch), harp.Document{Window: &w})
		if err != nil || got.Count != want {
			t.Errorf("application %d: %+v, %v", i, got, err)
		}
		w.Procedures[0] = "other"
		sch.From, from = sch.From.In(zone), from.In(zone)
	}
	w := harp.Window{Name: "by hand", Target: "*", From: from, Procedures: []string{"hello"}}
	if err := s.PutWindow(t.Context(), harp.NewID(), w); err != nil {
		t.Fatal(err)
	}
	w.Procedures[0] = "other"
	for _, name := range []string{"w", "by hand"} {
		is, err := d.windows.find(name)
		if err != nil || is.Window.Procedures[0] != "hello" || is.window.Procedures[0] != "hello" {
			t.Errorf("%s is %+v, %v", name, is, err)
		}
	}
}
