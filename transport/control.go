package transport

import (
	"context"
	"time"
)

// Control is the first stream of a session.
type Control struct{}

// Send sends a frame; its Exchange is not looked at.
func (c *Control) Send(f Frame) error { panic("todo") }

// Receive returns the next frame. Heartbeats are swallowed.
func (c *Control) Receive(ctx context.Context) (Frame, error) { panic("todo") }

// Beat sends a heartbeat every so often from now on.
func (c *Control) Beat(every time.Duration) { panic("todo") }
