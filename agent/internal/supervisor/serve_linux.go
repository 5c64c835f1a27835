package supervisor

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

const (
	agentFD = 3

	// abandoned is how long a supervisor waits for an agent to take what there is. After
	// that it ends; its spool file stays.
	abandoned = 7 * 24 * time.Hour

	// acceptPause is the pause before an agent is accepted that could not be.
	acceptPause = 100 * time.Millisecond

	// lookAround is how often it looks whether it is.
	lookAround = time.Minute

	gcPercent   = 50
	memoryLimit = 24 << 20
)

// Main makes this process a supervisor or a launcher if it was started as one, and does
// not return then. Otherwise it notes that supervisors can be had.
func Main() {
	switch os.Args[0] {
	case proc.LaunchName:
		proc.Launch()
	case supervisorName:
		os.Exit(supervise())
	}
	available.Store(true)
}

// supervise is the main of a supervisor.
func supervise() int {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	term := catchSignals()
	syscall.Umask(0o022)
	proc.CloseOnExec()
	file := os.NewFile(agentFD, "agent")
	conn, err := net.FileConn(file)
	drop(file)
	if err != nil {
		return 2
	}
	var h handover
	if err := receive(unbuffered(conn), sayHandover, &h); err != nil {
		return 2
	}
	s, err := setUp(h)
	if err != nil {
		_ = send(conn, tellOutcome, problemOf(err)) // nothing is left of it either way
		return 1
	}
	_ = send(conn, tellOutcome, problem{})
	if err := receive(unbuffered(conn), sayGo, &struct{}{}); err != nil { // the agent has gone, or does not want it
		s.release()
		return 1
	}
	if err := s.begin(h); err != nil {
		s.release()
		_ = send(conn, tellOutcome, problemOf(err)) // nothing is left of it either way
		return 1
	}
	_ = send(conn, tellOutcome, problem{}) // an agent that is gone finds it later
	trim()
	if s.isTied() {
		s.serveOne(conn, term)
	} else {
		s.serve(conn, term)
	}
	return 0
}

