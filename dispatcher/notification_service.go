package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
)

func notFoundMessage(id string) error { return failures.NotFound("message", id) }

// PutNotification implements harp.NotificationService.
func (s *service) PutNotification(ctx context.Context, id string, one harp.Notification) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		if err := one.Check(); err != nil {
			return none, err
		}
		op, err := s.puttingOperation(id, wire.TypePutNotification, wire.PutNotification{Notification: one})
		if err != nil {
			return none, err
		}
		if err := s.d.notifications.lockGone(ctx, one.Name); err != nil {
			return none, err
		}
		defer s.d.notifications.changing.Unlock()
		return none, s.d.putNotification(ctx, op, one)
	})
	return err
}

// putNotification stores a notification that is within its limits, once. The caller holds changing.
func (d *Dispatcher) putNotification(ctx context.Context, op store.Operation, one harp.Notification) error {
	d.groups.changing.Lock() // its target may use some
	defer d.groups.changing.Unlock()
	if _, done, err := d.changedBefore(ctx, op, "notification", one.Name); done || err != nil {
		return err
	}
	if old, err := d.notifications.find(one.Name); err == nil {
		if by := old.document().ManagedBy; by != "" {
			return d.rememberRefusal(ctx, op, errManaged(harp.NotificationDocument, one.Name, by))
		}
	}
	if err := d.notifications.checkRoom(one.Name, op.By, 0); err != nil {
		return err
	}
	if err := d.checkNotification(&one, target.NewGroups(d.groups.texts())); err != nil {
		return err
	}
	put, err := d.planNotification(ctx, notificationDocument{Notification: one, By: op.By, Changed: op.Time.UTC()})
	if err != nil {
		return err
	}
	told := harp.Event{Type: harp.EventNotificationChanged, Time: op.Time, Notification: one.Name, By: op.By}
	if _, err := d.store.ChangeDocuments(ctx, store.DocumentChanges{Changes: put.changes, Op: op, Events: []harp.Event{told}}); err != nil {
		return err
	}
	put.done()
	return nil
}

// checkNotification refuses a notification that could tell nobody, with groups as they will be. Errors: harp.ErrInvalid (target, to).
func (d *Dispatcher) checkNotification(one *harp.Notification, groups *target.Groups) error {
	for _, what := range one.On {
		if err := harp.CheckEventType("on", what); err != nil {
			return err
		}
	}
	if one.Target != "" {
		if _, err := compileTarget(one.Target, groups); err != nil {
			return err
		}
	}
	sender := d.senderFor(one.To)
	if sender == nil {
		return &harp.FieldError{Field: "to", Message: errNoSender.Error()}
	}
	return sender.Check(one.To)
}

// count is how many there are.
func (ns *notifications) count() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return len(ns.byName)
}

// checkRoom refuses a notification beyond what there may be, when so many others are to be made by the same principal, too. Errors: harp.ErrRefused.
func (ns *notifications) checkRoom(name string, who harp.Principal, others int) error {
	all := ns.all() // whoever deletes one holds that, and removes it from these
	isThere := false
	has, more := documentRoom{count: 1 + others}, documentRoom{count: 1}
	for _, n := range all {
		isIt := n.name == name
		isThere = isThere || isIt
		switch {
		case n.document().By != who:
		case isIt:
			more.count = 0
		default:
			has.count++
		}
	}
	if !isThere && len(all)+others >= maxNotifications {
		return failures.New("refused", fmt.Sprintf("there are %d notifications, at most %d", len(all)+others, maxNotifications)).Err()
	}
	return checkHalf(who, "notifications", has, more, documentRoom{count: maxNotifications})
}

// plannedNotification is what has to be stored for a notification, and what is to be done once it is.
type plannedNotification struct {
	changes []store.DocumentChange
	done    func()
}

// planNotification plans that a notification is put, or, if the document says so, deleted. The caller holds changing until it is stored.
// Errors: the store's.
func (d *Dispatcher) planNotification(ctx context.Context, doc notificationDocument) (put plannedNotification, err error) {
	name := doc.Notification.Name
	content := wire.Encode(doc)
	if doc.Notification = (harp.Notification{}); wire.Decode(content, &doc) != nil { // what was given is its caller's
		return put, &harp.FieldError{Field: "notification", Message: "cannot be stored"}
	}
	old, err := d.storedDocument(ctx, notificationKind, name)
	if err != nil {
		return put, err
	}
	put.changes = []store.DocumentChange{{Kind: notificationKind, Name: name, Old: old, New: content}}
	if n, err := d.notifications.find(name); err == nil {
		put.done = func() { n.replace(doc) }
		return put, nil
	}
	page, err := d.store.Events(ctx, harp.EventFilter{}, 1)
	if err != nil {
		return put, err
	}
	if old, err = d.storedDocument(ctx, notifiedKind, name); err != nil {
		return put, err
	}
	n := d.newNotifier(doc)
	n.state = notifiedDocument{Cursor: page.Cursor, No: d.store.EventNumber(page.Cursor)}
	n.stored, n.storedNo = wire.Encode(n.state), n.state.No
	put.changes = append(put.changes, store.DocumentChange{Kind: notifiedKind, Name: name, Old: old, New: n.stored})
	put.done = n.start
	return put, nil
}

