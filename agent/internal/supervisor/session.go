package supervisor

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// helloTime is how long a hello may take.
const helloTime = 10 * time.Second

// session is one agent that a supervisor serves.
type session struct {
	engine *engine
	conn   net.Conn
	hello  helloMessage
	forget func() error // removes the attempt

	keeps   sync.WaitGroup
	kept    <-chan struct{} // closed when the last of them is done
	follows sync.WaitGroup
	cancel  context.CancelFunc // of the last follow
	last    int64              // its id

	mu  sync.Mutex // guards out
	out *bufio.Writer
}

func newSession(e *engine, conn net.Conn, hello helloMessage, forget func() error) *session {
	done := make(chan struct{})
	close(done)
	return &session{
		kept: done, engine: e, conn: conn, hello: hello, forget: forget,
		out: bufio.NewWriterSize(conn, 32<<10), cancel: func() {},
	}
}

// serve does what the agent asks until that is gone, or has been told that the attempt is: this is what
// it reports.
func (s *session) serve() (forgotten bool) {
	defer s.keeps.Wait()
	defer s.follows.Wait()
	defer func() { s.cancel() }()
	defer s.conn.Close()
	in := newFrames(s.conn)
	if s.greet(in) != nil {
		return false
	}
	for {
		f, err := in.next()
		if err == nil {
			err = s.handle(f)
		}
		if err != nil {
			return errors.Is(err, errForgotten)
		}
	}
}

// greet exchanges hellos. An agent that speaks another version is told which this is.
func (s *session) greet(in *frames) error {
	_ = s.conn.SetDeadline(time.Now().Add(helloTime)) // fails as the next read does
	var theirs helloMessage
	if err := receive(in, sayHello, &theirs); err != nil {
		return err
	}
	if err := s.sendMessage(tellHello, s.hello, nil); err != nil {
		return err
	}
	_ = s.conn.SetDeadline(time.Time{})
	_, err := agree(s.hello.Version, theirs.Version)
	return err
}

// handle does one thing that the agent asks for.
func (s *session) handle(f frame) error {
	var err error
	switch f.kind {
	case sayFollow:
		var m followMessage
		if _, err = f.decode(&m); err == nil {
			s.follow(m)
		}
	case sayUnfollow:
		var m followMessage
		if _, err = f.decode(&m); err == nil && m.ID == s.last {
			s.cancel()
		}
	case sayKeep:
		var m keepMessage
		if _, err = f.decode(&m); err == nil {
			s.keep(m.Next)
		}
	case sayHold:
		var m holdMessage
		if _, err = f.decode(&m); err == nil {
			s.engine.Hold(m.On)
		}
	case sayStop:
		var m stopMessage
		if _, err = f.decode(&m); err == nil {
			s.engine.stopBy(m)
		}
	case sayForget:
		return s.forgetAll()
	}
	return err
}

// keep lets go of records, one time after the other. The disk may stand still at that, and what
// the agent asks for next be a stop.
func (s *session) keep(next int64) {
	before, done := s.kept, make(chan struct{})
	s.kept = done
	s.keeps.Go(func() {
		<-before
		s.engine.Keep(next)
		close(done)
	})
}

// follow begins to tell of records. What was told of before is left.
func (s *session) follow(m followMessage) {
	s.cancel()
	s.follows.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.last = cancel, m.ID
	kept := s.kept
	s.follows.Go(func() {
		<-kept
		s.sendAll(ctx, m)
	})
}

func (s *session) sendAll(ctx context.Context, m followMessage) {
	var buf []byte
	end, err := s.engine.follow(ctx, m.From, follower{
		record: func(n int64, r Record) error {
			buf = recordFrame(buf[:0], m.ID, n, &r)
			return s.write(buf)
		},
		stopping: func(stop Stop) {
			_ = s.sendMessage(tellStopping, stoppingMessage{m.ID, stop}, nil) // the reader sees that the agent is gone
		},
		idle: s.flush,
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		_ = s.sendMessage(tellFailed, failedMessage{m.ID, problemOf(err)}, nil)
	default:
		raw := end.Result
		end.Result = nil
		_ = s.sendMessage(tellEnd, endMessage{m.ID, end}, raw)
	}
}

// forgetAll removes the attempt, if it has ended, and says whether it did.
func (s *session) forgetAll() error {
	err := ErrRunning
	if s.engine.news().end != nil {
		s.cancel()
		s.follows.Wait()
		err = s.forget()
	}
	var p problem
	if err != nil {
		p = problemOf(err)
	}
	if told := s.sendMessage(tellForgot, p, nil); told != nil || err == nil {
		return errors.Join(told, errForgotten)
	}
	return nil
}

var errForgotten = errors.New("forgotten")

func (s *session) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.out.Write(b)
	return err
}

func (s *session) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Flush()
}

// sendMessage writes a message at once.
func (s *session) sendMessage(kind byte, v any, raw []byte) error {
	b, err := jsonFrame(kind, v, raw)
	if err != nil {
		return err
	}
	if err := s.write(b); err != nil {
		return err
	}
	return s.flush()
}
