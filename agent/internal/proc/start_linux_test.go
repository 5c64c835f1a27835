package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// bothWays runs a test with a launcher and without.
func bothWays(t *testing.T, test func(t *testing.T, launcher []string)) {
	t.Helper()
	for name, launcher := range launchers {
		t.Run(name, func(t *testing.T) { test(t, launcher) })
	}
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	want := []string{
		"; rm -rf x", "$(id)", "`id`", "a\nb", "-rf", "--", "", " ", "*", `\`, `"'`, "\xff\xfe", "ä",
		strings.Repeat("x", 100<<10), strings.Repeat("y", 131_071),
	}
	bothWays(t, func(t *testing.T, launcher []string) {
		stdout, _, _ := run(t, Spec{Argv: helper("argv", want...)}, launcher)
		var got [][]byte
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d arguments arrived of %d", len(got), len(want))
		}
		for i, w := range want {
			if string(got[i]) != w {
				t.Errorf("argument %d: %.40q arrived, want %.40q", i, got[i], w)
			}
		}
	})
}

func TestTheEnvironmentIsWhatIsGiven(t *testing.T) {
	t.Setenv("LD_PRELOAD_OF_PARENT", "/nowhere.so")
	t.Setenv("PATH", "/nowhere:"+os.Getenv("PATH"))
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"none": nil,
		"some": {"A=1", "LC_ALL=C", "EMPTY=", "B=\xff", "A=2"},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, launcher []string) {
				stdout, _, _ := run(t, Spec{Argv: []string{env, "-0"}, Env: want}, launcher)
				if got := strings.Join(want, "\x00"); strings.TrimSuffix(stdout, "\x00") != got {
					t.Errorf("got %q, want %q", stdout, got)
				}
			})
		})
	}
}

func TestThePathIsThatOfTheCommand(t *testing.T) {
	dir := t.TempDir()
	program(t, filepath.Join(dir, "thing"), "#!/bin/sh\necho $0 $1\n")
	t.Setenv("PATH", "/nowhere")
	bothWays(t, func(t *testing.T, launcher []string) {
		for _, s := range []Spec{
			{Argv: []string{"thing", "1"}, Env: []string{"PATH=.:/nowhere:" + dir, "PATH=/other"}},
			{Argv: []string{"./thing", "1"}, Dir: dir},
		} {
			if got, _, _ := run(t, s, launcher); !strings.HasSuffix(got, "/thing 1\n") {
				t.Errorf("%v printed %q", s, got)
			}
		}
	})
	t.Chdir(dir)
	if _, err := Start(Spec{Argv: []string{"thing"}, Env: []string{"PATH=."}}, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found in this directory: %v", err)
	}
}

func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	leak, err := syscall.Dup(1) // not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(leak) }()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{"launcher", "direct"} {
		t.Run(name, func(t *testing.T) {
			launcher := launchers[name]
			if launcher == nil { // what is not closed on exec, it cannot close
				closeOnExec()
			}
			if got, _, _ := run(t, shell(`ls /proc/$$/fd`), launcher); got != "0\n1\n2\n" {
				t.Errorf("descriptors: %q", got)
			}
		})
	}
}

func TestStdinIsEmptyAndPipesBlock(t *testing.T) {
	bothWays(t, func(t *testing.T, launcher []string) {
		if stdout, _, status := run(t, shell(`cat; readlink /proc/self/fd/0`), launcher); stdout != "/dev/null\n" || status.Exit != 0 {
			t.Errorf("got %q, %+v", stdout, status)
		}
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		r, w := os.NewFile(uintptr(ends[0]), "r"), os.NewFile(uintptr(ends[1]), "w")
		defer w.Close()
		defer r.Close()
		s := Spec{Argv: []string{"grep", "flags:", "/proc/self/fdinfo/0"}, Env: []string{testPath}}
		p := startPiped(t, s, Options{Stdin: r, Launcher: launcher})
		var flags int
		if _, err := fmt.Sscanf(p.line(t), "flags: %o", &flags); err != nil || flags&syscall.O_NONBLOCK != 0 {
			t.Errorf("flags of stdin: %o, %v", flags, err)
		}
	})
}

func TestIgnoredSignalsAreHeeded(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if _, _, status := run(t, shell(`kill -HUP $$; exit 1`), launchers["launcher"]); status.Signal != "SIGHUP" {
		t.Errorf("got %+v, want it ended by SIGHUP", status)
	}
}

func TestMaskAndLimits(t *testing.T) {
	const script = `umask; ulimit -n; ulimit -Hn; ulimit -c`
	was, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	limits := strings.SplitAfterN(string(was), "\n", 2)[1]
	if got, _, _ := run(t, shell(script), launchers["launcher"]); got != "0022\n"+limits {
		t.Errorf("got %q, want mask 0022 and %q", got, limits)
	}
	umask := 0o077
	s := shell(script)
	s.Umask = &umask
	s.Rlimits = []Rlimit{{"nofile", 100, 200}, {"core", 0, 0}, {"as", 1 << 30, 1 << 30}}
	if got, stderr, _ := run(t, s, launchers["launcher"]); got != "0077\n100\n200\n0\n" {
		t.Errorf("got %q %q", got, stderr)
	}
}