// replace makes a notification another, or one that is being deleted. Where it is in the feed is stored: what was looked at before is not
// looked at again after a restart, by what is put now.
func (n *notifier) replace(doc notificationDocument) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !reflect.DeepEqual(n.doc.Notification.To, doc.Notification.To) {
		for _, m := range n.messages {
			if m.outcome != nil && !m.outcome.taken && !m.outcome.lost { // what the old receiver says counts no more
				m.busy, m.outcome = false, nil
			}
		}
	}
	n.digestAt = earlier(n.digestAt, time.Now().Add(doc.Notification.Digest))
	for _, a := range n.away {
		a.due = earlier(a.due, time.Now().Add(doc.Notification.For))
	}
	n.doc, n.broken = doc, nil
	if doc.Deleted {
		n.stop()
	} else if err := n.begin().commit(n.d.ctx, store.Operation{}, 0); err != nil { // the loop tries again
		n.d.repeated.Warn("notification "+n.name, "where a notification is cannot be stored", "notification", n.name, "err", err)
	}
	signal(n.kick)
}

// DeleteNotification implements harp.NotificationService.
func (s *service) DeleteNotification(ctx context.Context, id, name string) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		op, err := s.documentsOperation(id, wire.TypeDeleteNotification, wire.NotificationRef{Name: name})
		if err != nil {
			return none, err
		}
		return none, s.d.deleteNotification(ctx, op, name)
	})
	return err
}

// deleteNotification deletes a notification, once. Its messages go after it.
func (d *Dispatcher) deleteNotification(ctx context.Context, op store.Operation, name string) error {
	d.notifications.changing.Lock()
	defer d.notifications.changing.Unlock()
	if _, done, err := d.changedBefore(ctx, op, "notification", name); done || err != nil {
		return err
	}
	n, err := d.notifications.findPresent(name)
	if err != nil {
		return d.rememberRefusal(ctx, op, err)
	}
	doc := n.document()
	if doc.ManagedBy != "" {
		return d.rememberRefusal(ctx, op, errManaged(harp.NotificationDocument, name, doc.ManagedBy))
	}
	doc.Deleted = true
	planned, err := d.planNotification(ctx, doc)
	if err != nil {
		return err
	}
	told := harp.Event{Type: harp.EventNotificationDeleted, Time: op.Time, Notification: name, By: op.By}
	if _, err := d.store.ChangeDocuments(ctx, store.DocumentChanges{Changes: planned.changes, Op: op, Events: []harp.Event{told}}); err != nil {
		return err
	}
	planned.done()
	return nil
}

// ListNotifications implements harp.NotificationService.
func (s *service) ListNotifications(ctx context.Context, name, cursor string) (harp.Page[harp.NotificationStatus], error) {
	type page = harp.Page[harp.NotificationStatus]
	return request(s, ctx, func(context.Context) (page, error) {
		items, next := s.d.notifications.page(name, cursor, pageSize)
		out := page{Cursor: next}
		for _, n := range items {
			out.Items = append(out.Items, n.status())
		}
		return out, nil
	})
}

// ChangeNotification implements harp.NotificationService.
func (s *service) ChangeNotification(ctx context.Context, id, name string, c harp.NotificationChange) (harp.NotificationChanged, error) {
	return request(s, ctx, func(ctx context.Context) (harp.NotificationChanged, error) {
		if err := c.Check(); err != nil {
			return harp.NotificationChanged{}, err
		}
		op, err := s.documentsOperation(id, wire.TypeChangeNotification, wire.ChangeNotification{Name: name, NotificationChange: c})
		if err != nil {
			return harp.NotificationChanged{}, err
		}
		if c.Kind == harp.TestOfNotification {
			return s.d.testNotification(ctx, id, name)
		}
		endTurn, err := s.awaitChange(ctx)
		if err != nil {
			return harp.NotificationChanged{}, err
		}
		defer endTurn()
		s.d.notifications.changing.Lock()
		defer s.d.notifications.changing.Unlock()
		if count, done, err := s.d.changedBefore(ctx, op, "notification", name); done || err != nil {
			return harp.NotificationChanged{Count: count}, err
		}
		n, err := s.d.notifications.findPresent(name)
		switch {
		case err != nil:
			return harp.NotificationChanged{}, s.d.rememberRefusal(ctx, op, err)
		case c.Kind == harp.RetryOfNotification:
			count, err := n.retry(ctx, op, c.Message)
			return harp.NotificationChanged{Count: count}, err
		}
		return harp.NotificationChanged{}, n.setPause(ctx, op, c)
	})
}

