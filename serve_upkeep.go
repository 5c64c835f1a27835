package harp

import (
	"context"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

func handleRequest(ctx context.Context, s Service, w wire.JobRef) (any, error) {
	if err := CheckID(w.ID); err != nil {
		return nil, err
	}
	made, err := s.JobRequest(ctx, w.ID)
	return wire.Signed{Request: made.Request, Signature: made.Signature, KeyID: made.KeyID}, err
}

func handleForceLost(ctx context.Context, s Service, w wire.ForceLost) (any, error) {
	if err := CheckID(w.ID); err != nil {
		return nil, err
	}
	if err := checkName("why", w.Why, wire.MaxWhy); err != nil {
		return nil, err
	}
	return wire.Done{}, s.ForceLost(ctx, w.ID, w.Why)
}

func handleEvents(ctx context.Context, s Service, w wire.EventsQuery) (any, error) {
	f, err := eventQueryFromWire(w)
	if err != nil {
		return nil, err
	}
	page, err := s.Events(ctx, f, w.Wait)
	return eventsToWire(page), err
}

func handleChangeQueue(ctx context.Context, s Service, w wire.QueueChange) (any, error) {
	name, err := queueNamed(Value(w.Name))
	if err != nil {
		return nil, err
	}
	c, err := queueChangeFromWire(w)
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.ChangeQueue(ctx, w.Request, name, c)
}

func handlePrune(ctx context.Context, s Service, w wire.Prune) (any, error) {
	n, err := s.Prune(ctx, fromNanos(w.EndedBefore))
	return wire.Done{Count: int64(n)}, err
}

// answerBackup sends a backup in chunks and returns the body of the reply behind it.
func answerBackup(ctx context.Context, s Service, x *transport.Exchange) ([]byte, error) {
	w := &chunks{x: x}
	err := s.Backup(ctx, w)
	if err == nil {
		err = w.flush()
	}
	return wire.Encode(wire.Copied{Bytes: w.sent}), err
}

// chunks sends what is written to it in frames of one size.
type chunks struct {
	x    *transport.Exchange
	buf  []byte
	sent int64
}

// Write implements io.Writer. Errors: the connection's.
func (c *chunks) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		if c.buf == nil {
			c.buf = make([]byte, 0, wire.MaxChunk)
		}
		n := min(len(b), wire.MaxChunk-len(c.buf))
		c.buf, b, written = append(c.buf, b[:n]...), b[n:], written+n
		if len(c.buf) == wire.MaxChunk {
			if err := c.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (c *chunks) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.x.Send(wire.TypeChunk, false, wire.Encode(wire.Chunk{Bytes: c.buf}))
	c.sent += int64(len(c.buf))
	c.buf = c.buf[:0]
	return err
}
