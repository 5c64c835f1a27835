package memnet

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp/transport"
)

// link is what the two ends of a connection share. Side 0 dialled.
type link struct {
	network *Network
	serial  int // of the network's connections
	ids     [2]transport.Identity
	addrs   [2]string
	paths   [2]*Path         // from each side to the other
	hello   chan string      // the protocol the client speaks
	verdict chan error       // the server's
	streams [2]chan *stream  // opened by the other side, not yet accepted
	cut     [2]chan struct{} // closed when the connection has ended for that side

	opened atomic.Uint32 // streams so far

	born  time.Time
	heard [2]atomic.Int64 // when each side last read something, since born

	mu  sync.Mutex // guards what follows; never held while blocked
	why [2]error   // why it ended
}

// unaccepted is how many streams are opened before more have to wait.
const unaccepted = 128

func newLink(n *Network, serial int, ids [2]transport.Identity, addr string) *link {
	l := &link{
		network: n,
		serial:  serial,
		ids:     ids,
		addrs:   [2]string{net.JoinHostPort(ids[0].Name, strconv.Itoa(serial)), addr},
		paths:   [2]*Path{n.Path(ids[0], ids[1]), n.Path(ids[1], ids[0])},
		hello:   make(chan string, 1),
		verdict: make(chan error, 1),
		born:    time.Now(),
	}
	for side := range l.streams {
		l.streams[side] = make(chan *stream, unaccepted)
		l.cut[side] = make(chan struct{})
	}
	return l
}

// register makes the network know the connection.
func (l *link) register() {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.network.links[l] = struct{}{}
}

// endFrom ends the connection for a side, and for the other when it can hear of it.
func (l *link) endFrom(side int, why error) {
	l.endAt(side, why)
	l.paths[side].carry(func() { l.endAt(1-side, why) })
}

// endBoth ends the connection for both sides at once.
func (l *link) endBoth(why error) {
	for side := range l.cut {
		l.endAt(side, why)
	}
}

// endAt ends the connection for a side. The first reason counts.
func (l *link) endAt(side int, why error) {
	l.mu.Lock()
	if l.why[side] == nil {
		l.why[side] = why
		close(l.cut[side])
	}
	over := l.why[1-side] != nil
	l.mu.Unlock()
	if over {
		l.network.mu.Lock()
		delete(l.network.links, l)
		l.network.mu.Unlock()
	}
}

// cause returns why the connection ended for a side, nil while it has not.
func (l *link) cause(side int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why[side]
}

// pipe returns a pipe from a side to the other.
func (l *link) pipe(from, size int) *pipe {
	to := 1 - from
	hear := func() { l.heard[to].Store(int64(time.Since(l.born))) }
	return newPipe(size, ends{left: l.cut[from], cut: l.cut[to], path: l.paths[from], hear: hear})
}
