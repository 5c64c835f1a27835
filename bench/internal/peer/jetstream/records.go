package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Records publishes to a stream as long as a round lasts, and follows it.
func Records() measure.Subject {
	return measure.Subject{
		Name: "JetStream", Note: "asynchronous publications to a file store, sync_interval always; an ordered consumer follows",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			return records(ctx, l, false, func(ctx context.Context, r *recorder, p measure.Point) (measure.Sample, error) {
				return r.follow(ctx, p)
			})
		},
	}
}

// Replay reads what is stored.
func Replay() measure.Subject {
	return measure.Subject{
		Name: "JetStream", Note: "an ordered consumer of a file store; it was filled without syncing always",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			return records(ctx, l, true, func(ctx context.Context, r *recorder, p measure.Point) (measure.Sample, error) {
				if err := r.fill(ctx, p.Work); err != nil {
					return nil, err
				}
				return measure.Timed(p.Work, func() error { return r.read(ctx, p.Work) })
			})
		},
	}
}

func records(ctx context.Context, l *lab.Lab, lazy bool, round func(context.Context, *recorder, measure.Point) (measure.Sample, error)) (measure.Rig, error) {
	r := &recorder{filled: map[int]bool{}}
	var err error
	if r.out, r.in, err = jetStream(ctx, l, &r.parts, serverArg{Lazy: lazy}); err != nil {
		return nil, r.parts.Unless(err)
	}
	return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
		return round(ctx, r, p)
	}, r.parts.Close), nil
}

// recorder writes streams and reads them over another connection.
type recorder struct {
	parts   lab.Closers
	out, in jetstream.JetStream
	filled  map[int]bool
}

func streamName(n int) string { return fmt.Sprintf("RECORDS%d", n) }

func (r *recorder) create(ctx context.Context, name string) error {
	_, err := r.out.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage})
	return err
}

// published is after how many publications those before are waited for.
const published = 4096

// publish publishes until more says no, and waits until all is stored.
func (r *recorder) publish(ctx context.Context, name string, body []byte, more func(n int) bool) (n int, err error) {
	for n = 0; more(n); n++ {
		if _, err := r.out.PublishAsync(name, body); err != nil {
			return n, err
		}
		for n%64 == 0 && r.out.PublishAsyncPending() > published {
			time.Sleep(100 * time.Microsecond)
		}
	}
	select {
	case <-r.out.PublishAsyncComplete():
		return n, nil
	case <-ctx.Done():
		return n, context.Cause(ctx)
	}
}

func (r *recorder) fill(ctx context.Context, n int) error {
	if r.filled[n] {
		return nil
	}
	if err := r.create(ctx, streamName(n)); err != nil {
		return err
	}
	_, err := r.publish(ctx, streamName(n), measure.Payload, func(i int) bool { return i < n })
	r.filled[n] = err == nil
	return err
}

// follow publishes and reads at the same time.
func (r *recorder) follow(ctx context.Context, p measure.Point) (measure.Sample, error) {
	name := fmt.Sprintf("LIVE%d", time.Now().UnixNano())
	if err := r.create(ctx, name); err != nil {
		return nil, err
	}
	come := make(chan struct{}, 1<<20)
	c, err := r.consume(ctx, name, come)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	begin := time.Now()
	until := begin.Add(p.For)
	n, err := r.publish(ctx, name, make([]byte, p.Work), func(int) bool { return time.Now().Before(until) })
	if err != nil {
		return nil, err
	}
	if err := await(ctx, come, n); err != nil {
		return nil, err
	}
	s := measure.Sample{"rate": float64(n) / time.Since(begin).Seconds()}
	return s, r.out.DeleteStream(ctx, name)
}

func (r *recorder) consume(ctx context.Context, name string, come chan<- struct{}) (jetstream.ConsumeContext, error) {
	c, err := r.in.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	return c.Consume(func(jetstream.Msg) { come <- struct{}{} }, jetstream.PullMaxMessages(10000))
}

func await(ctx context.Context, come <-chan struct{}, n int) error {
	for range n {
		select {
		case <-come:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *recorder) read(ctx context.Context, n int) error {
	come := make(chan struct{}, 1<<20)
	c, err := r.consume(ctx, streamName(n), come)
	if err != nil {
		return err
	}
	defer c.Stop()
	return await(ctx, come, n)
}
