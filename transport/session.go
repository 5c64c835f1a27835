package transport

import (
	"context"
	"time"
)

// Session is a connection in which one side opens streams and the other accepts them.
type Session struct{}

// Peer returns who is at the other end.
func (s *Session) Peer() Peer { panic("todo") }

// Control returns the control stream. It must be called first, and once.
func (s *Session) Control(ctx context.Context) (*Control, error) { panic("todo") }

// Exchange begins an exchange on an idle lane or a new one. Opener only.
func (s *Session) Exchange(ctx context.Context) (*Exchange, error) { panic("todo") }

// Serve runs handle for each exchange the peer begins. Acceptor only.
func (s *Session) Serve(ctx context.Context, handle func(ctx context.Context, x *Exchange, first Frame)) error {
	panic("todo")
}

// Close ends the session for the reason given; nil means [ErrSessionClosed].
func (s *Session) Close(reason error) { panic("todo") }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { panic("todo") }

// Err returns why the session ended, nil while it has not.
func (s *Session) Err() error { panic("todo") }

// Heard returns when a frame was last received, on any stream.
func (s *Session) Heard() time.Time { panic("todo") }
