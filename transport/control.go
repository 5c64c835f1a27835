package transport

import (
	"context"
	"fmt"
	"io"
	"math/bits"
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
	lane      *lane
	in        inbox
	hear      func(Frame) error // what hears the frames; nil: nobody does, they are received
	listeners sync.WaitGroup    // at most one at a time

	mu      sync.Mutex // guards what follows; never held while blocked
	every   time.Duration
	peers   time.Duration        // the interval that the peer holds to
	instead func() (Frame, bool) // what to send in place of a heartbeat; nil: nothing
	since   time.Time            // when Beat was called
	beaten  time.Time            // when the last heartbeat was sent
	beatAt  time.Time            // when the next one is
	fresh   bool                 // none was sent at this interval
	sending bool                 // a heartbeat is on its way
	grown   bool                 // the stream has carried more than heartbeats need, lately
	timer   *time.Timer          // for whatever of heartbeat and silence is next; nil: neither
	stopped bool

	listening bool  // a listener runs, or begins to
	failed    error // the failure of a listener
}

func newControl(l *lane) *Control { return &Control{lane: l} }

// Send sends a frame. Its Exchange is not looked at. Send waits while the peer
// takes nothing, and ends the session if that lasts 30 s.
//
// The error is [ErrSessionClosed], with which the peer may have got the frame, as of
// [Exchange.Send]; or, with nothing sent, [ErrProtocol] for a type above 126 and
// [ErrFrameTooLarge] for a body above [MaxFrame].
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

// Beat sends a heartbeat every so often from now on, give or take a tenth, the first at
// any moment within that time, and ends the session with [ErrSilent] when no frame was received on any stream for
// three times as long. It does not wait. Called again it sets another interval;
// zero stops both.
func (c *Control) Beat(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopLocked()
	if c.stopped || every <= 0 {
		return
	}
	c.every, c.peers, c.since = every, every, time.Now()
	c.beaten = c.since
	c.firstBeatLocked()
	c.timer = time.AfterFunc(time.Until(c.beatAt), c.tick)
}

// Change sets the interval of this side's heartbeat and that which the peer holds to
// while Beat is in force. What has passed since either was last heard counts: to
// change them often does not put off the next heartbeat, or the notice of silence.
func (c *Control) Change(own, peers time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return
	}
	c.every, c.peers = own, peers
	c.firstBeatLocked()
	c.timer.Reset(min(c.untilSilentLocked(), time.Until(c.beatAt)))
}

// OnBeat sets what is asked whenever a heartbeat is to be sent, and may have a frame
// sent in its place. It must not block.
func (c *Control) OnBeat(instead func() (Frame, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead = instead
}

// firstBeatLocked chooses when the next heartbeat is after the interval was set. The
// opener's is at any moment within it: those of thousands of sessions that began together
// are spread from the first one on, and those of the acceptors, which follow, with them.
func (c *Control) firstBeatLocked() {
	c.fresh = true
	early := c.every / 10
	if c.lane.session.opener {
		early = c.every
	}
	c.beatAt = c.beaten.Add(nextBeat(c.beaten, c.every, early, c.lane.session.opener))
}

// beatenLocked notes that a heartbeat is sent now, and chooses when the next one is.
func (c *Control) beatenLocked() {
	c.beaten, c.fresh = time.Now(), false
	c.beatAt = c.beaten.Add(nextBeat(c.beaten, c.every, c.every/10, c.lane.session.opener))
}

// tick ends the session if the peer is silent, and sends a heartbeat if it is time.
func (c *Control) tick() {
	s := c.lane.session
	switch silent, due := c.look(); {
	case silent:
		s.fail(fmt.Errorf("%w since %v", ErrSilent, s.Heard().UTC().Format(time.RFC3339)))
	case due:
		s.run(c.sendBeat)
	}
}

// look looks whether the peer is silent and whether a heartbeat is to be sent, while
// none is on its way. It sees to the next tick, which comes before the peer is silent.
func (c *Control) look() (silent, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return false, false
	}
	left := c.untilSilentLocked()
	if left <= 0 {
		return true, false
	}
	if !time.Now().Before(c.beatAt) {
		c.beatenLocked()
		due, c.sending = !c.sending, true
	}
	c.timer.Reset(min(left, time.Until(c.beatAt)))
	return false, due
}

// sendBeat sends a heartbeat.
func (c *Control) sendBeat() {
	_ = c.sendSign() // the session ends if it cannot be sent
	c.settle()
	c.mu.Lock()
	c.sending = false
	c.mu.Unlock()
}

