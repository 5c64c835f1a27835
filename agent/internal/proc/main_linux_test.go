package proc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also is the programs that the tests run: the launcher, and the helpers.
func TestMain(m *testing.M) {
	if IsLaunch() && len(os.Args) == 1 {
		Launch()
	}
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		helpers[os.Args[2]](os.Args[3:])
		return
	}
	goleak.VerifyTestMain(m)
}

var helpers = map[string]func(args []string){
	"argv":        printArgv,
	"supervise":   supervise,
	"make room":   makeSomeRoom,
	"ready":       dieWhenReady,
	"descriptors": printDescriptors,
}

// helper is the argv of a helper.
func helper(name string, args ...string) []string {
	return append([]string{"/proc/self/exe", "helper", name}, args...)
}

var testPath = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func shell(script string, env ...string) Spec {
	return Spec{Argv: []string{"sh", "-c", script}, Env: append([]string{testPath}, env...)}
}

// launchers are the two ways to start a command.
var launchers = map[string][]string{"direct": nil, "launcher": {"/proc/self/exe"}}

// run runs a command to its end, and returns what it printed.
func run(t *testing.T, s Spec, launcher []string) (stdout, stderr string, status Status) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	p, err := Start(s, Options{Stdout: out, Stderr: errs, Launcher: launcher})
	if err != nil {
		t.Fatal(err)
	}
	status = p.Wait()
	return read(t, out.Name()), read(t, errs.Name()), status
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// started is a command that prints lines into a pipe.
type started struct {
	*Process
	lines *bufio.Scanner
}

func startPiped(t *testing.T, s Spec, o Options) *started {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o.Stdout = w
	p, err := Start(s, o)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.End(0)
		p.Wait()
		_ = r.Close()
	})
	return &started{p, bufio.NewScanner(r)}
}

func (s *started) line(t *testing.T) string {
	t.Helper()
	if !s.lines.Scan() {
		t.Fatalf("no line: %v", s.lines.Err())
	}
	return s.lines.Text()
}

// marker is an argument of sleep(1) by which its processes are found.
func marker() string { return fmt.Sprintf("1000.%09d", rand.IntN(1e9)) }

// having returns the processes that have the marker as an argument.
func having(t *testing.T, marker string) []int {
	t.Helper()
	all, err := proc.all()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, m := range all {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(m.pid), "cmdline"))
		if err == nil && !m.dead && bytes.HasSuffix(b, []byte("\x00"+marker+"\x00")) {
			pids = append(pids, m.pid)
		}
	}
	return pids
}

// until waits for what the kernel tells nobody.
func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it never came to be")
		}
	}
}

func printArgv(args []string) {
	all := make([][]byte, len(args))
	for i, a := range args {
		all[i] = []byte(a)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		panic(err)
	}
}

// order is what the helper supervise is to do: to run a command until it printed so many
// lines, and to end it.
type order struct {
	Spec   Spec
	How    string // adopted, marked or cgroup: by what the processes are to be found
	Lines  int
	Exited bool // end it when the leader ended, not before
	Grace  time.Duration
	Stay   bool // do not end it

	Launcher []string
}

// outcome is what it reports.
type outcome struct {
	ID       Identity
	Cgroup   string
	Status   Status
	Err      string
	Children int // that it has after all, dead or alive
}

// supervise is a program that runs one command.
func supervise(args []string) {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		panic(err)
	}
	result, err := o.carryOut()
	if err != nil {
		result.Err = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
	if o.Stay {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	}
}

func (o order) carryOut() (result outcome, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return result, err
	}
	defer r.Close()
	options := Options{Stdout: w, Stderr: os.Stderr, Launcher: o.Launcher}
	switch o.How {
	case "adopted":
		err = Adopt()
	case "cgroup":
		options.Cgroup, err = NewCgroup(fmt.Sprintf("test-%d", os.Getpid()))
	case "marked":
		o.Spec.Env = append(o.Spec.Env, "HARP_JOB="+strings.Repeat("J", os.Getpid()%100+1), "HARP_ATTEMPT=1")
	}
	if err != nil {
		return result, err
	}
	p, err := Start(o.Spec, options)
	if err != nil {
		return result, err
	}
	result.ID, result.Cgroup = p.Identity(), options.Cgroup
	if err := w.Close(); err != nil {
		return result, err
	}
	lines := bufio.NewScanner(r)
	for range o.Lines {
		if !lines.Scan() {
			return result, lines.Err()
		}
	}
	if o.Stay {
		return result, nil
	}
	if o.Exited {
		<-p.Exited()
	}
	p.End(o.Grace)
	result.Status = p.Wait()
	result.Children = childCount()
	return result, nil
}

func childCount() (n int) {
	all, err := proc.all()
	if err != nil {
		panic(err)
	}
	for _, m := range all {
		if m.parent == os.Getpid() {
			n++
		}
	}
	return n
}

// supervised has a program of its own run a command.
func supervised(t *testing.T, o order) outcome {
	t.Helper()
	p := startOrder(t, o)
	return p.outcome(t)
}

func startOrder(t *testing.T, o order) *started {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Close() })
	defer stdin.Close()
	return startPiped(t, Spec{Argv: helper("supervise", string(text))}, Options{Stdin: stdin, Stderr: os.Stderr})
}

func (s *started) outcome(t *testing.T) (o outcome) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.line(t)), &o); err != nil {
		t.Fatal(err)
	}
	if o.Err != "" {
		t.Fatal(o.Err)
	}
	return o
}
