//go:build linux

package procedures_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/supervise"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

func TestMain(m *testing.M) {
	supervise.Main() // the commands of the tests are supervised as those of harp agent are
	goleak.VerifyTestMain(m)
}

// system is an agent with the procedures of this folder, and its dispatcher.
type system struct {
	host *harp.Host
	call *harp.Caller
}

func start(t *testing.T) *system {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{
		Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	network := memnet.New()
	identity := func(role transport.Role, name string) transport.Identity {
		return transport.Identity{Fleet: "test", Role: role, Name: name}
	}
	l, err := network.Listen("dispatcher:7440", identity(transport.RoleDispatcher, "main"))
	if err != nil {
		t.Fatal(err)
	}
	a := agent.New(agent.Config{
		Name: "web01", Dir: t.TempDir(), Dial: network.Dialer(identity(transport.RoleAgent, "web01")),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err := a.Load(procedures(t)); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Serve(ctx, l, nil); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := a.Connect(ctx, "dispatcher:7440"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := d.Shutdown(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &system{host: d.Caller().Host("web01"), call: d.Caller()}
}

// procedures copies the files: those of a clone may be open to the user's group, which an
// agent refuses.
func procedures(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "procedures")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, pattern := range []string{"*.yaml", "*.py"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), string(text))
			copied++
		}
	}
	if copied < 6 {
		t.Fatalf("there are %d files only", copied)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run calls a procedure and returns how it ended and what it printed, by kind.
func (s *system) run(t *testing.T, procedure string, args harp.Args, opts ...harp.Option) (harp.Result, map[harp.RecordKind]string) {
	t.Helper()
	job, err := s.host.Call(t.Context(), procedure, args, append(opts, harp.MaxExecTime(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	printed := map[harp.RecordKind]string{}
	for r, err := range job.Follow(t.Context(), harp.Since(0)) {
		if err != nil {
			t.Fatal(err)
		}
		printed[r.Kind] += text(t, r)
	}
	result, err := job.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result, printed
}

// text is what a record adds to the text that a command printed.
func text(t *testing.T, r harp.Record) string {
	t.Helper()
	if r.Kind == harp.KindData {
		return r.Value.String() + "\n"
	}
	var line string
	if err := r.Value.Decode(&line); err != nil {
		t.Fatal(err)
	}
	if !r.Partial {
		line += "\n"
	}
	return line
}

func TestTar(t *testing.T) {
	s, dir := start(t), t.TempDir()
	for _, name := range []string{"a.txt", "b.txt", "c.tmp", "-rf"} {
		write(t, filepath.Join(dir, name), name)
	}
	file := filepath.Join(t.TempDir(), "archive.tar.gz")
	args := harp.Args{"folder": dir, "file": file, "exclude": []string{"*.tmp"}, "level": 9}

	result, printed := s.run(t, "archive.make", args, harp.DryRun())
	if _, err := os.Stat(file); result.State != harp.StateSucceeded || err == nil || !strings.Contains(printed[harp.KindStdout], "a.txt") {
		t.Errorf("a dry run %s (%v): it printed %q, and the archive: %v", result.State, result.Err, printed, err)
	}

	result, printed = s.run(t, "archive.make", args)
	if result.State != harp.StateSucceeded || result.Value.String() != "0" {
		t.Fatalf("it %s: %s %v\n%s", result.State, result.Value, result.Err, printed[harp.KindStderr])
	}
	names, err := exec.Command("tar", "--list", "--file="+file).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(names))
	slices.Sort(got)
	if want := []string{"./", "./-rf", "./a.txt", "./b.txt"}; !slices.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
	if said := strings.Fields(printed[harp.KindStdout]); len(said) != len(got) {
		t.Errorf("it said %q", said)
	}

	args["folder"] = filepath.Join(dir, "none")
	result, _ = s.run(t, "archive.make", args)
	var failed *harp.RemoteError
	if !errors.As(result.Err, &failed) || failed.Type != "exit" || result.ExitCode == nil || *result.ExitCode != 2 {
		t.Errorf("a folder that is not there: %s, %v", result.State, result.Err)
	}
}

func TestAptGet(t *testing.T) {
	needs.Programs(t, "apt-get")
	s := start(t)
	result, printed := s.run(t, "apt.install", harp.Args{"packages": []string{"bash"}}, harp.DryRun())
	if result.State != harp.StateSucceeded || !strings.Contains(printed[harp.KindStdout], "bash") {
		t.Errorf("it %s: %v\n%s", result.State, result.Err, printed)
	}
	for _, name := range []string{"--reinstall", "bash;id", "Bash", ""} {
		_, err := s.host.Call(t.Context(), "apt.install", harp.Args{"packages": []string{name}}, harp.DryRun())
		if !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("a package %q is %v", name, err)
		}
	}
}

func TestRsync(t *testing.T) {
	needs.Programs(t, "rsync")
	s, from, to := start(t), t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "big"), strings.Repeat("x", 4<<20))
	write(t, filepath.Join(to, "old"), "old")

	result, printed := s.run(t, "folder.sync", harp.Args{"from": from, "to": to, "delete": []string{"--delete"}})
	if result.State != harp.StateSucceeded {
		t.Fatalf("it %s: %v\n%s", result.State, result.Err, printed)
	}
	if got, err := os.ReadFile(filepath.Join(to, "big")); err != nil || len(got) != 4<<20 {
		t.Errorf("the copy has %d bytes: %v", len(got), err)
	}
	if _, err := os.Stat(filepath.Join(to, "old")); err == nil {
		t.Error("what is not there was not deleted")
	}
	if out := printed[harp.KindStdout]; !strings.Contains(out, "\r") || !strings.Contains(out, "100%") {
		t.Errorf("its progress is %q", out)
	}
}

func TestGrowingLog(t *testing.T) {
	s := start(t)
	file := filepath.Join(t.TempDir(), "log")
	write(t, file, "0\n1\n")
	job, err := s.host.Call(t.Context(), "log.tail", harp.Args{"file": file, "lines": 1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	next := 1
	for r, err := range job.Follow(t.Context(), harp.Since(0)) {
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, r); got != fmt.Sprintln(next) {
			t.Fatalf("record %d is %q", r.Seq, got)
		}
		if next++; next == 20 {
			break
		}
		if _, err := fmt.Fprintln(f, next); err != nil { // it grows when it has been read
			t.Fatal(err)
		}
	}
	if _, err := job.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	result, err := job.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.State != harp.StateCancelled || result.ExitCode == nil || *result.ExitCode != 143 {
		t.Errorf("it %s with exit code %v: %v", result.State, result.ExitCode, result.Err)
	}
}

func TestPython(t *testing.T) {
	needs.Programs(t, "python3")
	s, dir := start(t), t.TempDir()
	write(t, filepath.Join(dir, "large"), "12345")
	write(t, filepath.Join(dir, "small"), "1")

	result, printed := s.run(t, "disk.report", harp.Args{"folder": dir, "most": 1, "token": "open sesame"})
	if want := fmt.Sprintf(`{"files":2,"largest":[%q]}`, filepath.Join(dir, "large")); result.Value.String() != want {
		t.Errorf("it %s: %s, want %s; %v\n%s", result.State, result.Value, want, result.Err, printed)
	}
	if lines := strings.Count(printed[harp.KindData], "\n"); lines != 3 || !strings.Contains(printed[harp.KindData], `"bytes":5`) {
		t.Errorf("its data is %q", printed[harp.KindData])
	}

	result, printed = s.run(t, "disk.report", harp.Args{"folder": dir, "token": "wrong"})
	var failed *harp.RemoteError
	if !errors.As(result.Err, &failed) || result.ExitCode == nil || *result.ExitCode != 77 {
		t.Errorf("with another token it %s: %v\n%s", result.State, result.Err, printed)
	}
}
