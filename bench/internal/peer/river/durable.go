package river

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// echo has the payload.
type echo struct {
	Payload []byte `json:"payload"`
}

// Kind implements river.JobArgs.
func (echo) Kind() string { return "echo" }

type worker struct {
	river.WorkerDefaults[echo]
	d *desk
}

// Work implements river.Worker.
func (w *worker) Work(ctx context.Context, job *river.Job[echo]) error {
	if err := river.RecordOutput(ctx, job.Args.Payload); err != nil || !w.d.atOnce {
		return err
	}
	tx, err := w.d.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	done, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.d.results.Deliver(job.ID, done.Output())
	return nil
}

// Durable inserts jobs and waits for the event of their completion, which River
// gives to subscribers in the process that works.
func Durable() measure.Subject {
	return subject("River", "PostgreSQL with fsync and synchronous_commit, submitter and workers in one process; "+
		"River completes jobs in batches, four times a second or when there are many", false)
}

// DurableAtOnce is Durable with each job completed by its worker, in a transaction of
// its own.
func DurableAtOnce() measure.Subject {
	return subject("River at once", "the same with JobCompleteTx: each worker commits its job's end itself", true)
}

func subject(name, note string, atOnce bool) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			d := &desk{atOnce: atOnce}
			if err := d.open(ctx, l); err != nil {
				return nil, d.parts.Unless(err)
			}
			return measure.NewEcho(d.run, d.parts.Close), nil
		},
	}
}

// desk submits jobs and hands their results on.
type desk struct {
	atOnce  bool
	parts   lab.Closers
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	results measure.Results[int64]
}

const (
	workers = 1024 // jobs at a time, as one agent of harp's runs
	events  = 1 << 16
)

func (d *desk) open(ctx context.Context, l *lab.Lab) error {
	pool, err := start(ctx, l, &d.parts)
	if err != nil {
		return err
	}
	d.pool = pool
	driver := riverpgxv5.New(pool)
	quiet := slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	all := river.NewWorkers()
	river.AddWorker(all, &worker{d: d})
	if d.client, err = river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers: all, Logger: quiet,
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 100 * time.Millisecond,
	}); err != nil {
		return err
	}
	if !d.atOnce {
		d.listen()
	}
	if err := d.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	d.parts.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return d.client.StopAndCancel(ctx)
	})
	return nil
}

// listen hands results on until the desk is closed.
func (d *desk) listen() {
	ended, cancel := d.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: events, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range ended {
			d.results.Deliver(e.Job.ID, e.Job.Output())
		}
	})
	d.parts.Add(func() error { cancel(); wg.Wait(); return nil })
}

func (d *desk) run(ctx context.Context) ([]byte, error) {
	in, err := d.client.Insert(ctx, echo{measure.Payload}, nil)
	if err != nil {
		return nil, err
	}
	raw, err := d.results.Wait(ctx, in.Job.ID)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = json.Unmarshal(raw, &out)
	return out, err
}
