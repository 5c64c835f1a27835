package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store/memory"
)

// anySender takes every message.
type anySender struct{}

func (anySender) Accepts(harp.Receiver) bool                                { return true }
func (anySender) Check(harp.Receiver) error                                 { return nil }
func (anySender) Send(context.Context, harp.Receiver, notify.Message) error { return nil }

type documentKind struct {
	name string
	most int
	put  func(ctx context.Context, c *harp.Caller, name string) error
}

// documentKinds are what stays until somebody deletes it, how many of it there may be, and how one is put.
var documentKinds = []documentKind{
	{"groups", 1000, func(ctx context.Context, c *harp.Caller, name string) error {
		return c.Groups().Put(ctx, name, "web01")
	}},
	{"windows", 1000, func(ctx context.Context, c *harp.Caller, name string) error {
		return c.Maintenance().Put(ctx, harp.Window{Name: name, Target: "web01", Cron: "0 3 * * *", For: time.Hour})
	}},
	{"notifications", 200, func(ctx context.Context, c *harp.Caller, name string) error {
		to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://example.invalid/", Secrets: []string{"key"}}}
		return c.Notifications().Put(ctx, harp.Notification{Name: name, On: []string{"job.failed"}, To: to})
	}},
	{"retention rules", 100, func(ctx context.Context, c *harp.Caller, name string) error {
		return c.Retention().Put(ctx, harp.RetentionRule{Name: name, Keep: time.Hour})
	}},
}

// TestOneCallerLocksOthersOutOfDocuments: of each kind one caller had all that there may be, and nobody else could put any.
func TestOneCallerLocksOthersOutOfDocuments(t *testing.T) {
	for _, kind := range documentKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, inMemory, memory.Open(nil), dispatcher.Config{Senders: []notify.Sender{anySender{}}})
				ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
				for i := range kind.most / 2 {
					if err := kind.put(t.Context(), ada, fmt.Sprint("n", i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := kind.put(t.Context(), ada, "more"); !errors.Is(err, harp.ErrRefused) || !strings.Contains(err.Error(), "half of the") {
					t.Errorf("beyond half of them: %v", err)
				}
				if err := kind.put(t.Context(), ada, "n0"); err != nil {
					t.Errorf("one of its own, again: %v", err)
				}
				for _, c := range []*harp.Caller{bob, sys.d.Caller()} {
					if err := kind.put(t.Context(), c, "n1"); err != nil { // which is ada's no more
						t.Error(err)
					}
				}
				if err := kind.put(t.Context(), ada, "more"); err != nil {
					t.Errorf("when there is room again: %v", err)
				}
			})
		})
	}
}

// TestOneCallersSetsLockOthersOut: as TestOneCallerLocksOthersOutOfDocuments, with documents that are applied together.
func TestOneCallersSetsLockOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, memory.Open(nil), dispatcher.Config{Senders: []notify.Sender{anySender{}}})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		set := func(n int) (all []harp.Document) {
			for i := range n {
				name := fmt.Sprint("n", i)
				all = append(all, harp.Document{Retention: &harp.RetentionRule{Name: name, Keep: time.Hour}}, harp.Document{Notification: &harp.Notification{
					Name: name, On: []string{"job.failed"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://example.invalid/", Secrets: []string{"key"}}},
				}})
			}
			return all
		}
		for _, dry := range []bool{true, false} {
			if _, err := ada.Schedules().Apply(t.Context(), "ada", set(51), harp.ApplyOptions{DryRun: dry}); !errors.Is(err, harp.ErrRefused) {
				t.Errorf("more than half of the rules: %v", err)
			}
		}
		for range 2 {
			if _, err := ada.Schedules().Apply(t.Context(), "ada", set(50), harp.ApplyOptions{}); err != nil {
				t.Error(err)
			}
		}
		if _, err := bob.Schedules().Apply(t.Context(), "bob", set(1)[:0], harp.ApplyOptions{}); err != nil {
			t.Error(err)
		}
		if err := bob.Retention().Put(t.Context(), harp.RetentionRule{Name: "bobs", Keep: time.Hour}); err != nil {
			t.Error(err)
		}
	})
}