// catchSignals leaves it to agents to end this process and its command. The signals are
// caught, as a command would inherit that they are ignored. After TERM, as when the machine
// shuts down, this process ends with its command, which has got TERM too then, and leaves
// its spool file.
func catchSignals() (term <-chan os.Signal) {
	signal.Notify(make(chan os.Signal, 1),
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	return c
}

// server is a supervisor: what it runs, and for whom.
type server struct {
	engine   *engine
	place    place    // none: it ends with its agent
	folder   *os.File // where that is, whatever it is called by now; nil: none
	listener net.Listener
	hello    helloMessage
	gone     chan struct{} // closed when the attempt was removed
	over     chan struct{} // closed when no agent is accepted any more
	once     sync.Once
	works    sync.WaitGroup

	mu        sync.Mutex // guards what follows
	current   *session
	served    chan struct{} // closed when it is not any more
	left      time.Time     // when the last was
	dismissed bool          // nobody is served any more
}

// setUp makes all that a supervisor has. What it made is gone again if that fails.
func setUp(h handover) (*server, error) {
	if err := proc.Adopt(); err != nil {
		return nil, err
	}
	spec := h.spec()
	if h.Dir == "" {
		s := &server{gone: make(chan struct{}), over: make(chan struct{})}
		if err := s.prepareTied(spec, h.Hold); err != nil {
			s.undo()
			return nil, err
		}
		return s, nil
	}
	final, err := placeOf(Options{Dir: h.Dir}, spec.Key)
	if err != nil {
		return nil, err
	}
	dir, err := final.prepare()
	if err != nil {
		return nil, err
	}
	s := &server{place: dir, gone: make(chan struct{}), over: make(chan struct{})}
	if err := s.prepare(spec, h.Hold, final); err != nil {
		s.undo()
		return nil, err
	}
	return s, nil
}

func (s *server) prepare(spec Spec, hold bool, final place) error {
	self, err := proc.Self()
	if err != nil {
		return err
	}
	cgroup, err := newCgroup(spec)
	if err != nil {
		return err
	}
	h := header{Supervisor: self, Created: time.Now().UnixNano(), Spec: spec, Cgroup: cgroup}
	h.Spec.Command.Env = nil // it may hold what is nobody's to read, and nobody needs it
	secrets := newSecretDir(spec)
	h.Secrets = secrets.path
	spool, err := createFile(s.place.spool(), h)
	if err != nil {
		removeCgroup(h.Cgroup)
		return err
	}
	s.engine = newEngine(spec, spool, secrets, h.Cgroup)
	s.engine.pressure.on = hold
	if s.listener, err = s.place.listen(); err != nil {
		return err
	}
	catchCrash(s.place)
	if err := s.place.appear(final); err != nil {
		return err
	}
	s.place = final
	if s.folder, err = final.open(); err != nil {
		return err
	}
	s.hello = helloMessage{Version: protocolVersion, Key: &spec.Key, Supervisor: self}
	return secrets.write(spec.Command)
}

// prepareTied prepares a supervisor that ends with its agent. It keeps nothing on disk but
// secrets.
func (s *server) prepareTied(spec Spec, hold bool) error {
	self, err := proc.Self()
	if err != nil {
		return err
	}
	cgroup, err := newCgroup(spec)
	if err != nil {
		return err
	}
	secrets := newSecretDir(spec)
	s.engine = newEngine(spec, newMemory(spec.MaxSpool), secrets, cgroup)
	s.engine.pressure.on = hold
	s.hello = helloMessage{
		Version: protocolVersion, Key: &spec.Key, Supervisor: self,
		Cgroup: s.engine.cgroup, Secrets: secrets.path,
	}
	return secrets.writeLocked(spec.Command)
}

// isTied reports whether the supervisor ends with its agent.
func (s *server) isTied() bool { return s.place == place{} }

// begin starts the command.
func (s *server) begin(h handover) error {
	if err := s.engine.start(launcherFor(h.Spec)); err != nil {
		return err
	}
	s.hello.Started = s.engine.leader.Time
	if s.isTied() {
		s.hello.Leader = s.engine.leader.Leader
	}
	return nil
}

// launcherFor is the launcher of a command that needs one: this process has the usual mask
// and no descriptors that could leak.
func launcherFor(s Spec) []string {
	if !s.Command.NeedsLauncher() && !s.PrivateTmp {
		return nil
	}
	return selfLauncher
}

// undo removes what there is of an attempt that was not prepared.
func (s *server) undo() {
	s.release()
	if !s.isTied() {
		_ = s.place.remove() // at worst it is found left over
	}
}

// release gives up all of an attempt that was not begun but its spool file. That proves it to
// an agent that comes after the one that wanted it, and is that one's to remove.
func (s *server) release() {
	if s.listener != nil {
		drop(s.listener)
	}
	if s.folder != nil {
		drop(s.folder)
	}
	if s.engine != nil {
		s.engine.secrets.remove()
		removeCgroup(s.engine.cgroup)
		_ = s.engine.spool.Close() // nothing that counts was written to it
	}
}

// catchCrash lets the runtime write there what it says when this process crashes.
func catchCrash(p place) {
	f, err := os.OpenFile(p.path+"/"+crashName, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_ = debug.SetCrashOutput(f, debug.CrashOptions{}) // a crash is silent then
}

// serveOne serves the agent that the supervisor ends with. When that is gone, or TERM comes,
// the command is ended.
func (s *server) serveOne(conn net.Conn, term <-chan os.Signal) {
	over := make(chan struct{})
	s.works.Go(func() {
		select {
		case <-term:
			s.engine.Stop(causeCancel)
		case <-over:
		}
	})
	newSession(s.engine, conn, s.hello, func() error { return nil }).serve()
	s.engine.Hold(false)
	s.engine.Stop(causeCancel)
	s.engine.works.Wait()
	close(over)
	s.works.Wait()
}

// serve serves agents until one has taken all, or none came for long.
func (s *server) serve(first net.Conn, term <-chan os.Signal) {
	s.left = time.Now()
	s.startSession(first)
	s.works.Go(s.acceptLoop)
	s.await(term)
	close(s.over)
	drop(s.listener)
	s.dismiss()
	s.works.Wait()
	s.engine.works.Wait()
	_ = s.engine.spool.Close() // all of it was synced
	drop(s.folder)
}

// await waits until the attempt was removed, or nobody came for it, or this process is to
// end and the command has.
func (s *server) await(term <-chan os.Signal) {
	timer := time.NewTicker(lookAround)
	defer timer.Stop()
	var ended <-chan struct{}
	done := s.engine.done
	for {
		select {
		case <-s.gone:
			return
		case <-done:
			done = nil
			trim()
		case <-term:
			ended = s.engine.done
		case <-ended:
			return
		case now := <-timer.C:
			if s.isAbandoned(now) {
				return
			}
			trim()
		}
	}
}

// dismiss parts with the agent that is served, and with any that comes.
func (s *server) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dismissed = true
	if s.current != nil {
		drop(s.current.conn)
	}
}

// isAbandoned reports whether what there is will not be taken from this process: for too
// long nobody came, or its directory is gone, so that nobody will.
func (s *server) isAbandoned(now time.Time) bool {
	end := s.engine.news().end
	s.mu.Lock()
	defer s.mu.Unlock()
	if end == nil || s.current != nil {
		return false
	}
	long := now.Sub(s.left) > abandoned && now.Sub(time.Unix(0, end.Time)) > abandoned
	return long || !s.whereabouts().exists()
}

// whereabouts is where the attempt's directory is: one above it may have been renamed.
func (s *server) whereabouts() place {
	path, err := os.Readlink(fdPath(s.folder))
	if err != nil || filepath.Base(path) != filepath.Base(s.place.path) {
		return s.place // it is gone, or nobody says where it is
	}
	return place{filepath.Dir(path), path}
}

func (s *server) acceptLoop() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // files or memory have run out: who knocks waits
			select {
			case <-time.After(acceptPause):
			case <-s.over:
			}
			continue
		}
		if checkPeer(conn) != nil {
			drop(conn)
			continue
		}
		s.startSession(conn)
	}
}

// startSession begins to serve an agent, in place of the one before: that is the one which came
// earlier, whoever of the two is served first.
func (s *server) startSession(conn net.Conn) {
	n := newSession(s.engine, conn, s.hello, s.forget)
	served := make(chan struct{})
	s.mu.Lock()
	if s.dismissed { // it was accepted just before the listener was closed
		s.mu.Unlock()
		drop(conn)
		return
	}
	before, beforeServed := s.current, s.served
	s.current, s.served = n, served
	s.mu.Unlock()
	s.works.Go(func() {
		defer close(served)
		if before != nil {
			drop(before.conn)
			<-beforeServed
		}
		s.attendTo(n)
	})
}

// attendTo serves an agent until it has gone.
func (s *server) attendTo(n *session) {
	if n.serve() { // and the agent was told
		s.once.Do(func() { close(s.gone) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == n {
		s.current, s.left = nil, time.Now()
	}
	s.engine.Hold(false)
}

// forget removes the attempt.
func (s *server) forget() error { return s.whereabouts().remove() }
