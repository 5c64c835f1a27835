// Package notify delivers messages of a dispatcher to who is to be told, each by a [Sender]. It keeps nothing: which
// messages there are, and when one is tried again, is the dispatcher's matter.
package notify

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
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

// maxHeaderID bounds what HeaderID returns, in bytes.
const maxHeaderID = 200

// HeaderID returns ID as headers carry it: letters and digits of ASCII, - and _ stand for themselves, each other byte is
// %XX, so that nothing ends a header, or the part of a text to be signed. A long one is a hash. Different IDs stay different.
func (m Message) HeaderID() string {
	var b strings.Builder
	for i := range len(m.ID) {
		switch c := m.ID[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() > maxHeaderID {
		return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(m.ID)))
	}
	return b.String()
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
