package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/harpcaller/harp/agent/supervise"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// The scripts in testdata/script run the program as people do: each in processes of
// its own, with its own home and configuration folder. What goes on beside a script is
// this binary, under the race detector if the tests are; the hundreds of commands that
// end at once are the plain program, since the detector takes longer to begin than
// they do to end.

func TestMain(m *testing.M) {
	supervise.Main() // an agent of a script starts this binary again, as the owner of a command
	testscript.Main(leakFree{m}, map[string]func(){"harp": main})
}

// leakFree fails if goroutines are left when the tests are over.
type leakFree struct{ m *testing.M }

func (l leakFree) Run() int {
	code := l.m.Run()
	if plainFolder != "" {
		_ = os.RemoveAll(plainFolder) // it is one for temporary things
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScript(t *testing.T) {
	t.Parallel()
	program, err := plainProgram()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for name, value := range map[string]string{
				"HOME":            filepath.Join(env.WorkDir, "home"),
				"HARP_CONFIG_DIR": filepath.Join(env.WorkDir, "config"),
				"TZ":              "UTC",
				// The race detector lets a program sleep for a second before it ends.
				"GORACE": "atexit_sleep_ms=10",
			} {
				env.Setenv(name, value)
			}
			env.Setenv("DAEMONS", env.Getenv("PATH"))
			env.Setenv("PATH", program+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Values[processesKey{}] = processes{}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits,

			"eventually": cmdEventually,
			"completes":  cmdCompletes,

			"capture": cmdCapture,
			"start":   cmdStart,
			"end":     cmdEnd,
			"certs":   cmdCerts,
			"append":  cmdAppend,
			"signal":  cmdSignal,
			"await":   cmdAwait,
			"receive": cmdReceive,
			"publish": cmdPublish,
		},
	})
}

// condition says what the machine has. In CI nothing may be missing.
func condition(name string) (bool, error) {
	switch is := os.Geteuid() == 0; {
	case name != "root":
		return false, fmt.Errorf("there is no condition %s", name)
	case !is && os.Getenv("CI") != "":
		return false, errors.New("only root can do this")
	default:
		return is, nil
	}
}

// plainProgram is the folder of the program, built without the race detector. Who needs
// it first waits for it, and the others then find what was compiled: the flags are the
// same everywhere.
var plainProgram = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "harp-"); err != nil {
		return "", err
	}
	plainFolder = dir
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), ".")
	build.Env = append(os.Environ(), "GOFLAGS="+docsFlags)
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, said)
	}
	return dir, nil
})

// plainFolder is removed when the tests are over.
var plainFolder string

// docsFlags are for what is compiled in tests: it is good in any folder, and is linked
// without what only debuggers want.
const docsFlags = "-trimpath -ldflags=-w"

// exits CODE PROGRAM [ARG]... runs a program that must exit with the code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG]...")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with %d, want %s", args[1], code, args[0])
	}
}

// eventually CODE PROGRAM [ARG]... runs a program again and again until it exits with
// the code: what others have to be told takes its time.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually CODE PROGRAM [ARG]...")
	}
	for late := time.Now().Add(startsWithin); time.Now().Before(late); {
		code := 0
		var exit *exec.ExitError
		if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if strconv.Itoa(code) == args[0] {
			return
		}
	}
	ts.Fatalf("%s did not exit with %s", args[1], args[0])
}

// completes PROGRAM [ARG]... runs a program that asks what a shell is to offer. When it
// took all the time that a shell waits, on a machine that is busy, it is asked again.
func cmdCompletes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: completes PROGRAM [ARG]...")
	}
	for late := time.Now().Add(startsWithin); time.Now().Before(late); {
		begun := time.Now()
		ts.Check(ts.Exec(args[0], args[1:]...))
		if time.Since(begun) < completesWithin {
			return
		}
	}
}

// capture NAME sets a variable to what the last program printed.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// processes are those that start has started and end has not ended.
type processes map[string]*process

type processesKey struct{}

// process is a program that runs beside the script.
type process struct {
	cmd  *exec.Cmd
	said sync.WaitGroup // those who read what it prints

	more chan struct{} // the log has grown

	mu   sync.Mutex // guards what follows
	log  bytes.Buffer
	seen int // how much of the log await has gone over
}

// startsWithin is how long a program may take to print what shows that it is ready.
const startsWithin = time.Minute