func TestUser(t *testing.T) {
	needs.Root(t)
	bothWays(t, func(t *testing.T, launcher []string) {
		const script = `id -u; id -g; id -G; grep Groups: /proc/self/status`
		for _, c := range []struct {
			spec Spec
			want string
		}{
			{Spec{User: "65534", Group: "65533", Groups: []string{"12", "11"}}, "65534\n65533\n65533 11 12\nGroups:\t11 12 \n"},
			{Spec{User: "65534", Group: "65533", Groups: []string{}}, "65534\n65533\n65533\nGroups:\t \n"},
			{Spec{User: "4242", Group: "65533"}, "4242\n65533\n65533\nGroups:\t \n"},
			{Spec{Group: "root", Groups: []string{"11"}}, "0\n0\n0 11\nGroups:\t11 \n"},
		} {
			s := shell(script)
			s.User, s.Group, s.Groups = c.spec.User, c.spec.Group, c.spec.Groups
			if got, stderr, _ := run(t, s, launcher); got != c.want {
				t.Errorf("%+v: got %q %q, want %q", c.spec, got, stderr, c.want)
			}
		}
		s := shell(script)
		s.User = "nobody"
		if got, _, _ := run(t, s, launcher); strings.HasPrefix(got, "0\n") || strings.Contains(got, " 0") {
			t.Errorf("nobody is %q", got)
		}
	})
}

// TestOneself checks that a command may be started as the user that starts it, by one that may not be another,
// and that it has the groups of the user database where that can be.
func TestOneself(t *testing.T) {
	needs.Root(t)
	for _, user := range []string{"65534", "0"} {
		o := order{Spec: shell(`case " $(id -G) " in *" 4242 "*) exit 3; esac; echo up`), How: "adopted", Lines: 1, Exited: true}
		o.Spec.User, o.Spec.Group = user, user
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		groups := []string{}
		if user == "0" {
			groups = append(groups, "4242")
		}
		p := startPiped(t, Spec{
			Argv: helper("supervise", string(text)), User: user, Group: user, Groups: groups,
		}, Options{Stderr: os.Stderr})
		if got := p.outcome(t); got.Status.Exit != 0 || got.Status.Signal != "" {
			t.Errorf("as %s: got %+v", user, got)
		}
	}
}

// TestTheFirstDescriptorsAreKept checks that all descriptors but three are closed on exec.
func TestTheFirstDescriptorsAreKept(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "helper", "descriptors")
	cmd.ExtraFiles = []*os.File{os.Stderr, os.Stderr} // not closed on exec there
	if got, err := cmd.Output(); string(got) != "[0 0 0 1 1]\n" || err != nil {
		t.Errorf("closed on exec are %s, %v", got, err)
	}
}

// printDescriptors prints which of the first descriptors are closed on exec.
func printDescriptors([]string) {
	closeOnExec()
	var flags [5]uintptr
	for fd := range flags {
		flags[fd], _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	}
	fmt.Println(flags)
}

func TestWhatIsNotStarted(t *testing.T) {
	dir := t.TempDir()
	program(t, filepath.Join(dir, "text"), "#!/nowhere/sh\n")
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	umask := 0o1000
	for name, c := range map[string]struct {
		spec  Spec
		stage string
		is    error
	}{
		"no argv":         {Spec{}, "lookup", errNoArgv},
		"not in PATH":     {Spec{Argv: []string{"nothing"}, Env: []string{testPath}}, "lookup", fs.ErrNotExist},
		"no PATH":         {Spec{Argv: []string{"sh"}}, "lookup", fs.ErrNotExist},
		"data in PATH":    {Spec{Argv: []string{"data"}, Env: []string{"PATH=" + dir}}, "lookup", fs.ErrPermission},
		"unseen in PATH":  {Spec{Argv: []string{"data"}, Env: []string{"PATH=" + dir + "/loop:/nowhere"}}, "lookup", syscall.ELOOP},
		"no file":         {Spec{Argv: []string{"/nowhere/x"}}, "exec", fs.ErrNotExist},
		"no interpreter":  {Spec{Argv: []string{dir + "/text"}}, "exec", fs.ErrNotExist},
		"data":            {Spec{Argv: []string{dir + "/data"}}, "exec", fs.ErrPermission},
		"a directory":     {Spec{Argv: []string{dir}}, "exec", fs.ErrPermission},
		"NUL":             {Spec{Argv: []string{"/bin/sh", "a\x00b"}}, "exec", syscall.EINVAL},
		"too long":        {Spec{Argv: []string{"/bin/sh", strings.Repeat("x", 131_072)}}, "exec", syscall.E2BIG},
		"no directory":    {Spec{Argv: []string{"/bin/sh"}, Dir: "/nowhere"}, "dir", fs.ErrNotExist},
		"dir is a file":   {Spec{Argv: []string{"/bin/sh"}, Dir: dir + "/data"}, "dir", errNotDir},
		"relative dir":    {Spec{Argv: []string{"/bin/sh"}, Dir: "tmp"}, "dir", errNotAbsolute},
		"unknown user":    {Spec{Argv: []string{"/bin/sh"}, User: "no such user"}, "user", nil},
		"unknown group":   {Spec{Argv: []string{"/bin/sh"}, Group: "no such group"}, "user", nil},
		"no group":        {Spec{Argv: []string{"/bin/sh"}, User: "4242"}, "user", errNoGroup},
		"nobody's number": {Spec{Argv: []string{"/bin/sh"}, User: "4294967295", Group: "0"}, "user", nil},
		"unknown limit":   {Spec{Argv: []string{"/bin/sh"}, Rlimits: []Rlimit{{"files", 1, 1}}}, "limits", nil},
		"soft above hard": {Spec{Argv: []string{"/bin/sh"}, Rlimits: []Rlimit{{"nofile", 2, 1}}}, "limits", nil},
		"mask":            {Spec{Argv: []string{"/bin/sh"}, Umask: &umask}, "limits", nil},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, launcher []string) {
				before := childCount()
				notStarted(t, c.spec, launcher, c.stage, c.is)
				if got := childCount(); got != before {
					t.Errorf("%d children are left", got-before)
				}
			})
		})
	}
}

