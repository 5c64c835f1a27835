package dispatcher

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// maxBeatRate is how many heartbeats a second there may be: of all agents, and as many to
// them.
const maxBeatRate = 200

// beat is the interval of heartbeats that is right now: longer than configured where
// there are so many agents that theirs would be too many. The first to come back
// after a restart count those that follow.
func (d *Dispatcher) beat() time.Duration {
	return max(d.cfg.Heartbeat, 2*time.Duration(d.hosts.expected())*time.Second/maxBeatRate)
}

// farFrom reports whether an interval is off by more than a quarter. Nearer is near
// enough: a fleet that grows would be told all the time.
func farFrom(have, want time.Duration) bool {
	return have > want+want/4 || want > have+have/4
}

// The interval of an open session is changed in three steps, in none of which a side
// can take the other for silent:
//
//  1. The dispatcher sends at the shorter of the old and the new interval and waits
//     for three of the longer. Then it says the new one, BEAT.
//  2. The agent sends and waits by the new one. Then it answers BEAT.
//  3. The dispatcher, which hears that, sends and waits by the new one.
//
// However long either takes to hear the other: until 2 the agent goes by the old
// interval, and from 2 on by the new one. The dispatcher is right for both until 3,
// and that comes after 2. Who is dead is noticed after three of the longer interval,
// counted from when it was last heard: to be told begins nothing anew, and who does not
// answer is told nothing more.
//
// BEAT takes the place of a heartbeat. So telling all is spread as they are, and costs
// no more than they do.

// changeBeat is asked when a heartbeat is to be sent. It returns step 1 in its place if
// the session's interval has become wrong.
func (s *session) changeBeat() (transport.Frame, bool) {
	want := s.d.beat()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != 0 || !farFrom(s.beat, want) {
		return transport.Frame{}, false
	}
	s.asked = want
	s.tr.ChangeBeat(min(s.beat, want), max(s.beat, want))
	return transport.Frame{Type: wire.TypeBeat, Body: wire.Encode(wire.Beat{Heartbeat: int64(want)})}, true
}

// handleBeat is step 3.
func (s *session) handleBeat(f transport.Frame) error {
	var m wire.Beat
	if err := wire.Decode(f.Body, &m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == 0 {
		return fmt.Errorf("BEAT answers nothing: %w", transport.ErrProtocol)
	}
	s.beat, s.asked = s.asked, 0
	s.tr.ChangeBeat(s.beat, s.beat)
	return nil
}

// startBeat starts the heartbeat.
func (s *session) startBeat() {
	if slices.Contains(s.hello.Features, wire.FeatureBeat) {
		s.tr.OnBeat(s.changeBeat)
	}
	s.tr.Beat(s.beat)
}

// patience is how long the agent may be silent.
func (s *session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return silentAfter * max(s.beat, s.asked)
}
