package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/needs"
)

// witness is a file outside harp in which procedures note when they begin and end:
// the truth about what ran.
type witness struct {
	t    testing.TB
	file *os.File
}

func newWitness(t testing.TB) witness {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "witness"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return witness{t, f}
}

// noteRun appends a line, in one write.
func (w witness) noteRun(what, name string) {
	if _, err := w.file.WriteString(what + " " + name + "\n"); err != nil {
		w.t.Error(err)
	}
}

// lines returns what was noted, in order.
func (w witness) lines() []string {
	text, err := os.ReadFile(w.file.Name())
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// most returns how many ran at the same time at most, and how many in all.
func (w witness) most() (most, in int) {
	now := 0
	for _, line := range w.lines() {
		switch {
		case strings.HasPrefix(line, "begin "):
			now++
			in++
			most = max(most, now)
		case strings.HasPrefix(line, "end "):
			now--
		}
	}
	return most, in
}

func TestConcurrencyOfAQueueIsNeverExceeded(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		const jobs, concurrency = 200, 3
		w := newWitness(t)
		work := harp.NewProc[helloArgs, string]("work")
		offer := func(a *agent.Agent) {
			agent.Handle(a, work, func(_ context.Context, in helloArgs) (string, error) {
				w.noteRun("begin", in.Name)
				defer w.noteRun("end", in.Name)
				return in.Name, nil
			})
		}
		sys.agent("web01", offer)
		sys.agent("web02", offer)
		var calls sync.WaitGroup
		for i := range jobs {
			calls.Go(func() {
				// The same queue, though its keys and numbers are written in different ways.
				name := any(map[string]any{"a": 1, "b": "x"})
				if i%2 == 0 {
					name = struct {
						B string  `json:"b"`
						A float64 `json:"a"`
					}{"x", 1}
				}
				host := sys.caller.Host("web0" + strconv.Itoa(1+i%2))
				job, err := work.Call(t.Context(), host, helloArgs{strconv.Itoa(i)}, harp.Queue(name), harp.Concurrency(concurrency))
				if err == nil {
					_, err = job.Get(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if most, in := w.most(); most > concurrency || in != jobs {
			t.Errorf("%d ran at the same time, %d in all; want at most %d, %d", most, in, concurrency, jobs)
		}
		for q, err := range sys.caller.Queues().List(t.Context()) {
			t.Errorf("a queue is left: %+v, %v", q, err)
		}
	})
}

// All that waits for a host starts when it comes, however much that is, if nothing else is to
// be waited for.
func TestAllThatWaitsForAHostStartsWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		var jobs []*harp.Job
		for range 600 {
			jobs = append(jobs, must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.OfflineWait(harp.NoLimit))))
		}
		var running atomic.Int64
		release := make(chan struct{})
		begun := time.Now()
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, string]("work"), func(context.Context, struct{}) (string, error) {
				running.Add(1)
				<-release
				return "", nil
			})
		})
		synctest.Wait()
		if n, took := running.Load(), time.Since(begun); n != 600 || took > time.Second {
			t.Errorf("%d of 600 run after %v", n, took)
		}
		close(release)
		for _, j := range jobs {
			must[harp.Value](t)(j.Get(t.Context()))
		}
	})
}

