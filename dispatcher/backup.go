package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// answerBackup sends a backup in chunks and returns the body of the reply behind it.
func answerBackup(ctx context.Context, s harp.Service, x *transport.Exchange) ([]byte, error) {
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
