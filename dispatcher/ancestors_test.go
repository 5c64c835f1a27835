package dispatcher_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// Defects of harp's ancestors, each with the test that keeps it out.

// HarpCaller registered a follower only after a blocking receive, and told live
// followers before it had written: of a busy stream one packet was lost.
func TestDefect1LostPacketWhenAFollowerAttachesToABusyStream(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", ticker)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "tick", harp.Args{"every": 50 * time.Microsecond, "for": 300 * time.Millisecond}))
		var all sync.WaitGroup
		for attached := range 30 {
			// The next follower attaches when the last has seen its tenth record.
			ten := make(chan struct{})
			all.Go(func() {
				seen := 0
				done := sync.OnceFunc(func() { close(ten) })
				defer done()
				var next uint64
				for r, err := range job.Follow(t.Context()) {
					if err != nil || seen > 0 && r.Seq != next {
						t.Errorf("follower %d: record %d after %d, %v", attached, r.Seq, next-1, err)
						return
					}
					next = r.Seq + 1
					if seen++; seen == 10 {
						done()
					}
				}
			})
			<-ten
		}
		all.Wait()
	})
}

// HarpCaller read the field timeout twice and looked at limits only in an idle
// tick: max_exec_time had no effect, and no limit had on a busy stream.
func TestDefect2MaxExecTimeIndependentOfTimeoutAndHeldOnABusyStream(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		sys.agent("web01", ticker)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "tick",
			harp.Args{"every": time.Millisecond, "for": time.Hour}, harp.SilenceTimeout(time.Minute), harp.MaxExecTime(3*time.Second)))
		_, err := job.Get(t.Context())
		var limit *harp.TimeoutError
		if !errors.As(err, &limit) || limit.Of != harp.LimitMaxExecTime || limit.Limit != 3*time.Second {
			t.Errorf("error is %v", err)
		}
	})
}

// In HarpCaller timeout:1 limited a healthy stream to one second in all.
func TestDefect3IdleLimitTurnedIntoATotalLimit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		sys.agent("web01", ticker)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "tick",
			harp.Args{"every": 900 * time.Millisecond, "for": time.Hour}, harp.SilenceTimeout(time.Second)))
		must[harp.Value](t)(job.Get(t.Context()))
	})
}

// A HarpCaller that was killed left the files of its jobs unreadable for ever.
func TestDefect4ServerKillMakingStoredJobsUnreadable(t *testing.T) {
	if dir := os.Getenv("HARP_TEST_KILL_DIR"); dir != "" {
		serveUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HARP_TEST_KILL_DIR="+dir)
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ended []string
	running := ""
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, id, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "ended":
			ended = append(ended, id)
		case "running":
			running = id
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(ended) != 20 {
		t.Fatalf("the killed process ended %d jobs and says %v", len(ended), err)
	}
	sys := newSystem(t, loopback, openBadger(t, dir), dispatcher.Config{})
	for _, id := range ended {
		job := sys.caller.Job(id)
		if n := must[int](t)(harp.Get[int](t.Context(), job)); n != 50 {
			t.Errorf("job %s returned %d", id, n)
		}
		follow(t, job, 0)
	}
	if s := must[harp.JobStatus](t)(sys.caller.Job(running).Status(t.Context())); s.State != harp.StateRunning {
		t.Errorf("before its agent is back, the job that ran is %s (%s)", s.State, s.Reason)
	}
	sys.agent("web01", greeter) // whose journal was in the memory of the killed process
	if _, err := sys.caller.Job(running).Get(t.Context()); !errors.Is(err, harp.ErrLost) {
		t.Errorf("the job that ran gives %v", err)
	}
	n := 0
	for r, err := range sys.caller.Job(running).Stream(t.Context()) {
		if err != nil || r.Seq != uint64(n) {
			t.Fatalf("record %+v, %v", r, err)
		}
		n++
	}
	if n == 0 {
		t.Error("the records of the job that ran are gone")
	}
}

// serveUntilKilled ends some jobs, says so, and dies amid another.
func serveUntilKilled(t *testing.T, dir string) {
	sys := newSystem(t, embedded, openBadger(t, dir), dispatcher.Config{})
	sys.agent("web01", func(a *agent.Agent) { greeter(a); ticker(a) })
	for range 20 {
		job := must[*harp.Job](t)(countProc.Call(t.Context(), sys.caller.Host("web01"), countArgs{50}))
		must[harp.Value](t)(job.Get(t.Context()))
		tell(t, "ended", job)
	}
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "tick", harp.Args{"every": time.Millisecond, "for": time.Hour}))
	// That it runs may be stored after what it has emitted.
	for e, err := range sys.caller.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Job: job.ID()}) {
		if err != nil || e.Type == harp.EventJobRunning {
			break
		}
	}
	for r, err := range job.Follow(t.Context(), harp.Since(0)) {
		if err == nil && r.Seq == 20 {
			tell(t, "running", job)
		}
	}
}

// tell tells the test's parent of a job.
func tell(t *testing.T, what string, job *harp.Job) {
	if _, err := os.Stdout.WriteString(what + " " + job.ID() + "\n"); err != nil {
		t.Fatal(err)
	}
}

