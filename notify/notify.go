// Package notify delivers messages of a dispatcher to who is to be told, each by a [Sender]. It keeps nothing: which
// messages there are, and when one is tried again, is the dispatcher's matter.
package notify

import (
	"context"
	"encoding/json"
	"time"

	"github.com/harpcaller/harp"
)

// Message is what is told.
type Message struct {
	ID      string          // the same in each try, and of no other message
	Type    string          // of the event, or "digest"
	Time    time.Time       // when it happened
	Data    json.RawMessage // for programs
	Subject string          // for people: one line
	Text    string          // for people
}

// A Sender delivers messages to receivers of one kind. It is safe for concurrent use.
type Sender interface {
	// Accepts reports whether a receiver is of its kind.
	Accepts(r harp.Receiver) bool

	// Check returns harp.ErrInvalid, naming the field as to.webhook.url, for a receiver to which nothing could be sent,
	// as far as that can be told without asking anybody.
	Check(r harp.Receiver) error

	// Send delivers a message once; it was taken if there is no error. It takes at most as long as ctx. Errors: *Error;
	// ctx's.
	Send(ctx context.Context, r harp.Receiver, m Message) error
}

// Error says that a message was not taken.
type Error struct {
	Answer string        // what the receiver said, or what went wrong, in one line without secrets
	After  time.Duration // how long the receiver wants to be left alone; 0: it did not say
	Gone   bool          // the receiver wants no more messages
	Final  bool          // this message will never be taken
}

// Error is the answer.
func (e *Error) Error() string { return e.Answer }