func notStarted(t *testing.T, s Spec, launcher []string, stage string, is error) {
	t.Helper()
	_, err := Start(s, Options{Launcher: launcher})
	var got *ExecError
	if !errors.As(err, &got) || got.Stage != stage || is != nil && !errors.Is(err, is) {
		t.Errorf("got %v, want stage %s, %v", err, stage, is)
	}
}

// TestProgramThatIsBeingWritten checks that a program that is just being replaced in its place is not refused for good: it can
// be executed when that is done.
func TestProgramThatIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	content, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	program(t, path, string(content))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	bothWays(t, func(t *testing.T, launcher []string) {
		if _, err := Start(Spec{Argv: []string{path}}, Options{Launcher: launcher}); !IsShort(err) {
			t.Errorf("while it is written: %v", err)
		}
	})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	bothWays(t, func(t *testing.T, launcher []string) {
		if _, _, status := run(t, Spec{Argv: []string{path}}, launcher); status.Exit != 0 {
			t.Errorf("it ended with %+v", status)
		}
	})
}

func TestLimitsNeedALauncher(t *testing.T) {
	umask := 0o22
	notStarted(t, Spec{Argv: []string{"/bin/sh"}, Umask: &umask}, nil, "limits", errNoLauncher)
	notStarted(t, Spec{Argv: []string{"/bin/sh"}, Rlimits: []Rlimit{{"nofile", 1, 1}}}, nil, "limits", errNoLauncher)
}

func TestALauncherThatDies(t *testing.T) {
	notStarted(t, shell("exit 0"), []string{"/bin/false"}, "exec", errLauncherDied)
	notStarted(t, shell("exit 0"), []string{"/nowhere"}, "exec", fs.ErrNotExist)
	// One that dies when it has said that it is ready.
	script := filepath.Join(t.TempDir(), "launcher")
	program(t, script, "#!/bin/sh\nprintf '("+LaunchName+")' >/proc/$$/comm; cat <&3 >/dev/null; printf '!' >&4; exec 4>&-; kill -KILL $$\n")
	notStarted(t, shell("exit 0"), []string{script}, "exec", errLauncherDied)
	notStarted(t, shell("exit 0"), helper("ready"), "exec", errLauncherDied)
	if _, err := Start(shell("exit 0"), Options{Launcher: helper("ready")}); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("how it died is not said: %v", err)
	}
}

// dieWhenReady is a launcher that dies at the moment in which it says that it is ready.
func dieWhenReady([]string) {
	var i instructions
	if err := json.NewDecoder(os.NewFile(instructionFD, "instructions")).Decode(&i); err != nil {
		panic(err)
	}
	i.become(lastWord{os.NewFile(reportFD, "report")})
}

// lastWord is a file to which a process writes once.
type lastWord struct{ *os.File }

func (w lastWord) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	return n, errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
}

func TestTheDirectoryMustBeTheUsers(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := shell("exit 0")
	s.User, s.Group, s.Dir = "65534", "65534", dir
	notStarted(t, s, launchers["launcher"], "dir", fs.ErrPermission)
	notStarted(t, s, launchers["direct"], "exec", fs.ErrPermission) // there the two are one
}

func TestStatus(t *testing.T) {
	bothWays(t, func(t *testing.T, launcher []string) {
		_, _, s := run(t, shell(`i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 42`), launcher)
		if s.Exit != 42 || s.Signal != "" || s.CPUTime <= 0 || s.MaxRSS < 100<<10 || s.RanFor <= 0 {
			t.Errorf("got %+v", s)
		}
		_, _, s = run(t, shell(`kill -USR1 $$`), launcher)
		if s.Exit != -1 || s.Signal != "SIGUSR1" || s.Killed != 0 {
			t.Errorf("got %+v", s)
		}
	})
}
