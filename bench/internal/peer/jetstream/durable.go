package jetstream

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Durable publishes jobs to a work queue and their results to another.
func Durable() measure.Subject {
	return durable("JetStream", "file store, sync_interval always; a work queue of jobs and one of results; "+
		"server in a second process, submitter and worker in one", lab.AsItComes)
}

// DurableTuned is Durable with the collector of harp's dispatcher.
func DurableTuned() measure.Subject {
	return durable("JetStream"+lab.Tuned, "the same, its server with "+lab.AsDispatcher.String(), lab.AsDispatcher)
}

func durable(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			d := &desk{}
			if err := d.open(ctx, l, c); err != nil {
				return nil, d.parts.Unless(err)
			}
			return measure.NewEcho(d.run, d.parts.Close), nil
		},
	}
}

// desk submits jobs and hands their results on.
type desk struct {
	parts   lab.Closers
	js      jetstream.JetStream
	last    atomic.Int64
	results measure.Results[string]
}

// idHeader names the job.
const idHeader = "Job"

func (d *desk) open(ctx context.Context, l *lab.Lab, c lab.Collector) error {
	js, worker, err := jetStream(ctx, l, &d.parts, serverArg{Collector: c})
	if err != nil {
		return err
	}
	d.js = js
	if err := consume(ctx, worker, &d.parts, "JOBS", func(m jetstream.Msg) { answer(worker, m) }); err != nil {
		return err
	}
	return consume(ctx, js, &d.parts, "RESULTS", d.hear)
}

// consume makes a work queue on disk and takes what comes.
func consume(ctx context.Context, js jetstream.JetStream, parts *lab.Closers, name string, f func(jetstream.Msg)) error {
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy,
	})
	if err != nil {
		return err
	}
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "all", MaxAckPending: inFlight})
	if err != nil {
		return err
	}
	running, err := c.Consume(f, jetstream.PullMaxMessages(4096))
	if err != nil {
		return err
	}
	parts.Add(func() error { running.Stop(); <-running.Closed(); return nil })
	return nil
}

// answer works: it publishes the result and takes the job from the queue when that
// is on the disk.
func answer(js jetstream.JetStream, m jetstream.Msg) {
	out := nats.NewMsg("RESULTS")
	out.Header.Set(idHeader, m.Headers().Get(idHeader))
	out.Data = m.Data()
	ack, err := js.PublishMsgAsync(out)
	if err != nil {
		return // it comes again
	}
	go func() { // ends with the publication, or when the connection is closed
		select {
		case <-ack.Ok():
			_ = m.Ack()
		case err := <-ack.Err():
			if err != nil {
				_ = m.Nak() // the job comes again
			}
		}
	}()
}

func (d *desk) hear(m jetstream.Msg) {
	_ = m.Ack()
	d.results.Deliver(m.Headers().Get(idHeader), m.Data())
}

func (d *desk) run(ctx context.Context) ([]byte, error) {
	id := strconv.FormatInt(d.last.Add(1), 10)
	m := nats.NewMsg("JOBS")
	m.Header.Set(idHeader, id)
	m.Data = measure.Payload
	ack, err := d.js.PublishMsgAsync(m)
	if err != nil {
		return nil, err
	}
	select {
	case <-ack.Ok():
		return d.results.Wait(ctx, id)
	case err := <-ack.Err():
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
