package supervisor

import (
	"bytes"
	"errors"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fewFiles is a listener of a process whose files have run out for a while.
type fewFiles struct {
	net.Listener
	fail  int
	conns chan net.Conn
}

func (l *fewFiles) Accept() (net.Conn, error) {
	if l.fail > 0 {
		l.fail--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// TestFewFilesKeepNoAgentAway checks that a supervisor that could not accept an agent, as there
// were too many files, accepts it later: nobody else has what its command prints.
func TestFewFilesKeepNoAgentAway(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		drop(f)
	}
	l := &fewFiles{fail: 3, conns: make(chan net.Conn, 1)}
	l.conns <- ends[0]
	s := &server{engine: goldenEngine(), listener: l, hello: goldenHello(protocolVersion)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		s.acceptLoop()
		drop(ends[0]) // of what it did not accept, nobody hears
	})
	c, err := connect(ends[1], place{})
	if err != nil {
		t.Errorf("it is not accepted: %v", err)
	} else {
		if !reflect.DeepEqual(c.hello, s.hello) {
			t.Errorf("the hello is %+v", c.hello)
		}
		drop(c.conn)
		c.loop.Wait()
	}
	close(l.conns)
	accepting.Wait()
	s.works.Wait()
}

// noFiles is a listener of a process whose files have run out, until it is closed.
type noFiles struct {
	net.Listener
	closed atomic.Bool
}

func (l *noFiles) Accept() (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// TestFewFilesKeepNoSupervisor checks that a supervisor which accepts nobody, as files have run out, tries it in steps,
// and ends at once when it is to.
func TestFewFilesKeepNoSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(noFiles)
		s := &server{listener: l, over: make(chan struct{})}
		var accepting sync.WaitGroup
		accepting.Go(s.acceptLoop)
		time.Sleep(10*acceptPause + 1)
		began := time.Now()
		l.closed.Store(true)
		close(s.over)
		accepting.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("it ended after %v", took)
		}
	})
}

// stuck is a spool whose disk stands still until it moves.
type stuck struct {
	spool
	inFlush, inKeep func()
	moves           chan struct{}
}

func (s stuck) flush() int64 {
	s.inFlush()
	<-s.moves
	return s.spool.flush()
}

func (s stuck) keep(next int64) {
	s.inKeep()
	<-s.moves
	s.spool.keep(next)
}

// TestStopWhileTheDiskStandsStill checks that a command is stopped, by whoever asks for it and by
// its limits, while what it has printed cannot be written, nor what was kept be let go; that in
// this time it is not silent; and that what stopped it is known in the end.
func TestStopWhileTheDiskStandsStill(t *testing.T) {
	for cause, c := range map[string]struct {
		limit time.Duration
		stop  stopMessage
	}{
		causeCancel: {stop: stopMessage{Cause: causeCancel}}, "at once": {stop: stopMessage{Cause: "at once", Now: true}},
		causeRunning: {limit: time.Hour},
	} {
		t.Run(cause, func(t *testing.T) {
			flushes, keeps := make(chan struct{}), make(chan struct{})
			disk := stuck{
				newMemory(1 << 20), sync.OnceFunc(func() { close(flushes) }), sync.OnceFunc(func() { close(keeps) }),
				make(chan struct{}),
			}
			spec := Spec{Key: Key{"01JOB", 1}, MaxExecTime: c.limit, Grace: time.Hour, MaxRecord: 1 << 10}
			spec.Command.Argv, spec.Command.Dir = []string{"/bin/sh", "-c", "echo x; exec sleep 1000"}, "/"
			e := newEngine(spec, disk, secretDir{}, "")
			if err := e.start(nil); err != nil {
				t.Fatal(err)
			}
			<-flushes
			e.mu.Lock()
			if e.pressure.waiting == 0 {
				t.Error("the time counts as its silence")
			}
			e.mu.Unlock()
			s := newSession(e, nil, helloMessage{}, nil)
			ask := func(kind byte, m any) {
				b, err := jsonFrame(kind, m, nil)
				if err != nil {
					t.Fatal(err)
				}
				f, err := newFrames(bytes.NewReader(b)).next()
				if err = errors.Join(err, s.handle(f)); err != nil {
					t.Fatal(err)
				}
			}
			ask(sayKeep, keepMessage{Next: 0})
			<-keeps
			ask(sayHold, holdMessage{On: true})
			if c.limit == 0 {
				ask(sayStop, c.stop)
			} else {
				e.enforce(time.Now().Add(c.limit)) // a short limit might be over before it has printed
			}
			<-e.process.Exited()
			close(disk.moves)
			<-e.done
			s.keeps.Wait()
			if end := e.news().end; end.Stopped == nil || end.Stopped.Cause != cause || end.Records != 1 {
				t.Errorf("it ended with %+v, stopped by %+v", end, end.Stopped)
			}
		})
	}
}

// TestForgetIsAnsweredBeforeTheSupervisorGoes checks that a supervisor waits, when it has removed its attempt, until
// the agent that asked for that has its answer: without one that does not know what became of it.
func TestForgetIsAnsweredBeforeTheSupervisorGoes(t *testing.T) {
	p, _ := beginning(t)
	if err := os.MkdirAll(p.path, 0o700); err != nil {
		t.Fatal(err)
	}
	folder, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	theirs, ours := net.Pipe() // what nobody reads is not written
	s := &server{engine: goldenEngine(), place: p, folder: folder, hello: goldenHello(protocolVersion), gone: make(chan struct{})}
	s.startSession(theirs)
	in := newFrames(ours)
	if err := send(ours, sayHello, helloMessage{Version: protocolVersion}); err != nil {
		t.Fatal(err)
	}
	if err := receive(in, tellHello, new(helloMessage)); err != nil {
		t.Fatal(err)
	}
	if err := send(ours, sayForget, struct{}{}); err != nil {
		t.Fatal(err)
	}
	for p.exists() {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-s.gone:
		t.Error("it goes, and has not answered")
	case <-time.After(100 * time.Millisecond):
	}
	var answer problem
	if err := receive(in, tellForgot, &answer); err != nil || answer != (problem{}) {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
	<-s.gone
	s.works.Wait()
}
