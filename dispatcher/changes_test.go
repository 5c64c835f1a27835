package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
)

// TestAFloodOfChangesLeavesTurnsToOthers: of one principal so many changes are under way as may be; another one does not wait, whatever it
// changes. A thousand changes of one session kept each other caller who changed something waiting until all were made, as most are made one at
// a time.
func TestAFloodOfChangesLeavesTurnsToOthers(t *testing.T) {
	const name = "web01"
	changes := map[string]func(ctx context.Context, s *service) error{
		"put group":    func(ctx context.Context, s *service) error { return s.PutGroup(ctx, harp.NewID(), name, "*") },
		"delete group": func(ctx context.Context, s *service) error { return s.DeleteGroup(ctx, harp.NewID(), name) },
		"put window": func(ctx context.Context, s *service) error {
			return s.PutWindow(ctx, harp.NewID(), harp.Window{Name: name, Target: "*", Cron: "@daily", For: time.Hour})
		},
		"end window":    func(ctx context.Context, s *service) error { return s.EndWindow(ctx, harp.NewID(), name) },
		"delete window": func(ctx context.Context, s *service) error { return s.DeleteWindow(ctx, harp.NewID(), name) },
		"put schedule": func(ctx context.Context, s *service) error {
			return s.PutSchedule(ctx, harp.NewID(), batchSchedule(t, name, "p", nil))
		},
		"pause schedule": func(ctx context.Context, s *service) error {
			return s.ChangeSchedule(ctx, harp.NewID(), name, harp.ScheduleChange{Kind: harp.PauseOfSchedule})
		},
		"trigger": func(ctx context.Context, s *service) error {
			_, err := s.TriggerSchedule(ctx, harp.NewID(), name, harp.Trigger{})
			return err
		},
		"backfill": func(ctx context.Context, s *service) error {
			_, err := s.BackfillSchedule(ctx, harp.NewID(), name, time.Unix(0, 0), time.Unix(1, 0))
			return err
		},
		"delete schedule": func(ctx context.Context, s *service) error { return s.DeleteSchedule(ctx, harp.NewID(), name) },
		"put notification": func(ctx context.Context, s *service) error {
			to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
			return s.PutNotification(ctx, harp.NewID(), harp.Notification{Name: name, On: []string{string(harp.EventHostAway)}, To: to})
		},
		"pause notification": func(ctx context.Context, s *service) error {
			_, err := s.ChangeNotification(ctx, harp.NewID(), name, harp.NotificationChange{Kind: harp.PauseOfNotification})
			return err
		},
		"delete notification": func(ctx context.Context, s *service) error { return s.DeleteNotification(ctx, harp.NewID(), name) },
		"put rule": func(ctx context.Context, s *service) error {
			return s.PutRetentionRule(ctx, harp.NewID(), harp.RetentionRule{Name: name, Keep: time.Hour})
		},
		"delete rule": func(ctx context.Context, s *service) error { return s.DeleteRetentionRule(ctx, harp.NewID(), name) },
		"label": func(ctx context.Context, s *service) error {
			_, err := s.LabelHosts(ctx, harp.NewID(), "*", map[string]string{"k": "v"}, nil)
			return err
		},
		"pause hosts": func(ctx context.Context, s *service) error {
			_, err := s.PauseHosts(ctx, harp.NewID(), "*", harp.HostPauseChange{})
			return err
		},
		"apply": func(ctx context.Context, s *service) error {
			_, err := s.ApplyDocuments(ctx, harp.NewID(), "ops", nil, harp.ApplyOptions{})
			return err
		},
		"apply without doing so": func(ctx context.Context, s *service) error {
			_, err := s.ApplyDocuments(ctx, harp.NewID(), "ops", nil, harp.ApplyOptions{DryRun: true})
			return err
		},
	}
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Senders: []notify.Sender{silentHook{}}})
		flood, other := d.service(harp.Principal{Kind: "caller", Name: "ada"}), d.service(harp.Principal{Kind: "caller", Name: "bob"})
		if err := d.changes.awaitTurn(t.Context(), flood.who, aloneChanges); err != nil {
			t.Fatal(err)
		}
		for what, change := range changes {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := change(ctx, flood); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s beside as many as may be: %v", what, err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			if err := change(ctx, other); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s by another: %v", what, err)
			}
			cancel()
		}
		d.changes.leaveTurn(flood.who, aloneChanges)
		if len(d.changes.lines) != 0 {
			t.Errorf("left are %d lines", len(d.changes.lines))
		}
	})
}

// TestSpansTakeTurns: to find when windows with large calendars are open waits while the principal has as much under way as it may, and is
// given up with its caller. Listings of such windows took minutes, whether or not anybody waited for them.
func TestSpansTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{})
		who := harp.Principal{Kind: "caller", Name: "ada"}
		s := d.service(who)
		event := "BEGIN:VEVENT\r\nUID:x\r\nDTSTART:20990101T000000Z\r\nDURATION:PT1H\r\nEND:VEVENT\r\n"
		file := "BEGIN:VCALENDAR\r\n" + strings.Repeat(event, turnBytes/len(event)+1) + "END:VCALENDAR\r\n"
		large := harp.Window{Name: "large", Target: "*", Calendar: &harp.WindowCalendar{Content: []byte(file)}}
		small := harp.Window{Name: "small", Target: "*", Cron: "@daily", For: time.Hour}
		if err := errors.Join(s.PutWindow(t.Context(), harp.NewID(), large), s.PutWindow(t.Context(), harp.NewID(), small)); err != nil {
			t.Fatal(err)
		}
		if err := d.turns.awaitTurn(t.Context(), who, aloneWeight-1); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		asks := map[string]func(ctx context.Context, w harp.Window) error{
			"list": func(ctx context.Context, w harp.Window) error { _, err := s.ListWindows(ctx, w.Name, ""); return err },
			"spans": func(ctx context.Context, w harp.Window) error {
				_, err := s.WindowSpans(ctx, w.Name, now, now.Add(time.Hour))
				return err
			},
			"preview": func(ctx context.Context, w harp.Window) error {
				_, err := s.PreviewWindow(ctx, w, now, now.Add(time.Hour))
				return err
			},
		}
		for what, ask := range asks {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := ask(ctx, small); err != nil {
				t.Errorf("%s of a small window: %v", what, err)
			}
			if err := ask(ctx, large); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s of a large window does not wait for its turn: %v", what, err)
			}
			cancel()
		}
		d.turns.leaveTurn(who, aloneWeight-1)
		for what, ask := range asks {
			if err := ask(t.Context(), large); err != nil {
				t.Errorf("%s of a large window in its turn: %v", what, err)
			}
		}
		if len(d.turns.lines) != 0 {
			t.Errorf("left are %d lines", len(d.turns.lines))
		}
	})
}
