package harptest

import (
	"context"
	"net"
	"time"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// dialer opens connections to the dispatcher as id.
func (s *System) dialer(id transport.Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	dial := s.network.Dialer(id)
	return func(ctx context.Context, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		return dial(ctx, addr)
	}
}

// identity is who is meant by a host's name, or [CallerName]. Where nobody is the test
// has failed, and what is done is done to nobody.
func (s *System) identity(name string) transport.Identity {
	s.t.Helper()
	if name == CallerName {
		return callerID
	}
	if m := s.machine(name); m != nil {
		return m.id
	}
	return transport.Identity{}
}

// roads are those from a host, or the caller, to the dispatcher and back.
func (s *System) roads(name string) (there, back *memnet.Path) {
	s.t.Helper()
	id := s.identity(name)
	return s.network.Path(id, dispatcherID), s.network.Path(dispatcherID, id)
}

// Cut cuts a host, or [CallerName], off from the dispatcher: nothing that either side
// sends arrives, and neither is told. Both find out by the other's silence. What was
// sent, and whose sender has not given up by then, arrives after [System.Heal].
func (s *System) Cut(name string) {
	s.t.Helper()
	s.Mute(name)
	s.Deafen(name)
}

// Mute is Cut in one direction: what the host sends does not arrive.
func (s *System) Mute(name string) {
	s.t.Helper()
	there, _ := s.roads(name)
	there.Block()
}

// Deafen is Cut in the other: the host does not get what is sent to it.
func (s *System) Deafen(name string) {
	s.t.Helper()
	_, back := s.roads(name)
	back.Block()
}

// Delay makes everything between a host, or [CallerName], and the dispatcher take so
// much longer, each way.
func (s *System) Delay(name string, d time.Duration) {
	s.t.Helper()
	there, back := s.roads(name)
	there.Delay(d)
	back.Delay(d)
}

// Heal undoes Cut, Mute, Deafen and Delay.
func (s *System) Heal(name string) {
	s.t.Helper()
	s.Delay(name, 0)
	there, back := s.roads(name)
	there.Open()
	back.Open()
}

// Reset ends the connections between a host, or [CallerName], and the dispatcher, as a
// firewall does: both sides notice at once and may connect again.
func (s *System) Reset(name string) {
	s.t.Helper()
	s.network.Reset(s.identity(name), dispatcherID)
}
