//go:build unix

package supervisor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOutput(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		before := time.Now().Add(-time.Second)
		h := start(t, o, shell(`printf 'a\nb\0\377\n'; echo oops >&2; printf last`))
		l := follow(t, h, 0)
		if got, want := l.text("stdout"), "a\nb\x00\xff\nlast"; got != want {
			t.Errorf("stdout is %q, want %q", got, want)
		}
		if got := l.text("stderr"); got != "oops\n" {
			t.Errorf("stderr is %q", got)
		}
		e := l.end
		if !e.OK || e.Exit != 0 || e.Signal != "" || e.Records != int64(len(l.records)) || e.LastError != "oops" || e.Stopped != nil || e.Gone || e.OutputOpen {
			t.Errorf("the end is %+v", e)
		}
		for _, r := range l.records {
			if at := time.Unix(0, r.Time); at.Before(h.Started().Add(-time.Millisecond)) || at.After(time.Now()) {
				t.Errorf("a record is of %v, the command of %v", at, h.Started())
			}
		}
		if h.Started().Before(before) || h.Started().After(time.Now()) {
			t.Errorf("started %v", h.Started())
		}
	})
}

func TestExitCode(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for _, test := range []struct {
			script  string
			success []int
			exit    int
			signal  string
			ok      bool
		}{
			{"exit 0", nil, 0, "", true},
			{"exit 3", nil, 3, "", false},
			{"exit 3", []int{0, 3}, 3, "", true},
			{"exit 0", []int{3}, 0, "", false},
			{"kill -KILL $$", nil, -1, "SIGKILL", false},
		} {
			spec := shell(test.script)
			spec.Success = test.success
			h, err := supervisor.Start(t.Context(), o, spec)
			if err != nil {
				t.Fatal(err)
			}
			e := follow(t, h, 0).end
			if e.Exit != test.exit || e.Signal != test.signal || e.OK != test.ok {
				t.Errorf("%s with %v: the end is %+v", test.script, test.success, e)
			}
			release(t, o, h)
		}
	})
}

func TestExecFails(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("")
		spec.Command.Argv = []string{"/no/such/program"}
		spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("x")}}
		_, err := supervisor.Start(t.Context(), o, spec)
		var exec *proc.ExecError
		if !errors.As(err, &exec) || !errors.Is(err, fs.ErrNotExist) || exec.Stage == "" {
			t.Fatalf("the error is %#v", err)
		}
		if o.Dir == "" {
			return
		}
		if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if _, err := supervisor.Attach(t.Context(), o, spec.Key); !errors.Is(err, supervisor.ErrNotFound) {
			t.Errorf("attaching returned %v", err)
		}
	})
}

func TestInvalidSpec(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for field, change := range map[string]func(*supervisor.Spec){
			"job":        func(s *supervisor.Spec) { s.Job = "../x" },
			"secrets":    func(s *supervisor.Spec) { s.Secrets = []supervisor.Secret{{Name: "../x"}} },
			"max_record": func(s *supervisor.Spec) { s.MaxRecord = 1 << 30 },
			"result.max": func(s *supervisor.Spec) { s.Result.Max = 1 << 30 },
		} {
			spec := shell("echo started")
			change(&spec)
			_, err := supervisor.Start(t.Context(), o, spec)
			var invalid *harp.FieldError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s: the error is %v", field, err)
			}
		}
	})
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		args := []string{"; rm -rf x", "$(id)", "a\nb", "-n", "\xff\xfe", strings.Repeat("x", 100<<10), ""}
		spec := shell(`for a in "$@"; do printf '%s\0' "$a"; done`, args...)
		spec.Records = supervisor.SplitRaw
		l := follow(t, start(t, o, spec), 0)
		if got, want := l.text("stdout"), strings.Join(args, "\x00")+"\x00"; got != want {
			t.Errorf("%d bytes arrived, want %d", len(got), len(want))
		}
	})
}

func TestStdin(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("cat | wc -c")
		spec.Stdin = make([]byte, 1<<20)
		if got := strings.TrimSpace(follow(t, start(t, o, spec), 0).text("stdout")); got != "1048576" {
			t.Errorf("it read %s bytes", got)
		}
	})
}

func TestStdinNobodyReads(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("exit 0")
		spec.Stdin = make([]byte, 1<<20)
		if e := follow(t, start(t, o, spec), 0).end; !e.OK {
			t.Errorf("the end is %+v", e)
		}
	})
}

