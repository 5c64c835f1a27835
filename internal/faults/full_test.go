//go:build linux && !race

package faults

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// T6: the dispatcher's disk fills up. New calls are refused, what runs ends, and
// once there is space all goes on.
func TestDiskFullDispatcher(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	f := newFleet(t)
	mount := smallDisk(t, "512m")
	f.Dispatcher.Dir = filepath.Join(mount, "store")
	f.Dispatcher.LowSpace = 64 * mebi
	must(t, f.StartDispatcher())
	all := callers(t, f, 2)
	startAgents(t, f, all[0], "host00")
	running := calledFor(t, f, all[0], 2*time.Second)
	fill(t, mount, 48*mebi)
	eventually(t, "a call is refused", func() bool {
		err := callLater(t, all[0])
		if err != nil && (!errors.Is(err, harp.ErrNoSpace) || harp.RanOf(err) != harp.DidNotRun) {
			t.Fatalf("a call on a disk that is full gives %v", err)
		}
		return err != nil
	})
	if _, err := running.Get(t.Context()); err != nil {
		t.Errorf("what was running when the disk filled up: %v", err)
	}
	report.Note(t.Name(), "recovered after", emptied(t, mount, all[0]).String())

	// Fuller still: nothing of agents is taken, cancels are.
	ending := calledFor(t, f, all[0], 500*time.Millisecond)
	cancelled := calledFor(t, f, all[0], time.Minute)
	f.History.Change(cancelled.ID(), func(c *history.Call) { c.Cancelled = true })
	fill(t, mount, 8*mebi)
	live, err := cancelled.Cancel(t.Context())
	if err != nil || !live {
		t.Errorf("a cancel on a disk that is full gives %v, %v", live, err)
	}
	emptied(t, mount, all[0])
	if _, err := ending.Get(t.Context()); err != nil {
		t.Errorf("what ended while the disk was full: %v", err)
	}
	if _, err := cancelled.Get(t.Context()); !errors.Is(err, harp.ErrCancelled) {
		t.Errorf("what was cancelled while the disk was full: %v", err)
	}
	holds(t, f, all[0])
}

// emptied makes room on a disk and returns how long it is until calls go through.
func emptied(t *testing.T, mount string, caller *harp.Caller) time.Duration {
	t.Helper()
	begun := time.Now()
	must(t, os.Remove(filepath.Join(mount, "ballast")))
	eventually(t, "calls are taken again", func() bool { return callLater(t, caller) == nil })
	return time.Since(begun).Round(time.Millisecond)
}

// callLater makes a call that will not run in this test.
func callLater(t *testing.T, caller *harp.Caller) error {
	t.Helper()
	_, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{}, harp.StartAfter(time.Now().Add(time.Hour)))
	return err
}

// smallDisk mounts a file system of its own in memory.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	mount := t.TempDir()
	mounted(t, "-t", "tmpfs", "-o", "size="+size, "tmpfs", mount)
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	return mount
}

// fill leaves so many bytes on a disk that others write to meanwhile.
func fill(t *testing.T, mount string, leave int64) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(mount, "ballast"))
	must(t, err)
	defer ballast.Close()
	for {
		var s syscall.Statfs_t
		must(t, syscall.Statfs(mount, &s))
		size := int64(s.Bavail)*s.Bsize - leave
		if size <= 0 {
			return
		}
		err := syscall.Fallocate(int(ballast.Fd()), 0, 0, size)
		if !errors.Is(err, syscall.ENOSPC) {
			must(t, err)
			return
		}
	}
}

// calledFor calls a procedure that runs for a while, and waits until it does, or has:
// nobody may have looked meanwhile.
func calledFor(t *testing.T, f *Fleet, caller *harp.Caller, d time.Duration) *harp.Job {
	t.Helper()
	id := harp.NewID()
	f.History.Invoke(history.Call{ID: id, Host: "host00", Acked: true, Records: 1})
	job, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{Sleep: d, Records: 1}, harp.JobID(id))
	must(t, err)
	eventually(t, "job "+id+" runs", func() bool {
		s, err := job.Status(t.Context())
		return err == nil && (s.State == harp.StateRunning || s.State.Ended())
	})
	return job
}

// T6 of the agent: it takes no calls on a full disk and goes on once there is
// space. Nothing is run twice and nothing is lost.
func TestDiskFullAgent(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	f := newFleet(t)
	mount := smallDisk(t, "48m")
	f.Agent.Dir = filepath.Join(mount, "agent")
	must(t, f.StartDispatcher())
	all := callers(t, f, 2)
	startAgents(t, f, all[0], "host00")
	// What the disk has no room for waits for some seconds, and who has called it as well.
	l := &Load{Fleet: f, Callers: all, Hosts: []string{"host00"}, Rate: 200, Workers: 512, Args: longer}
	took := underLoad(t, l, func(r *rand.Rand) {
		for range pick(2, 20) {
			fill(t, mount, int64(r.IntN(64<<10)))
			between(r, 500*time.Millisecond, time.Second)
			must(t, os.Remove(filepath.Join(mount, "ballast")))
			between(r, 500*time.Millisecond, time.Second)
		}
	})
	holds(t, f, all[0])
	loaded(t, l, took)
}

