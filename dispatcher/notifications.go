package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// Notifications are documents of the store: what somebody has put, where the notification is in the feed, and one for each message that
// was not taken yet. The commit that moves the place in the feed writes the messages about what it passes, so that nothing is lost or made
// twice whatever dies in between. Of messages only what is needed to try them is in memory.
const (
	notificationKind = "notification"
	notifiedKind     = "notified" // where it is
)

// The kinds of the documents that a notification has many of. Each notification has kinds of its own, so that its documents can be listed.
func messageKind(name string) string { return "message of " + name }
func awayKind(name string) string    { return "away of " + name }

// notifications are those there are. Each has a goroutine.
type notifications struct {
	changing sync.Mutex // one change of them at a time; is taken before those of windows and groups
	feed     notifiedFeed
	some     chan struct{} // there is one
	tests    chan struct{} // a slot for each that is under way

	mu     sync.RWMutex // guards what follows
	byName map[string]*notifier
}

func newNotifications() *notifications {
	return &notifications{byName: map[string]*notifier{}, some: make(chan struct{}, 1), tests: make(chan struct{}, maxTests)}
}

// notificationDocument is what is stored of a notification.
type notificationDocument struct {
	Notification harp.Notification `msgpack:"notification"`
	By           harp.Principal    `msgpack:"by"`
	Changed      time.Time         `msgpack:"changed"`

	ManagedBy string `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
	Deleted   bool   `msgpack:"deleted,omitempty"` // its messages are being deleted, and then it is
}

// notifiedDocument is where a notification is.
type notifiedDocument struct {
	Cursor string                  `msgpack:"cursor"` // of the last event that was looked at
	No     uint64                  `msgpack:"no"`     // its number
	Pause  *harp.NotificationPause `msgpack:"pause,omitempty"`
	Behind bool                    `msgpack:"behind,omitempty"`
	Sent   uint64                  `msgpack:"sent,omitempty"`
	Digest *gathering              `msgpack:"digest,omitempty"` // that grows
	// How many documents there are of messages and of hosts that are away: where fewer can be read, some are damaged.
	Messages int `msgpack:"messages,omitempty"`
	Away     int `msgpack:"away,omitempty"`
}

// awayDocument is a host that is away.
type awayDocument struct {
	Event harp.Event `msgpack:"event"`
	Due   time.Time  `msgpack:"due"`            // when it is told of
	Told  bool       `msgpack:"told,omitempty"` // it was
}

// load reads the notifications that are stored.
func (d *Dispatcher) loadNotifications(ctx context.Context) error {
	for _, kind := range []string{notificationKind, notifiedKind} {
		for cursor := ""; ; {
			page, next, err := d.store.ListDocuments(ctx, kind, cursor, 100)
			if err != nil {
				return fmt.Errorf("stored notifications: %w", err)
			}
			for _, doc := range page {
				if kind == notificationKind {
					err = d.loadNotification(ctx, doc)
				} else if _, err = d.notifications.find(doc.Name); err != nil {
					err = d.loadDamaged(ctx, doc.Name)
				}
				if err != nil {
					return fmt.Errorf("stored notification %s: %w", doc.Name, err)
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return nil
}

// loadNotification reads a notification that is stored.
func (d *Dispatcher) loadNotification(ctx context.Context, stored store.Document) error {
	var doc notificationDocument
	err := wire.Decode(stored.Content, &doc)
	if err == nil && doc.Notification.Name != stored.Name {
		err = fmt.Errorf("what is stored of it is of notification %q", doc.Notification.Name)
	}
	if err != nil {
		d.log.Error("notification cannot be read", "notification", stored.Name, "err", err)
		return d.loadDamaged(ctx, stored.Name)
	}
	n := d.newNotifier(doc)
	if err := n.load(ctx); err != nil {
		return err
	}
	d.notifications.set(n)
	return nil
}

// errDamagedNotification is why a notification tells nobody.
var errDamagedNotification = errors.New("what was put cannot be read: put it anew, and it goes on where it was")

// loadDamaged reads where a notification is, of which what was put cannot be read.
func (d *Dispatcher) loadDamaged(ctx context.Context, name string) error {
	n := d.newNotifier(notificationDocument{Notification: harp.Notification{Name: name}})
	n.broken = errDamagedNotification
	if err := n.load(ctx); err != nil {
		return err
	}
	d.notifications.set(n)
	return nil
}

// startNotifications starts the goroutines of the notifications that were loaded.
func (d *Dispatcher) startNotifications() {
	for _, n := range d.notifications.all() {
		n.start()
	}
	d.loops.Go(d.notifyLoop)
}

// find returns a notification. Errors: harp.ErrNotFound.
func (ns *notifications) find(name string) (*notifier, error) {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	if n := ns.byName[name]; n != nil {
		return n, nil
	}
	return nil, failures.NotFound("notification", name)
}

// findPresent is find without those that are being deleted.
func (ns *notifications) findPresent(name string) (*notifier, error) {
	n, err := ns.find(name)
	if err == nil && n.isDeleted() {
		err = failures.NotFound("notification", name)
	}
	return n, err
}

// all returns the notifications by name, those too that are being deleted.
func (ns *notifications) all() []*notifier {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	list := make([]*notifier, 0, len(ns.byName))
	for _, name := range slices.Sorted(maps.Keys(ns.byName)) {
		list = append(list, ns.byName[name])
	}
	return list
}

func (ns *notifications) set(n *notifier) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.byName[n.name] = n
	signal(ns.some)
}

func (ns *notifications) remove(n *notifier) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	delete(ns.byName, n.name)
}

// page returns up to n notifications by name, from the one after the cursor; of a name only that one.
func (ns *notifications) page(name, cursor string, most int) (page []*notifier, next string) {
	for _, n := range ns.all() {
		switch {
		case name != "" && n.name != name, n.name <= cursor, n.isDeleted():
			continue
		case len(page) == most:
			return page, page[most-1].name
		}
		page = append(page, n)
	}
	return page, ""
}

// managedBy are the notifications that somebody manages, by name.
func (ns *notifications) managedBy(who string) (names []string) {
	for _, n := range ns.all() {
		if doc := n.document(); !doc.Deleted && doc.ManagedBy == who {
			names = append(names, n.name)
		}
	}
	return names
}

// userOf returns the first notification by name whose target names one of some groups, and which; "" if none does. Those of some names
// are not looked at.
func (ns *notifications) userOf(groups, but map[string]bool) (used, user string) {
	if len(groups) == 0 {
		return "", ""
	}
	for _, n := range ns.all() {
		doc := n.document()
		if doc.Deleted || but[n.name] || doc.Notification.Target == "" {
			continue
		}
		if used := usedGroup(doc.Notification.Target, groups); used != "" {
			return used, n.name
		}
	}
	return "", ""
}

// awaitGone waits until notifications of some names that are being deleted are gone. Errors: context.Cause.
func (ns *notifications) awaitGone(ctx context.Context, names ...string) error {
	for _, name := range names {
		n, err := ns.find(name)
		if err != nil || !n.isDeleted() {
			continue
		}
		select {
		case <-n.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// lockGone locks changing when no notification of some names is being deleted: what was put in the place of one would be deleted with
// it, or never be sent. Errors: context.Cause; changing is not locked then.
func (ns *notifications) lockGone(ctx context.Context, names ...string) error {
	for {
		if err := ns.awaitGone(ctx, names...); err != nil {
			return err
		}
		ns.changing.Lock()
		if !slices.ContainsFunc(names, func(name string) bool { n, err := ns.find(name); return err == nil && n.isDeleted() }) {
			return nil
		}
		ns.changing.Unlock() // it was deleted meanwhile
	}
}

// problem is which notifications tell nobody; nil: none.
func (ns *notifications) problem() error {
	var words []string
	count := 0
	for _, n := range ns.all() {
		why := n.problem()
		if why == "" {
			continue
		}
		if count++; count <= 3 {
			words = append(words, n.name+": "+why)
		}
	}
	switch {
	case count == 0:
		return nil
	case count > len(words):
		words = append(words, fmt.Sprintf("and %d more", count-len(words)))
	}
	return errors.New(strings.Join(words, "; "))
}

// notifyPause is how long events are gathered before notifications look at them.
const notifyPause = 100 * time.Millisecond

// notifyLoop has notifications look at what happens.
func (d *Dispatcher) notifyLoop() {
	for {
		select { // without notifications nobody waits for events
		case <-d.notifications.some:
		case <-d.ctx.Done():
			return
		}
		for len(d.notifications.all()) > 0 {
			changed := d.store.Changed() // before they look: none misses what follows
			for _, n := range d.notifications.all() {
				signal(n.happened)
			}
			select {
			case <-changed:
			case <-d.ctx.Done():
				return
			}
			select {
			case <-time.After(notifyPause):
			case <-d.ctx.Done():
				return
			}
		}
	}
}

// notifiedFeed is the part of the feed that was read last: notifications that are up to date all read the same.
type notifiedFeed struct {
	mu    sync.Mutex // guards what follows, and reading: what is behind reads one page at a time
	after string
	page  harp.EventPage
}

// read returns events after a cursor. Nobody may change them. Errors: those of store.Events.
func (f *notifiedFeed) read(ctx context.Context, st store.Store, after string) (harp.EventPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after == after && len(f.page.Events) > 0 {
		return f.page, nil
	}
	page, err := st.Events(ctx, harp.EventFilter{After: after}, pageBytes)
	if err == nil && len(page.Events) > 0 {
		f.after, f.page = after, page
	}
	return page, err
}