// TestStdinIsHeldByWhatIsLeftRunning checks that a command ends though what it leaves running has its input open, and does not read it.
func TestStdinIsHeldByWhatIsLeftRunning(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("exec 3<&0; sleep 5 >&- 2>&- & exit 0") // 3, as a shell gives what it does not wait for another stdin
		spec.Stdin, spec.Leave = make([]byte, 1<<20), true
		began := time.Now()
		if e := follow(t, start(t, o, spec), 0).end; !e.OK {
			t.Errorf("the end is %+v", e)
		}
		if took := time.Since(began); took >= 5*time.Second {
			t.Errorf("it ended with what it left running, after %v", took)
		}
	})
}

func TestStop(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		h := start(t, o, shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done"))
		l := &log{}
		end, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
			l.records = append(l.records, r)
			if string(r.Value) == "ready" {
				h.Stop("cancel")
			}
			return nil
		}, func(s supervisor.Stop) { l.stops = append(l.stops, s) })
		if err != nil {
			t.Fatal(err)
		}
		if got := l.text("stdout"); got != "ready\nbye\n" {
			t.Errorf("stdout is %q", got)
		}
		if len(l.stops) != 1 || l.stops[0].Cause != "cancel" || l.stops[0].Since == 0 {
			t.Errorf("the stops are %+v", l.stops)
		}
		if end.OK || end.Exit != 7 || end.Stopped == nil || end.Stopped.Cause != "cancel" {
			t.Errorf("the end is %+v", end)
		}
	})
}

func TestStopKills(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("trap '' TERM; setsid sh -c 'echo ready; while :; do sleep 1; done' & wait")
		spec.Grace = time.Second
		h := start(t, o, spec)
		end, err := h.Follow(t.Context(), 0, func(int64, supervisor.Record) error {
			h.Stop("cancel")
			return nil
		}, ignore)
		if err != nil {
			t.Fatal(err)
		}
		if end.Signal != "SIGKILL" || end.Killed == 0 || end.Strays == 0 || end.OutputOpen {
			t.Errorf("the end is %+v", end)
		}
	})
}

// TestKillEndsTheGrace checks that a command is killed at once, whether it was asked to
// stop before or not.
func TestKillEndsTheGrace(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for _, before := range []bool{false, true} {
			spec := shell("trap 'echo asked' TERM; setsid sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done' & while :; do wait; done")
			spec.Grace = 24 * time.Hour
			h := start(t, o, spec)
			end, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) error {
				switch {
				case string(r.Value) == "asked", !before:
					h.Kill("cancel")
					h.Kill("cancel")
				case string(r.Value) == "ready":
					h.Stop("cancel")
				}
				return nil
			}, ignore)
			if err != nil {
				t.Fatal(err)
			}
			if end.Signal != "SIGKILL" || end.Killed < 2 || end.Stopped == nil || end.Stopped.Cause != "cancel" {
				t.Errorf("after a stop %v the end is %+v", before, end)
			}
		}
	})
}

func TestSilenceLimit(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("echo one; exec sleep 1000")
		spec.SilenceTimeout = time.Second
		l := follow(t, start(t, o, spec), 0)
		if s := l.end.Stopped; s == nil || s.Cause != "timeout" || s.Limit != spec.SilenceTimeout || l.end.Signal != "SIGTERM" {
			t.Errorf("the end is %+v", l.end)
		}
	})
}

func TestRunningLimit(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("while :; do printf .; sleep 0.01; done")
		spec.SilenceTimeout, spec.MaxExecTime = time.Minute, time.Second
		l := follow(t, start(t, o, spec), 0)
		if s := l.end.Stopped; s == nil || s.Cause != "max_exec_time" || s.Limit != spec.MaxExecTime {
			t.Errorf("the end is %+v", l.end)
		}
		if len(l.stops) != 1 {
			t.Errorf("the stops are %+v", l.stops)
		}
	})
}

func TestOutputStaysOpen(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell("setsid sleep 1000 & echo $!")
		spec.Leave = true
		l := follow(t, start(t, o, spec), 0)
		if !l.end.OK || !l.end.OutputOpen {
			t.Errorf("the end is %+v", l.end)
		}
		endProcess(t, strings.TrimSpace(l.text("stdout")))
	})
}

