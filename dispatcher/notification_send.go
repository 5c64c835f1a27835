package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
)

// Each notification sends for itself, so that a receiver that does not answer keeps nobody else waiting.
const (
	sendAtOnce    = 2 // messages of a notification
	webhookTime   = 10 * time.Second
	mailTime      = 30 * time.Second
	notifyLongest = 24 * time.Hour // between two tries
	maxAnswer     = 500            // bytes that are kept of an answer
)

// tryAfter is how long after each try that failed there is another.
var tryAfter = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, notifyLongest,
}

// outcome is what came of a try.
type outcome struct {
	taken bool
	err   *notify.Error // why it was not taken
	lost  bool          // the message cannot be read
	at    time.Time     // by the wall clock
}

// maySend reports whether one more message may be sent. The caller holds mu.
func (n *notifier) maySend() bool {
	return n.sending < sendAtOnce && n.broken == nil && !n.doc.Deleted && n.state.Pause == nil && n.sender() != nil
}

// send sends what is due. The caller holds mu.
func (n *notifier) send() {
	for n.maySend() {
		m := n.nextDue(time.Now())
		if m == nil {
			return
		}
		m.busy = true
		n.sending++
		sender, to := n.sender(), n.doc.Notification.To
		if !n.d.spawn(func() { n.try(m, sender, to) }) {
			m.busy = false
			n.sending--
			return
		}
	}
}

// nextDue returns the message that is due, of several the first; nil: none is.
func (n *notifier) nextDue(now time.Time) (first *queued) {
	for _, m := range n.messages {
		if !m.givenUp && !m.busy && !m.due.After(now) && (first == nil || m.no < first.no) {
			first = m
		}
	}
	return first
}

// try sends a message once, and has the loop store what came of it.
func (n *notifier) try(m *queued, sender notify.Sender, to harp.Receiver) {
	out, err := n.sendStored(m, sender, to)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sending--
	switch {
	case n.sends.Err() != nil && !out.taken: // it was cut short, and is tried again after the restart
		m.busy = false
	case err == nil && !out.taken && !out.lost && !reflect.DeepEqual(to, n.doc.Notification.To): // it goes to another receiver now
		m.busy = false
	case err != nil:
		n.d.repeated.Warn("notification "+n.name, "a message cannot be read now", "notification", n.name, "err", err)
		m.busy, m.due = false, time.Now().Add(notifyRetry)
	default:
		m.outcome = &out
		n.noteAnswer(&out)
	}
	signal(n.kick)
}

// noteAnswer keeps what the last try has shown.
func (n *notifier) noteAnswer(out *outcome) {
	n.answer, n.tried = "", out.at
	if out.err != nil {
		n.answer = out.err.Answer
	}
}

// sendStored sends a stored message once. Errors: the store's.
func (n *notifier) sendStored(m *queued, sender notify.Sender, to harp.Receiver) (outcome, error) {
	content, err := n.d.store.Document(n.sends, messageKind(n.name), messageName(m.no))
	var doc *messageDocument
	if err == nil {
		doc, err = decodeMessage(content)
		if err != nil {
			err = store.ErrDamaged
		}
	}
	switch {
	case errors.Is(err, store.ErrDamaged), errors.Is(err, harp.ErrNotFound):
		return outcome{lost: true, at: n.d.now().UTC()}, nil
	case err != nil:
		return outcome{}, err
	}
	return n.d.sendOnce(n.sends, sender, to, doc.message(n.messageID(m))), nil
}