// setPause pauses a notification, or ends its pause, once.
func (n *notifier) setPause(ctx context.Context, op store.Operation, c harp.NotificationChange) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.begin()
	switch {
	case c.Kind == harp.PauseOfNotification:
		s.state.Pause = &harp.NotificationPause{By: op.By, Reason: c.Reason, Since: op.Time.UTC()}
		s.addEvent(harp.EventNotificationPaused, c.Reason, op.By)
	case s.state.Pause != nil:
		s.state.Pause = nil
		s.addEvent(harp.EventNotificationUnpaused, "", op.By)
	}
	err := s.commit(ctx, op, 0)
	signal(n.kick)
	return err
}

// testNotification sends one message that tells of nothing. Who asks again under the same id may have it sent again, with the same id.
func (d *Dispatcher) testNotification(ctx context.Context, id, name string) (harp.NotificationChanged, error) {
	n, err := d.notifications.findPresent(name)
	if err != nil {
		return harp.NotificationChanged{}, err
	}
	doc := n.document()
	sender := d.senderFor(doc.Notification.To)
	switch {
	case n.problem() == errDamagedNotification.Error():
		return harp.NotificationChanged{Answer: errDamagedNotification.Error()}, nil
	case sender == nil:
		return harp.NotificationChanged{Answer: errNoSender.Error()}, nil
	}
	select {
	case d.notifications.tests <- struct{}{}:
		defer func() { <-d.notifications.tests }()
	case <-ctx.Done():
		return harp.NotificationChanged{}, context.Cause(ctx)
	}
	ctx, cancel := d.until(ctx)
	defer cancel()
	out := d.sendOnce(ctx, sender, doc.Notification.To, testMessage(&doc.Notification, d.now()).message("msg_test_"+id))
	if ctx.Err() != nil && !out.taken {
		return harp.NotificationChanged{}, context.Cause(ctx)
	}
	done := harp.NotificationChanged{Taken: out.taken}
	if out.err != nil {
		done.Answer = out.err.Answer
	}
	return done, nil
}

// ListMessages implements harp.NotificationService.
func (s *service) ListMessages(ctx context.Context, name, cursor string) (harp.Page[harp.MessageStatus], error) {
	type page = harp.Page[harp.MessageStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		n, err := s.d.notifications.findPresent(name)
		if err != nil {
			return page{}, err
		}
		return n.page(ctx, cursor)
	})
}

// page returns messages in the order of their events, from the one after the cursor, which is an id.
func (n *notifier) page(ctx context.Context, cursor string) (out harp.Page[harp.MessageStatus], err error) {
	n.mu.Lock()
	ids := make(map[uint64]string, len(n.messages))
	for no, m := range n.messages {
		ids[no] = n.messageID(m)
	}
	n.mu.Unlock()
	for _, no := range slices.Sorted(maps.Keys(ids)) {
		id := ids[no]
		if id <= cursor {
			continue
		}
		if len(out.Items) == pageSize {
			out.Cursor = out.Items[pageSize-1].ID
			return out, nil
		}
		content, err := n.d.storedDocument(ctx, messageKind(n.name), messageName(no))
		if err != nil {
			return out, err
		}
		doc, err := decodeMessage(content)
		if content == nil || err != nil {
			continue // it was taken meanwhile, or the next try will tell
		}
		m := harp.MessageStatus{
			Notification: n.name, ID: id, Type: doc.Type, Time: doc.Time, Subject: doc.Subject, Tries: doc.Tries, Tried: doc.Tried,
			Answer: doc.Answer, GivenUp: doc.GivenUp,
		}
		if !doc.GivenUp {
			m.Due = doc.Due
		}
		out.Items = append(out.Items, m)
	}
	return out, nil
}

// pruneNotifications deletes messages that were given up and are older than what is kept.
func (d *Dispatcher) pruneNotifications(ctx context.Context, before time.Time) {
	if before.IsZero() {
		return
	}
	for _, n := range d.notifications.all() {
		if err := n.prune(ctx, before); err != nil && d.ctx.Err() == nil {
			d.log.Error("messages that were given up cannot be deleted", "notification", n.name, "err", err)
		}
	}
}
