package limit

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Durable has the legs and the syncs of harp apart: a caller, a dispatcher that stores a job
// and its result, and a worker that journals its beginning and its end, in three processes.
func Durable() measure.Subject {
	return durableApart("limit", "by hand: caller, merging committer over Badger and worker in three processes, kept yamux streams; "+
		"the worker syncs to a journal that a job begins before it runs it, and its result before it answers, as harp's agent does", true)
}

// Bare is Durable without a journal: two keys and two syncs, and nothing else that harp does.
func Bare() measure.Subject {
	return durableApart("bare", "limit without the journal: after a worker is killed, nobody knows what it had begun", false)
}

// BareTogether is Bare with all in one process.
func BareTogether() measure.Subject {
	return measure.Subject{
		Name: "bare in one process", Bound: true, Note: "bare, caller, committer and worker in one process",
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

func durableApart(name, note string, journals bool) measure.Subject {
	return measure.Subject{
		Name: name, Bound: true, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			caller, err := setUpApart(ctx, l, &parts, journals)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return rig(caller.ask, &parts), nil
		},
	}
}

func setUpApart(ctx context.Context, l *lab.Lab, parts *lab.Closers, journals bool) (*lanes, error) {
	var worker, desk said
	w, err := l.Start(ctx, WorkerRole, workerArg{journals}, &worker)
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

// The processes of Durable and Bare.
const (
	WorkerRole = "limit-worker"
	DeskRole   = "limit-desk"
)

type said struct {
	Addr string `json:"addr"`
}

type workerArg struct {
	Journals bool `json:"journals,omitempty"`
}

// RunWorker is the Role of that name.
func RunWorker(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg workerArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	if !arg.Journals {
		return answer(ctx, l, echo, ready)
	}
	dir, err := l.Fresh("limit")
	if err != nil {
		return err
	}
	j, err := openJournal(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	return errors.Join(answer(ctx, l, j.wrap(echo), ready), j.Close())
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
