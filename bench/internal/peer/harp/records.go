package harp

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Records follows a job that yields records for as long as a round lasts. The point
// is their size. Dispatcher, agent and caller are in three processes.
func Records() measure.Subject {
	return measure.Subject{
		Name: Apart, Note: "one job, followed from its beginning; " + apartNote,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return recording(apart(ctx, l)) },
	}
}

// RecordsTogether is Records with all in one process.
func RecordsTogether() measure.Subject {
	return measure.Subject{
		Name: Together, Note: "the same in one process, its GOMAXPROCS raised as documented; the follower needs no connection",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return raised(recording(together(ctx, l))) },
	}
}

func recording(s *system, err error) (measure.Rig, error) {
	if err != nil {
		return nil, err
	}
	return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
		return follow(ctx, s.caller, p)
	}, s.Close), nil
}

func follow(ctx context.Context, c *harp.Caller, p measure.Point) (measure.Sample, error) {
	begin := time.Now()
	j, err := stream.Call(ctx, c.Host(host(0)), flood{Size: p.Work, For: p.For})
	if err != nil {
		return nil, err
	}
	got, err := count(j.Follow(ctx, harp.Since(0)))
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	want, err := harp.Get[int](ctx, j)
	if err != nil {
		return nil, err
	}
	return measure.Sample{"rate": float64(got) / took.Seconds()}, same(got, want)
}

// count reads records that must have a value.
func count(records func(func(harp.Record, error) bool)) (n int, err error) {
	for r, err := range records {
		if err != nil {
			return n, err
		}
		if r.Truncated > 0 {
			return n, fmt.Errorf("%d records were not stored: a job may have no more", r.Truncated)
		}
		n++
	}
	return n, nil
}

// Replay reads the stored records of a job.
func Replay() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "Job.Stream; dispatcher and caller in two processes",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			s, err := apart(ctx, l)
			if err != nil {
				return nil, err
			}
			jobs := map[int]*harp.Job{}
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				if jobs[p.Work] == nil {
					if jobs[p.Work], err = fill(ctx, s.caller, p.Work); err != nil {
						return nil, err
					}
				}
				return measure.Timed(p.Work, func() error {
					got, err := count(jobs[p.Work].Stream(ctx))
					if err != nil {
						return err
					}
					return same(got, p.Work)
				})
			}, s.Close), nil
		},
	}
}

// fill makes a job with so many records.
func fill(ctx context.Context, c *harp.Caller, n int) (*harp.Job, error) {
	j, err := stream.Call(ctx, c.Host(host(0)), flood{Size: len(measure.Payload), Records: n})
	if err != nil {
		return nil, err
	}
	_, err = j.Get(ctx)
	return j, err
}
