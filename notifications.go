package harp

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Notifications looks at notifications and changes them. It is safe for concurrent use.
type Notifications struct{ service Service }

// Notifications returns the handle for notifications.
func (c *Caller) Notifications() *Notifications { return &Notifications{service: c.service} }

// NotificationStatus is a notification and what has become of its messages. Times are UTC by the dispatcher's clock, zero
// where there is none.
type NotificationStatus struct {
	Notification
	ManagedBy string             `msgpack:"managed,omitempty"`  // who applies its document; "": it was put by hand
	By        Principal          `msgpack:"by"`                 // who put it
	Changed   time.Time          `msgpack:"changed"`            // when
	Pause     *NotificationPause `msgpack:"pause,omitempty"`    // nil: it is not paused
	Behind    bool               `msgpack:"behind,omitempty"`   // so many messages wait that what happens is looked at later
	Pending   int                `msgpack:"pending,omitempty"`  // messages that are to be sent
	GivenUp   int                `msgpack:"givenup,omitempty"`  // messages that are not tried any more, until somebody says so
	Away      int                `msgpack:"away,omitempty"`     // hosts that are away, of For
	Gathered  int                `msgpack:"gathered,omitempty"` // events that the next digest tells of so far
	Sent      uint64             `msgpack:"sent,omitempty"`     // messages that were taken
	Answer    string             `msgpack:"answer,omitempty"`   // why the last message was not taken that was tried; "": it was, or none was tried since the dispatcher's start
	Tried     time.Time          `msgpack:"tried,omitempty"`    // when
	Err       error              `msgpack:"failure,omitempty"`  // why nothing is sent: until it is put anew, or the dispatcher's configuration is changed
}

// NotificationPause says why nothing is sent. Times are UTC.
type NotificationPause struct {
	By     Principal `json:"by,omitzero" msgpack:"by"` // who asked for it; zero: the receiver wants no more messages
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"`
	Since  time.Time `json:"since" msgpack:"since"`
}

// MessageStatus is a message that was not taken yet. Times are UTC by the dispatcher's clock, zero where there is none.
type MessageStatus struct {
	Notification string    `json:"notification" msgpack:"notification"`
	ID           string    `json:"id" msgpack:"id"`     // that its receiver sees, too
	Type         string    `json:"type" msgpack:"type"` // of the event, or "digest"
	Time         time.Time `json:"time" msgpack:"time"` // when it happened
	Subject      string    `json:"subject" msgpack:"subject"`
	Tries        int       `json:"tries" msgpack:"tries,omitempty"`
	Tried        time.Time `json:"tried,omitzero" msgpack:"tried,omitempty"`       // when it was tried last
	Answer       string    `json:"answer,omitempty" msgpack:"answer,omitempty"`    // why it was not taken then
	Due          time.Time `json:"due,omitzero" msgpack:"due,omitempty"`           // when it is tried next
	GivenUp      bool      `json:"given_up,omitempty" msgpack:"givenup,omitempty"` // it is not tried any more, until somebody says so
}

// NotificationChange is what an operator does to a notification.
type NotificationChange struct {
	Kind    NotificationChangeKind `msgpack:"kind"`
	Reason  string                 `msgpack:"reason,omitempty"`  // of a pause, for people
	Message string                 `msgpack:"message,omitempty"` // the id of the one that is tried again; "": all
}

// NotificationChangeKind says which change it is.
type NotificationChangeKind string

// The changes.
const (
	PauseOfNotification   NotificationChangeKind = "pause"
	UnpauseOfNotification NotificationChangeKind = "unpause"
	TestOfNotification    NotificationChangeKind = "test"
	RetryOfNotification   NotificationChangeKind = "retry"
)

// NotificationChanged is what came of a change.
type NotificationChanged struct {
	Count  int    `json:"count,omitempty" msgpack:"count,omitempty"`   // messages that are tried again
	Taken  bool   `json:"taken" msgpack:"taken,omitempty"`             // the receiver took the test
	Answer string `json:"answer,omitempty" msgpack:"answer,omitempty"` // why it did not
}

// Check returns ErrInvalid, naming the field, for a change that cannot be.
func (c NotificationChange) Check() error {
	switch c.Kind {
	case PauseOfNotification, UnpauseOfNotification, TestOfNotification, RetryOfNotification:
	default:
		return &FieldError{Field: "kind", Message: fmt.Sprintf("must be %q, %q, %q or %q", PauseOfNotification, UnpauseOfNotification, TestOfNotification, RetryOfNotification)}
	}
	if err := checkText("message", c.Message, MaxTZ); err != nil {
		return err
	}
	return checkText("reason", c.Reason, MaxWhy)
}

