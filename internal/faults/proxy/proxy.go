// Package proxy is a bad network: a TCP proxy on loopback that delays, cuts,
// swallows and resets what goes through it.
package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Faults is how bad the network is. The zero value is a good one.
type Faults struct {
	Delay  time.Duration // of each piece, one way
	Jitter time.Duration // at most so much more or less
	Rate   int           // bytes a second and connection, each way; 0: any
	Piece  int           // bytes that are passed on at a time; 0: any
	Reset  float64       // the part of new connections that is reset after a while

	DropUp    bool // what the one who dialled says is swallowed
	DropDown  bool // what it is told is swallowed
	StallUp   bool // what it says is not read any more
	StallDown bool
	Refuse    bool // nobody answers: new connections are closed at once
}

// Proxy passes connections on to one address.
type Proxy struct {
	to string
	l  net.Listener

	mu     sync.Mutex // guards what follows
	faults Faults
	change chan struct{} // closed when the faults change
	conns  map[net.Conn]struct{}
	closed bool
	rand   *rand.Rand

	work sync.WaitGroup
}

// New listens on loopback and passes on to the address. The seed decides over
// delays and resets.
func New(to string, seed uint64) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		to: to, l: l, change: make(chan struct{}), conns: map[net.Conn]struct{}{},
		rand: rand.New(rand.NewPCG(seed, 1)),
	}
	p.work.Go(p.acceptLoop)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Set makes the network as bad as f.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	close(p.change)
	p.change = make(chan struct{})
}

// Cut resets every connection there is.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Close ends everything and waits for it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		reset(c)
	}
	close(p.change)
	p.change = make(chan struct{})
	p.mu.Unlock()
	err := p.l.Close()
	p.work.Wait()
	return err
}

// reset closes a connection so that the other side is told at once.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// currentFaults returns the faults and what is closed when they change.
func (p *Proxy) currentFaults() (f Faults, change <-chan struct{}, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.change, p.closed
}

// addConn keeps a connection to be closed; false once the proxy is closed.
func (p *Proxy) addConn(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) removeConn(c net.Conn) {
	reset(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) acceptLoop() {
	for {
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.work.Go(func() { p.proxyConn(c) })
	}
}

// proxyConn passes one connection on until one side of it is over.
func (p *Proxy) proxyConn(near net.Conn) {
	defer p.removeConn(near)
	f, _, _ := p.currentFaults()
	if f.Refuse || !p.addConn(near) {
		return
	}
	far, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil {
		return
	}
	defer p.removeConn(far)
	if !p.addConn(far) {
		return
	}
	if after, doomed := p.doom(f); doomed {
		timer := time.AfterFunc(after, func() { reset(near); reset(far) })
		defer timer.Stop()
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.carry(far, near, true); reset(near); reset(far) })
	ways.Go(func() { p.carry(near, far, false); reset(near); reset(far) })
	ways.Wait()
}

// doom decides whether a new connection is to be reset, and after how long.
func (p *Proxy) doom(f Faults) (after time.Duration, doomed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rand.Float64() >= f.Reset {
		return 0, false
	}
	return time.Duration(p.rand.Int64N(int64(3 * time.Second))), true
}

// piece is a part of what goes through, and when it is due on the other side.
type piece struct {
	data []byte
	due  time.Time
}

// carry carries bytes one way. Reading and writing are apart, so that a delay does
// not become a rate.
func (p *Proxy) carry(to io.Writer, from io.Reader, up bool) {
	ctx, cancel := context.WithCancel(context.Background())
	pieces := make(chan piece, 64)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(pieces)
		p.readLoop(ctx, from, up, pieces)
	})
	p.writeLoop(to, up, pieces)
	cancel()
	if c, ok := from.(net.Conn); ok {
		reset(c)
	}
	reading.Wait()
}

func (p *Proxy) readLoop(ctx context.Context, from io.Reader, up bool, pieces chan<- piece) {
	buf := make([]byte, 32<<10)
	for p.unstalled(up) {
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case pieces <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(p.delay())}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// unstalled waits while this way is not read; false once the proxy is closed.
func (p *Proxy) unstalled(up bool) bool {
	for {
		f, change, closed := p.currentFaults()
		if closed {
			return false
		}
		if up && !f.StallUp || !up && !f.StallDown {
			return true
		}
		<-change
	}
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.faults.Delay
	if j := p.faults.Jitter; j > 0 {
		d += time.Duration(p.rand.Int64N(int64(2*j))) - j
	}
	return max(d, 0)
}

func (p *Proxy) writeLoop(to io.Writer, up bool, pieces <-chan piece) {
	for x := range pieces {
		if wait := time.Until(x.due); wait > 0 {
			time.Sleep(wait)
		}
		f, _, _ := p.currentFaults()
		if up && f.DropUp || !up && f.DropDown {
			continue
		}
		if !writePieces(to, x.data, f) {
			return
		}
	}
}

// writePieces passes a piece on in pieces of its own, no faster than may be.
func writePieces(to io.Writer, data []byte, f Faults) bool {
	size := f.Piece
	if size == 0 {
		size = len(data)
	}
	begun, total := time.Now(), len(data)
	for len(data) > 0 {
		n := min(size, len(data))
		if _, err := to.Write(data[:n]); err != nil {
			return false
		}
		data = data[n:]
	}
	if f.Rate > 0 {
		time.Sleep(time.Duration(total)*time.Second/time.Duration(f.Rate) - time.Since(begun))
	}
	return true
}
