//go:build linux && !race

package faults

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
)

// peak samples the memory of processes until it is stopped, and returns how much
// each had at most.
func peak(t *testing.T, processes ...*Process) (stop func() []int64) {
	t.Helper()
	most := make([]int64, len(processes))
	quit := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for i, p := range processes {
				if rss, err := p.Memory(); err == nil {
					most[i] = max(most[i], rss)
				}
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
	return func() []int64 {
		close(quit)
		sampling.Wait()
		return most
	}
}

const mebi = 1 << 20

// stream calls a procedure that emits so many records, at a pace.
func stream(t *testing.T, caller *harp.Caller, records, size int, pace time.Duration) *harp.Job {
	t.Helper()
	job, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{Records: records, Size: size, Pace: pace})
	must(t, err)
	return job
}

// complete expects a job to have succeeded with so many records.
func complete(t *testing.T, job *harp.Job, records int) {
	t.Helper()
	_, err := job.Get(t.Context())
	must(t, err)
	s, err := job.Status(t.Context())
	must(t, err)
	if s.Records != uint64(records) {
		t.Errorf("job %s has %d records, %d were emitted", job.ID(), s.Records, records)
	}
}

// reader follows a job and reads nothing after its first record until it is let go.
type reader struct {
	next func() (harp.Record, error, bool)
	stop func()
	n    uint64
}

func newReader(ctx context.Context, job *harp.Job) *reader {
	r := &reader{}
	r.next, r.stop = iter.Pull2(job.Follow(ctx, harp.Since(0)))
	return r
}

// read takes one record and checks its number.
func (r *reader) read() (ok bool, err error) {
	rec, err, ok := r.next()
	if !ok || err != nil {
		return false, err
	}
	if rec.Seq != r.n {
		return false, fmt.Errorf("record %d instead of %d", rec.Seq, r.n)
	}
	r.n++
	return true, nil
}

// flood runs a job with many records while so many followers do not read, and
// returns the dispatcher's memory at its peak.
func flood(t *testing.T, followers, resuming, records, size int) int64 {
	t.Helper()
	f := newFleet(t)
	f.Dispatcher.MaxStored = 1 << 30
	must(t, f.StartDispatcher())
	all := callers(t, f, 4)
	startAgents(t, f, all[0], "host00")
	stop := peak(t, f.DispatcherProcess())
	job := stream(t, all[0], records, size, time.Second*time.Duration(size)/(20*mebi))
	readers := make([]*reader, followers)
	var first sync.WaitGroup
	for i := range readers {
		readers[i] = newReader(t.Context(), all[i%len(all)].Job(job.ID()))
		first.Go(func() {
			if _, err := readers[i].read(); err != nil {
				t.Error(err)
			}
		})
	}
	first.Wait()
	complete(t, job, records)
	most := stop()[0]
	for i, r := range readers {
		for ok := i < resuming; ok; {
			var err error
			if ok, err = r.read(); err != nil {
				t.Error(err)
			}
		}
		if i < resuming && r.n != uint64(records) {
			t.Errorf("a follower that went on has %d of %d records", r.n, records)
		}
		r.stop()
	}
	return most
}

// T16: followers that do not read cost next to nothing and miss nothing.
func TestSlowConsumers(t *testing.T) {
	t.Parallel()
	records, size := pick(1500, 20_000), 30<<10
	without := flood(t, 0, 0, records, size)
	with := flood(t, 200, pick(5, 50), records, size)
	report.Note(t.Name(), "MiB without", without/mebi)
	report.Note(t.Name(), "MiB with 200", with/mebi)
	// The short form runs beside others, where what is left to the garbage collector
	// decides: it finds who holds what followers do not read, which is 9 GiB.
	allowed := int64(pick(512, 64) * mebi)
	if with-without > allowed {
		t.Errorf("200 followers that do not read cost %d MiB more than the %d MiB without", (with-without)/mebi, without/mebi)
	}
}

// T17: a stream without end takes no memory, and says what of it is not stored.
func TestHugeStream(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const stored = 2 * mebi
	f.Dispatcher.MaxStored = pick[int64](stored, 16*mebi)
	must(t, f.StartDispatcher())
	all := callers(t, f, 1)
	startAgents(t, f, all[0], "host00")
	n := pick(60_000, 10_000_000)
	one := func(n int) func() {
		return func() { complete(t, stream(t, all[0], n, 10, 0), n) }
	}
	constant(t, f, "one job of many records", one(n/10), one(n))
	const size = 30 << 10
	many := func(jobs, bytes int) func() {
		return func() { printers(t, all[0], f, jobs, bytes/size, size) }
	}
	constant(t, f, "many jobs of many bytes", many(pick(4, 100), pick(1, 64)*mebi), many(pick(4, 100), pick(6, 1024)*mebi))
	must(t, f.Stop())
}

// printers runs jobs that print so much at a time, of which only a part is stored.
func printers(t *testing.T, c *harp.Caller, f *Fleet, jobs, records, size int) {
	t.Helper()
	var running []*harp.Job
	for range jobs {
		running = append(running, stream(t, c, records, size, 0))
	}
	for _, job := range running {
		complete(t, job, records)
		if int64(records*size) > 2*f.Dispatcher.MaxStored {
			cutShort(t, job, f.Dispatcher.MaxStored, size)
		}
	}
}

// constant runs some of something, until the processes have all the memory that they
// work with, and then much of it, which must not take more.
func constant(t *testing.T, f *Fleet, what string, some, much func()) {
	t.Helper()
	processes := []*Process{f.DispatcherProcess(), f.AgentProcess("host00")}
	stop := peak(t, processes...)
	some()
	before := stop()
	stop = peak(t, processes...)
	much()
	for i, most := range stop() {
		name := []string{"dispatcher", "agent"}[i]
		report.Note(t.Name(), what+": MiB at first, "+name, before[i]/mebi)
		report.Note(t.Name(), what+": MiB more, "+name, (most-before[i])/mebi)
		if allowed := int64(pick(160, 64) * mebi); most-before[i] > allowed { // the short form runs before the store is warm
			t.Errorf("%s: the %s has grown from %d to %d MiB", what, name, before[i]/mebi, most/mebi)
		}
	}
}

// cutShort expects the stored records to be about as many as may be, and the last
// to say that more were not kept.
func cutShort(t *testing.T, job *harp.Job, stored int64, size int) {
	t.Helper()
	var n int64
	var last harp.Record
	for r, err := range job.Stream(t.Context()) {
		must(t, err)
		n, last = n+1, r
	}
	if last.Truncated == 0 {
		t.Errorf("job %s: its last stored record does not say that more were emitted", job.ID())
	}
	if most := stored/int64(size) + 2; n > most {
		t.Errorf("job %s: %d records are stored, %d may be", job.ID(), n, most)
	}
}