// sendOnce sends a message within the time that its receiver has.
func (d *Dispatcher) sendOnce(ctx context.Context, sender notify.Sender, to harp.Receiver, m notify.Message) outcome {
	most := webhookTime
	if to.Mail != nil {
		most = mailTime
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := sender.Send(ctx, to, m)
	out := outcome{taken: err == nil, at: d.now().UTC()}
	if err == nil {
		return out
	}
	var said *notify.Error
	if !errors.As(err, &said) {
		said = &notify.Error{Answer: err.Error()}
		if errors.Is(err, context.DeadlineExceeded) {
			said.Answer = fmt.Sprintf("no answer within %v", most)
		}
	}
	short := *said
	short.Answer = oneLine(cmp.Or(said.Answer, "no reason given"), maxAnswer)
	out.err = &short
	return out
}

// storeOutcomes stores what came of tries. The caller holds mu.
func (n *notifier) storeOutcomes(ctx context.Context) error {
	for {
		s := n.begin()
		for _, no := range slices.Sorted(maps.Keys(n.messages)) {
			if m := n.messages[no]; m.outcome != nil && s.size < commitBytes {
				if err := n.settle(ctx, s, m); err != nil {
					return err
				}
			}
		}
		if s.isEmpty() {
			return nil
		}
		if err := n.dropOldest(ctx, s); err != nil {
			return err
		}
		if err := s.commit(ctx, store.Operation{}, 0); err != nil {
			return err
		}
	}
}

// settle notes what came of a try of a message.
func (n *notifier) settle(ctx context.Context, s *notifyStep, m *queued) error {
	old, err := n.d.storedDocument(ctx, messageKind(n.name), messageName(m.no))
	if err != nil {
		return err
	}
	out := m.outcome
	var doc *messageDocument
	if old != nil && !out.taken {
		doc, _ = decodeMessage(old)
	}
	if doc == nil {
		if out.taken {
			s.state.Sent++
		} else {
			s.addEvent(harp.EventNotificationGap, "message "+n.messageID(m)+" cannot be read", harp.Principal{})
		}
		s.drop(m, old)
		return nil
	}
	doc.Tries, doc.Tried, doc.Answer = doc.Tries+1, out.at, out.err.Answer
	wait := time.Duration(0)
	switch {
	case out.err.Gone:
		if s.state.Pause == nil {
			reason := "its receiver wants no more messages: " + doc.Answer
			s.state.Pause = &harp.NotificationPause{Reason: oneLine(reason, harp.MaxWhy), Since: out.at}
			s.addEvent(harp.EventNotificationPaused, reason, harp.Principal{})
		}
	case out.err.Final || doc.Tries > len(tryAfter):
		doc.GivenUp = true
		s.addEvent(harp.EventNotificationFailed, fmt.Sprintf("message %s, %s, was given up after %d tries: %s", n.messageID(m), doc.Subject, doc.Tries, doc.Answer), harp.Principal{})
	default:
		wait = min(max(tryAfter[doc.Tries-1], out.err.After), notifyLongest)
	}
	doc.Due = n.d.now().Add(wait).UTC()
	content := wire.Encode(*doc)
	s.change(messageKind(n.name), messageName(m.no), old, content)
	due := time.Now().Add(wait)
	s.done = append(s.done, func() {
		m.busy, m.outcome, m.tries, m.due, m.givenUp, m.size = false, nil, doc.Tries, due, doc.GivenUp, len(content)
	})
	if doc.GivenUp {
		s.givenUp = append(s.givenUp, m)
	}
	return nil
}

// drop notes that a message is deleted.
func (s *notifyStep) drop(m *queued, old []byte) {
	s.change(messageKind(s.n.name), messageName(m.no), old, nil)
	s.state.Messages--
	s.done = append(s.done, func() { delete(s.n.messages, m.no) })
}

// dropOldest deletes the oldest messages that were given up where the step makes them too many, and says so.
func (n *notifier) dropOldest(ctx context.Context, s *notifyStep) error {
	if len(s.givenUp) == 0 {
		return nil
	}
	all := slices.Clone(s.givenUp)
	for _, m := range n.messages {
		if m.givenUp {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *queued) int { return cmp.Compare(a.no, b.no) })
	size := 0
	for _, m := range all {
		size += m.size
	}
	dropped := 0
	for ; len(all) > maxGivenUp || size > maxGivenUpBytes; all = all[1:] {
		old, err := n.d.storedDocument(ctx, messageKind(n.name), messageName(all[0].no))
		if err != nil {
			return err
		}
		s.drop(all[0], old)
		size -= all[0].size
		dropped++
	}
	if dropped > 0 {
		s.addEvent(harp.EventNotificationGap, fmt.Sprintf("%d messages that were given up were deleted: too many are kept for a retry", dropped), harp.Principal{})
	}
	return nil
}

// prune deletes messages that were given up whose events were before a time. Errors: the store's.
func (n *notifier) prune(ctx context.Context, before time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		s := n.begin()
		for _, m := range n.messages {
			if !m.givenUp || !m.at.Before(before) || len(s.changes) == maxGivenUp {
				continue
			}
			old, err := n.d.storedDocument(ctx, messageKind(n.name), messageName(m.no))
			if err != nil {
				return err
			}
			s.drop(m, old)
		}
		if n.doc.Deleted || s.isEmpty() {
			return nil
		}
		if err := s.commit(ctx, store.Operation{}, 0); err != nil {
			return err
		}
	}
}

// retry has messages tried again now, the one with an id or all, once for an operation, and returns how many. Errors: harp.ErrNotFound,
// the store's.
func (n *notifier) retry(ctx context.Context, op store.Operation, id string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	chosen := n.chosen(id)
	if id != "" && len(chosen) == 0 {
		return 0, notFoundMessage(id)
	}
	count := len(chosen)
	for {
		s := n.begin()
		i := 0
		for ; i < len(chosen) && s.size < commitBytes; i++ {
			if err := n.tryAgain(ctx, s, chosen[i]); err != nil {
				return 0, err
			}
		}
		last := store.Operation{}
		if chosen = chosen[i:]; len(chosen) == 0 {
			last = op
		}
		if err := s.commit(ctx, last, count); err != nil {
			return 0, err
		}
		if len(chosen) == 0 {
			signal(n.kick)
			return count, nil
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// chosen are the messages that can be tried again: those with an id, or all.
func (n *notifier) chosen(id string) (all []*queued) {
	for _, no := range slices.Sorted(maps.Keys(n.messages)) {
		m := n.messages[no]
		if id == "" || n.messageID(m) == id {
			all = append(all, m)
		}
	}
	return all
}

// tryAgain makes a message due now. One that was given up is tried as often as a new one.
func (n *notifier) tryAgain(ctx context.Context, s *notifyStep, m *queued) error {
	now := time.Now()
	if m.busy {
		return nil // it is being tried
	}
	if !m.givenUp {
		s.done = append(s.done, func() { m.due = now })
		return nil
	}
	old, err := n.d.storedDocument(ctx, messageKind(n.name), messageName(m.no))
	if err != nil {
		return err
	}
	doc, err := decodeMessage(old)
	if err != nil { // the try will tell
		s.done = append(s.done, func() { m.due, m.givenUp = now, false })
		return nil
	}
	doc.GivenUp, doc.Tries, doc.Due = false, 0, n.d.now().UTC()
	s.change(messageKind(n.name), messageName(m.no), old, wire.Encode(*doc))
	s.done = append(s.done, func() { m.due, m.givenUp, m.tries = now, false, 0 })
	return nil
}
