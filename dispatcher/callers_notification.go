package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

func handleNotifications(ctx context.Context, s harp.Service, w wire.NotificationsQuery) (any, error) {
	if w.Messages {
		return answerMessages(ctx, s, w)
	}
	rows, cursor, err := listing[harp.NotificationStatus]{
		fetch: func(cursor string) (harp.Page[harp.NotificationStatus], error) {
			return s.ListNotifications(ctx, w.Name, cursor)
		},
		mark:   func(n harp.NotificationStatus) mark { return mark{Key: n.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Notifications{Notifications: rows, Cursor: cursor}, err
}

func handlePutNotification(ctx context.Context, s harp.Service, w wire.PutNotification) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Notification.Check(); err != nil {
		return nil, err
	}
	return wire.Done{}, s.PutNotification(ctx, w.Request, w.Notification)
}

func handleDeleteNotification(ctx context.Context, s harp.Service, w wire.NotificationRef) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.DeleteNotification(ctx, w.Request, w.Name)
}

func handleChangeNotification(ctx context.Context, s harp.Service, w wire.ChangeNotification) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	return s.ChangeNotification(ctx, w.Request, w.Name, w.NotificationChange)
}

func answerMessages(ctx context.Context, s harp.Service, w wire.NotificationsQuery) (any, error) {
	rows, cursor, err := listing[harp.MessageStatus]{
		fetch:  func(cursor string) (harp.Page[harp.MessageStatus], error) { return s.ListMessages(ctx, w.Name, cursor) },
		mark:   func(m harp.MessageStatus) mark { return mark{Key: m.ID} },
		before: byKey,
	}.page(w.Page)
	return wire.Notifications{Messages: rows, Cursor: cursor}, err
}