// TestSchedulesOfOneCallerAreHalfOfAll: also those that are applied together, which take room before they are stored.
func TestSchedulesOfOneCallerAreHalfOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, memory.Open(nil), dispatcher.Config{})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		set := func(of string, n int) (all []harp.Document) {
			for i := range n {
				all = append(all, harp.Document{Schedule: &harp.Schedule{
					Name: fmt.Sprint(of, i), Cron: "0 3 29 2 *", TZ: "UTC", Request: harp.Request{Target: "web01", Procedure: "p", Needs: []string{harp.NeedBatch}},
				}})
			}
			return all
		}
		for i := range 5 {
			of := fmt.Sprint("set", i, "-")
			if _, err := ada.Schedules().Apply(t.Context(), of, set(of, 999), harp.ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, dry := range []bool{true, false} {
			if _, err := ada.Schedules().Apply(t.Context(), "last", set("last", 6), harp.ApplyOptions{DryRun: dry}); !errors.Is(err, harp.ErrRefused) {
				t.Errorf("beyond half of them: %v", err)
			}
		}
		if _, err := ada.Schedules().Apply(t.Context(), "last", set("last", 5), harp.ApplyOptions{}); err != nil {
			t.Error(err)
		}
		for _, c := range []*harp.Caller{ada, bob} {
			err := c.Schedules().Put(t.Context(), *set("one", 1)[0].Schedule)
			if c == ada != errors.Is(err, harp.ErrRefused) {
				t.Errorf("one more of %s: %v", map[bool]string{true: "ada", false: "bob"}[c == ada], err)
			}
		}
		if err := ada.Schedules().Delete(t.Context(), "one0"); err != nil {
			t.Error(err)
		}
	})
}

// TestDocumentsCountAgainstTheBytesOfAnHour: a caller that had used up its bytes could put documents without end.
func TestDocumentsCountAgainstTheBytesOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 100 << 10})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		untilRefused := func(put func() error) {
			t.Helper()
			var err error
			for n := 0; n < 1000 && err == nil; n++ {
				err = put()
			}
			wantRefused(t, err, "bytes_per_hour")
		}
		long := strings.Repeat("web01,", 1000) + "web01"
		untilRefused(func() error { return ada.Groups().Put(t.Context(), "g0", long) })
		for _, kind := range documentKinds[:2] {
			untilRefused(func() error { return kind.put(t.Context(), ada, "x") })
		}
		untilRefused(func() error {
			_, err := ada.Schedules().Apply(t.Context(), "ada", []harp.Document{{Group: &harp.Group{Name: "y", Target: long}}}, harp.ApplyOptions{})
			return err
		})
		untilRefused(func() error {
			_, err := ada.Hosts().Label(t.Context(), "web01", map[string]string{"a": "b"})
			return err
		})
		if err := ada.Groups().Delete(t.Context(), "g0"); err != nil {
			t.Errorf("who has used it up cannot delete: %v", err)
		}
		if err := bob.Groups().Put(t.Context(), "g0", "web01"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if err := ada.Groups().Put(t.Context(), "g1", "web01"); err != nil {
			t.Errorf("an hour later: %v", err)
		}
	})
}

// TestTriggeredRunsCountAgainstWhoTriggers: runs of a schedule that anybody triggered used up the bytes of whoever had put it.
func TestTriggeredRunsCountAgainstWhoTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 100 << 10})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		if err := ada.Schedules().Put(t.Context(), yearly("s", "p", nil, harp.OfflineWait(harp.NoLimit))); err != nil {
			t.Fatal(err)
		}
		const bytes = "limits.per_principal.bytes_per_hour"
		adas := usedBy(t, ada, bytes)
		var err error
		for n := 0; n < 1000 && err == nil; n++ {
			var b *harp.Batch
			if b, err = bob.Schedules().Trigger(t.Context(), "s", harp.EvenIfRunning()); err == nil {
				must[int](t)(b.Cancel(t.Context()))
			}
		}
		wantRefused(t, err, "bytes_per_hour")
		if now := usedBy(t, ada, bytes); now > adas {
			t.Errorf("%d bytes count against who has put it, %d did before", now, adas)
		}
		if _, err := ada.Schedules().Trigger(t.Context(), "s", harp.EvenIfRunning()); err != nil {
			t.Error(err)
		}
	})
}