// HarpCaller's worker crashed on a malformed request and closed the connection
// without a word, and so did its streams of unknown jobs. What a caller's handle
// gets for unknown ids is in TestUnknownAndBadIdsAreAnswered.
func TestDefect6NoReplyAtAllOnBadRequestsOrUnknownIds(t *testing.T) {
	sys := newSystem(t, inMemory, nil, dispatcher.Config{})
	addr, tc, dial := sys.net.dial("dispatcher", "tester", transport.RoleCaller)
	raw := newRawCaller(t, addr, tc, dial)
	empty := wire.Encode(map[string]any{})
	odd := wire.Encode(map[string]any{"id": 7, "req": "text", "from": -1, "name": []int{1}, "cursor": "x"})
	for typ := transport.Type(64); typ < 126; typ++ {
		for _, body := range [][]byte{nil, empty, odd} {
			f, err := raw.ask(t.Context(), typ, body)
			if err != nil || !f.End {
				t.Errorf("request %d with body %q is answered by %+v, %v", typ, body, f, err)
			}
		}
	}
}

// Cancel in HarpCaller closed a socket and said true, while the procedure ran on.
func TestDefect7CancelThatReportsSuccessWhileRemoteWorkGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		var works atomic.Bool
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, any]("work"), func(ctx context.Context, _ struct{}) (any, error) {
				works.Store(true)
				defer works.Store(false)
				<-ctx.Done()
				time.Sleep(time.Minute) // of virtual time: to tidy up
				return nil, ctx.Err()
			})
		})
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		synctest.Wait()
		must[bool](t)(job.Cancel(t.Context()))
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateCancelling || !works.Load() {
			t.Errorf("while it works: %s, working %v", s.State, works.Load())
		}
		res := must[harp.Result](t)(job.Wait(t.Context()))
		if res.State != harp.StateCancelled || works.Load() {
			t.Errorf("afterwards: %s, working %v", res.State, works.Load())
		}
	})
}

// Salt's syndics forgot, when they connected anew, who was behind them: what was
// running could not be killed, and its output was lost or came twice.
func TestDefect8ReconnectThatForgetsWhoIsConnected(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		next, emitted, stopped := make(chan int), make(chan error), make(chan error, 1)
		sys.agent("web01", func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[struct{}, int, any]("work"), func(ctx context.Context, _ struct{}, emit func(int) error) (any, error) {
				defer func() { stopped <- context.Cause(ctx) }()
				for {
					select {
					case n := <-next:
						emitted <- emit(n)
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
			})
		})
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		for n := range 30 {
			if n%10 == 5 {
				sys.cutHost()
				sys.online.wait("web01")
			}
			next <- n
			if err := <-emitted; err != nil {
				t.Fatal(err)
			}
		}
		must[bool](t)(job.Cancel(t.Context()))
		if err := <-stopped; !errors.Is(err, harp.ErrCancelled) {
			t.Errorf("it was stopped by %v", err)
		}
		if _, err := job.Get(t.Context()); !errors.Is(err, harp.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		n := 0
		for v, err := range harp.Decode[int](job.Stream(t.Context(), harp.Since(0))) {
			if err != nil || v != n {
				t.Fatalf("record %d is %d, %v", n, v, err)
			}
			n++
		}
		if n != 30 {
			t.Errorf("%d records of 30", n)
		}
	})
}

// In Saltpeter an outage of the network filled the pipe of a job's output, and the
// job stood still.
func TestDefect9OutputPipeBlockingTheJobDuringANetworkOutage(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		begun, parted, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
		const records, size = 5000, 1000 // more than any window
		sys.agent("web01", func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[struct{}, string, int]("print"), func(_ context.Context, _ struct{}, emit func(string) error) (int, error) {
				close(begun)
				<-parted
				defer close(returned)
				for range records {
					if err := emit(strings.Repeat("x", size)); err != nil {
						return 0, err
					}
				}
				return records, nil
			})
		})
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "print", nil))
		<-begun
		sys.part()
		close(parted)
		<-returned // nobody hears it, and it is not held
		sys.heal()
		if n := must[int](t)(harp.Get[int](t.Context(), job)); n != records {
			t.Errorf("it returned %d", n)
		}
		n := 0
		for v, err := range harp.Decode[string](job.Stream(t.Context(), harp.Since(0))) {
			if err != nil || len(v) != size {
				t.Fatalf("record %d has %d bytes, %v", n, len(v), err)
			}
			n++
		}
		if n != records {
			t.Errorf("%d records of %d", n, records)
		}
	})
}

// In all three systems on Salt a completion event that was missed left its job
// running for ever.
func TestDefect10JobsLeftRunningForEverAfterAMissedCompletionEvent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		host := sys.caller.Host("web01")
		missed := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "missed"}))
		<-g.entered
		time.Sleep(10 * time.Millisecond)
		synctest.Wait() // the dispatcher has heard that it started
		sys.part()
		g.release <- struct{}{}
		synctest.Wait() // it has ended, and nobody was told
		if s := must[harp.JobStatus](t)(missed.Status(t.Context())); s.State != harp.StateRunning {
			t.Errorf("at first it is %s", s.State)
		}
		time.Sleep(31 * time.Second)
		if s := must[harp.JobStatus](t)(missed.Status(t.Context())); s.State != harp.StateUnknown {
			t.Errorf("when its host has been silent for long it is %s", s.State)
		}
		sys.heal()
		if v := must[harp.Value](t)(missed.Get(t.Context())); v.String() != `"released"` {
			t.Errorf("in the end it returned %s", v)
		}

		never := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "never"}))
		<-g.entered
		sys.part()
		if _, err := never.Get(t.Context()); !errors.Is(err, harp.ErrLost) {
			t.Errorf("of a host that never returns: %v", err)
		}
	})
}
