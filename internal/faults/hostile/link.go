//go:build linux

package hostile

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// The parts of yamux that a connection needs (docs/protocol.md, 2): a header is a version,
// a type, flags, a stream and a length.
const (
	kindData   = 0
	kindWindow = 1
	kindPing   = 2
	kindGoAway = 3

	flagSYN = 1
	flagACK = 2
	flagFIN = 4
	flagRST = 8

	muxHeader   = 12
	firstWindow = 256 << 10 // bytes of a stream, until it is told otherwise
	pieceSize   = 16 << 10  // bytes of a write
)

// link is a connection with streams. What its user sends is sent, be it right or wrong.
type link struct {
	conn net.Conn

	writing sync.Mutex // held for a write

	mu      sync.Mutex // guards what follows
	news    sync.Cond  // of any of it
	streams map[uint32]*stream
	next    uint32 // stream to open
	deaf    bool   // gives no windows, so that the other side has to stop sending
	err     error  // the connection is over
}

// stream is one of them.
type stream struct {
	link   *link
	id     uint32
	window int    // bytes that the other side has room for
	came   []byte // and was not read
	taken  int    // bytes that were read and of which the other side was not told
}

// newLink makes streams of a connection. The opener's are odd.
func newLink(conn net.Conn, opener bool) *link {
	l := &link{conn: conn, streams: map[uint32]*stream{}, next: 2}
	if opener {
		l.next = 1
	}
	l.news.L = &l.mu
	return l
}

// close ends the connection as if its process were gone: what is on the way is not waited
// for.
func (l *link) close() { closeHard(l.conn) }

func closeHard(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

// header is the header of a message.
func header(kind byte, flags uint16, stream, length uint32) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

// write writes bytes as they are.
func (l *link) write(b []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.conn.Write(b)
	return err
}

// openStream opens a stream.
func (l *link) openStream() (*stream, error) {
	l.mu.Lock()
	s := &stream{link: l, id: l.next, window: firstWindow}
	l.next += 2
	l.streams[s.id] = s
	l.mu.Unlock()
	return s, l.write(header(kindWindow, flagSYN, s.id, 0))
}

// awaitStream waits until the other side has opened a stream.
func (l *link) awaitStream(id uint32) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.streams[id] == nil && l.err == nil {
		l.news.Wait()
	}
	if s := l.streams[id]; s != nil {
		return s, nil
	}
	return nil, l.err
}

// readLoop reads until the connection ends.
func (l *link) readLoop() {
	var err error
	for err == nil {
		err = l.readMessage()
	}
	l.close() // the other side waits for it
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.news.Broadcast()
}

// readMessage reads a header and what belongs to it.
func (l *link) readMessage() error {
	var h [muxHeader]byte
	if _, err := io.ReadFull(l.conn, h[:]); err != nil {
		return err
	}
	flags, id := binary.BigEndian.Uint16(h[2:]), binary.BigEndian.Uint32(h[4:])
	length := int(int32(binary.BigEndian.Uint32(h[8:])))
	var body []byte
	if h[1] == kindData && length > 0 {
		body = make([]byte, length)
		if _, err := io.ReadFull(l.conn, body); err != nil {
			return err
		}
	}
	if l.noteMessage(h[1], flags, id, length, body) {
		return l.write(header(kindWindow, flagACK, id, 0))
	}
	return nil
}

// noteMessage takes in what came. It reports whether a stream was opened.
func (l *link) noteMessage(kind byte, flags uint16, id uint32, length int, body []byte) (opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streams[id]
	if s == nil && flags&flagSYN != 0 {
		s = &stream{link: l, id: id, window: firstWindow}
		l.streams[id], opened = s, true
	}
	switch {
	case s == nil:
	case kind == kindWindow:
		s.window += length
	case kind == kindData:
		s.came = append(s.came, body...)
	}
	l.news.Broadcast()
	return opened
}

// Write writes to the stream when the other side has room, in pieces.
func (s *stream) Write(p []byte) (n int, err error) {
	for len(p) > n {
		piece, err := s.awaitWindow(min(len(p)-n, pieceSize))
		if err != nil {
			return n, err
		}
		if err := s.writePiece(p[n : n+piece]); err != nil {
			return n, err
		}
		n += piece
	}
	return n, nil
}

// writePiece writes to the stream, be there room or not.
func (s *stream) writePiece(p []byte) error {
	return s.link.write(append(header(kindData, 0, s.id, uint32(len(p))), p...))
}

// awaitWindow waits for room, and takes up to n bytes of it.
func (s *stream) awaitWindow(n int) (int, error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	for s.window <= 0 && s.link.err == nil {
		s.link.news.Wait()
	}
	if s.link.err != nil {
		return 0, s.link.err
	}
	n = min(n, s.window)
	s.window -= n
	return n, nil
}

// Read reads what came, and tells the other side that there is room again.
func (s *stream) Read(p []byte) (int, error) {
	n, tell, err := s.takeCame(p)
	if tell > 0 && err == nil {
		err = s.link.write(header(kindWindow, 0, s.id, uint32(tell)))
	}
	return n, err
}

func (s *stream) takeCame(p []byte) (n, tell int, err error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	for len(s.came) == 0 && s.link.err == nil {
		s.link.news.Wait()
	}
	if len(s.came) == 0 {
		return 0, 0, s.link.err
	}
	n = copy(p, s.came)
	s.came = s.came[n:]
	if s.taken += n; s.taken >= firstWindow/4 && !s.link.deaf {
		tell, s.taken = s.taken, 0
	}
	return n, tell, nil
}

// stopListening lets the other side send no more than there is room for now.
func (l *link) stopListening() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}
