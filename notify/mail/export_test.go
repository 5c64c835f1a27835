package mail

import (
	"context"
	"net"
)

// SetDial makes s connect by dial.
func (s *Sender) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.dial = dial
}

// Subject and Body are what they are in a mail.
var (
	Subject = subject
	Body    = body
)

// Remembered is of how many messages s remembers who has them.
func (s *Sender) Remembered() int {
	s.served.mu.Lock()
	defer s.served.mu.Unlock()
	return len(s.served.messages)
}

// Settle notes that one receiver has a message and another is tried again.
func (s *Sender) Settle(id, has, again string) {
	_ = s.served.settle(id, []string{has, again}, []refusal{{to: again, answer: "450"}})
}