// start NAME PATTERN PROGRAM [ARG]... starts a program and waits until it prints a
// line that matches the pattern, on stdout or stderr. The variable NAME is set to
// the pattern's first group.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: start NAME PATTERN PROGRAM [ARG]...")
	}
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	path := args[2]
	for _, dir := range filepath.SplitList(ts.Getenv("DAEMONS")) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			path = filepath.Join(dir, path)
			break
		}
	}
	p := &process{cmd: exec.Command(path, args[3:]...), more: make(chan struct{}, 1)}
	p.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "HARP_CONFIG_DIR", "HARP_ADDR", "HARP_CERT", "HARP_KEY", "HARP_CA", "PATH", "TZ", "TMPDIR", "GORACE", "SSL_CERT_FILE"} {
		p.cmd.Env = append(p.cmd.Env, name+"="+ts.Getenv(name))
	}
	ready := make(chan []string, 1)
	for _, pipe := range []func() (io.ReadCloser, error){p.cmd.StdoutPipe, p.cmd.StderrPipe} {
		out, err := pipe()
		ts.Check(err)
		p.said.Go(func() { p.read(out, pattern, ready) })
	}
	ts.Check(p.cmd.Start())
	ts.Defer(func() { p.end(syscall.SIGKILL) })
	ts.Value(processesKey{}).(processes)[args[0]] = p
	ended := make(chan struct{})
	go func() { p.said.Wait(); close(ended) }()
	select {
	case match := <-ready:
		ts.Setenv(args[0], match[min(1, len(match)-1)])
	case <-ended:
		ts.Fatalf("%s ended before it was ready:\n%s", args[0], p.output())
	case <-time.After(startsWithin):
		ts.Fatalf("%s is not ready:\n%s", args[0], p.output())
	}
}

func (p *process) read(out io.Reader, pattern *regexp.Regexp, ready chan<- []string) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if match := pattern.FindStringSubmatch(lines.Text()); match != nil {
			select {
			case ready <- match:
			default:
			}
		}
	}
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// end sends a signal and waits; it returns the exit code.
func (p *process) end(sig os.Signal) int {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(sig) // it may have ended
		p.said.Wait()
		_ = p.cmd.Wait() // the exit code tells
	}
	return p.cmd.ProcessState.ExitCode()
}

// end NAME SIGNAL CODE sends a signal, INT, TERM or KILL, to a program that start
// has started and waits until it has ended with the code; -1 after KILL. NONE is for
// one that ends by itself. What it printed is stdout then.
func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: end NAME SIGNAL CODE")
	}
	all := ts.Value(processesKey{}).(processes)
	p := all[args[0]]
	sig, ok := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "NONE": 0}[args[1]]
	if p == nil || !ok {
		ts.Fatalf("there is no process %s or no signal %s", args[0], args[1])
	}
	delete(all, args[0])
	code := p.end(sig)
	fmt.Fprint(ts.Stdout(), p.output()) //nolint:errcheck // into memory
	if strconv.Itoa(code) != args[2] {
		ts.Fatalf("%s exited with %d, want %s:\n%s", args[0], code, args[2], p.output())
	}
}

// signal NAME SIGNAL sends a signal to a program that start has started.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[1] != "HUP" {
		ts.Fatalf("usage: signal NAME HUP")
	}
	p := ts.Value(processesKey{}).(processes)[args[0]]
	if p == nil {
		ts.Fatalf("there is no process %s", args[0])
	}
	ts.Check(p.cmd.Process.Signal(syscall.SIGHUP))
}

// await NAME PATTERN waits until a program that start has started prints a line that
// matches the pattern, after the one that the last await found.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await NAME PATTERN")
	}
	p := ts.Value(processesKey{}).(processes)[args[0]]
	if p == nil {
		ts.Fatalf("there is no process %s", args[0])
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	late := time.After(startsWithin)
	for !p.find(pattern) {
		select {
		case <-p.more:
		case <-late:
			ts.Fatalf("%s does not say %s:\n%s", args[0], args[1], p.output())
		}
	}
}

// find looks for the pattern in what has not been gone over.
func (p *process) find(pattern *regexp.Regexp) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := pattern.FindIndex(p.log.Bytes()[p.seen:])
	if at == nil {
		return false
	}
	p.seen += at[1]
	return true
}

// certs DIR ROLE/NAME... makes certificates of one fleet: NAME.crt, NAME.key and
// ca.crt.
func cmdCerts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: certs DIR ROLE/NAME...")
	}
	dir := ts.MkAbs(args[0])
	ca, err := devca.Open(dir, "test")
	ts.Check(err)
	for _, arg := range args[1:] {
		role, name, _ := strings.Cut(arg, "/")
		ts.Check(ca.WriteFiles(dir, name, transport.Identity{Fleet: "test", Role: transport.Role(role), Name: name}))
	}
}

// append FILE LINE appends a line to a file.
func cmdAppend(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: append FILE LINE")
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	ts.Check(err)
	_, err = fmt.Fprintln(f, args[1])
	ts.Check(errors.Join(err, f.Close()))
}
