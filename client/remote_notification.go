package client

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// PutNotification implements harp.NotificationService.
func (r *remote) PutNotification(ctx context.Context, id string, n harp.Notification) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypePutNotification, wire.PutNotification{Request: id, Notification: n}, false)
	return err
}

// DeleteNotification implements harp.NotificationService.
func (r *remote) DeleteNotification(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeDeleteNotification, wire.NotificationRef{Request: id, Name: name}, false)
	return err
}

// ListNotifications implements harp.NotificationService.
func (r *remote) ListNotifications(ctx context.Context, name, cursor string) (harp.Page[harp.NotificationStatus], error) {
	q := wire.NotificationsQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Notifications](ctx, r, wire.TypeNotifications, q, false)
	return pageAfter[harp.NotificationStatus](cursor, m.Notifications, m.Cursor, err)
}

// ChangeNotification implements harp.NotificationService.
func (r *remote) ChangeNotification(ctx context.Context, id, name string, c harp.NotificationChange) (harp.NotificationChanged, error) {
	m := wire.ChangeNotification{Request: id, Name: name, NotificationChange: c}
	return requestReply[harp.NotificationChanged](ctx, r, wire.TypeChangeNotification, m, false)
}

// ListMessages implements harp.NotificationService.
func (r *remote) ListMessages(ctx context.Context, name, cursor string) (harp.Page[harp.MessageStatus], error) {
	q := wire.NotificationsQuery{Name: name, Messages: true, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Notifications](ctx, r, wire.TypeNotifications, q, false)
	return pageAfter[harp.MessageStatus](cursor, m.Messages, m.Cursor, err)
}
