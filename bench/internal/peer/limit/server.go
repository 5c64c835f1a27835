package limit

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// server answers the questions of kept streams.
type server struct {
	net.Listener
	answer func([]byte) ([]byte, error)
	wg     sync.WaitGroup
	mu     sync.Mutex // guards open
	open   map[*gatherer]*yamux.Session
}

func startServer(tc *tls.Config, answer func([]byte) ([]byte, error)) (*server, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", tc)
	if err != nil {
		return nil, err
	}
	s := &server{Listener: l, answer: answer, open: map[*gatherer]*yamux.Session{}}
	s.wg.Go(s.acceptLoop)
	return s, nil
}

func (s *server) acceptLoop() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		g := gather(c)
		session, err := yamux.Server(g, config())
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.open[g] = session
		s.mu.Unlock()
		s.wg.Go(func() { s.streamLoop(g, session) })
	}
}

func (s *server) streamLoop(conn *gatherer, session *yamux.Session) {
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		conn.keep(stream)
		s.wg.Go(func() { s.answerLoop(stream) })
	}
}

// answerLoop ends with the stream.
func (s *server) answerLoop(stream *yamux.Stream) {
	defer stream.Close()
	in := bufio.NewReaderSize(stream, 512)
	for {
		question, err := readFrame(in)
		if err != nil {
			return
		}
		answer, err := s.answer(question)
		if err != nil || writeFrame(stream, answer) != nil {
			return
		}
	}
}

func (s *server) Close() error {
	err := s.Listener.Close()
	s.mu.Lock()
	for conn, session := range s.open {
		conn.end()
		_ = session.Close() // the client may have ended it before
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}
