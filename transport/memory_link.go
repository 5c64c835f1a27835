package transport

import (
	"net"
	"strconv"
	"sync"
)

// memoryLink is what the two ends of a connection share. Side 0 dialled.
type memoryLink struct {
	network *Network
	serial  int // of the network's connections
	ids     [2]Identity
	addrs   [2]string
	roads   [2]*Road              // from each side to the other
	hello   chan string           // the protocol the client speaks
	verdict chan error            // the server's
	streams [2]chan *memoryStream // opened by the other side, not yet accepted
	cut     [2]chan struct{}      // closed when the connection has ended for that side

	mu     sync.Mutex // guards what follows; never held while blocked
	why    [2]error   // why it ended
	opener [2]bool    // the sides that accept no streams
}

func newMemoryLink(n *Network, serial int, ids [2]Identity, addr string) *memoryLink {
	l := &memoryLink{
		network: n,
		serial:  serial,
		ids:     ids,
		addrs:   [2]string{net.JoinHostPort(ids[0].Name, strconv.Itoa(serial)), addr},
		roads:   [2]*Road{n.Road(ids[0], ids[1]), n.Road(ids[1], ids[0])},
		hello:   make(chan string, 1),
		verdict: make(chan error, 1),
	}
	for side := range l.streams {
		l.streams[side] = make(chan *memoryStream, openBacklog)
		l.cut[side] = make(chan struct{})
	}
	return l
}

// begin makes the network know the connection.
func (l *memoryLink) begin() {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.network.links[l] = struct{}{}
}

// end ends the connection for a side, and for the other when it can hear of it.
func (l *memoryLink) end(side int, why error) {
	l.endAt(side, why)
	l.roads[side].carry(func() { l.endAt(1-side, why) })
}

// endBoth ends the connection for both sides at once.
func (l *memoryLink) endBoth(why error) {
	for side := range l.cut {
		l.endAt(side, why)
	}
}

// endAt ends the connection for a side. The first reason counts.
func (l *memoryLink) endAt(side int, why error) {
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
func (l *memoryLink) cause(side int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why[side]
}

// pipe returns a pipe from a side to the other.
func (l *memoryLink) pipe(from, size int) *pipe {
	return newPipe(size, ends{left: l.cut[from], cut: l.cut[1-from], road: l.roads[from], back: l.roads[1-from]})
}
