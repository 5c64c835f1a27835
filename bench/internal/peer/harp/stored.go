package harp

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// The metrics of Stored.
var (
	Open     = measure.Metric{Name: "open", Unit: "s", Lower: true}
	PageTime = measure.Metric{Name: "slowest page", Unit: "ms", Lower: true}
	SubmitAt = measure.Metric{Name: "submit p50", Unit: "ms", Lower: true}
	Submit90 = measure.Metric{Name: "submit p90", Unit: "ms", Lower: true}
	ToEmpty  = measure.Metric{Name: "p90 to an empty store's", Unit: "x", Lower: true}
	RSS      = measure.Metric{Name: "memory", Unit: "MiB", Lower: true}
)

// Stored opens a dispatcher on a store with many jobs that has been killed, lists
// jobs and submits some, in turns with one whose store was empty at the beginning.
func Stored() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "jobs that have ended, of 100 hosts, compacted but for the last 2,000; the process that stored them is killed",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			dir, err := l.Fresh("stored")
			if err != nil {
				return nil, err
			}
			empty, err := apart(ctx, l)
			if err != nil {
				return nil, err
			}
			s := &stored{l: l, dir: dir + "/store", empty: empty}
			return measure.NewRig(s.round, empty.Close), nil
		},
	}
}

// stored is a store to which jobs are added from point to point.
type stored struct {
	l     *lab.Lab
	dir   string
	jobs  int
	empty *system // of another store, that has next to nothing
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
	return s.submit(ctx, c, p, out)
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
		{Host: host(7), States: []harp.State{harp.StateFailed}},     // none
		{Host: host(10), States: []harp.State{harp.StateSucceeded}}, // none, and most others have
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

// turns is how often the two stores take turns in a round.
const turns = 4

// submit submits one job at a time, and waits for each; in turns to this store and to
// the empty one.
func (s *stored) submit(ctx context.Context, c *harp.Caller, p measure.Point, out measure.Sample) error {
	var here, there []float64
	for range turns {
		more, err := submitFor(ctx, c, p.For/turns)
		if err != nil {
			return err
		}
		here = append(here, more...)
		if more, err = submitFor(ctx, s.empty.caller, p.For/turns); err != nil {
			return err
		}
		there = append(there, more...)
	}
	l := measure.Latencies(here)
	out[SubmitAt.Name], out[Submit90.Name] = l["p50"], l["p90"]
	out[ToEmpty.Name] = l["p90"] / measure.Latencies(there)["p90"]
	return nil
}

// submitFor returns how many milliseconds each submission took.
func submitFor(ctx context.Context, c *harp.Caller, d time.Duration) (took []float64, err error) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		begin := time.Now()
		j, err := work.Call(ctx, c.Host(host(0)), echo{measure.Payload})
		if err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(begin))/float64(time.Millisecond))
		if _, err := j.Get(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}
