package wire

import "github.com/harpcaller/harp"

// NotificationsQuery asks for notifications; with a Name for that one, or for its messages that were not taken.
type NotificationsQuery struct {
	Page
	Name     string `msgpack:"name,omitempty"`
	Messages bool   `msgpack:"messages,omitempty"`
}

// Notifications answers NotificationsQuery.
type Notifications struct {
	Notifications Rows   `msgpack:"notifications,omitempty"` // of harp.NotificationStatus
	Messages      Rows   `msgpack:"messages,omitempty"`      // of harp.MessageStatus
	Cursor        string `msgpack:"cursor,omitempty"`
}

// PutNotification makes a notification or replaces the one of its name.
type PutNotification struct {
	Request      string            `msgpack:"id"` // the same when it is asked again
	Notification harp.Notification `msgpack:"notification"`
}

// NotificationRef names a notification: the body of DeleteNotification.
type NotificationRef struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}

// ChangeNotification is what an operator does to a notification. harp.NotificationChanged answers it.
type ChangeNotification struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
	harp.NotificationChange
}
