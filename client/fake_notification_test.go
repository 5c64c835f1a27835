package client

import (
	"context"

	"github.com/harpcaller/harp"
)

var _ harp.NotificationService = (*fake)(nil)

// fakeNotifications are the notifications of a fake. None of them tells anybody.
type fakeNotifications struct {
	all      []harp.NotificationStatus
	messages []harp.MessageStatus
	changes  []harp.NotificationChange
	deleted  []string
}

func (f *fake) PutNotification(ctx context.Context, _ string, n harp.Notification) error {
	if err := f.enter(ctx, "PutNotification"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notifications.all = append(f.notifications.all, harp.NotificationStatus{
		Notification: n, Changed: at(1), Pause: &harp.NotificationPause{Reason: "r", Since: at(2)}, Behind: true, Pending: 1, GivenUp: 2, Away: 3, Gathered: 4, Sent: 5, Answer: "503", Tried: at(3),
	})
	return nil
}

func (f *fake) DeleteNotification(ctx context.Context, _, name string) error {
	f.mu.Lock()
	f.notifications.deleted = append(f.notifications.deleted, name)
	f.mu.Unlock()
	return f.enter(ctx, "DeleteNotification")
}

func (f *fake) ListNotifications(ctx context.Context, name, cursor string) (harp.Page[harp.NotificationStatus], error) {
	if err := f.enter(ctx, "ListNotifications"); err != nil {
		return harp.Page[harp.NotificationStatus]{}, err
	}
	var found []harp.NotificationStatus
	for _, n := range f.notifications.all {
		if name == "" || n.Name == name {
			found = append(found, n)
		}
	}
	return pageOf(found, cursor, f.pageSize, func(n harp.NotificationStatus) string { return n.Name })
}

func (f *fake) ChangeNotification(ctx context.Context, _, _ string, c harp.NotificationChange) (harp.NotificationChanged, error) {
	f.mu.Lock()
	f.notifications.changes = append(f.notifications.changes, c)
	f.mu.Unlock()
	return harp.NotificationChanged{Count: 3, Taken: true, Answer: "a"}, f.enter(ctx, "ChangeNotification")
}

func (f *fake) ListMessages(ctx context.Context, _, cursor string) (harp.Page[harp.MessageStatus], error) {
	if err := f.enter(ctx, "ListMessages"); err != nil {
		return harp.Page[harp.MessageStatus]{}, err
	}
	return pageOf(f.notifications.messages, cursor, f.pageSize, func(m harp.MessageStatus) string { return m.ID })
}
