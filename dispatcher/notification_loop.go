package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
)

const (
	notifyRetry = 10 * time.Second    // after a commit that could not be made
	placeEvery  = time.Minute         // the place in the feed is stored where nothing else is
	behindAfter = time.Minute         // that no more messages may wait
	placeEvents = 10_000              // or after so many events
	goOn        = maxPending * 9 / 10 // messages that may wait when a notification that is behind goes on
)

// loop looks at events, makes messages of them and has these sent, until the notification is deleted.
func (n *notifier) loop() {
	defer n.stop()
	timer := time.NewTimer(placeEvery)
	defer timer.Stop()
	for {
		wait, err := n.work(n.d.ctx)
		switch {
		case errors.Is(err, errGone):
			return
		case n.d.ctx.Err() != nil:
			return
		case err != nil:
			n.d.repeated.Warn("notification "+n.name, "notification cannot be worked on", "notification", n.name, "err", err)
			wait = notifyRetry
		}
		timer.Reset(wait)
		select {
		case <-n.d.ctx.Done():
			return
		case <-n.happened:
		case <-n.kick:
		case <-timer.C:
		}
	}
}

// errGone says that a notification is deleted with all that it had.
var errGone = errors.New("the notification is deleted")

// longestNotifyWait is how long a notification waits where nothing is due.
const longestNotifyWait = time.Hour

// work does what is due, and returns for how long nothing will be. Errors: errGone, the store's.
func (n *notifier) work(ctx context.Context) (wait time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.doc.Deleted {
		return 0, n.purge(ctx)
	}
	if err := n.storeOutcomes(ctx); err != nil {
		return 0, err
	}
	if n.broken == nil {
		seen, more, err := n.lookAtEvents(ctx)
		if err != nil {
			return 0, err
		}
		if more { // mu is not held meanwhile: others want to see the notification
			signal(n.happened)
		}
		if err := n.addDueMessages(ctx, seen); err != nil {
			return 0, err
		}
	}
	if n.gap != "" || !n.since.IsZero() && time.Since(n.since) >= placeEvery {
		if err := n.begin().commit(ctx, store.Operation{}, 0); err != nil {
			return 0, err
		}
	}
	n.send()
	return n.untilDue(), nil
}

// untilDue is how long nothing is due.
func (n *notifier) untilDue() time.Duration {
	next := time.Now().Add(longestNotifyWait)
	sooner := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	if !n.since.IsZero() {
		sooner(n.since.Add(placeEvery))
	}
	if !n.fullSince.IsZero() && !n.state.Behind {
		sooner(n.fullSince.Add(behindAfter))
	}
	if n.broken == nil {
		if n.state.Digest != nil {
			sooner(n.digestAt)
		}
		if n.fullSince.IsZero() { // else hosts wait until all that has happened can be looked at
			for _, a := range n.away {
				if !a.told {
					sooner(a.due)
				}
			}
		}
	}
	if n.maySend() {
		for _, m := range n.messages {
			if !m.givenUp && !m.busy {
				sooner(m.due)
			}
		}
	}
	return max(time.Until(next), 0)
}

// purge deletes all that a notification has, some at a time, and then the notification.
func (n *notifier) purge(ctx context.Context) error {
	for _, kind := range []string{messageKind(n.name), awayKind(n.name)} {
		for {
			page, _, err := n.d.store.ListDocuments(ctx, kind, "", 1000)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			var c store.DocumentChanges
			for _, doc := range page {
				c.Changes = append(c.Changes, store.DocumentChange{Kind: kind, Name: doc.Name, Old: doc.Content})
			}
			if _, err := n.d.store.ChangeDocuments(ctx, c); err != nil {
				return err
			}
		}
	}
	var c store.DocumentChanges
	for _, kind := range []string{notifiedKind, notificationKind} {
		old, err := n.d.storedDocument(ctx, kind, n.name)
		if err != nil {
			return err
		}
		c.Changes = append(c.Changes, store.DocumentChange{Kind: kind, Name: n.name, Old: old})
	}
	if _, err := n.d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	n.d.notifications.remove(n)
	close(n.gone)
	return errGone
}

// lookAtEvents makes messages of a page of what has happened, and reports until when all is looked at, zero if that is not known, and
// whether there may be more; not if too many messages wait.
func (n *notifier) lookAtEvents(ctx context.Context) (seen time.Time, more bool, err error) {
	look := &lookout{n: n}
	for {
		s, now := n.begin(), time.Now()
		if s.isFull() || !n.fullSince.IsZero() && s.pending > goOn {
			return time.Time{}, false, n.fallBehind(ctx, s)
		}
		page, err := n.d.notifications.feed.read(ctx, n.d.store, n.state.Cursor)
		if errors.Is(err, harp.ErrPruned) {
			if page, err = n.findPlace(ctx); err == nil && len(page.Events) == 0 {
				if err = n.restart(ctx); err == nil {
					continue
				}
			}
		}
		if err != nil {
			return time.Time{}, false, err
		}
		if len(page.Events) == 0 && page.Cursor == n.state.Cursor {
			return now, false, n.catchUp(ctx, s)
		}
		last, err := look.lookAtPage(ctx, s, page)
		if !last.IsZero() {
			seen = now.Add(-max(0, n.d.now().Sub(last)))
		}
		return seen, true, err
	}
}

