package main

import (
	"context"
	"slices"

	"github.com/harpcaller/harp"
)

// notificationFake is what a fake answers about notifications, and what it was told.
type notificationFake struct {
	all      []harp.NotificationStatus
	messages []harp.MessageStatus
	changed  harp.NotificationChanged
	err      error

	put     []harp.Notification
	deleted []string
	changes []harp.NotificationChange
}

func (f *fake) PutNotification(_ context.Context, _ string, n harp.Notification) error {
	f.notifications.put = append(f.notifications.put, n)
	return f.notifications.err
}

func (f *fake) DeleteNotification(_ context.Context, _, name string) error {
	f.notifications.deleted = append(f.notifications.deleted, name)
	return f.notifications.err
}

func (f *fake) ListNotifications(_ context.Context, name, _ string) (page harp.Page[harp.NotificationStatus], err error) {
	f.listed()
	page.Items = slices.DeleteFunc(slices.Clone(f.notifications.all), func(n harp.NotificationStatus) bool { return name != "" && n.Name != name })
	return page, f.notifications.err
}

func (f *fake) ChangeNotification(_ context.Context, _, _ string, c harp.NotificationChange) (harp.NotificationChanged, error) {
	f.notifications.changes = append(f.notifications.changes, c)
	return f.notifications.changed, f.notifications.err
}

func (f *fake) ListMessages(_ context.Context, name, _ string) (page harp.Page[harp.MessageStatus], err error) {
	for _, m := range f.notifications.messages {
		if m.Notification == name {
			page.Items = append(page.Items, m)
		}
	}
	return page, f.notifications.err
}
