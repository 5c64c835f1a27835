package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
)

// notificationNames are the notifications of documents.
func (a *application) notificationNames() (names []string) {
	for _, doc := range a.documents {
		if doc.Notification != nil {
			names = append(names, doc.Notification.Name)
		}
	}
	return names
}

// changedNotifications are those of which a document is changed or deleted: what they use was looked at, or is not used any more.
func (a *application) changedNotifications() map[string]bool {
	changed := map[string]bool{}
	for _, c := range a.changes {
		if c.Kind == harp.NotificationDocument {
			changed[c.Name] = true
		}
	}
	return changed
}

// planNotifications plans what becomes of notifications.
func (a *application) planNotifications(ctx context.Context) error {
	if a.options.Prune {
		for _, name := range a.d.notifications.managedBy(a.managedBy) {
			if a.has(harp.NotificationDocument, name) {
				continue
			}
			n, err := a.d.notifications.find(name)
			if err != nil {
				return err
			}
			a.noteDeleted(harp.NotificationDocument, name)
			doc := n.document()
			doc.Deleted = true
			if err := a.storeNotification(ctx, doc, harp.EventNotificationDeleted); err != nil {
				return err
			}
		}
	}
	for i, doc := range a.documents {
		if doc.Notification == nil {
			continue
		}
		if err := a.planNotification(ctx, doc); err != nil {
			return harp.InDocument(i, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// planNotification plans what becomes of the notification of a document.
func (a *application) planNotification(ctx context.Context, doc harp.Document) error {
	is := *doc.Notification
	var old notificationDocument
	n, err := a.d.notifications.find(is.Name)
	isThere := err == nil
	var fields []harp.FieldChange
	if isThere {
		old = n.document()
		if fields, err = fieldChanges(old.Notification, is, old.Notification, is); err != nil {
			return err
		}
		if err := n.damage(); err != nil {
			fields = append(fields, harp.FieldChange{Field: "error", Old: jsonText(err.Error())})
		}
	}
	if changes, err := a.note(doc, isThere, old.ManagedBy, fields); err != nil || !changes {
		return err
	}
	if err := a.d.notifications.checkRoom(is.Name, a.who, a.newNotifications); err != nil {
		return err
	}
	if !isThere {
		a.newNotifications++
	}
	if err := a.d.checkNotification(&is, a.targets); err != nil {
		return err
	}
	put := notificationDocument{Notification: is, By: a.who, Changed: a.d.now().UTC(), ManagedBy: a.managedBy}
	return a.storeNotification(ctx, put, harp.EventNotificationChanged)
}

// storeNotification plans that a notification is stored, and an event of it.
func (a *application) storeNotification(ctx context.Context, doc notificationDocument, told harp.EventType) error {
	planned, err := a.d.planNotification(ctx, doc)
	if err != nil {
		return err
	}
	a.stored.Changes = append(a.stored.Changes, planned.changes...)
	a.stored.Events = append(a.stored.Events, harp.Event{Type: told, Time: a.d.now(), Notification: doc.Notification.Name, By: a.who})
	a.committed = append(a.committed, planned.done)
	return nil
}

// damage is why what was put cannot be used; nil: it can.
func (n *notifier) damage() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.broken
}
