package limit

import (
	"context"
	"sync"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Direct asks over kept streams.
func Direct() measure.Subject {
	return measure.Subject{
		Name: "limit", Note: "by hand: kept yamux streams with gathered writes", Bound: true,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			w, err := setUpWorker(ctx, l, &parts)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return rig(w.ask, &parts), nil
		},
	}
}

func setUpWorker(ctx context.Context, l *lab.Lab, parts *lab.Closers) (*lanes, error) {
	var worker said
	c, err := l.Start(ctx, WorkerRole, workerArg{}, &worker)
	if err != nil {
		return nil, err
	}
	parts.Add(c.Close)
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	w, err := dialLanes(worker.Addr, tc)
	if err != nil {
		return nil, err
	}
	parts.Add(w.Close)
	return w, nil
}

// Records puts records, some batches of them at a time.
func Records() measure.Subject {
	return measure.Subject{
		Name: "limit", Note: "by hand: a merging committer over Badger, without a follower", Bound: true,
		Setup: func(_ context.Context, l *lab.Lab) (measure.Rig, error) {
			dir, err := l.Fresh("limit")
			if err != nil {
				return nil, err
			}
			c, err := openCommitter(dir)
			if err != nil {
				return nil, err
			}
			return measure.NewRig(c.records, c.Close), nil
		},
	}
}

const (
	batch   = 512 // records put together
	batches = 8   // at a time
)

func (c *committer) records(ctx context.Context, p measure.Point) (measure.Sample, error) {
	begin := time.Now()
	var mu sync.Mutex // guards total and failed
	total := 0
	var failed error
	var wg sync.WaitGroup
	for range batches {
		wg.Go(func() {
			n, err := measure.Produce(ctx, p, func() (int, error) { return batch, c.putMany('r', make([]byte, p.Work), batch) })
			mu.Lock()
			defer mu.Unlock()
			total += n
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return measure.Sample{"rate": float64(total) / time.Since(begin).Seconds()}, failed
}

// putMany stores a value under so many new keys.
func (c *committer) putMany(kind byte, value []byte, n int) error {
	done := make(chan error, n)
	for range n {
		c.puts <- c.entry(kind, value, done)
	}
	var failed error
	for range n {
		if err := <-done; err != nil {
			failed = err
		}
	}
	return failed
}
