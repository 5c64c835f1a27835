package supervisor

import (
	"bytes"
	"context"
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
// secrets, and reads what it had written. The error is a *[DamagedError], [ErrVersion], or
// one of the file system.
func takeOver(p place, h header) (*dead, error) {
	m, err := readRemains(p.spool())
	leader := proc.Identity{Boot: h.Supervisor.Boot}
	if m != nil && m.leader.Leader.PID != 0 {
		leader = m.leader.Leader
	}
	if m == nil || m.end == nil {
		proc.EndOrphans(leader, h.Cgroup, h.Spec.Job, h.Spec.Attempt, h.Spec.Grace)
	}
	secretDir{path: h.Secrets}.remove()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &dead{m, p, ctx, cancel}, nil
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

func (d *dead) Forget() error { return d.place.remove() }

func (d *dead) Close() error {
	d.cancel()
	return d.f.Close()
}
