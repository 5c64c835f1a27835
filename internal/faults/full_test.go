//go:build linux

package faults

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	l := &Load{Fleet: f, Callers: all, Hosts: []string{"host00"}, Rate: 200, Workers: 32, Args: longer}
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
