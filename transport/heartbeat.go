package transport

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// silentBeats is how many intervals in which nothing comes make a peer silent.
const silentBeats = 3

// heartbeat is that of a session.
type heartbeat struct {
	session *Session

	mu      sync.Mutex // guards what follows; never held while blocked
	every   time.Duration
	peers   time.Duration        // the interval that the peer holds to
	instead func() (Frame, bool) // what to send in place of a heartbeat; nil: nothing
	since   time.Time            // when Beat was called
	beaten  time.Time            // when the last heartbeat was sent
	beatAt  time.Time            // when the next one is
	fresh   bool                 // none was sent at this interval
	timer   *time.Timer          // for whatever of heartbeat and silence is next; nil: neither
	stopped bool
}

// Beat sends a heartbeat every so often from now on, give or take a tenth, the first at
// any moment within that time, and ends the session with [ErrSilent] when nothing was received for
// three times as long, be it a part of a frame. It does not wait. Called again it sets another interval;
// zero stops both.
func (s *Session) Beat(every time.Duration) {
	h := &s.beat
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
	if h.stopped || every <= 0 {
		return
	}
	h.every, h.peers, h.since = every, every, time.Now()
	h.beaten = h.since
	h.firstBeatLocked()
	h.timer = time.AfterFunc(time.Until(h.beatAt), h.tick)
}

// ChangeBeat sets the interval of this side's heartbeat and that which the peer holds to
// while Beat is in force. What has passed since either was last heard counts: to
// change them often does not put off the next heartbeat, or the notice of silence.
func (s *Session) ChangeBeat(own, peers time.Duration) {
	h := &s.beat
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return
	}
	h.every, h.peers = own, peers
	h.firstBeatLocked()
	h.timer.Reset(min(h.untilSilentLocked(), time.Until(h.beatAt)))
}

// OnBeat sets what is asked whenever a heartbeat is to be sent, and may have a frame
// sent in its place. It must not block.
func (s *Session) OnBeat(instead func() (Frame, bool)) {
	h := &s.beat
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instead = instead
}

// firstBeatLocked chooses when the next heartbeat is after the interval was set. The
// opener's is at any moment within it: those of thousands of sessions that began together
// are spread from the first one on, and those of the acceptors, which follow, with them.
func (h *heartbeat) firstBeatLocked() {
	h.fresh = true
	early := h.every / 10
	if h.session.opener {
		early = h.every
	}
	h.beatAt = h.beaten.Add(nextBeat(h.beaten, h.every, early, h.session.opener))
}

// beatenLocked notes that a heartbeat is sent now, and chooses when the next one is.
func (h *heartbeat) beatenLocked() {
	h.beaten, h.fresh = time.Now(), false
	h.beatAt = h.beaten.Add(nextBeat(h.beaten, h.every, h.every/10, h.session.opener))
}

// tick ends the session if the peer is silent, and sends a heartbeat if it is time.
func (h *heartbeat) tick() {
	s := h.session
	switch silent, instead := h.checkSilence(); {
	case silent:
		s.failSession(fmt.Errorf("%w since %v", ErrSilent, s.Heard().UTC().Format(time.RFC3339)))
	case instead != nil:
		s.sendSign(instead)
		if s.resting.CompareAndSwap(false, true) { // else yamux keeps an earlier one waiting, in the midst of what the peer sends
			s.rest()
			s.resting.Store(false)
		}
	}
}

// checkSilence looks whether the peer is silent, and returns what to ask for something to send in
// place of a heartbeat if one is to be sent. It sees to the next tick, which comes before
// the peer is silent.
func (h *heartbeat) checkSilence() (silent bool, instead func() (Frame, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return false, nil
	}
	left := h.untilSilentLocked()
	if left <= 0 {
		return true, nil
	}
	if !time.Now().Before(h.beatAt) {
		h.beatenLocked()
		if instead = h.instead; instead == nil {
			instead = nothing
		}
	}
	h.timer.Reset(min(left, time.Until(h.beatAt)))
	return false, instead
}

func nothing() (Frame, bool) { return Frame{}, false }

// sendSign sends the sign of life: a heartbeat, or what is to be in its place.
func (s *Session) sendSign(instead func() (Frame, bool)) {
	if f, ok := instead(); ok {
		_ = s.control.Send(f.Type, false, f.Body) // the session ends if it cannot be sent
		return
	}
	s.out.sendBeat()
}

// heardBeat lets a heartbeat that may be sent by now follow the peer's: to be awake
// costs more than to send it.
func (h *heartbeat) heardBeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil || !h.fresh && time.Since(h.beaten) < soonest(h.every) {
		return
	}
	h.beatAt = time.Now()
	h.timer.Reset(0)
}

// untilSilentLocked returns how long the peer may stay silent. While frames wait to
// be taken it is this side that does not listen.
func (h *heartbeat) untilSilentLocked() time.Duration {
	heard := h.session.Heard()
	if heard.Before(h.since) {
		heard = h.since
	}
	if h.session.isDeaf() {
		heard = time.Now()
	}
	return silentBeats*h.peers - time.Since(heard)
}

// stopBeating stops the heartbeat for good.
func (h *heartbeat) stopBeating() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.stopLocked()
}

func (h *heartbeat) stopLocked() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
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
