package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/needs"
)

func beginning(t *testing.T) (place, Spec) {
	t.Helper()
	spec, err := Spec{
		Key: Key{harp.NewID(), 1}, Command: proc.Spec{Argv: []string{"/bin/sh", "-c", "echo begun"}},
		Secrets: []Secret{{Name: "key", Content: []byte("hush")}},
	}.checked()
	if err != nil {
		t.Fatal(err)
	}
	p, err := placeOf(Options{Dir: t.TempDir()}, spec.Key)
	if err != nil {
		t.Fatal(err)
	}
	return p, spec
}

// TestKilledBeforeItBegins checks that a supervisor that is killed before it was told to
// go leaves nothing: the attempt can be started again, and was not lost.
func TestKilledBeforeItBegins(t *testing.T) {
	p, spec := beginning(t)
	conn, child, err := spawn(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(conn, sayHandover, newHandover(p.root, spec, false)); err != nil {
		t.Fatal(err)
	}
	h, err := readHeader(p.spool())
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	drop(conn)
	if err := p.unstarted(child, false, errors.Join(ErrLost, fs.ErrClosed), func() { t.Error("what was not committed is retracted") }); errors.Is(err, ErrLost) {
		t.Errorf("nothing can have been started, the error is %v", err)
	}
	if _, err := os.Stat(h.Secrets); !errors.Is(err, fs.ErrNotExist) || h.Secrets == "" {
		t.Errorf("the secrets in %q: %v", h.Secrets, err)
	}
	again, err := Start(t.Context(), Options{Dir: p.root}, spec)
	if err != nil {
		t.Fatal(err)
	}
	endOf(t, again)
}

// TestSlowToBegin checks that an agent does not wait for ever for a command to be executed:
// that it may have been is said, and what became of it shows later.
func TestSlowToBegin(t *testing.T) {
	was := goTime
	goTime = time.Second // in which go is said, however busy the machine is
	defer func() { goTime = was }()
	p, spec := beginning(t)
	conn, child, err := spawn(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() error {
		if err := child.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_, err := syscall.Wait4(child.Pid, nil, syscall.WUNTRACED, nil) // until it has stopped
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	going, err := instruct(ctx, conn, newHandover(p.root, spec, false), stop)
	drop(conn)
	if err = p.unstarted(child, going, err, func() { t.Error("what may begin is retracted") }); !errors.Is(err, ErrLost) || !going {
		t.Errorf("told to go: %v, the error is %v", going, err)
	}
	if err := child.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h, err := Attach(t.Context(), Options{Dir: p.root}, spec.Key)
	if err != nil {
		t.Fatal(err)
	}
	endOf(t, h)
}

// endOf follows a command that prints that it has begun, and forgets it.
func endOf(t *testing.T, h *Handle) {
	t.Helper()
	var said strings.Builder
	end, err := h.Follow(t.Context(), 0, func(_ int64, r Record) error {
		said.Write(r.Value)
		return nil
	}, func(Stop) {})
	if err != nil || !end.OK || said.String() != "begun" {
		t.Errorf("it said %q and ended with %+v, %v", said.String(), end, err)
	}
	if err := errors.Join(h.Forget(), h.Close()); err != nil {
		t.Error(err)
	}
}

// TestPassedEnvironmentIsNotOnDisk checks that what a command gets of the agent's own
// environment is not in the spool file.
func TestPassedEnvironmentIsNotOnDisk(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.Env = append(spec.Command.Env, "TOKEN=canary")
	var onDisk []byte
	h, err := Start(t.Context(), Options{Dir: p.root, Commit: func() (err error) {
		onDisk, err = os.ReadFile(p.spool())
		return err
	}}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(onDisk); strings.Contains(text, "canary") || strings.Contains(text, "hush") || !strings.Contains(text, spec.Job) {
		t.Errorf("the spool file begins with %.200q", text)
	}
	endOf(t, h)
}

// TestAgentDiesBeforeItSaysGo checks that a supervisor whose agent died before it was told to
// go leaves the proof that its command never began, and nothing else.
func TestAgentDiesBeforeItSaysGo(t *testing.T) {
	for name, kill := range map[string]bool{"alone": false, "with its supervisor": true} {
		t.Run(name, func(t *testing.T) {
			p, spec := beginning(t)
			conn, child, err := spawn(selfPath)
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(conn, sayHandover, newHandover(p.root, spec, false)); err != nil {
				t.Fatal(err)
			}
			h, err := readHeader(p.spool())
			if err != nil {
				t.Fatal(err)
			}
			if kill {
				if err := child.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			drop(conn) // as the agent's death does
			o := Options{Dir: p.root}
			if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || !trace.NeverBegan {
				t.Errorf("its spool file says %+v, %v", trace, err)
			}
			_, _ = child.Wait() // it was killed, or saw that nobody wants it
			if err := Discard(o, spec.Key); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(h.Secrets); !errors.Is(err, fs.ErrNotExist) || h.Secrets == "" {
				t.Errorf("the secrets in %q: %v", h.Secrets, err)
			}
			again, err := Start(t.Context(), o, spec)
			if err != nil {
				t.Fatal(err)
			}
			if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || trace.NeverBegan {
				t.Errorf("of one that began it says %+v, %v", trace, err)
			}
			endOf(t, again)
		})
	}
}

// TestDamageProvesNothing checks that a command which may have been executed is not taken for
// one that never began as the note that it was is not any more as it was written.
func TestDamageProvesNothing(t *testing.T) {
	p, spec := beginning(t)
	if err := os.MkdirAll(p.path, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	f, err := createFile(p.spool(), header{Supervisor: self, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	at := f.notes
	if trace, err := p.inspect(); err != nil || trace.NeverBegan || !trace.undecided {
		t.Errorf("of one that has not begun yet it says %+v, %v", trace, err)
	}
	if err := errors.Join(f.note(entryGo, struct{}{}, nil), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p.spool())
	if err != nil {
		t.Fatal(err)
	}
	for ; at < f.notes; at++ {
		for name, damaged := range map[string]byte{"another": b[at] ^ 1, "whole": b[at]} {
			if err := os.WriteFile(p.spool(), slices.Concat(b[:at], []byte{damaged}, b[at+1:]), 0o600); err != nil {
				t.Fatal(err)
			}
			if trace, err := p.inspect(); err != nil || trace.NeverBegan || trace.undecided {
				t.Errorf("with %s byte at %d it says %+v, %v", name, at, trace, err)
			}
		}
	}
}

// leased is a program that cannot be executed yet: who tries waits until the lease is let go.
func leased(t *testing.T, text string) (path string, release func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = f.Close() }) // which ends the lease
	t.Cleanup(release)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		needs.Missing(t, "lease: ", err)
	}
	return path, release
}

// childOf waits until a process has a child of a name, and returns that.
func childOf(t *testing.T, parent int, name string) (pid int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
		for _, path := range tasks {
			b, _ := os.ReadFile(path)
			for _, child := range strings.Fields(string(b)) {
				comm, _ := os.ReadFile("/proc/" + child + "/comm")
				if strings.TrimSpace(string(comm)) == name {
					pid, err := strconv.Atoi(child)
					if err != nil {
						t.Fatal(err)
					}
					return pid
				}
			}
		}
	}
	t.Fatalf("%d has no child %s", parent, name)
	return 0
}

// TestAnotherBootProvesNothing checks that an attempt of which nothing says that it was to be executed counts as one
// that never began only where that is known of this boot: what was not synced went with the one before.
func TestAnotherBootProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		boot string
		want bool
	}{"this one": {proc.BootID(), true}, "another one": {"another", false}, "not known": {"", false}} {
		t.Run(name, func(t *testing.T) {
			p, spec := beginning(t)
			if err := os.MkdirAll(p.path, 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := createFile(p.spool(), header{Supervisor: proc.Identity{PID: 1 << 30, Boot: c.boot}, Spec: spec})
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if trace, err := p.inspect(); err != nil || trace.NeverBegan != c.want {
				t.Errorf("it says %+v, %v", trace, err)
			}
		})
	}
}

// TestKilledAsItBegins checks that a command does not begin after it was said that nothing of it
// runs, though its supervisor was killed right before it was executed and it is in no cgroup.
func TestKilledAsItBegins(t *testing.T) {
	p, spec := beginning(t)
	begun := filepath.Join(t.TempDir(), "begun")
	program, release := leased(t, "#!/bin/sh\n: >"+begun+"\n")
	spec.Command.Argv, spec.Command.NoNewPrivileges = []string{program}, true
	conn, child, err := spawn(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	var instructing sync.WaitGroup
	instructing.Go(func() {
		if _, err := instruct(t.Context(), conn, newHandover(p.root, spec, false), Options{}.commit); !errors.Is(err, ErrLost) {
			t.Errorf("the error is %v", err)
		}
	})
	launcher := childOf(t, child.Pid, "(harp-launch)")
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = child.Wait() // it was killed
	instructing.Wait()
	drop(conn)
	h, err := readHeader(p.spool())
	if err != nil {
		t.Fatal(err)
	}
	defer removeCgroup(h.Cgroup)
	h.Cgroup = ""
	d, err := takeOver(t.Context(), p, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	drop(d)
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", launcher)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("it is about to begin: %s", stat)
		release()
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(begun); err == nil {
				t.Fatal("it has begun")
			}
		}
	}
}

// TestNumberOfAnother checks that a supervisor which is dead is not taken for one of this
// process that lives and has its number.
func TestNumberOfAnother(t *testing.T) {
	living := exec.Command("cat")
	stdin, err := living.StdinPipe()
	if err == nil {
		err = living.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	addChild(living.Process, proc.IdentityOf(living.Process.Pid))
	p, spec := beginning(t)
	if err := os.MkdirAll(p.path, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := createFile(p.spool(), header{Supervisor: proc.Identity{PID: living.Process.Pid, Start: 1, Boot: proc.BootID()}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	drop(f)
	attached := make(chan error, 1)
	go func() {
		h, err := Attach(t.Context(), Options{Dir: p.root}, spec.Key)
		if err == nil {
			err = h.Close()
		}
		attached <- err
	}()
	select {
	case err := <-attached:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for another")
	}
	drop(stdin)
	place{}.reap(proc.IdentityOf(living.Process.Pid))
	if err := living.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the one that lived was not waited for: %v", err)
	}
}

// TestRetract checks that a start that was committed is taken back when the command could not
// be executed, while what proves that is there still.
func TestRetract(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.Argv = []string{"/no/such/program"}
	o := Options{Dir: p.root}
	retracted := 0
	o.Retract = func() {
		retracted++
		if trace, err := Inspect(t.Context(), o, spec.Key); err != nil || !trace.NeverBegan {
			t.Errorf("its spool file says %+v, %v", trace, err)
		}
	}
	var failed *ExecError
	if _, err := Start(t.Context(), o, spec); !errors.As(err, &failed) || retracted != 1 {
		t.Errorf("retracted %d times, the error is %v", retracted, err)
	}
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, o := range []Options{{}, {inside: true}} {
		retracted = 0
		o.Retract = func() { retracted++ }
		if _, err := Start(t.Context(), o, spec); !errors.As(err, &failed) || retracted != 1 {
			t.Errorf("retracted %d times, the error is %v", retracted, err)
		}
	}
}

// TestUnknownUserIsNotCommitted checks that nothing is committed of a command whose user is not known,
// where it is to have secrets, which would be nobody's.
func TestUnknownUserIsNotCommitted(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.User = "no such user"
	for name, o := range map[string]Options{"with a directory": {Dir: p.root}, "tied": {}, "inside": {inside: true}} {
		o.Commit = func() error { t.Error(name + ": it is committed"); return nil }
		var failed *ExecError
		if _, err := Start(t.Context(), o, spec); !errors.As(err, &failed) || failed.Stage != "user" {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestGoneBeforeAnything checks that nothing is begun for an agent that is gone.
func TestGoneBeforeAnything(t *testing.T) {
	p, spec := beginning(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, o := range map[string]Options{"with a directory": {Dir: p.root}, "tied": {}, "inside": {inside: true}} {
		o.Commit = func() error { t.Error(name + ": it is committed"); return nil }
		if _, err := Start(ctx, o, spec); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestAttachIsGivenUp checks that who gives up on a supervisor that does not answer does not wait
// until that should have.
func TestAttachIsGivenUp(t *testing.T) {
	p, spec := beginning(t)
	spec.Command.Argv = []string{"/bin/cat"}
	o := Options{Dir: p.root}
	h, err := Start(t.Context(), o, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	head, err := readHeader(p.spool())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(head.Supervisor.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(head.Supervisor.PID, nil, syscall.WUNTRACED, nil); err != nil { // until it has stopped
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Attach(over, o, spec.Key); !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	if err := syscall.Kill(head.Supervisor.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if h, err = Attach(t.Context(), o, spec.Key); err != nil {
		t.Fatal(err)
	}
	h.Kill("cancel")
	if _, err := h.Follow(t.Context(), 0, func(int64, Record) error { return nil }, func(Stop) {}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(h.Forget(), h.Close()); err != nil {
		t.Error(err)
	}
}

// TestDiskFailsAsACommandBegins checks that nobody takes a command that runs for one that never
// began, as its file system fails, and is mounted again while the machine goes on: what was synced
// before, by others too, is there, and what was written later is not.
func TestDiskFailsAsACommandBegins(t *testing.T) {
	needs.Root(t)
	needs.Programs(t, "mount", "mkfs.ext4", "truncate")
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	mount := []string{"mount", "-o", "loop", image, dir}
	for _, argv := range [][]string{{"truncate", "-s", "64M", image}, {"mkfs.ext4", "-q", image}, mount} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			needs.Missing(t, argv, err, string(out))
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	onDisk, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer onDisk.Close()
	k, o := Key{harp.NewID(), 1}, Options{Dir: filepath.Join(dir, "run")}
	begun := filepath.Join(t.TempDir(), "begun")
	script := Spec{Key: k, Command: proc.Spec{Argv: []string{"/bin/sh", "-c", "echo > " + begun + "; exec sleep 1000"}}}
	o.Commit = func() error { return unix.Syncfs(int(onDisk.Fd())) }
	h, err := Start(t.Context(), o, script)
	if err != nil {
		t.Fatal(err)
	}
	file, err := readHeader(h.attempt.(*remote).place.spool())
	if err != nil {
		t.Fatal(err)
	}
	defer removeCgroup(file.Cgroup)
	defer func() { _ = EndOrphans(context.Background(), k, 0) }()
	for !fileExists(begun) {
		time.Sleep(time.Millisecond)
	}
	const shutdown, noFlush = 0x8004587D, 2 // EXT4_IOC_SHUTDOWN
	if err := unix.IoctlSetPointerInt(int(onDisk.Fd()), shutdown, noFlush); err != nil {
		needs.Missing(t, "shut down: ", err)
	}
	supervisor := h.attempt.(*remote).hello.Supervisor.PID
	if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = h.Close() // nobody is there any more
	h.attempt.(*remote).place.reap(h.attempt.(*remote).hello.Supervisor)
	_ = onDisk.Close() // it was only opened
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if out, err := exec.Command(mount[0], mount[1:]...).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if trace, err := Inspect(t.Context(), o, k); trace.NeverBegan {
		t.Errorf("of a command that runs it is said that it never began: %v", err)
	}
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