func TestALongQueueStartsInOrderAndIsGoneAfterwards(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	jobs := 10_000
	if needs.RaceDetector {
		jobs = 2000
	}
	w := newWitness(t)
	g := newGate()
	work := harp.NewProc[helloArgs, string]("work")
	sys.agent("web01", func(a *agent.Agent) {
		g.register(a)
		agent.Handle(a, work, func(_ context.Context, in helloArgs) (string, error) {
			w.noteRun("begin", in.Name)
			return "", nil
		})
	})
	queue := harp.Queue(harp.Args{"name": "long"})
	host := sys.caller.Host("web01", queue)
	must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "first"}))
	<-g.entered
	var last *harp.Job
	for i := range jobs {
		last = must[*harp.Job](t)(work.Call(t.Context(), host, helloArgs{strconv.Itoa(i)}))
	}
	q := must[harp.QueueStatus](t)(sys.caller.Queues().Get(t.Context(), harp.Args{"name": "long"}))
	if q.Running != 1 || q.Waiting != jobs {
		t.Errorf("queue is %+v", q)
	}
	s := must[harp.JobStatus](t)(last.Status(t.Context()))
	if s.State != harp.StateQueued || s.Reason != harp.ReasonQueue || s.QueuePos != jobs {
		t.Errorf("the last job is %s (%s) at %d", s.State, s.Reason, s.QueuePos)
	}
	g.release <- struct{}{}
	must[harp.Value](t)(last.Get(t.Context()))
	for i, line := range w.lines() {
		if line != "begin "+strconv.Itoa(i) {
			t.Fatalf("started as number %d: %s", i, line)
		}
	}
	if _, err := sys.caller.Queues().Get(t.Context(), harp.Args{"name": "long"}); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("the queue is still there: %v", err)
	}
}

func TestPriorityOrdersAQueue(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
		call := func(name string, priority int) {
			must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": name}, harp.Priority(priority)))
		}
		call("first", 0)
		if got := <-g.entered; got != "first" { // before others are there that would go first
			t.Errorf("started %s", got)
		}
		call("low", -5)
		call("normal", 0)
		call("high", 5)
		call("high too", 5)
		g.release <- struct{}{}
		for _, want := range []string{"high", "high too", "normal", "low"} {
			if got := <-g.entered; got != want {
				t.Errorf("started %s, want %s", got, want)
			}
			g.release <- struct{}{}
		}
	})
}

// While jobs arrive a queue is cancelled: what was queued at that commit never
// starts, what ran is asked to stop, what comes later is not touched.
func TestCancellingAQueueWhileJobsArrive(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		name := harp.Args{"q": 1}
		host := sys.caller.Host("web01", harp.Queue(name))
		running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
		<-g.entered
		var before []*harp.Job
		for i := range 20 {
			before = append(before, must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": fmt.Sprint("before", i)})))
		}
		var (
			arriving sync.WaitGroup
			begun    = make(chan struct{})
			stop     = make(chan struct{})
			arrived  []*harp.Job
		)
		arriving.Go(func() {
			for i := range 500 { // the gate has room for more
				job, err := host.Call(t.Context(), "gate", harp.Args{"name": fmt.Sprint("during", i)})
				if err != nil {
					t.Error(err)
					return
				}
				arrived = append(arrived, job)
				if i == 20 {
					close(begun)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		<-begun
		must[int](t)(sys.caller.Queues().Cancel(t.Context(), name))
		after := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "after"}))
		close(stop)
		arriving.Wait()

		if _, err := running.Get(t.Context()); !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidRun {
			t.Errorf("the running job gives %v", err)
		}
		for _, job := range before {
			if _, err := job.Get(t.Context()); !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidNotRun {
				t.Errorf("a job queued before the cancel gives %v, ran %s", err, harp.RanOf(err))
			}
		}
		// Those that arrived meanwhile are split by the one commit: first cancelled
		// ones, then only ones that were not touched.
		for range len(arrived) + 1 {
			g.release <- struct{}{}
		}
		touched := true
		for i, job := range arrived {
			_, err := job.Get(t.Context())
			cancelled := errors.Is(err, harp.ErrCancelled)
			if err != nil && !cancelled {
				t.Errorf("job %d: %v", i, err)
			}
			if cancelled && !touched {
				t.Errorf("job %d was cancelled after one that was not", i)
			}
			touched = cancelled
		}
		must[harp.Value](t)(after.Get(t.Context()))
		close(g.entered)
		for name := range g.entered {
			if strings.HasPrefix(name, "before") {
				t.Errorf("%s was started", name)
			}
		}
	})
}
