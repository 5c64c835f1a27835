package harptest_test

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
)

// An older state of the store lacks records that its agent was told to forget. How the
// attempt ended is kept all the same, also when the job was not in the backup and was
// called for again; and the host is there for others.
func TestRestoreAmidRecords(t *testing.T) {
	for name, inBackup := range map[string]bool{"known": true, "called again": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoreAmidRecords(t, inBackup) })
		})
	}
}

func restoreAmidRecords(t *testing.T, inBackup bool) {
	p := &player{t: t}
	sys := harptest.New(t, harptest.Options{
		Agents: []string{"web01"}, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second},
	})
	id := harp.NewID()
	call := func(opts ...harp.Option) *harp.Job {
		t.Helper()
		job, err := sys.Caller().Host("web01").Call(t.Context(), procOnce, work{Time: 30 * time.Second, Emit: 20}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	var saved bytes.Buffer
	backup := func() {
		if err := sys.Embedded().Backup(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
	}
	if !inBackup {
		backup()
	}
	job := call(harp.JobID(id))
	time.Sleep(3 * time.Second)
	if inBackup {
		backup()
	}
	time.Sleep(10 * time.Second)
	sys.CrashDispatcher()
	if did := sys.RestoreDispatcher(&saved); (did.Lost == 1) != inBackup || did.ID == did.From {
		t.Errorf("restored %+v", did)
	}
	sys.StartDispatcher()
	sys.WaitOnline("web01")
	if !inBackup {
		job = call(harp.JobID(id))
	}
	other := call()
	for _, j := range []*harp.Job{job, other} {
		if _, err := j.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	s, err := job.Status(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case inBackup && (s.State != harp.StateLost || s.Reason != harp.LostRestored || s.Late == nil || s.Late.State != harp.StateSucceeded):
		t.Errorf("the job of the backup is %s (%s), late %+v", s.State, s.Reason, s.Late)
	case !inBackup && s.State != harp.StateSucceeded:
		t.Errorf("the job that was called for again is %s (%s)", s.State, s.Reason)
	}
	if n := len(p.witness.Of(id)); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if s, err := other.Status(t.Context()); err != nil || s.State != harp.StateSucceeded {
		t.Errorf("another job is %s, %v", s.State, err)
	}
}

// TestAttemptsSinceABackupAreNamed: what an agent holds of an attempt that was sent behind a backup is not known to the store that is
// restored from that, though the job is. The feed names it, as it does those of jobs that are not known at all.
func TestAttemptsSinceABackupAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{t: t}
		sys := harptest.New(t, harptest.Options{
			Agents: []string{"web01", "web02"}, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second},
		})
		batch, err := sys.Caller().Target("web*").Call(t.Context(), procOnce, work{Time: 30 * time.Second}, harp.Parallel(1))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		var saved bytes.Buffer
		if err := sys.Embedded().Backup(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // web02 has begun
		sys.CrashDispatcher()
		sys.RestoreDispatcher(&saved)
		sys.StartDispatcher()
		sys.WaitOnline("web01", "web02")
		second := batch.Job("web02")
		s, err := second.Status(t.Context())
		if err != nil || s.State != harp.StateLost || s.Reason != harp.LostRestored || s.Started != harp.MayHaveRun {
			t.Errorf("it is %s (%s), started %s, %v", s.State, s.Reason, s.Started, err)
		}
		time.Sleep(time.Minute)
		page, err := sys.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostForgot)}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) != 1 || page.Events[0].Job != second.ID() || page.Events[0].Host != "web02" || page.Events[0].Attempt != 1 {
			t.Errorf("the feed names %+v", page.Events)
		}
		if n := len(p.witness.Of(second.ID())); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}

// TestAnAttemptWithTheNumberOfOneThatWasNotStartedIsNamed: an attempt that its agent had been too busy for when the backup was made
// keeps its number when it is sent again. What the agent then holds of it is named in the feed, too.
func TestAnAttemptWithTheNumberOfOneThatWasNotStartedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{t: t}
		sys := harptest.New(t, harptest.Options{
			Agents: []string{"web01"}, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second},
			Agent: func(cfg *agent.Config) { cfg.Limits.MaxAttempts = 1 },
		})
		var job *harp.Job
		for range 2 {
			var err error
			if job, err = sys.Caller().Host("web01").Call(t.Context(), procOnce, work{Time: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // less than it is put off
		}
		s, err := job.Status(t.Context())
		if err != nil || s.State != harp.StateQueued || s.Reason != harp.ReasonAgentBusy || s.Attempt != 1 {
			t.Fatalf("it is %s (%s), attempt %d, %v", s.State, s.Reason, s.Attempt, err)
		}
		var saved bytes.Buffer
		if err := sys.Embedded().Backup(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // it runs
		sys.CrashDispatcher()
		sys.RestoreDispatcher(&saved)
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		time.Sleep(time.Minute)
		page, err := sys.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostForgot)}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) != 1 || page.Events[0].Job != job.ID() || page.Events[0].Attempt != 1 {
			t.Errorf("the feed names %+v", page.Events)
		}
		if n := len(p.witness.Of(job.ID())); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}

