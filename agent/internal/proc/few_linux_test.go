package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func init() { helpers["few files"] = lookWithFewFiles }

// lookWithFewFiles looks for what carries the mark of a job, while files run out each time that an
// environment is read, and what cgroups there are in one. It prints what it takes to be gone.
func lookWithFewFiles(args []string) {
	const limit = 24
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		return
	}
	left := orphansOf(Identity{Boot: BootID()}, "", args[0], 1)
	none := func(key) bool { return false }
	if found, err := left.find(none); err != nil || len(found) != 1 {
		fmt.Println("with enough files:", len(found), err)
		return
	}
	below := filepath.Join(args[1], cgroupPrefix+"few", "below")
	if err := os.MkdirAll(below, 0o700); err != nil {
		fmt.Println(err)
		return
	}
	giveBack := takeAllFiles()
	dirs, err := cgroup(filepath.Dir(below)).within()
	giveBack()
	if err == nil {
		fmt.Println("with no files it is in", dirs)
	}
	look := left.search
	left.search = func() search {
		s := look()
		isMarked := s.cookied
		s.cookied = func(pid int) (bool, error) {
			defer takeAllFiles()()
			return isMarked(pid)
		}
		return s
	}
	if found, err := left.find(none); err == nil {
		fmt.Println("with no files it finds", len(found))
	}
}

// takeAllFiles opens as many files as there may be.
func takeAllFiles() (closeAll func()) {
	var open []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		open = append(open, fd)
	}
	return func() {
		for _, fd := range open {
			_ = syscall.Close(fd) // nothing was written to it
		}
	}
}

// TestFewFilesHideNothing checks that a process which nothing but its environment, or a cgroup inside
// its own, tells is not taken to be gone where these cannot be read, as files have run out.
func TestFewFilesHideNothing(t *testing.T) {
	const job = "few-files"
	left := exec.Command("sleep", "1000")
	left.Env = []string{"HARP_JOB=" + job, "HARP_ATTEMPT=1"}
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = left.Wait() }() // it is killed
	defer func() { _ = left.Process.Kill() }()
	argv := helper("few files", job, t.TempDir())
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

func init() { helpers["look at oneself"] = lookAtOneself }

// lookAtOneself looks at this process, and at a launcher that has died, while there is no file left. It prints what it
// gets wrong.
func lookAtOneself([]string) {
	const limit = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		return
	}
	giveBack := takeAllFiles()
	id, err := Self()
	giveBack()
	if !IsShort(err) {
		fmt.Printf("with no files it takes itself for %+v, %v\n", id, err)
	}
	if id, err := Self(); err != nil || id.Start == 0 || id.Boot == "" {
		fmt.Printf("with files it takes itself for %+v, %v\n", id, err)
	}
	launcher := exec.Command("true")
	if err := launcher.Start(); err != nil {
		fmt.Println(err)
		return
	}
	for m, err := proc.member(launcher.Process.Pid); err == nil && !m.dead; m, err = proc.member(launcher.Process.Pid) {
		runtime.Gosched()
	}
	time.AfterFunc(50*time.Millisecond, takeAllFiles())
	if !diedAs(launcher.Process.Pid, "true") {
		fmt.Println("a launcher that has died is taken for having become its command")
	}
}

// TestFewFilesChangeNobody checks that a process which cannot be looked at, as files have run out, is not taken for
// one of which nothing is known, nor for another one.
func TestFewFilesChangeNobody(t *testing.T) {
	argv := helper("look at oneself")
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

func init() { helpers["start with few files"] = startWithFewFiles }

// startWithFewFiles starts commands while there are only so many files, from none on until there are enough. It
// prints what is not said to be for want of them.
func startWithFewFiles([]string) {
	const limit = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		return
	}
	if r, w, err := os.Pipe(); err != nil { // so that the runtime has what it needs
		fmt.Println(err)
		return
	} else {
		_, _ = r.Close(), w.Close()
	}
	for name, launcher := range launchers {
		s := shell("exit 0")
		if os.Geteuid() == 0 {
			s.User = "root"
		}
		short := 0
		for n := range limit {
			giveBack := takeAllFilesBut(n)
			p, err := Start(s, Options{Launcher: launcher})
			giveBack()
			if err == nil {
				if id := p.Identity(); id.Start == 0 || id.Boot == "" {
					fmt.Printf("%s, %d files: it is known as %+v\n", name, n, id)
				}
				p.Wait()
				break
			}
			if short++; !IsShort(err) {
				fmt.Printf("%s, %d files: %v\n", name, n, err)
			}
		}
		if short == 0 || short == limit {
			fmt.Printf("%s: short of files %d times\n", name, short)
		}
	}
}

// takeAllFilesBut opens as many files as there may be but so many.
func takeAllFilesBut(n int) (closeAll func()) {
	var spare []int
	for range n {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		spare = append(spare, fd)
	}
	closeAll = takeAllFiles()
	for _, fd := range spare {
		_ = syscall.Close(fd) // nothing was written to it
	}
	return closeAll
}

// TestFewFilesRefuseNothing checks that a command which cannot be started as files have run out, wherever that
// shows, also as its user is looked up, is said to be for want of them, and nothing else of it.
func TestFewFilesRefuseNothing(t *testing.T) {
	argv := helper("start with few files")
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.2000s", err, out)
	}
}