// fallBehind notes once that the notification waits for its receiver. That it does so for a moment, since much happens at once, is not
// worth an event.
func (n *notifier) fallBehind(ctx context.Context, s *notifyStep) error {
	if n.fullSince.IsZero() {
		n.fullSince = time.Now()
	}
	if n.state.Behind || time.Since(n.fullSince) < behindAfter {
		return nil
	}
	s.state.Behind = true
	s.addEvent(harp.EventNotificationBehind, fmt.Sprintf("%d messages wait: what happens from now on is looked at when they were taken", s.pending), harp.Principal{})
	return s.commit(ctx, store.Operation{}, 0)
}

// catchUp notes that the notification has looked at all that has happened.
func (n *notifier) catchUp(ctx context.Context, s *notifyStep) error {
	n.fullSince = time.Time{}
	if !n.state.Behind {
		return nil
	}
	s.state.Behind = false
	s.addEvent(harp.EventNotificationCaughtUp, "", harp.Principal{})
	return s.commit(ctx, store.Operation{}, 0)
}

// findPlace returns the first events that are kept, of a feed in which the place of the notification is not known any more, and notes
// how many there were in between. Of a restored store that are those that the notification knows, perhaps: they are not told again.
func (n *notifier) findPlace(ctx context.Context) (harp.EventPage, error) {
	page, err := n.d.store.Events(ctx, harp.EventFilter{After: harp.EventsFromStart}, pageBytes)
	if err != nil || len(page.Events) == 0 {
		return page, err
	}
	if first := n.d.store.EventNumber(page.Events[0].Cursor); first > n.state.No+1 {
		n.lose(fmt.Sprintf("%d events were deleted for their age before they were looked at", first-n.state.No-1))
	}
	return page, nil
}

// restart goes on with what happens from now on, as nothing else is kept.
func (n *notifier) restart(ctx context.Context) error {
	page, err := n.d.store.Events(ctx, harp.EventFilter{}, 1)
	if err != nil {
		return err
	}
	if no := n.d.store.EventNumber(page.Cursor); no > n.state.No {
		n.lose(fmt.Sprintf("%d events were deleted for their age before they were looked at", no-n.state.No))
	}
	s := n.begin()
	s.state.Cursor, s.state.No = page.Cursor, n.d.store.EventNumber(page.Cursor)
	return s.commit(ctx, store.Operation{}, 0)
}

// lookout looks at events for a notification.
type lookout struct {
	n       *notifier
	matcher *target.Matcher
	failed  bool // the target cannot be used now
	more    bool // the target asks for more of a host than its name
}

// lookAtPage makes messages of events, until too many wait, and stores them. It returns when the last one happened that it looked at.
func (l *lookout) lookAtPage(ctx context.Context, s *notifyStep, page harp.EventPage) (last time.Time, err error) {
	n := l.n
	cursor := page.Cursor
	for i := range page.Events {
		e := &page.Events[i]
		last = e.Time
		no := n.d.store.EventNumber(e.Cursor)
		if no <= n.state.No {
			continue
		}
		if err := l.handleEvent(ctx, s, no, e); err != nil {
			return last, err
		}
		if s.isFull() || s.size >= commitBytes {
			cursor = e.Cursor
			break
		}
	}
	s.state.Cursor, s.state.No = cursor, max(s.state.No, n.d.store.EventNumber(cursor))
	if s.isEmpty() && sameDigest(s.state.Digest, n.state.Digest) && n.stored != nil && n.gap == "" && s.state.No-n.storedNo < placeEvents {
		n.state.Cursor, n.state.No = s.state.Cursor, s.state.No
		n.touch()
		return last, nil
	}
	return last, s.commit(ctx, store.Operation{}, 0)
}

func sameDigest(a, b *gathering) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Count == b.Count)
}

// handleEvent makes of an event what the notification makes of it.
func (l *lookout) handleEvent(ctx context.Context, s *notifyStep, no uint64, e *harp.Event) error {
	n := l.n
	if e.Type == harp.EventsMissing {
		s.addEvent(harp.EventNotificationGap, "events cannot be read: "+e.Reason, harp.Principal{})
	}
	isBack := false // and it was told that it was away
	if a := s.awayOf(e.Host); a != nil && (e.Type == harp.EventHostOnline || e.Type == harp.EventHostRemoved) {
		if err := l.handleBack(ctx, s, e); err != nil {
			return err
		}
		isBack = a.told && e.Type == harp.EventHostOnline
	}
	doc := &n.doc.Notification
	notes := n.d.notesOf(ctx, doc, e, func(host string) bool { return l.isTarget(ctx, host) })
	if !isBack && !selects(doc, e, notes) { // one that waited for hosts may have been replaced by one that tells of each
		return nil
	}
	if doc.For > 0 && e.Type == harp.EventHostAway {
		return l.handleAway(s, e)
	}
	s.add(no, newMessage(doc, e, notes))
	return nil
}