// TestFollowersOfABatchMissNothingOverARestore: whoever follows a batch was told of ends that the store which was restored knows nothing of.
// It is told what has become of these hosts there, and of all others.
func TestFollowersOfABatchMissNothingOverARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{t: t}
		hosts := []string{"web01", "web02", "web03", "web04", "web05", "web06"}
		sys := harptest.New(t, harptest.Options{Agents: hosts, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second}})
		batch, err := sys.Caller().Target("web*").Call(t.Context(), procOnce, work{Time: 10 * time.Second, Emit: 2}, harp.Parallel(1))
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]harp.State{}
		var followed error
		var following sync.WaitGroup
		following.Go(func() {
			for r, err := range batch.Follow(t.Context(), harp.Since(0)) {
				if followed = err; err == nil && r.End != nil {
					told[r.Host] = r.End.State
				}
			}
		})
		time.Sleep(15 * time.Second)
		var saved bytes.Buffer
		if err := sys.Embedded().Backup(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		sys.CrashDispatcher()
		synctest.Wait()
		if len(told) < 3 {
			t.Fatalf("%d ends are told before", len(told))
		}
		sys.RestoreDispatcher(&saved)
		sys.StartDispatcher()
		following.Wait()
		if followed != nil {
			t.Fatal(followed)
		}
		for _, host := range hosts {
			if s, err := batch.Job(host).Status(t.Context()); err != nil || s.State != told[host] {
				t.Errorf("the member on %s is %s (%s), %v, and was told as %s last", host, s.State, s.Reason, err, told[host])
			}
		}
		ends := 0
		for r, err := range batch.Results(t.Context()) {
			if ends++; err != nil || r.State != told[r.Host] {
				t.Errorf("read anew the end on %s is %s, %v", r.Host, r.State, err)
			}
		}
		if ends != len(hosts) {
			t.Errorf("read anew there are %d ends", ends)
		}
	})
}

// TestFollowersOfABatchMissNothingOverRestores: a store is restored a second time, from the same backup or an older one. Whoever has followed a
// batch in the first one that was restored is told all that the second one has made of it.
func TestFollowersOfABatchMissNothingOverRestores(t *testing.T) {
	for name, second := range map[string]int{"same backup": 1, "older backup": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoreTwice(t, second) })
		})
	}
}

func restoreTwice(t *testing.T, second int) {
	p := &player{t: t}
	hosts := []string{"web01", "web02", "web03", "web04", "web05", "web06"}
	sys := harptest.New(t, harptest.Options{Agents: hosts, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second}})
	batch, err := sys.Caller().Target("web*").Call(t.Context(), procOnce, work{Time: 10 * time.Second}, harp.Parallel(1))
	if err != nil {
		t.Fatal(err)
	}
	var backups [2]bytes.Buffer
	for n := range backups {
		time.Sleep(11 * time.Second)
		if err := sys.Embedded().Backup(t.Context(), &backups[n]); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(saved []byte) {
		sys.CrashDispatcher()
		sys.RestoreDispatcher(bytes.NewReader(saved))
		sys.StartDispatcher()
	}
	restore(backups[1].Bytes())
	next := uint64(0)
	for r, err := range batch.Results(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if next = r.Seq + 1; r.State == harp.StateLost { // the first that the restore has ended
			break
		}
	}
	restore(backups[second].Bytes())
	told := map[string]harp.State{}
	for r, err := range batch.Results(t.Context(), harp.Since(next)) {
		if err != nil {
			t.Fatal(err)
		}
		told[r.Host] = r.State
	}
	for n, host := range hosts {
		if ended := second + 1; n >= ended && told[host] != harp.StateLost {
			t.Errorf("the end on %s is told as %q", host, told[host])
		}
	}
}

// TestMembersAreThereBehindARestore: what a member of a batch came to that was under way when the backup was made is kept as late, as that
// of any job is. Of a batch that was not in it, and is called again, none runs a second time.
func TestMembersAreThereBehindARestore(t *testing.T) {
	for name, inBackup := range map[string]bool{"known": true, "called again": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoreAmidABatch(t, inBackup) })
		})
	}
}

func restoreAmidABatch(t *testing.T, inBackup bool) {
	p := &player{t: t}
	hosts := []string{"web01", "web02"}
	sys := harptest.New(t, harptest.Options{Agents: hosts, Register: p.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second}})
	id := harp.NewID()
	call := func() *harp.Batch {
		t.Helper()
		batch, err := sys.Caller().Target("web*").Call(t.Context(), procOnce, work{Time: 30 * time.Second}, harp.JobID(id))
		if err != nil {
			t.Fatal(err)
		}
		return batch
	}
	var batch *harp.Batch
	if inBackup {
		batch = call()
		time.Sleep(10 * time.Second)
	}
	var saved bytes.Buffer
	if err := sys.Embedded().Backup(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	if !inBackup {
		call()
		time.Sleep(10 * time.Second)
	}
	sys.CrashDispatcher()
	sys.RestoreDispatcher(&saved)
	sys.StartDispatcher()
	sys.WaitOnline(hosts...)
	if !inBackup {
		batch = call()
	}
	time.Sleep(time.Minute)
	for _, host := range hosts {
		s, err := batch.Job(host).Status(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case inBackup && (s.State != harp.StateLost || s.Reason != harp.LostRestored || s.Late == nil || s.Late.State != harp.StateSucceeded):
			t.Errorf("the member on %s is %s (%s), late %+v", host, s.State, s.Reason, s.Late)
		case !inBackup && s.State != harp.StateSucceeded:
			t.Errorf("the member on %s that was called again is %s (%s)", host, s.State, s.Reason)
		}
		if n := len(p.witness.Of(batch.Job(host).ID())); n != 1 {
			t.Errorf("on %s it ran %d times", host, n)
		}
	}
}
