package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/agent/internal/proc"
)

const (
	supervisorName = "harp-supervise" // argv[0] of a supervisor
	selfPath       = "/proc/self/exe" // also when another binary was installed meanwhile
	attachPause    = 20 * time.Millisecond
	attachTime     = 30 * time.Second // how long one is waited for that is there and does not answer
)

// selfLauncher is the argv of this program as a launcher.
var selfLauncher = []string{selfPath}

var available atomic.Bool

// Available reports whether commands can outlive this process: that is so when main began
// with [Main].
func Available() bool { return available.Load() }

// handover is what a new supervisor is told. Arguments need not be text.
type handover struct {
	Dir       string   `json:"dir"`
	Spec      Spec     `json:"spec"`
	Hold      bool     `json:"hold,omitempty"`
	Argv, Env [][]byte `json:",omitempty"`
	Stdin     []byte   `json:"stdin,omitempty"`
	Secrets   []Secret `json:"secrets,omitempty"`
}

func newHandover(dir string, spec Spec, hold bool) handover {
	h := handover{Dir: dir, Spec: spec, Hold: hold, Stdin: spec.Stdin, Secrets: spec.Secrets}
	for _, s := range spec.Command.Argv {
		h.Argv = append(h.Argv, []byte(s))
	}
	for _, s := range spec.Command.Env {
		h.Env = append(h.Env, []byte(s))
	}
	h.Spec.Command.Argv, h.Spec.Command.Env = nil, nil
	return h
}

func (h handover) spec() Spec {
	spec := h.Spec
	for _, b := range h.Argv {
		spec.Command.Argv = append(spec.Command.Argv, string(b))
	}
	for _, b := range h.Env {
		spec.Command.Env = append(spec.Command.Env, string(b))
	}
	spec.Stdin, spec.Secrets = h.Stdin, h.Secrets
	return spec
}

// What a new supervisor is told, and answers.
const (
	sayHandover = 'i'
	sayGo       = 'g'
	tellOutcome = 'O' // all is prepared; and then: the command was executed
)

// startProcess starts a supervisor and has it start the command.
func startProcess(ctx context.Context, o Options, spec Spec) (*Handle, error) {
	p, env, err := o.place(spec.Key)
	if err != nil {
		return nil, err
	}
	if p.exists() {
		return nil, ErrExists
	}
	conn, child, err := spawn(selfPath, env...)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		drop(conn)
		_, _ = child.Wait() // it was told nothing and ends
		return nil, err
	}
	going, err := instruct(ctx, conn, newHandover(p.root, spec, o.Hold), o.commit)
	if err != nil {
		drop(conn)
		return nil, p.unstarted(child, going, err, o.retract)
	}
	c, err := connect(conn, p)
	if err != nil {
		addChild(child, proc.IdentityOf(child.Pid))
		return nil, errors.Join(ErrLost, err) // the command was executed, whatever that says
	}
	addChild(child, c.hello.Supervisor)
	return &Handle{spec.Key, c}, nil
}

// place is where a new attempt is kept, and what its supervisor has in its environment. One
// that ends with its agent has no place, and is marked as the command is: it is found with
// that by an agent that is to end what the one before has left.
func (o Options) place(k Key) (p place, env []string, err error) {
	if o.Dir == "" {
		return place{}, k.marked(nil), k.check()
	}
	p, err = placeOf(o, k)
	return p, nil, err
}

var errStillborn = errors.New("the supervisor died before it started the command")

// unstarted sees to the end of a supervisor that did not start the command, and returns
// err: ErrLost only if it may have. Otherwise it calls retract for one that was told to go, and
// removes what that has left. One that was not told to go is killed if it does not end.
func (p place) unstarted(child *os.Process, going bool, err error, retract func()) error {
	if going && errors.Is(err, os.ErrDeadlineExceeded) {
		addChild(child, proc.IdentityOf(child.Pid)) // it is there, and what it does shows later
		return err
	}
	if !going {
		slow := time.AfterFunc(helloTime, func() { _ = child.Kill() }) // it may have ended
		defer slow.Stop()
	}
	_, _ = child.Wait() // it says so only when it is about to end
	if errors.Is(err, ErrLost) {
		if going && !p.neverBegan() {
			return err
		}
		err = errStillborn
	}
	if going {
		retract()
	}
	p.clear(child.Pid)
	return err
}

// addChild notes a supervisor that this process has started, by the identity that it has told, and reaps those that have ended and that nobody
// will ask for: whose identity could not be had, for want of files, say.
func addChild(p *os.Process, id proc.Identity) {
	children.Lock()
	defer children.Unlock()
	for of, child := range children.processes {
		if hasEnded(child) {
			delete(children.processes, of)
			_, _ = child.Wait() // how it ended says nothing
		}
	}
	children.processes[id] = p
}

// hasEnded reports whether a child that was not waited for has ended.
func hasEnded(child *os.Process) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, child.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// neverBegan reports whether it is sure that a supervisor that is dead has not executed its
// command.
func (p place) neverBegan() bool {
	t, err := p.inspect()
	return err == nil && t.NeverBegan
}

// clear removes what a supervisor left that did not start its command.
func (p place) clear(pid int) {
	h, err := readHeader(p.spool())
	if err != nil || h.Supervisor.PID != pid {
		return
	}
	secretDir{path: h.Secrets}.remove()
	removeCgroup(h.Cgroup)
	_ = p.remove() // at worst it is found left over
}