// Check returns ErrInvalid, naming the field, unless the notification is within its limits and says of what it tells and whom.
// What is in Target and To is looked at by the dispatcher.
func (n Notification) Check() error {
	if err := checkShown("name", n.Name, MaxNotificationName); err != nil {
		return err
	}
	if err := checkText("doc", n.Doc, MaxScheduleDoc); err != nil {
		return err
	}
	if err := n.checkEvents(); err != nil {
		return err
	}
	for _, list := range []struct {
		field    string
		patterns []string
	}{{"procedures", n.Procedures}, {"schedules", n.Schedules}} {
		if err := checkPatterns(list.field, list.patterns); err != nil {
			return err
		}
	}
	if err := checkText("target", n.Target, MaxTarget); err != nil {
		return err
	}
	for i, s := range n.States {
		if !s.Ended() && !slices.Contains([]State{StateQueued, StateSent, StateRunning, StateCancelling, StateUnknown}, s) {
			return &FieldError{Field: "states", Message: fmt.Sprintf("%q is no state of a job", s)}
		}
		if slices.Contains(n.States[:i], s) {
			return &FieldError{Field: "states", Message: fmt.Sprintf("%s is there twice", s)}
		}
	}
	if err := CheckLabels(n.Labels); err != nil {
		return err
	}
	for i, what := range n.Include {
		if what != IncludeArgs && what != IncludeResult {
			return &FieldError{Field: "include", Message: fmt.Sprintf("must each be %q or %q", IncludeArgs, IncludeResult)}
		}
		if slices.Contains(n.Include[:i], what) {
			return &FieldError{Field: "include", Message: what + " is there twice"}
		}
	}
	if err := n.checkTimes(); err != nil {
		return err
	}
	return n.To.check()
}

// What [Notification.Include] may name.
const (
	IncludeArgs   = "args"
	IncludeResult = "result"
)

// checkEvents refuses types of events that are none, and those about notifications.
func (n Notification) checkEvents() error {
	switch {
	case len(n.On) == 0:
		return &FieldError{Field: "on", Message: "must name a type of event: see harp help notifications"}
	case len(n.On) > MaxNotificationPatterns:
		return &FieldError{Field: "on", Message: fmt.Sprintf("must be at most %d", MaxNotificationPatterns)}
	}
	for _, what := range n.On {
		if err := checkName("on", what, MaxProcedureName); err != nil {
			return err
		}
		name, _ := strings.CutSuffix(what, "*")
		switch {
		case strings.Contains(name, "*"):
			return &FieldError{Field: "on", Message: "must each be a type, or the beginning of one followed by *"}
		case strings.HasPrefix(what, "notification."):
			return &FieldError{Field: "on", Message: "cannot be about notifications themselves"}
		}
	}
	return nil
}

// checkTimes refuses a wait and a digest that cannot be.
func (n Notification) checkTimes() error {
	for _, d := range []struct {
		field string
		is    time.Duration
	}{{"for", n.For}, {"digest", n.Digest}} {
		if d.is != 0 && (d.is < time.Second || d.is > MaxNotificationWait) {
			return &FieldError{Field: d.field, Message: "must be from 1 second to 7 days"}
		}
	}
	if n.For != 0 && !slices.Equal(n.On, []string{string(EventHostAway)}) {
		return &FieldError{Field: "for", Message: fmt.Sprintf("needs %s as the only type of event", EventHostAway)}
	}
	return nil
}

// MaxNotificationWait is how long [Notification.For] and [Notification.Digest] may be.
const MaxNotificationWait = 7 * 24 * time.Hour

// check refuses a receiver that is none, or several.
func (r Receiver) check() error {
	switch {
	case (r.Webhook == nil) == (r.Mail == nil):
		return &FieldError{Field: "to", Message: "must have exactly one of webhook and mail"}
	case r.Webhook != nil:
		if err := checkName("to.webhook.url", r.Webhook.URL, MaxReceiverURL); err != nil {
			return err
		}
		if n := len(r.Webhook.Secrets); n < 1 || n > 2 {
			return &FieldError{Field: "to.webhook.secrets", Message: "must be one or, while one is replaced, two"}
		}
		for _, name := range r.Webhook.Secrets {
			if err := checkName("to.webhook.secrets", name, MaxProcedureName); err != nil {
				return err
			}
		}
		return nil
	}
	if n := len(r.Mail.To); n < 1 || n > MaxMailTo {
		return &FieldError{Field: "to.mail.to", Message: fmt.Sprintf("must be 1 to %d addresses", MaxMailTo)}
	}
	for _, to := range r.Mail.To {
		if err := checkName("to.mail.to", to, MaxMailAddress); err != nil {
			return err
		}
	}
	return nil
}

