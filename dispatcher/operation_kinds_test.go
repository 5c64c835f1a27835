package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
)

// silentHook is a sender of webhooks that are all taken.
type silentHook struct{}

func (silentHook) Accepts(to harp.Receiver) bool                             { return to.Webhook != nil }
func (silentHook) Check(harp.Receiver) error                                 { return nil }
func (silentHook) Send(context.Context, harp.Receiver, notify.Message) error { return nil }

// An id under which one thing was done does nothing else, however alike the two are asked for: the caller would be told that it is done.
func TestAnIDOfOneOperationIsThatOfNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "web01"
		d := opened(t, nil, Config{Senders: []notify.Sender{silentHook{}}})
		s := d.service(harp.Principal{Kind: "process"})
		ctx := t.Context()
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := d.store.OpenSession(ctx, store.Session{Host: name, At: time.Now()})
		do(err)
		d.hosts.get(name).setRow(store.Host{Name: name, Connected: true, LastHeard: time.Now()})
		queue, err := harp.QueueName(harp.Args{"q": name})
		do(err)
		hook := harp.Notification{Name: name, On: []string{string(harp.EventHostAway)}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
		batch := func() string {
			id := harp.NewID()
			req := harp.Request{ID: id, Target: name, Procedure: "p", Needs: []string{harp.NeedBatch}, OfflineWait: time.Hour}
			out, err := s.Submit(ctx, []harp.Submission{{Request: req.Encode()}})
			if err == nil {
				err = out[0].Err
			}
			do(err)
			return id
		}()
		yes := true
		request := harp.Request{Target: name, Procedure: "p", Needs: []string{harp.NeedBatch}}
		operations := map[string]func(id string) error{
			"put group":    func(id string) error { return s.PutGroup(ctx, id, name, "*") },
			"delete group": func(id string) error { return s.DeleteGroup(ctx, id, name) },
			"put schedule": func(id string) error {
				return s.PutSchedule(ctx, id, harp.Schedule{Name: name, Cron: "@hourly", Request: request})
			},
			"pause schedule": func(id string) error {
				return s.ChangeSchedule(ctx, id, name, harp.ScheduleChange{Kind: harp.PauseOfSchedule})
			},
			"trigger":         func(id string) error { _, err := s.TriggerSchedule(ctx, id, name, harp.Trigger{}); return err },
			"delete schedule": func(id string) error { return s.DeleteSchedule(ctx, id, name) },
			"put window": func(id string) error {
				return s.PutWindow(ctx, id, harp.Window{Name: name, Target: "*", From: time.Now(), To: time.Now().Add(time.Hour)})
			},
			"end window":       func(id string) error { return s.EndWindow(ctx, id, name) },
			"delete window":    func(id string) error { return s.DeleteWindow(ctx, id, name) },
			"put notification": func(id string) error { return s.PutNotification(ctx, id, hook) },
			"pause notification": func(id string) error {
				_, err := s.ChangeNotification(ctx, id, name, harp.NotificationChange{Kind: harp.PauseOfNotification})
				return err
			},
			"delete notification": func(id string) error { return s.DeleteNotification(ctx, id, name) },
			"put rule": func(id string) error {
				return s.PutRetentionRule(ctx, id, harp.RetentionRule{Name: name, Keep: time.Hour})
			},
			"delete rule": func(id string) error { return s.DeleteRetentionRule(ctx, id, name) },
			"label": func(id string) error {
				_, err := s.LabelHosts(ctx, id, name, map[string]string{"k": "v"}, nil)
				return err
			},
			"pause host":   func(id string) error { _, err := s.PauseHosts(ctx, id, name, harp.HostPauseChange{}); return err },
			"pause queue":  func(id string) error { return s.ChangeQueue(ctx, id, queue, harp.QueueChange{Paused: &yes}) },
			"cancel queue": func(id string) error { _, err := s.CancelQueue(ctx, id, queue); return err },
			"forget drift": func(id string) error { _, err := s.ForgetDrift(ctx, id, name); return err },
			"pause batch": func(id string) error {
				_, err := s.ChangeBatch(ctx, id, batch, harp.BatchChange{Kind: harp.PauseOfBatch, Reason: "disk"})
				return err
			},
			"pause batch for another reason": func(id string) error {
				_, err := s.ChangeBatch(ctx, id, batch, harp.BatchChange{Kind: harp.PauseOfBatch, Reason: "network"})
				return err
			},
			"cancel batch": func(id string) error {
				_, err := s.ChangeBatch(ctx, id, batch, harp.BatchChange{Kind: harp.CancelOfBatch})
				return err
			},
			"apply": func(id string) error {
				_, err := s.ApplyDocuments(ctx, id, "folder", []harp.Document{{Group: &harp.Group{Name: "applied", Target: "*"}}}, harp.ApplyOptions{})
				return err
			},
			"remove host": func(id string) error { _, err := s.RemoveHost(ctx, id, name); return err },
		}
		order := []string{
			"put group", "delete group", "put schedule", "trigger", "pause schedule", "delete schedule", "put window", "end window", "delete window",
			"put notification", "pause notification", "delete notification", "put rule", "delete rule", "label", "pause host", "pause queue", "cancel queue",
			"forget drift", "pause batch", "pause batch for another reason", "cancel batch", "apply", "remove host",
		}
		if len(order) != len(operations) {
			t.Fatal("not all are tried")
		}
		for _, first := range order {
			id := harp.NewID()
			if err := operations[first](id); err != nil && !errors.Is(err, harp.ErrNotFound) { // of a queue or a name: that is remembered too
				t.Errorf("%s: %v", first, err)
			}
			for _, second := range order {
				if err := operations[second](id); second != first && !errors.Is(err, harp.ErrConflict) {
					t.Errorf("%s under the id of %s gives %v, want ErrConflict", second, first, err)
				}
			}
		}
	})
}
