package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Records adds to a stream as long as a round lasts, and follows it.
func Records() measure.Subject {
	return measure.Subject{
		Name: "Redis", Note: "XADD, 512 in a pipeline, with appendfsync always; XREAD follows",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			return records(ctx, l, func(ctx context.Context, r *recorder, p measure.Point) (measure.Sample, error) {
				return r.follow(ctx, p)
			})
		},
	}
}

// Replay reads what is stored.
func Replay() measure.Subject {
	return measure.Subject{
		Name: "Redis", Note: "XRANGE by 10,000; all of it is in memory",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			filled := map[int]bool{}
			return records(ctx, l, func(ctx context.Context, r *recorder, p measure.Point) (measure.Sample, error) {
				key := fmt.Sprintf("records%d", p.Work)
				for n := 0; !filled[p.Work] && n < p.Work; n += pipelined {
					if err := r.add(ctx, key, measure.Payload, min(pipelined, p.Work-n)); err != nil {
						return nil, err
					}
				}
				filled[p.Work] = true
				return measure.Timed(p.Work, func() error { return r.read(ctx, key, p.Work) })
			})
		},
	}
}

const (
	pipelined = 512
	page      = 10000
)

// recorder writes streams and reads them over another connection.
type recorder struct {
	parts   lab.Closers
	out, in *redis.Client
}

func records(ctx context.Context, l *lab.Lab, round func(context.Context, *recorder, measure.Point) (measure.Sample, error)) (measure.Rig, error) {
	r := &recorder{}
	if err := r.open(ctx, l); err != nil {
		return nil, r.parts.Unless(err)
	}
	return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
		return round(ctx, r, p)
	}, r.parts.Close), nil
}

func (r *recorder) open(ctx context.Context, l *lab.Lab) error {
	addr, err := start(ctx, l, &r.parts)
	if err != nil {
		return err
	}
	if r.out, err = connect(l, &r.parts, addr); err != nil {
		return err
	}
	r.in, err = connect(l, &r.parts, addr)
	return err
}

// add adds so many records in one pipeline.
func (r *recorder) add(ctx context.Context, key string, body []byte, n int) error {
	_, err := r.out.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range n {
			p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"r", body}})
		}
		return nil
	})
	return err
}

// follow adds and reads at the same time.
func (r *recorder) follow(ctx context.Context, p measure.Point) (measure.Sample, error) {
	const key = "live"
	if err := r.out.Del(ctx, key).Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	total := make(chan int, 1)
	read := make(chan error, 1)
	go func() { read <- r.tail(ctx, key, total) }()
	begin := time.Now()
	body := make([]byte, p.Work)
	n, err := measure.Produce(ctx, p, func() (int, error) { return pipelined, r.add(ctx, key, body, pipelined) })
	if err != nil {
		cancel()
	}
	total <- n
	if err := errors.Join(err, <-read); err != nil {
		return nil, err
	}
	return measure.Sample{"rate": float64(n) / time.Since(begin).Seconds()}, nil
}

// tail reads a stream until it has read as many as total says in the end.
func (r *recorder) tail(ctx context.Context, key string, total <-chan int) error {
	last, got, want := "0", 0, -1
	for want < 0 || got < want {
		out, err := r.in.XRead(ctx, &redis.XReadArgs{Streams: []string{key, last}, Count: 1000, Block: 100 * time.Millisecond}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for _, s := range out {
			got += len(s.Messages)
			last = s.Messages[len(s.Messages)-1].ID
		}
		select {
		case want = <-total:
		default:
		}
	}
	return nil
}

func (r *recorder) read(ctx context.Context, key string, n int) error {
	got := 0
	for from := "-"; ; {
		page, err := r.in.XRangeN(ctx, key, from, "+", page).Result()
		if err != nil {
			return err
		}
		got += len(page)
		if len(page) == 0 {
			break
		}
		from = "(" + page[len(page)-1].ID
	}
	if got != n {
		return fmt.Errorf("%d of %d records came", got, n)
	}
	return nil
}
