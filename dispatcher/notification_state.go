package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
)

const commitBytes = 1 << 20 // of a commit, about

// notifier is a notification at work. Its goroutine is its loop, beside those that send.
type notifier struct {
	d        *Dispatcher
	name     string
	happened chan struct{} // there are events
	kick     chan struct{} // something else is to be done
	gone     chan struct{} // is closed when it and its messages are deleted
	sends    context.Context
	stop     context.CancelFunc // of what is being sent

	mu       sync.Mutex // guards what follows; is held over commits
	doc      notificationDocument
	broken   error // why what was put cannot be used; nil: it can
	state    notifiedDocument
	stored   []byte // state as it is stored; nil: it is not
	storedNo uint64
	since    time.Time // since when the state is another than the stored one; zero: it is not
	gap      string    // what is to be told as lost, with the next commit; "": nothing

	messages  map[uint64]*queued
	away      map[string]*awayHost
	digestAt  time.Time // when the digest is due
	sending   int
	fullSince time.Time // since when as many messages wait as may; zero: fewer do, and all was looked at
	answer    string    // of the last try; "": it was taken
	tried     time.Time // when that was, by the wall clock
}

// queued is what is in memory of a message.
type queued struct {
	no      uint64
	store   string // in which it was made
	size    int
	due     time.Time // on the clock that is never set
	tries   int
	givenUp bool
	at      time.Time // its event's
	busy    bool      // it is being sent, or what came of it is to be stored
	outcome *outcome  // of the last try, until it is stored
}

// awayHost is what is in memory of a host that is away.
type awayHost struct {
	due  time.Time // on the clock that is never set
	told bool
}

// messageID is the id of a message.
func (n *notifier) messageID(m *queued) string { return messageID(m.store, n.name, m.no) }

// messageName is the name of the document of a message.
func messageName(no uint64) string { return fmt.Sprintf("%016x", no) }

func (d *Dispatcher) newNotifier(doc notificationDocument) *notifier {
	return &notifier{
		d: d, name: doc.Notification.Name, doc: doc, happened: make(chan struct{}, 1), kick: make(chan struct{}, 1), gone: make(chan struct{}),
		messages: map[uint64]*queued{}, away: map[string]*awayHost{},
	}
}

// start starts the goroutine of a notification.
func (n *notifier) start() {
	n.sends, n.stop = context.WithCancel(n.d.ctx)
	n.d.notifications.set(n)
	if !n.d.spawn(n.loop) {
		n.stop()
	}
}

// document is what is stored of the notification.
func (n *notifier) document() notificationDocument {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doc
}

func (n *notifier) isDeleted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doc.Deleted
}

// remaining is how long something lasts that is due at a time of the wall clock and lasts at most so long: the clock may have been set
// while nobody looked.
func (d *Dispatcher) remaining(due time.Time, most time.Duration) time.Time {
	return time.Now().Add(max(0, min(due.Sub(d.now()), most)))
}

// remaining is how long something that began at a time lasts that is due at another: no longer than what was put since says.
func (n *notifier) remaining(begun, due time.Time, most time.Duration) time.Time {
	if put := n.doc.Changed; put.After(begun) {
		due = earlier(due, put.Add(most))
	}
	return n.d.remaining(due, most)
}

// load reads where the notification is and what messages it has. What cannot be read is told with the next commit.
func (n *notifier) load(ctx context.Context) error {
	content, err := n.d.store.Document(ctx, notifiedKind, n.name)
	if err == nil {
		n.stored = content
		err = wire.Decode(content, &n.state)
		n.storedNo = n.state.No
	} else if errors.Is(err, store.ErrDamaged) || errors.Is(err, harp.ErrNotFound) {
		n.stored = nil
	} else {
		return err
	}
	if err != nil || n.state.Cursor == "" {
		page, feedErr := n.d.store.Events(ctx, harp.EventFilter{}, 1)
		if feedErr != nil {
			return feedErr
		}
		n.state = notifiedDocument{Cursor: page.Cursor, No: n.d.store.EventNumber(page.Cursor), Messages: -1, Away: -1}
		n.lose("where it was in the feed cannot be read: it goes on with what happens now")
		n.d.log.Error("where a notification was cannot be read: it goes on with what happens now", "notification", n.name, "err", err)
	}
	if err := n.loadMessages(ctx); err != nil {
		return err
	}
	if err := n.loadAway(ctx); err != nil {
		return err
	}
	if g := n.state.Digest; g != nil {
		n.digestAt = n.remaining(g.Begun, g.Due, n.doc.Notification.Digest)
	}
	return nil
}