// printing is a command that prints so many lines once a pipe says so, and a result.
const printing = `
print:
  params:
    lines: {type: int, required: true}
    pipe: {type: path, required: true}
  command: [/bin/sh, -c, 'read -r go < "$2"; exec seq -f "%.0f--------------------------------------------------------" 1 "$1"', sh, "{{.lines}}", "{{.pipe}}"]
`

// T6 of the agent, to the last byte: commands print, and functions emit, more than the
// agent's disk takes, while the dispatcher is away. When there is room again each byte has
// arrived or is said to have been dropped, and no result is missing; also when the agent is
// killed meanwhile, for commands.
func TestDiskFullAgentOutput(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	for name, killed := range map[string]bool{"the agent goes on": false, "the agent is killed": true} {
		t.Run(name, func(t *testing.T) { fullOutput(t, killed) })
	}
}

func fullOutput(t *testing.T, killed bool) {
	const lines, records = 60_000, 400 // some 4 MiB and 1 MiB each
	f := newFleet(t)
	mount := smallDisk(t, "24m")
	f.Agent.Dir, f.Agent.Procedures = filepath.Join(mount, "agent"), t.TempDir()
	must(t, os.WriteFile(filepath.Join(f.Agent.Procedures, "print.yaml"), []byte(printing), 0o600))
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	open, err := os.OpenFile(pipe, os.O_RDWR, 0) // which does not wait for a reader
	must(t, err)
	defer open.Close()
	must(t, f.StartDispatcher())
	caller := callers(t, f, 1)[0]
	startAgents(t, f, caller, "host00")

	var printers, emitters []*harp.Job
	for range 6 {
		job, err := caller.Host("host00").Call(t.Context(), "print", harp.Args{"lines": lines, "pipe": pipe})
		must(t, err)
		printers = append(printers, job)
	}
	for range 4 {
		if !killed { // a function ends with its agent
			emitters = append(emitters, stream(t, caller, records, 2500, 5*time.Millisecond))
		}
	}
	for _, job := range append(printers, emitters...) {
		eventually(t, "job "+job.ID()+" runs", func() bool {
			s, err := job.Status(t.Context())
			return err == nil && s.State == harp.StateRunning
		})
	}
	fill(t, mount, 300<<10)
	f.KillDispatcher()
	_, err = open.WriteString("go\ngo\ngo\ngo\ngo\ngo\n")
	must(t, err)
	eventually(t, "the disk is full", func() bool {
		var s syscall.Statfs_t
		must(t, syscall.Statfs(mount, &s))
		return s.Bavail == 0
	})
	eventually(t, "the commands have ended", func() bool { return running(t, printers) == 0 })
	if killed {
		f.KillAgentUnread("host00")
	}
	must(t, os.Remove(filepath.Join(mount, "ballast")))
	if killed {
		must(t, f.StartAgent("host00"))
	}
	must(t, f.StartDispatcher())
	var all int64
	for _, job := range printers {
		var want int64
		for i := range lines {
			want += int64(len(strconv.Itoa(i+1))) + 57
		}
		all += accounted(t, job, want, func(r harp.Record) int64 {
			var text string
			must(t, r.Value.Decode(&text))
			return int64(len(text)) + 1
		})
	}
	for _, job := range emitters {
		var want int64
		for i := range records {
			v, err := harp.NewValue(actor.Record{Job: job.ID(), Attempt: 1, N: i, Fill: strings.Repeat("x", 2500)})
			must(t, err)
			want += int64(len(v))
		}
		all += accounted(t, job, want, func(r harp.Record) int64 { return int64(len(r.Value)) })
	}
	if all == 0 {
		t.Error("nothing was dropped: the disk was not full")
	}
	report.Note(t.Name(), "bytes dropped", all)
	must(t, f.Stop())
}

// accounted expects a job to have succeeded, and of so many bytes each to have arrived or
// to be said to have been dropped. It returns how many were.
func accounted(t *testing.T, job *harp.Job, want int64, size func(harp.Record) int64) (dropped int64) {
	t.Helper()
	if _, err := job.Get(t.Context()); err != nil {
		t.Errorf("job %s: %v", job.ID(), err)
		return 0
	}
	var got int64
	for r, err := range job.Stream(t.Context()) {
		must(t, err)
		if dropped += int64(r.Truncated); len(r.Value) > 0 {
			got += size(r)
		}
	}
	if got+dropped != want {
		t.Errorf("job %s: of %d bytes %d arrived and %d are said to be dropped", job.ID(), want, got, dropped)
	}
	return dropped
}

// running is how many processes run of jobs.
func running(t *testing.T, jobs []*harp.Job) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended just now
		}
		for _, job := range jobs {
			if strings.Contains(string(env), "HARP_JOB="+job.ID()) {
				n++
			}
		}
	}
	return n
}
