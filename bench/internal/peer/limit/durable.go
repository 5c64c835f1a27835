package limit

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Durable stores a job, has it run over TLS and stores its result: two keys and two
// syncs, and nothing else that harp does.
func Durable() measure.Subject {
	return measure.Subject{
		Name: "limit", Bound: true,
		Note: "by hand: merging committer over Badger, kept yamux streams, in one process; no journal at the agent",
		Setup: func(_ context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			d, err := openDesk(l, &parts, "")
			if err != nil {
				return nil, parts.Unless(err)
			}
			return rig(d.run, &parts), nil
		},
	}
}

// DurableApart is Durable with the worker and the submitter in processes of their
// own.
func DurableApart() measure.Subject {
	return measure.Subject{
		Name: "limit apart", Bound: true,
		Note: "the same in three processes",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			caller, err := setUpApart(ctx, l, &parts)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return rig(caller.ask, &parts), nil
		},
	}
}

func setUpApart(ctx context.Context, l *lab.Lab, parts *lab.Closers) (*lanes, error) {
	var worker, desk said
	w, err := l.Start(ctx, WorkerRole, nil, &worker)
	if err != nil {
		return nil, err
	}
	parts.Add(w.Close)
	d, err := l.Start(ctx, DeskRole, worker, &desk)
	if err != nil {
		return nil, err
	}
	parts.Add(d.Close)
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	caller, err := dialLanes(desk.Addr, tc)
	if err != nil {
		return nil, err
	}
	parts.Add(caller.Close)
	return caller, nil
}

func rig(run func([]byte) ([]byte, error), parts *lab.Closers) measure.Rig {
	return measure.NewEcho(func(context.Context) ([]byte, error) { return run(measure.Payload) }, parts.Close)
}

// desk keeps jobs and has them run.
type desk struct {
	store  *committer
	worker *lanes
}

// openDesk opens one, with a worker of its own unless there is one at an address.
func openDesk(l *lab.Lab, parts *lab.Closers, worker string) (*desk, error) {
	dir, err := l.Fresh("limit")
	if err != nil {
		return nil, err
	}
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	d := &desk{}
	if d.store, err = openCommitter(dir); err != nil {
		return nil, err
	}
	parts.Add(d.store.Close)
	if worker == "" {
		s, err := startServer(tc, echo)
		if err != nil {
			return nil, err
		}
		parts.Add(s.Close)
		worker = s.Addr().String()
	}
	if d.worker, err = dialLanes(worker, tc); err != nil {
		return nil, err
	}
	parts.Add(d.worker.Close)
	return d, nil
}

func echo(b []byte) ([]byte, error) { return b, nil }

// run does one job.
func (d *desk) run(job []byte) ([]byte, error) {
	if err := d.store.put('j', job); err != nil {
		return nil, err
	}
	result, err := d.worker.ask(job)
	if err != nil {
		return nil, err
	}
	return result, d.store.put('r', result)
}

// The processes of DurableApart.
const (
	WorkerRole = "limit-worker"
	DeskRole   = "limit-desk"
)

type said struct {
	Addr string `json:"addr"`
}

// RunWorker is the Role of that name.
func RunWorker(ctx context.Context, l *lab.Lab, _ json.RawMessage, ready func(any) error) error {
	return answer(ctx, l, echo, ready)
}

// RunDesk is the Role of that name.
func RunDesk(ctx context.Context, l *lab.Lab, arg json.RawMessage, ready func(any) error) error {
	var worker said
	if err := json.Unmarshal(arg, &worker); err != nil {
		return err
	}
	var parts lab.Closers
	d, err := openDesk(l, &parts, worker.Addr)
	if err != nil {
		return parts.Unless(err)
	}
	return errors.Join(answer(ctx, l, d.run, ready), parts.Close())
}

func answer(ctx context.Context, l *lab.Lab, f func([]byte) ([]byte, error), ready func(any) error) error {
	tc, err := l.PeerTLS()
	if err != nil {
		return err
	}
	s, err := startServer(tc, f)
	if err != nil {
		return err
	}
	if err := ready(said{s.Addr().String()}); err != nil {
		return errors.Join(err, s.Close())
	}
	<-ctx.Done()
	return s.Close()
}