func TestLeftBehindIsEnded(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		ready := newGate(t).path
		l := follow(t, start(t, o, shell(`setsid sh -c 'echo >"$1"; exec sleep 1000' sh "$1" & read x <"$1"`, ready)), 0)
		if !l.end.OK || l.end.OutputOpen || l.end.Strays == 0 {
			t.Errorf("the end is %+v", l.end)
		}
	})
}

func TestFollowAgain(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		g := newGate(t)
		h := start(t, o, shell(`echo 0; echo 1; read x <"$1"; echo 2`, g.path))
		stop := errors.New("enough")
		_, err := h.Follow(t.Context(), 0, func(n int64, _ supervisor.Record) error {
			if n == 1 {
				return stop
			}
			return nil
		}, ignore)
		if !errors.Is(err, stop) {
			t.Fatalf("following returned %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Follow(ctx, 0, func(int64, supervisor.Record) error { return nil }, ignore); !errors.Is(err, context.Canceled) {
			t.Fatalf("following returned %v", err)
		}
		g.open(t)
		if got := follow(t, h, 1).text("stdout"); got != "1\n2\n" {
			t.Errorf("from record 1 on it is %q", got)
		}
		if got := follow(t, h, 0).text("stdout"); got != "0\n1\n2\n" {
			t.Errorf("from the beginning it is %q", got)
		}
	})
}

func TestNewerFollowerReplaces(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		g := newGate(t)
		h := start(t, o, shell(`echo 0; read x <"$1"; echo 1`, g.path))
		reached, older := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := h.Follow(t.Context(), 0, func(int64, supervisor.Record) error { close(reached); return nil }, ignore)
			older <- err
		}()
		<-reached
		var once bool
		end, err := h.Follow(t.Context(), 0, func(int64, supervisor.Record) error {
			if !once {
				once = true
				if err := <-older; !errors.Is(err, supervisor.ErrReplaced) {
					t.Errorf("the older follower got %v", err)
				}
				g.open(t)
			}
			return nil
		}, ignore)
		if err != nil || end.Records != 2 {
			t.Errorf("the newer follower got %+v, %v", end, err)
		}
	})
}

func TestForget(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		g := newGate(t)
		h := start(t, o, shell(`read x <"$1"`, g.path))
		if err := h.Forget(); !errors.Is(err, supervisor.ErrRunning) {
			t.Errorf("forgetting what runs returned %v", err)
		}
		g.open(t)
		follow(t, h, 0)
		if err := h.Forget(); err != nil {
			t.Fatal(err)
		}
		if keys, err := supervisor.List(o); err != nil || len(keys) > 0 {
			t.Errorf("left: %v, %v", keys, err)
		}
		if _, err := supervisor.Attach(t.Context(), o, h.Key()); !errors.Is(err, supervisor.ErrNotFound) {
			t.Errorf("attaching returned %v", err)
		}
	})
}

func TestLongDirectory(t *testing.T) {
	o := supervised(t)
	o.Dir = filepath.Join(o.Dir, strings.Repeat("long/", 40))
	h, err := supervisor.Attach(t.Context(), o, start(t, o, shell("echo hello")).Key())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if got := follow(t, h, 0).text("stdout"); got != "hello\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestStartTwice(t *testing.T) {
	o := supervised(t)
	spec := shell("echo hello")
	start(t, o, spec)
	if _, err := supervisor.Start(t.Context(), o, spec); !errors.Is(err, supervisor.ErrExists) {
		t.Errorf("starting it again returned %v", err)
	}
	if keys, err := supervisor.List(o); err != nil || len(keys) != 1 || keys[0] != spec.Key {
		t.Errorf("the list is %v, %v", keys, err)
	}
}

// TestCommit checks that nothing is executed before Commit has returned, and nothing at
// all, and that nothing is left, if it returns an error.
func TestCommit(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		path := filepath.Join(t.TempDir(), "executed")
		refused := errors.New("refused")
		o.Commit = func() error {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error("it was executed before")
			}
			return refused
		}
		spec := shell(`: >"$1"`, path)
		if _, err := supervisor.Start(t.Context(), o, spec); !errors.Is(err, refused) {
			t.Fatalf("the error is %v", err)
		}
		if keys, err := supervisor.List(o); err != nil || len(keys) > 0 {
			t.Errorf("left: %v, %v", keys, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it was executed")
		}
		refused = nil
		follow(t, start(t, o, spec), 0)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	})
}