// lose notes what is to be told as lost.
func (n *notifier) lose(what string) {
	if strings.Contains(n.gap, what) {
		return // it could not be stored
	}
	if n.gap != "" {
		what = n.gap + "; " + what
	}
	n.gap = what
	n.touch()
}

// touch notes that the state is another than the stored one.
func (n *notifier) touch() {
	if n.since.IsZero() {
		n.since = time.Now()
	}
}

func (n *notifier) loadMessages(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := n.d.store.ListDocuments(ctx, messageKind(n.name), cursor, 1000)
		if err != nil {
			return err
		}
		for _, doc := range page {
			var no uint64
			m, err := decodeMessage(doc.Content)
			if _, also := fmt.Sscanf(doc.Name, "%x", &no); err != nil || also != nil {
				n.d.log.Error("a message cannot be read", "notification", n.name, "message", doc.Name, "err", errors.Join(err, also))
				continue
			}
			n.messages[no] = &queued{
				no: no, store: cmp.Or(m.Store, n.d.store.ID()), size: len(doc.Content), due: n.d.remaining(m.Due, m.waits()), tries: m.Tries, givenUp: m.GivenUp, at: m.Time,
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if lost := n.state.Messages - len(n.messages); n.state.Messages >= 0 && lost > 0 {
		n.lose(fmt.Sprintf("%d messages cannot be read", lost))
	}
	n.state.Messages = len(n.messages)
	return nil
}

func (n *notifier) loadAway(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := n.d.store.ListDocuments(ctx, awayKind(n.name), cursor, 1000)
		if err != nil {
			return err
		}
		for _, doc := range page {
			var a awayDocument
			if err := wire.Decode(doc.Content, &a); err != nil {
				n.d.log.Error("what is known of a host that is away cannot be read", "notification", n.name, "host", doc.Name, "err", err)
				continue
			}
			due := n.remaining(a.Event.Time, a.Due, n.doc.Notification.For)
			if back := time.Now().Add(returningTime); due.Before(back) { // it may have come back while nobody looked
				due = back
			}
			n.away[doc.Name] = &awayHost{due: due, told: a.Told}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if lost := n.state.Away - len(n.away); n.state.Away >= 0 && lost > 0 {
		n.lose(fmt.Sprintf("of %d hosts that are away nothing can be read", lost))
	}
	n.state.Away = len(n.away)
	return nil
}

// count counts the messages that wait, their bytes, and the messages that were given up. The caller holds mu.
func (n *notifier) count() (pending, size, givenUp int) {
	for _, m := range n.messages {
		if m.givenUp {
			givenUp++
		} else {
			pending, size = pending+1, size+m.size
		}
	}
	return pending, size, givenUp
}

// problem is why the notification does not tell what happens as it happens; "": it does.
func (n *notifier) problem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.doc.Deleted:
		return ""
	case n.broken != nil:
		return n.broken.Error()
	case n.sender() == nil:
		return errNoSender.Error()
	case n.state.Behind:
		return "is behind: messages wait for its receiver"
	}
	return ""
}

// sender sends to the receiver; nil: nobody does. The caller holds mu.
func (n *notifier) sender() notify.Sender { return n.d.senderFor(n.doc.Notification.To) }

// status is the notification as callers see it.
func (n *notifier) status() harp.NotificationStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := harp.NotificationStatus{
		Notification: n.doc.Notification, ManagedBy: n.doc.ManagedBy, By: n.doc.By, Changed: n.doc.Changed, Behind: n.state.Behind,
		Away: len(n.away), Sent: n.state.Sent, Answer: n.answer, Tried: n.tried, Err: n.broken,
	}
	out.Pending, _, out.GivenUp = n.count()
	if p := n.state.Pause; p != nil {
		out.Pause = new(*p)
	}
	if g := n.state.Digest; g != nil {
		out.Gathered = g.Count
	}
	if out.Err == nil && n.sender() == nil {
		out.Err = errNoSender
	}
	return out
}