// handleAway begins to wait for the return of a host.
func (l *lookout) handleAway(s *notifyStep, e *harp.Event) error {
	n := l.n
	if s.awayOf(e.Host) != nil {
		return nil
	}
	doc := awayDocument{Event: *e, Due: n.d.now().Add(n.doc.Notification.For).UTC()}
	s.change(awayKind(n.name), e.Host, nil, wire.Encode(doc))
	s.state.Away++
	s.away[e.Host] = &awayHost{due: time.Now().Add(n.doc.Notification.For)}
	return nil
}

// handleBack ends the wait for a host.
func (l *lookout) handleBack(ctx context.Context, s *notifyStep, e *harp.Event) error {
	n := l.n
	old, err := n.d.storedDocument(ctx, awayKind(n.name), e.Host) // nil, too, of one that this step has made
	if err != nil {
		return err
	}
	s.change(awayKind(n.name), e.Host, old, nil)
	s.state.Away--
	s.away[e.Host] = nil
	return nil
}

// isTarget reports whether the target of the notification selects a host now. One that cannot be used selects all, and so does one that
// asks for more than the name of a host that is removed by now: rather too much is told than too little.
func (l *lookout) isTarget(ctx context.Context, name string) bool {
	n := l.n
	if l.matcher == nil && !l.failed {
		m, err := n.d.fleet.compileTarget(n.doc.Notification.Target)
		if err != nil {
			l.failed = true
			n.d.repeated.Warn("notification target "+n.name, "the target of a notification cannot be used: it tells of all hosts", "notification", n.name, "err", err)
		}
		l.matcher, l.more = m, asksMore(n.doc.Notification.Target)
	}
	if l.failed {
		return true
	}
	h := n.d.hosts.find(name)
	switch {
	case h != nil && h.known():
	case l.more:
		return true
	default:
		h = &host{name: name, offers: &catalogue{}}
	}
	selected, err := n.d.fleet.selectAmong(ctx, l.matcher, []*host{h})
	return err != nil || len(selected) > 0
}

// asksMore reports whether a target asks for more of a host than its name.
func asksMore(text string) bool {
	e, err := target.Parse(text)
	return err != nil || len(e.Groups()) > 0 || slices.ContainsFunc(e.Keys(), func(key string) bool { return key != "host.name" })
}

// addDueMessages makes messages of what was waited for: the digest, and hosts that were still away when they were due. One that was due
// after seen may be back by what was not looked at yet.
func (n *notifier) addDueMessages(ctx context.Context, seen time.Time) error {
	now := time.Now()
	if g := n.state.Digest; g != nil && !n.digestAt.After(now) {
		s := n.begin()
		s.state.Digest = nil
		s.put(g.First, g.message(&n.doc.Notification))
		if err := s.commit(ctx, store.Operation{}, 0); err != nil {
			return err
		}
	}
	look := &lookout{n: n}
	for {
		s := n.begin()
		for _, name := range slices.Sorted(maps.Keys(n.away)) {
			a := n.away[name]
			if a.told || a.due.After(seen) {
				continue
			}
			if s.isFull() || s.size >= commitBytes {
				break
			}
			if err := look.addAwayMessage(ctx, s, name); err != nil {
				return err
			}
		}
		if s.isEmpty() {
			return nil
		}
		if err := s.commit(ctx, store.Operation{}, 0); err != nil {
			return err
		}
	}
}

// addAwayMessage tells that a host is still away, unless the notification was put anew since, and does not ask for that any more.
func (l *lookout) addAwayMessage(ctx context.Context, s *notifyStep, name string) error {
	n := l.n
	old, err := n.d.storedDocument(ctx, awayKind(n.name), name)
	if err != nil {
		return err
	}
	var doc awayDocument
	if old == nil || wire.Decode(old, &doc) != nil {
		s.change(awayKind(n.name), name, old, nil)
		s.state.Away--
		s.addEvent(harp.EventNotificationGap, "what is known of host "+name+", which is away, cannot be read", harp.Principal{})
		s.away[name] = nil
		return nil
	}
	notes := n.d.notesOf(ctx, &n.doc.Notification, &doc.Event, func(host string) bool { return l.isTarget(ctx, host) })
	if n.doc.Changed.After(doc.Event.Time) && !selects(&n.doc.Notification, &doc.Event, notes) {
		s.change(awayKind(n.name), name, old, nil)
		s.state.Away--
		s.away[name] = nil
		return nil
	}
	doc.Told = true
	s.change(awayKind(n.name), name, old, wire.Encode(doc))
	s.away[name] = &awayHost{told: true}
	s.add(n.d.store.EventNumber(doc.Event.Cursor), newMessage(&n.doc.Notification, &doc.Event, notes))
	return nil
}
