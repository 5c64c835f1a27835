package harp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// The metrics of Stored.
var (
	Open     = measure.Metric{Name: "open", Unit: "s", Lower: true}
	PageTime = measure.Metric{Name: "slowest page", Unit: "ms", Lower: true}
	SubmitAt = measure.Metric{Name: "submit p50", Unit: "ms", Lower: true}
	Submit90 = measure.Metric{Name: "submit p90", Unit: "ms", Lower: true}
	RSS      = measure.Metric{Name: "memory", Unit: "MiB", Lower: true}
)

// Stored opens a dispatcher on a store with many jobs that has been killed, lists
// jobs and submits some.
func Stored() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "jobs that have ended, of 100 hosts; the process that stored them is killed",
		Setup: func(_ context.Context, l *lab.Lab) (measure.Rig, error) {
			dir, err := l.Fresh("stored")
			if err != nil {
				return nil, err
			}
			s := &stored{l: l, dir: dir + "/store"}
			return measure.NewRig(s.round, func() error { return nil }), nil
		},
	}
}

// stored is a store to which jobs are added from point to point.
type stored struct {
	l    *lab.Lab
	dir  string
	jobs int
}

func (s *stored) round(ctx context.Context, p measure.Point) (measure.Sample, error) {
	filler, err := s.l.Start(ctx, FillerRole, fillerArg{s.dir, s.jobs, p.Work}, nil)
	if err != nil {
		return nil, err
	}
	filler.Kill()
	s.jobs = max(s.jobs, p.Work)
	var said dispatcherSaid
	d, err := s.l.Start(ctx, DispatcherRole, dispatcherArg{Dir: s.dir}, &said)
	if err != nil {
		return nil, err
	}
	var parts lab.Closers
	parts.Add(d.Close)
	out := measure.Sample{Open.Name: said.Opened.Seconds()}
	err = s.work(ctx, &parts, said.Addr, p, out)
	if err == nil {
		var rss int64
		rss, err = lab.RSS(d.PID())
		out[RSS.Name] = float64(rss) / (1 << 20)
	}
	return out, errors.Join(err, parts.Close())
}

func (s *stored) work(ctx context.Context, parts *lab.Closers, addr string, p measure.Point, out measure.Sample) error {
	c, err := dial(ctx, s.l, addr)
	if err != nil {
		return err
	}
	parts.Add(c.Close)
	if out[PageTime.Name], err = slowestPage(ctx, c); err != nil {
		return err
	}
	a, err := s.l.Start(ctx, AgentsRole, agentsArg{Connect: addr, Count: 1}, nil)
	if err != nil {
		return err
	}
	parts.Add(a.Close)
	if err := waitOnline(ctx, c, host(0)); err != nil {
		return err
	}
	return submit(ctx, c, p, out)
}

// filters are what a list may be asked for.
func filters() []harp.JobFilter {
	hour := time.Now().Add(-time.Hour)
	return []harp.JobFilter{
		{},
		{Host: host(7)},
		{Host: "nobody"},
		{Procedure: procedure(3)},
		{States: []harp.State{harp.StateFailed}},
		{States: []harp.State{harp.StateRunning, harp.StateQueued}},
		{Labels: map[string]string{"rack": "r1"}},
		{Since: hour},
		{Until: hour},
		{Host: host(7), States: []harp.State{harp.StateFailed}},
		{Host: host(7), Procedure: procedure(3)},
		{Procedure: procedure(3), Labels: map[string]string{"rack": "r2"}, States: []harp.State{harp.StateSucceeded}},
	}
}

// slowestPage is how many milliseconds the first page of the worst filter takes, at
// the second try.
func slowestPage(ctx context.Context, c *harp.Caller) (worst float64, err error) {
	for _, f := range filters() {
		for try := range 2 {
			begin := time.Now()
			if _, err := c.JobsPage(ctx, f, ""); err != nil {
				return 0, err
			}
			if took := float64(time.Since(begin)) / float64(time.Millisecond); try == 1 && took > worst {
				worst = took
			}
		}
	}
	return worst, nil
}

// submit submits one job at a time, and waits for each.
func submit(ctx context.Context, c *harp.Caller, p measure.Point, out measure.Sample) error {
	var took []float64
	for until := time.Now().Add(p.For); time.Now().Before(until); {
		begin := time.Now()
		j, err := work.Call(ctx, c.Host(host(0)), echo{payload})
		if err != nil {
			return err
		}
		took = append(took, float64(time.Since(begin))/float64(time.Millisecond))
		if _, err := j.Get(ctx); err != nil {
			return err
		}
	}
	l := measure.Latencies(took)
	out[SubmitAt.Name], out[Submit90.Name] = l["p50"], l["p90"]
	return nil
}

// FillerRole stores jobs that have ended, and then waits to be killed.
const FillerRole = "harp-filler"

type fillerArg struct {
	Dir  string `json:"dir"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

// RunFiller is the Role of that name.
func RunFiller(ctx context.Context, _ *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg fillerArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	st, err := badger.Open(arg.Dir, &badger.Options{Logger: quiet()})
	if err != nil {
		return err
	}
	defer st.Close()
	for i := range hosts {
		st.SetGate(host(i), store.Gate{Open: true, Most: 1 << 20})
	}
	if err := fillTo(ctx, st, arg.From, arg.To); err != nil {
		return err
	}
	if err := ready(nil); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

const (
	hosts  = 100
	filled = 500 // jobs in a commit
)

// fillers is how many store jobs at a time.
const fillers = 4

func fillTo(ctx context.Context, st store.Store, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	errs := make([]error, fillers)
	var wg sync.WaitGroup
	for i := range fillers {
		wg.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(filled)) - filled
				if n >= to {
					return
				}
				errs[i] = storeSome(ctx, st, n, min(filled, to-n))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func procedure(i int) string { return fmt.Sprintf("bench.p%d", i%10) }

// storeSome stores jobs and their ends; one in ten has failed.
func storeSome(ctx context.Context, st store.Store, first, n int) error {
	now := time.Now()
	args, err := harp.NewValue(echo{payload})
	if err != nil {
		return err
	}
	jobs := make([]store.Submission, n)
	for i := range jobs {
		k := first + i
		r := harp.Request{
			ID: harp.NewID(), Host: host(k % hosts), Procedure: procedure(k / hosts), Args: args,
			Labels: map[string]string{"rack": fmt.Sprintf("r%d", k%7)},
		}
		jobs[i] = store.Submission{
			Job: store.Job{
				ID: r.ID, Host: r.Host, Procedure: r.Procedure, OfflineWait: harp.NoLimit,
				SubmitTime: now, Labels: r.Labels,
			},
			Request: harp.Submission{Request: r.Encode()},
		}
	}
	submitted, err := st.Submit(ctx, jobs, now)
	if err != nil {
		return err
	}
	ends := make([]store.Transition, n)
	for i, s := range submitted {
		if s.Err != nil {
			return s.Err
		}
		e := store.Event{Kind: store.End, At: now, Attempt: s.Job.Attempt, Fence: s.Job.Fence, Value: harp.Value{0xc3}}
		if i%10 == 0 {
			e.Failure, e.Value = harp.NewFailure("remote", "it did not work"), nil
		}
		ends[i] = store.Transition{ID: s.Job.ID, Event: e}
	}
	changes, err := st.Apply(ctx, ends...)
	for _, c := range changes {
		err = errors.Join(err, c.Err)
	}
	return err
}
