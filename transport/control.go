package transport

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// silentBeats is how many intervals without a frame make a peer silent.
const silentBeats = 3

// Control is the first stream of a session, for what concerns the session as a
// whole. It carries the heartbeat. Its end is the end of the session.
//
// Its methods are safe for concurrent use.
type Control struct {
	lane *lane
	in   inbox

	mu      sync.Mutex // guards what follows; never held while blocked
	every   time.Duration
	beat    *time.Timer // sends the next heartbeat
	silence *time.Timer // looks whether the peer was heard
	stopped bool
}

func newControl(l *lane) *Control { return &Control{lane: l, in: newInbox()} }

// Send sends a frame. Its Exchange is not looked at. Send waits while the peer
// takes nothing, and ends the session if that lasts 30 s.
//
// The error is [ErrSessionClosed]; or, with nothing sent, [ErrProtocol] for a type
// above 126 and [ErrFrameTooLarge] for a body above [MaxFrame].
func (c *Control) Send(f Frame) error {
	if err := f.check(); err != nil {
		return err
	}
	f.Exchange = 0
	return c.send(f)
}

// send sends a frame of any type. Without the control stream there is no session.
func (c *Control) send(f Frame) error {
	err := c.lane.send(f)
	if err != nil {
		c.lane.session.lost(io.EOF)
		return c.lane.session.closedErr()
	}
	return nil
}

// Receive returns the next frame, waiting for it until ctx ends. Heartbeats are
// not among them. The error is [ErrSessionClosed] or ctx's.
func (c *Control) Receive(ctx context.Context) (Frame, error) {
	return c.in.take(ctx)
}

// Beat sends a heartbeat every so often from now on, give or take a tenth, and
// ends the session with [ErrSilent] when no frame was received on any stream for
// three times as long. It does not wait. Called again it sets another interval;
// zero stops both.
func (c *Control) Beat(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopLocked()
	if c.stopped || every <= 0 {
		return
	}
	c.every = every
	c.beat = time.AfterFunc(jitter(every), func() { c.lane.session.start(c.sendBeat) })
	c.silence = time.AfterFunc(silentBeats*every, c.listen)
}

// sendBeat sends a heartbeat and sees to the next one.
func (c *Control) sendBeat() {
	if c.send(Frame{Type: heartbeat}) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beat != nil {
		c.beat.Reset(jitter(c.every))
	}
}

// listen ends the session if the peer is silent, and else looks again when it
// could be.
func (c *Control) listen() {
	left := c.untilSilent()
	if left <= 0 {
		c.lane.session.fail(fmt.Errorf("%w since %v", ErrSilent, c.lane.session.Heard().UTC().Format(time.RFC3339)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silence != nil {
		c.silence.Reset(left)
	}
}

// untilSilent returns how long the peer may stay silent. While frames wait to be
// received it is this side that does not listen.
func (c *Control) untilSilent() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.lane.session.Heard()
	if c.in.waiting() {
		heard = time.Now()
	}
	return silentBeats*c.every - time.Since(heard)
}

// stop stops the heartbeat for good.
func (c *Control) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.stopLocked()
}

func (c *Control) stopLocked() {
	for _, t := range []*time.Timer{c.beat, c.silence} {
		if t != nil {
			t.Stop()
		}
	}
	c.beat, c.silence = nil, nil
}

// readLoop reads the control stream until it ends, and the session with it.
func (c *Control) readLoop() {
	s := c.lane.session
	for {
		f, err := c.lane.read()
		if err != nil {
			s.lost(io.EOF)
			break
		}
		if f.Exchange != 0 {
			s.fail(fmt.Errorf("%w: exchange on the control stream", ErrProtocol))
			break
		}
		if f.Type != heartbeat {
			c.in.put(f, nil, s.dying, c.lane.closed)
		}
	}
	c.in.close(s.closedErr())
}

// jitter returns a tenth more or less than d, so that many peers do not beat in
// step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