// instruct tells a new supervisor what to do, and to go once commit has returned. It
// reports whether it was told to go. The error is what hindered it, commit's, or ErrLost.
func instruct(ctx context.Context, conn net.Conn, h handover, commit func() error) (going bool, err error) {
	deadline, limited := ctx.Deadline()
	if limited {
		_ = conn.SetDeadline(deadline) // fails as the next write does
	}
	if err := ask(conn, sayHandover, h); err != nil {
		return false, err
	}
	if err := commit(); err != nil {
		return false, err
	}
	if limited {
		_ = conn.SetDeadline(time.Now().Add(goTime))
		defer func() { _ = conn.SetDeadline(time.Time{}) }()
	}
	return true, ask(conn, sayGo, struct{}{})
}

// goTime is how long it may take to execute a command, which can hang with a disk or a
// network. What is slower is looked for again.
var goTime = 10 * time.Second

// ask says something to a new supervisor and waits until it has done that.
func ask(conn net.Conn, kind byte, message any) error {
	if err := send(conn, kind, message); err != nil {
		return errors.Join(ErrLost, err)
	}
	var p problem
	if err := receive(unbuffered(conn), tellOutcome, &p); err != nil {
		return errors.Join(ErrLost, err)
	}
	if p != (problem{}) {
		return p.err()
	}
	return nil
}

// spawn starts a program, this one, as a supervisor, in a session of its own, with a connection.
func spawn(program string, env ...string) (net.Conn, *os.Process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "agent")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	defer null.Close()
	child, err := os.StartProcess(program, []string{supervisorName}, &os.ProcAttr{
		Dir: "/", Env: append(env, "TMPDIR="+os.TempDir()),
		Files: []*os.File{null, null, null, theirs},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, child, nil
}

// Attach finds an attempt that was started before, also by another process. What is left
// of the command of a supervisor that is dead is ended first, which may take its grace:
// then the handle has the records that there are and an [End] with Gone, if the true one
// is not known.
//
// The error is [ErrNotFound] if there is nothing of it; [ErrGone] if nothing runs and what
// is left cannot be read, with a *[DamagedError] or [ErrVersion]. After any other the
// command may run: that of ctx; [ErrVersion]; or one of the system.
func Attach(ctx context.Context, o Options, k Key) (*Handle, error) {
	if o.Dir == "" {
		return nil, ErrNotFound
	}
	p, err := placeOf(o, k)
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		lives, err := p.lives()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNotFound
		}
		if err != nil {
			return nil, err
		}
		h, err := readHeader(p.spool())
		if err != nil && h.Supervisor.PID == 0 { // it is not known whose it is
			if why := unreadable(err); !lives && errors.Is(why, ErrGone) {
				return nil, cmp.Or(EndOrphans(ctx, k, 0), why)
			}
			return nil, err
		}
		if !lives {
			p.reap(h.Supervisor)
			grace := h.Spec.Grace
			if o.NoGrace {
				grace = 0
			}
			d, err := takeOver(ctx, p, h, grace)
			if err != nil {
				return nil, err
			}
			return &Handle{k, d}, nil
		}
		if err != nil {
			return nil, err
		}
		c, err := p.dial(ctx, h)
		if err == nil {
			c.Hold(o.Hold)
			return &Handle{k, c}, nil
		}
		if errors.Is(err, ErrVersion) || time.Since(began) > attachTime {
			return nil, err
		}
		select { // it is about to end
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(attachPause):
		}
	}
}

// lives reports whether the attempt's supervisor does: as long as it has locked its spool
// file. Errors: those of the file system, fs.ErrNotExist if there is no such attempt.
func (p place) lives() (bool, error) {
	f, err := os.Open(p.spool())
	if err != nil {
		return false, err
	}
	defer f.Close()
	return isLocked(f)
}

// dial connects to the supervisor whose spool file has a header, unless ctx ends before that
// answers.
func (p place) dial(ctx context.Context, h header) (*remote, error) {
	var conn net.Conn
	err := p.viaSocket(func(path string) (err error) {
		conn, err = net.Dial("unix", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() { drop(conn) })
	c, err := connect(conn, p)
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, errors.Join(ctx.Err(), c.Close())
	}
	if c.hello.Supervisor != h.Supervisor {
		return nil, errors.Join(ErrLost, c.Close())
	}
	return c, nil
}

// listen makes the socket of an attempt.
func (p place) listen() (*net.UnixListener, error) {
	var l *net.UnixListener
	err := p.viaSocket(func(path string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		return err
	})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// viaSocket calls fn with a path of the socket that is short enough for an address,
// however deep the directory is.
func (p place) viaSocket(fn func(path string) error) error {
	dir, err := p.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(fdPath(dir) + "/" + socketName)
}

// open opens the directory for nothing but to know it by.
func (p place) open() (*os.File, error) {
	return os.OpenFile(p.path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// fdPath is a path of what is open, wherever it is.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

var errStranger = errors.New("the other side of the socket is another user's")

// checkPeer returns an error if the other side is a process of another user.
func checkPeer(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(control, err); err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return errStranger
	}
	return nil
}
