package supervisor

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// dead is what a supervisor left that is dead.
type dead struct {
	*remains
	place  place
	closed context.Context
	cancel context.CancelFunc
}

// takeOver ends what is left of the command of a supervisor that is dead, removes its
// secrets, and reads what it had written. The error is [ErrGone] with a *[DamagedError] or
// [ErrVersion]; that of ctx; or one of the system, after which something may be left.
func takeOver(ctx context.Context, p place, h header, grace time.Duration) (*dead, error) {
	m, err := readRemains(p.spool())
	if err != nil && h.Spec.Leave && !errors.Is(unreadable(err), ErrGone) {
		return nil, err // if it has ended, what runs is to
	}
	leader := proc.Identity{Boot: h.Supervisor.Boot}
	if m != nil && m.leader.Leader.PID != 0 {
		leader = m.leader.Leader
	}
	if m == nil || m.end == nil {
		if _, left := proc.EndOrphans(ctx, leader, h.Cgroup, h.Spec.Job, h.Spec.Attempt, grace); left != nil {
			if m != nil {
				drop(m.f)
			}
			return nil, left
		}
	}
	secretDir{path: h.Secrets}.remove()
	if err != nil {
		return nil, unreadable(err)
	}
	closed, cancel := context.WithCancel(context.Background())
	return &dead{m, p, closed, cancel}, nil
}

// unreadable is ErrGone if it will never be otherwise that a file cannot be read.
func unreadable(err error) error {
	var damaged *DamagedError
	if errors.As(err, &damaged) || errors.Is(err, ErrVersion) {
		return errors.Join(ErrGone, err)
	}
	return err
}

// EndOrphans ends what is left of a command that was run inside a process that is dead:
// TERM, and after the grace KILL. The error is that of ctx, or of the system: then
// something may be left.
func EndOrphans(ctx context.Context, k Key, grace time.Duration) error {
	_, err := proc.EndOrphans(ctx, proc.Identity{Boot: proc.BootID()}, "", k.Job, k.Attempt, grace)
	return err
}

func (d *dead) Started() time.Time {
	if d.leader.Time != 0 {
		return time.Unix(0, d.leader.Time).UTC()
	}
	return time.Unix(0, d.Created).UTC()
}

func (d *dead) Follow(ctx context.Context, from int64, record func(int64, Record) error, stopping func(Stop)) (End, error) {
	if d.closed.Err() != nil {
		return End{}, ErrClosed
	}
	if d.stop != nil {
		stopping(*d.stop)
	}
	record = owned(record)
	err := d.cursor(from).read(d.next.n, func(n int64, r Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return record(n, r)
	})
	if err != nil {
		return End{}, err
	}
	if d.end == nil {
		return End{Gone: true, Records: d.next.n}, d.damage
	}
	end := *d.end
	end.Result = bytes.Clone(end.Result)
	return end, d.damage
}

func (d *dead) Keep(int64)  {}
func (d *dead) Hold(bool)   {}
func (d *dead) Stop(string) {}
func (d *dead) Kill(string) {}

func (d *dead) EndOrphans(context.Context, time.Duration) error { return nil }

func (d *dead) Forget() error { return d.place.remove() }

func (d *dead) Close() error {
	d.cancel()
	return d.f.Close()
}
