package supervisor_test

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// isGone reports whether a process has ended.
func isGone(t *testing.T, pid string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	return err != nil || strings.Contains(string(b), ") Z ")
}

// awaitGone waits until a process has ended, for a while only: then it fails, and ends it.
func awaitGone(t *testing.T, pid string) {
	t.Helper()
	began := time.Now()
	for !isGone(t, pid) {
		if time.Since(began) > time.Minute {
			t.Error("it runs on")
			endProcess(t, pid)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAgentWithoutADirectoryIsKilled checks that a command which cannot outlive its agent
// ends with it, and the files of its secrets, though the agent had no time to see to that.
func TestAgentWithoutADirectoryIsKilled(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"with all": "", "what has left it": "setsid env -i "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, supervisor.Options{}, shell("").Key, how+`sh -c 'echo $$; echo "$0"; exec sleep 1000' "$1" & wait`, secretArg)
			var said [2]string
			for i := range said {
				line, err := a.out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				_, said[i], _ = strings.Cut(strings.TrimSpace(line), " ")
			}
			if _, err := os.Stat(said[1]); err != nil {
				t.Fatal(err)
			}
			a.kill(t)
			awaitGone(t, said[0])
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(filepath.Dir(said[1])); errors.Is(err, fs.ErrNotExist) {
					return
				}
			}
			t.Error("the secret is still there")
			_ = os.RemoveAll(filepath.Dir(said[1]))
		})
	}
}

// TestNothingEscapes checks that a process is ended which has left session, group and
// environment of its command, also where the agent is nobody and has no directory.
func TestNothingEscapes(t *testing.T) {
	needs.Root(t)
	t.Parallel()
	for name, dir := range map[string]string{"inside": "", "supervised": nobodysDir(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := asNobody(nobodyArg, dir, `(setsid env -i sh -c 'echo $$; exec sleep 1000' &); exec sleep 1000`)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			pid := ""
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if said, ok := strings.CutPrefix(lines.Text(), "begun "); ok {
					pid = said
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := strconv.Atoi(pid); err != nil {
				t.Fatal(err)
			}
			if !isGone(t, pid) {
				t.Error("it runs on")
				endProcess(t, pid)
			}
		})
	}
}

// TestKilledBesideItsAgent checks that what is left of a command whose supervisor was to end
// with this process, and died before it, is ended.
func TestKilledBesideItsAgent(t *testing.T) {
	t.Parallel()
	spec := shell(`setsid sleep 1000 >/dev/null 2>&1 & echo $$; echo $!; echo "$1"; exec sleep 1000`, supervisor.SecretPath("key"))
	spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("x")}}
	h, err := supervisor.Start(t.Context(), supervisor.Options{}, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var printed []string
	_, err = h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
		printed = append(printed, string(r.Value))
		if len(printed) == 3 {
			return syscall.Kill(supervisorOf(t, printed[0]), syscall.SIGKILL)
		}
		return nil
	}, ignore)
	if !errors.Is(err, supervisor.ErrLost) {
		t.Fatalf("following returned %v", err)
	}
	if err := h.EndOrphans(t.Context(), spec.Grace); err != nil {
		t.Error(err)
	}
	for _, pid := range printed[:2] {
		if !isGone(t, pid) {
			t.Error("it runs on")
			endProcess(t, pid)
		}
	}
	if _, err := os.Stat(filepath.Dir(printed[2])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secret is still there: %v", err)
	}
}

// TestOrphansOfWhatIsLeft checks that what a left process leaves in its turn does not stay dead
// and unreaped as long as nobody takes what the command has printed.
func TestOrphansOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	g, orphan := newGate(t), filepath.Join(t.TempDir(), "orphan")
	spec := shell(`setsid sh -c 'read x <"$1"; (sh -c "echo \$\$ >$2" &); exec sleep 1000' sh "$1" "$2" >/dev/null 2>&1 & echo $!`, g.path, orphan)
	spec.Leave = true
	l := follow(t, start(t, supervised(t), spec), 0)
	defer endProcess(t, strings.TrimSpace(l.text("stdout")))
	g.open(t)
	pid := ""
	until(t, "there is an orphan", func() bool {
		b, err := os.ReadFile(orphan)
		pid = strings.TrimSpace(string(b))
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("it is not reaped: %s", b)
		}
	}
}

// until waits for what another process does, which tells nobody.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal("in vain: " + what)
		}
	}
}
