package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/internal/needs"
)

// TestLimitFiles checks what is written to the files of a cgroup, in a tree of plain files:
// it does not show that a kernel keeps the limits.
func TestLimitFiles(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{
		"memory.max": "536870912", "memory.oom.group": "1", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "100",
	}
	for name := range want {
		write(t, filepath.Join(dir, name), "max")
	}
	l := Limits{Memory: 512 << 20, CPU: 150_000, PIDs: 100}
	if err := cgroup(dir).limit(Limits{CPU: l.CPU}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "memory.max")); got != "max" {
		t.Errorf("a limit that is not there became %q", got)
	}
	if err := cgroup(dir).limit(l); err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		if got := read(t, filepath.Join(dir, name)); got != text {
			t.Errorf("%s is %q, want %q", name, got, text)
		}
	}
	for _, name := range []string{"memory.swap.max", "pids.max"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cgroup(dir).limit(l); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "pids.max") {
		t.Errorf("a limit that cannot be set: %v", err)
	}
}

// TestOutOfMemory reads files as a kernel would leave them.
func TestOutOfMemory(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{
		"":                           false,
		"max 5\noom 0\noom_kill 0\n": false,
		"max 5\noom 0\noom_kill 1\n": false, // for want of memory elsewhere
		"max 5\noom 1\noom_kill 3\n": true,
	} {
		write(t, filepath.Join(dir, "memory.events"), text)
		if got := cgroup(dir).outOfMemory(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestALimitThatCannotBeKeptIsARefusal: nothing starts without the limits that it is to have.
func TestALimitThatCannotBeKeptIsARefusal(t *testing.T) {
	s := shell("exit 0")
	s.Limits = Limits{PIDs: 100}
	for name, dir := range map[string]string{"no cgroup": "", "no controller": fakeCgroup(t, t.TempDir(), "harp.1")} {
		p, err := Start(s, Options{Cgroup: dir})
		var got *ExecError
		if !errors.As(err, &got) || got.Stage != stageCgroup {
			t.Errorf("%s: it started, or %v", name, err)
		}
		if p != nil {
			p.End(0)
			p.Wait()
		}
	}
}

// TestControllersAreEnabled looks at what would be asked of the kernel, in a tree of plain
// files, of which nothing is moved.
func TestControllersAreEnabled(t *testing.T) {
	unit := func(name, procs string) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Join(dir, agentCgroup), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "cgroup.controllers"), "cpu memory pids\n")
		write(t, filepath.Join(dir, "cgroup.subtree_control"), "pids\n")
		write(t, filepath.Join(dir, "cgroup.procs"), procs)
		write(t, filepath.Join(dir, "cgroup.type"), "domain\n")
		return dir
	}
	self := strconv.Itoa(os.Getpid()) + "\n"
	for name, c := range map[string]struct{ dir, controller, want, wrong string }{
		"on":            {unit("x.service", ""), "pids", "pids\n", ""},
		"in a subgroup": {unit("x.service", ""), "memory", "+memory", ""},
		"in the unit":   {unit("x.service", self), "memory", "pids\n", "x.service needs DelegateSubgroup=harp-agent, which systemd 254"},
		"not there":     {unit("x.service", ""), "hugetlb", "pids\n", "has no controller hugetlb"},
	} {
		err := enableController(c.dir, c.controller)
		if got := read(t, filepath.Join(c.dir, "cgroup.subtree_control")); got != c.want {
			t.Errorf("%s: subtree_control is %q, want %q", name, got, c.want)
		}
		if c.wrong == "" && err != nil || c.wrong != "" && (!errors.Is(err, ErrNoCgroups) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
}

// TestAnAgentMakesRoom puts a process with a child into a cgroup of its own, and has it
// give a controller to what is inside: a real one, whichever cgroup v2 has here. A command
// then begins beside the process, and has the controller's files.
func TestAnAgentMakesRoom(t *testing.T) {
	needs.Root(t)
	if err := ProbeCgroups(); err != nil {
		needs.Missing(t, err)
	}
	parent, err := ownCgroup(proc)
	if err != nil {
		t.Fatal(err)
	}
	controller := freeController(t, parent)
	dir := filepath.Join(parent, cgroupPrefix+"room-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		const tries = 1000 // what was killed is about to be gone
		for range tries {
			if err = cgroup(dir).remove(); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error(err)
	})
	p := startPiped(t, Spec{Argv: helper("make room", dir, controller), Env: []string{testPath}}, Options{Stderr: os.Stderr})
	for want := range strings.Lines("moved true\nroom true\nagain true\ncommand true\nlimited true\nleft true\n") {
		if got := p.line(t); got != strings.TrimSpace(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p.End(0)
	p.Wait()
}

// freeController is a controller that the cgroups inside of one have, or get for the test.
func freeController(t *testing.T, parent string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	all := strings.Fields(string(b))
	if err != nil || len(all) == 0 {
		needs.Missing(t, "cgroup v2 has no controller here", err)
	}
	for _, name := range all {
		if is, err := lists(parent, "cgroup.subtree_control", name); is && err == nil {
			return name
		}
	}
	if err := set(parent, "cgroup.subtree_control", "+"+all[0]); err != nil {
		needs.Missing(t, "a controller cannot be enabled for a test", err)
	}
	t.Cleanup(func() { _ = set(parent, "cgroup.subtree_control", "-"+all[0]) }) // unless another uses it now
	return all[0]
}

// makeSomeRoom is the agent of TestAnAgentMakesRoom. It says what is as it should be.
func makeSomeRoom(args []string) {
	dir, controller := args[0], args[1]
	say := func(what string, is bool, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, what, err)
		}
		fmt.Println(what, is && err == nil)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		panic(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	move(map[int]bool{os.Getpid(): true, child.Process.Pid: true}, dir)
	in, err := processesOf(dir)
	say("moved", len(in) == 2, err)

	err = EnableController(controller)
	leaf, unread := processesOf(filepath.Join(dir, agentCgroup))
	say("room", leaf[os.Getpid()] && leaf[child.Process.Pid], errors.Join(err, unread))
	own, err := ownCgroup(proc)
	say("again", own == dir, errors.Join(err, EnableController(controller)))

	group, err := NewCgroup("1")
	say("command", filepath.Dir(group) == dir, err)
	is, err := lists(group, "cgroup.controllers", controller)
	if err == nil {
		var p *Process
		if p, err = Start(Spec{Argv: []string{"/bin/sh", "-c", "exit 0"}}, Options{Cgroup: group}); err == nil {
			p.Wait()
		}
	}
	say("limited", is, err)
	say("left", leavesInto(filepath.Join(dir, agentCgroup)), nil)
	move(map[int]bool{os.Getpid(): true, child.Process.Pid: true}, filepath.Dir(dir))
}

// leavesInto reports whether what a command leaves running is in a cgroup afterwards.
func leavesInto(dir string) bool {
	group, err := NewCgroup("2")
	if err != nil {
		return false
	}
	p, err := Start(Spec{Argv: []string{"/bin/sh", "-c", "sleep 1000 & exit 0"}, Env: []string{testPath}}, Options{Cgroup: group})
	if err != nil {
		return false
	}
	<-p.Exited()
	before, _ := processesOf(group)
	p.Leave()
	after, _ := processesOf(dir)
	p.Wait()
	is := false
	for pid := range before {
		if pid != p.Identity().PID {
			is = after[pid]
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return is && !isDir(group)
}

// TestPrivateTmp checks what a command sees, and that nothing of it is seen outside.
func TestPrivateTmp(t *testing.T) {
	needs.Root(t)
	if err := ProbePrivateTmp(); err != nil {
		needs.Missing(t, err)
	}
	mounts := func() string { return read(t, "/proc/self/mountinfo") }
	before := mounts()
	own, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	if err := os.Chmod(own, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(kept, "secret"), "s")
	outside := "/tmp/harp-outside-" + strconv.Itoa(os.Getpid())
	write(t, outside, "")
	defer func() { _ = os.Remove(outside) }()

	s := shell(`cat $KEPT/secret; echo; test -e $OUTSIDE && echo seen; echo 1 >/tmp/x; cat /var/tmp/x; stat -c %a /tmp`, "KEPT="+kept, "OUTSIDE="+outside)
	s.Tmp, s.Kept, s.User, s.Group, s.Groups, s.Umask = own, kept, "65534", "65534", []string{}, new(0o77)
	if got, stderr, status := run(t, s, launchers["launcher"]); got != "s\n1\n1777\n" || status.Exit != 0 {
		t.Errorf("it saw %q, %q, %+v", got, stderr, status)
	}
	if got := read(t, filepath.Join(own, "x")); got != "1\n" {
		t.Errorf("it wrote %q", got)
	}
	if after := mounts(); after != before {
		t.Errorf("mounts were\n%s\nand are\n%s", before, after)
	}
	s.Kept = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", s.Kept); err != nil {
		t.Fatal(err)
	}
	notStarted(t, s, launchers["launcher"], stageTmp, unix.ENOTDIR)
}