// settle gives back what the stream and the connection needed for all that was on them
// before, where there may be only heartbeats from now on.
func (c *Control) settle() {
	c.lane.session.mux.rest()
	c.mu.Lock()
	grown := c.grown
	c.grown = false
	c.mu.Unlock()
	if grown {
		c.lane.stream.shrink()
	}
}

// sendSign sends the sign of life: a heartbeat, or what is to be in its place.
func (c *Control) sendSign() error {
	c.mu.Lock()
	instead := c.instead
	c.mu.Unlock()
	if instead != nil {
		if f, ok := instead(); ok {
			return c.Send(f)
		}
	}
	return c.send(Frame{Type: heartbeat})
}

// heardBeat lets a heartbeat that may be sent by now follow the peer's: to be awake
// costs more than to send it.
func (c *Control) heardBeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil || c.sending || !c.fresh && time.Since(c.beaten) < soonest(c.every) {
		return
	}
	c.beatAt = time.Now()
	c.timer.Reset(0)
}

// untilSilentLocked returns how long the peer may stay silent. While frames wait to
// be received it is this side that does not listen.
func (c *Control) untilSilentLocked() time.Duration {
	heard := c.lane.session.Heard()
	if heard.Before(c.since) {
		heard = c.since
	}
	if deaf := c.in.deaf(); heard.Before(deaf) {
		heard = deaf
	}
	return silentBeats*c.peers - time.Since(heard)
}

// stop stops the heartbeat for good.
func (c *Control) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.stopLocked()
}

func (c *Control) stopLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
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
		if f.Type == heartbeat {
			c.heardBeat()
			continue
		}
		c.in.put(f, nil, s.dying, c.lane.closed)
		c.noteFrame(f)
	}
	c.in.close(s.closedErr())
}

// shortFrame is the longest body of a frame that needs no more of the stream than a
// heartbeat does.
const shortFrame = 256

// noteFrame sees to it that a frame that was read is heard.
func (c *Control) noteFrame(f Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grown = c.grown || len(f.Body) > shortFrame
	if c.hear == nil || c.listening {
		return
	}
	c.listening = true
	c.listeners.Go(c.listenLoop)
}

// listen lets begin begin, and from then on hear hear the frames. It does not wait.
func (c *Control) listen(begin func(*Control) error, hear func(Frame) error) {
	c.hear, c.listening = hear, true
	c.listeners.Go(func() {
		if err := begin(c); err != nil {
			c.fail(err)
			return
		}
		c.listenLoop()
		c.settle()
	})
}

// listenLoop hears frames until none is there. After a failure none is heard.
func (c *Control) listenLoop() {
	for {
		f, ok := c.nextHeard()
		if !ok {
			return
		}
		if err := c.hear(f); err != nil {
			c.fail(err)
			return
		}
	}
}

// nextHeard returns the next frame, if there is one. If not, another listener hears
// those that come.
func (c *Control) nextHeard() (Frame, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok, _ := c.in.poll() // that it has ended is for the reader to see
	c.listening = ok
	return f, ok
}

// fail ends the session for the error of a listener, which is the last one.
func (c *Control) fail(err error) {
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	c.lane.session.fail(err)
}

// listened waits for the listener, when there is no reader any more, and returns why
// the session has ended.
func (c *Control) listened() error {
	c.listeners.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	return c.lane.session.closedErr()
}

// soonest is the shortest time between two heartbeats.
func soonest(every time.Duration) time.Duration { return every - every/10 }

// nextBeat chooses when the next heartbeat is sent: every after now or up to early before
// that, at random, so that many peers do not beat in step. The opener is the one to begin and
// the acceptor the one to follow, and the openers of one process begin together, at
// moments that are a beatStep apart: a dispatcher of thousands of agents wakes up less
// often.
func nextBeat(now time.Time, every, early time.Duration, opener bool) time.Duration {
	step := beatStep(every)
	d := every - early + step + rand.N(max(early-step, 0)+1)
	if !opener {
		d += every / 10
	}
	return d - time.Duration((now.UnixNano()+int64(d))%int64(step))
}

// beatStep is how far the moments are apart at which openers send: half a hundredth of
// every to a hundredth, a power of two in nanoseconds. The moments of the longer of two
// intervals are among those of the shorter, and mostly the same.
func beatStep(every time.Duration) time.Duration { return 1 << bits.Len64(uint64(every/200)) }
