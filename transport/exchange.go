package transport

import "context"

// Exchange is one question with its answers, alone on its lane.
type Exchange struct{}

// Send sends a frame of the exchange. It is safe for concurrent use.
func (x *Exchange) Send(t Type, end bool, body []byte) error { panic("todo") }

// Receive returns the next frame of the exchange, io.EOF after End.
func (x *Exchange) Receive(ctx context.Context) (Frame, error) { panic("todo") }

// Release gives the lane back.
func (x *Exchange) Release() { panic("todo") }

// Session returns the session of the exchange.
func (x *Exchange) Session() *Session { panic("todo") }
