package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Asynq enqueues tasks. It has no way to wait for a result: the handler pushes it to
// a list, which is as durable, and the submitter takes it from there.
func Asynq() measure.Subject {
	return measure.Subject{
		Name: "asynq",
		Note: "Redis with appendfsync always; results through a Redis list; polls every millisecond when there are no tasks",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			d := &desk{}
			if err := d.open(ctx, l); err != nil {
				return nil, d.parts.Unless(err)
			}
			return measure.NewEcho(d.run, d.parts.Close), nil
		},
	}
}

const (
	task     = "echo"
	results  = "bench-results"
	workers  = 1024 // tasks at a time, as one agent of harp's runs
	poolSize = 128
	idLength = 36
)

// desk submits tasks and hands their results on.
type desk struct {
	parts   lab.Closers
	client  *asynq.Client
	results measure.Results[string]
}

func (d *desk) open(ctx context.Context, l *lab.Lab) error {
	addr, err := start(ctx, l, &d.parts)
	if err != nil {
		return err
	}
	tc, err := l.PeerTLS()
	if err != nil {
		return err
	}
	opt := asynq.RedisClientOpt{Addr: addr, TLSConfig: tc, PoolSize: poolSize}
	push, err := connect(l, &d.parts, addr)
	if err != nil {
		return err
	}
	pop, err := connect(l, &d.parts, addr)
	if err != nil {
		return err
	}
	s := asynq.NewServer(opt, asynq.Config{
		Concurrency: workers, TaskCheckInterval: time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	if err := s.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return push.RPush(ctx, results, id+string(t.Payload())).Err()
	})); err != nil {
		return err
	}
	d.parts.Add(func() error { s.Shutdown(); return nil })
	d.hear(pop)
	d.client = asynq.NewClient(opt)
	d.parts.Add(d.client.Close)
	return nil
}

// hear takes results until the desk is closed.
func (d *desk) hear(pop *redis.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, out, err := pop.BLMPop(ctx, time.Second, "left", 1000, results).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return
			}
			for _, s := range out {
				d.results.Deliver(s[:idLength], []byte(s[idLength:]))
			}
		}
	})
	d.parts.Add(func() error { cancel(); wg.Wait(); return nil })
}

func (d *desk) run(ctx context.Context) ([]byte, error) {
	info, err := d.client.EnqueueContext(ctx, asynq.NewTask(task, measure.Payload))
	if err != nil {
		return nil, err
	}
	return d.results.Wait(ctx, info.ID)
}