// notifyStep is a change of a notification that is about to be stored in one commit.
type notifyStep struct {
	n       *notifier
	state   notifiedDocument // as it will be
	changes []store.DocumentChange
	events  []harp.Event
	size    int
	done    []func()             // what follows from it in memory
	away    map[string]*awayHost // hosts of which something changes; nil: they are back
	givenUp []*queued            // messages that are given up
	pending int                  // messages that will wait, and their bytes
	bytes   int
}

// begin returns a step that changes nothing yet. The caller holds mu until it is committed.
func (n *notifier) begin() *notifyStep {
	s := &notifyStep{n: n, state: n.state, away: map[string]*awayHost{}}
	s.state.Digest = n.state.Digest.clone()
	s.pending, s.bytes, _ = n.count()
	return s
}

// isFull reports whether no more messages may wait.
func (s *notifyStep) isFull() bool { return s.pending >= maxPending || s.bytes >= maxPendingBytes }

// addEvent notes an event about the notification.
func (s *notifyStep) addEvent(what harp.EventType, reason string, by harp.Principal) {
	s.events = append(s.events, harp.Event{Type: what, Time: s.n.d.now(), Notification: s.n.name, Reason: oneLine(reason, harp.MaxWhy), By: by})
	s.size += len(reason) + 512
}

// change notes a change of a document, which takes the place of one that was noted before.
func (s *notifyStep) change(kind, name string, old, content []byte) {
	if i := slices.IndexFunc(s.changes, func(c store.DocumentChange) bool { return c.Kind == kind && c.Name == name }); i >= 0 {
		if s.changes[i].New = content; content == nil && s.changes[i].Old == nil {
			s.changes = slices.Delete(s.changes, i, i+1)
		}
		return
	}
	s.changes = append(s.changes, store.DocumentChange{Kind: kind, Name: name, Old: old, New: content})
	s.size += len(content) + 512
}

// add makes a message about the event with a number, or a part of the digest.
func (s *notifyStep) add(no uint64, m *messageDocument) {
	n := s.n
	if wait := n.doc.Notification.Digest; wait > 0 {
		if s.state.Digest == nil {
			begun := n.d.now().UTC()
			s.state.Digest = &gathering{First: no, Begun: begun, Due: begun.Add(wait), Counts: map[string]int{}}
			at := time.Now().Add(wait)
			s.done = append(s.done, func() { n.digestAt = at })
		}
		s.state.Digest.add(m)
		return
	}
	s.put(no, m)
}

// put makes a message that is due now.
func (s *notifyStep) put(no uint64, m *messageDocument) {
	n := s.n
	m.Due, m.Store = n.d.now().UTC(), n.d.store.ID()
	content := wire.Encode(*m)
	s.change(messageKind(n.name), messageName(no), nil, content)
	s.state.Messages++
	s.pending, s.bytes = s.pending+1, s.bytes+len(content)
	q := &queued{no: no, store: m.Store, size: len(content), due: time.Now(), at: m.Time}
	s.done = append(s.done, func() { n.messages[no] = q })
}

// isEmpty reports whether nothing is to be stored but, perhaps, a place in the feed.
func (s *notifyStep) isEmpty() bool { return len(s.changes) == 0 && len(s.events) == 0 }

// awayOf is a host that is away; nil: it is not.
func (s *notifyStep) awayOf(host string) *awayHost {
	if a, changed := s.away[host]; changed {
		return a
	}
	return s.n.away[host]
}

// commit stores the step; of an operation it is the end, and count what came of it. Errors: the store's.
func (s *notifyStep) commit(ctx context.Context, op store.Operation, count int) error {
	n := s.n
	if n.gap != "" {
		s.addEvent(harp.EventNotificationGap, n.gap, harp.Principal{})
	}
	content := wire.Encode(s.state)
	changes := s.changes
	if !bytes.Equal(content, n.stored) {
		changes = append(slices.Clone(changes), store.DocumentChange{Kind: notifiedKind, Name: n.name, Old: n.stored, New: content})
	}
	if len(changes) > 0 || len(s.events) > 0 || op.ID != "" {
		if _, err := n.d.store.ChangeDocuments(ctx, store.DocumentChanges{Changes: changes, Events: s.events, Op: op, Count: count}); err != nil {
			return err
		}
	}
	n.state, n.stored, n.storedNo, n.since, n.gap = s.state, content, s.state.No, time.Time{}, ""
	for host, a := range s.away {
		if a == nil {
			delete(n.away, host)
		} else {
			n.away[host] = a
		}
	}
	for _, do := range s.done {
		do()
	}
	return nil
}
