package harptest

import (
	"context"

	"github.com/harpcaller/harp"
)

// PutNotification implements harp.NotificationService.
func (f fakeService) PutNotification(context.Context, string, harp.Notification) error {
	return errFake
}

// DeleteNotification implements harp.NotificationService.
func (f fakeService) DeleteNotification(context.Context, string, string) error { return errFake }

// ListNotifications implements harp.NotificationService.
func (f fakeService) ListNotifications(context.Context, string, string) (harp.Page[harp.NotificationStatus], error) {
	return harp.Page[harp.NotificationStatus]{}, errFake
}

// ChangeNotification implements harp.NotificationService.
func (f fakeService) ChangeNotification(context.Context, string, string, harp.NotificationChange) (harp.NotificationChanged, error) {
	return harp.NotificationChanged{}, errFake
}

// ListMessages implements harp.NotificationService.
func (f fakeService) ListMessages(context.Context, string, string) (harp.Page[harp.MessageStatus], error) {
	return harp.Page[harp.MessageStatus]{}, errFake
}
