package supervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// TestSecretsOfWhoWasKilledWithItsAgent checks that the files of secrets of a command are removed with the list of
// attempts when they are an hour old, where the process that was to remove them was killed together with its agent, and
// no directory says whose they are. Those of one that lives, those that are young and what others have made stay.
func TestSecretsOfWhoWasKilledWithItsAgent(t *testing.T) {
	for name, dir := range map[string]string{"tied": "", "inside": insideArg} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			for _, other := range []string{"harp-secret-OTHER", "other.lock"} {
				if err := os.WriteFile(filepath.Join(tmp, other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("other.lock", filepath.Join(tmp, "harp-secret-LINK.lock")); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(filepath.Join(tmp, "harp-secret-FIFO.lock"), 0o600); err != nil {
				t.Fatal(err)
			}
			alien := ""
			if os.Geteuid() == 0 {
				alien = filepath.Join(tmp, "harp-secret-ALIEN.lock")
				if err := errors.Join(os.WriteFile(alien, nil, 0o600), os.Chown(alien, 1, 1)); err != nil {
					t.Fatal(err)
				}
			}
			a := startAgent(t, supervisor.Options{Dir: dir}, shell("").Key, `echo $$; echo "$1"; exec sleep 1000`, secretArg)
			var said [2]string
			for i := range said {
				line, err := a.out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				_, said[i], _ = strings.Cut(strings.TrimSpace(line), " ")
			}
			secret := said[1]
			look := func(when string, want bool) {
				t.Helper()
				if _, err := supervisor.List(supervisor.Options{Dir: t.TempDir()}); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(secret); (err == nil) != want {
					t.Errorf("%s: %v", when, err)
				}
			}
			age(t, tmp, 61*time.Minute)
			look("while it is used", true)
			if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it does nothing when its supervisor dies
				t.Fatal(err)
			}
			if dir == "" {
				kill(t, supervisorOf(t, said[0]))
			}
			a.kill(t)
			command, err := strconv.Atoi(said[0])
			if err != nil {
				t.Fatal(err)
			}
			kill(t, command)
			age(t, tmp, 50*time.Minute)
			look("when they are killed just now", true)
			age(t, tmp, 61*time.Minute)
			look("an hour later", false)
			left, err := os.ReadDir(tmp)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range left {
				if e.Name() != filepath.Base(alien) {
					names = append(names, e.Name())
				}
			}
			if _, err := os.Stat(alien); alien != "" && err != nil {
				t.Error("what is another user's is gone")
			}
			if is := strings.Join(names, " "); is != "harp-secret-FIFO.lock harp-secret-LINK.lock harp-secret-OTHER other.lock" {
				t.Errorf("what is left: %s", is)
			}
		})
	}
}

// age makes what is in a directory as old as that.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-by)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(dir, e.Name()), then, then); err != nil {
			t.Fatal(err)
		}
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, strconv.Itoa(pid))
}
