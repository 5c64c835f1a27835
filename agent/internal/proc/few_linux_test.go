package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
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