// List yields all notifications, by name. Errors: ErrUnavailable, ErrClosed.
func (n *Notifications) List(ctx context.Context) iter.Seq2[NotificationStatus, error] {
	return pages(func(cursor string) (Page[NotificationStatus], error) {
		return n.service.ListNotifications(ctx, "", cursor)
	})
}

// Get returns one notification. Errors: ErrInvalid (no name), ErrNotFound, ErrUnavailable, ErrClosed.
func (n *Notifications) Get(ctx context.Context, name string) (NotificationStatus, error) {
	if err := checkName("name", name, MaxNotificationName); err != nil {
		return NotificationStatus{}, err
	}
	page, err := n.service.ListNotifications(ctx, name, "")
	switch {
	case err != nil:
		return NotificationStatus{}, err
	case len(page.Items) == 0:
		return NotificationStatus{}, notFoundError("notification", name)
	}
	return page.Items[0], nil
}

// Put makes a notification, or replaces the one of its name. A new one tells of what happens from now on. One that is replaced
// goes on where it was, and the messages that it has go to the new receiver.
//
// Errors: ErrInvalid, naming the field: target (it cannot be read), to (the dispatcher sends nothing to such receivers, or not to
// this one), and what [Notification.Check] says; ErrRefused (there are too many), ErrConflict (its document is applied by whoever is
// named), ErrDenied, ErrUnavailable, ErrClosed.
func (n *Notifications) Put(ctx context.Context, one Notification) error {
	if err := one.Check(); err != nil {
		return err
	}
	return n.service.PutNotification(ctx, NewID(), one)
}

// Delete deletes a notification with its messages: none is sent any more. Errors: ErrInvalid (no name), ErrNotFound, ErrConflict (its
// document is applied by whoever is named), ErrDenied, ErrUnavailable, ErrClosed.
func (n *Notifications) Delete(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxNotificationName); err != nil {
		return err
	}
	return n.service.DeleteNotification(ctx, NewID(), name)
}

// Pause keeps the messages of a notification from being sent until it is unpaused. What happens meanwhile is told then. Of one
// that is paused the reason is replaced. Errors: ErrInvalid (no name; reason), ErrNotFound, ErrDenied, ErrUnavailable, ErrClosed.
func (n *Notifications) Pause(ctx context.Context, name, reason string) error {
	_, err := n.change(ctx, name, NotificationChange{Kind: PauseOfNotification, Reason: reason})
	return err
}

// Unpause ends the pause of a notification: what is due is sent. Of one that is not paused it changes nothing. Errors: as Pause.
func (n *Notifications) Unpause(ctx context.Context, name string) error {
	_, err := n.change(ctx, name, NotificationChange{Kind: UnpauseOfNotification})
	return err
}

// Test sends one message of type test to the receiver now, once, though the notification be paused, and returns whether it was
// taken, and why not. Errors: ErrInvalid (no name), ErrNotFound, ErrDenied, ErrUnavailable, ErrClosed.
func (n *Notifications) Test(ctx context.Context, name string) (taken bool, answer string, err error) {
	done, err := n.change(ctx, name, NotificationChange{Kind: TestOfNotification})
	return done.Taken, done.Answer, err
}

// Retry has messages tried again now that were given up or wait for another try: the one with this id or, if it is empty, all. It
// returns how many. Errors: ErrInvalid (no name), ErrNotFound (the notification; the message), ErrDenied, ErrUnavailable, ErrClosed.
func (n *Notifications) Retry(ctx context.Context, name, message string) (int, error) {
	done, err := n.change(ctx, name, NotificationChange{Kind: RetryOfNotification, Message: message})
	return done.Count, err
}

func (n *Notifications) change(ctx context.Context, name string, c NotificationChange) (NotificationChanged, error) {
	if err := checkName("name", name, MaxNotificationName); err != nil {
		return NotificationChanged{}, err
	}
	if err := c.Check(); err != nil {
		return NotificationChanged{}, err
	}
	return n.service.ChangeNotification(ctx, NewID(), name, c)
}

// Messages yields the messages of a notification that were not taken, in the order of their events. Errors: ErrInvalid (no name),
// ErrNotFound, ErrUnavailable, ErrClosed.
func (n *Notifications) Messages(ctx context.Context, name string) iter.Seq2[MessageStatus, error] {
	return func(yield func(MessageStatus, error) bool) {
		if err := checkName("name", name, MaxNotificationName); err != nil {
			yield(MessageStatus{}, err)
			return
		}
		pages(func(cursor string) (Page[MessageStatus], error) { return n.service.ListMessages(ctx, name, cursor) })(yield)
	}
}
