package supervisor

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// decideTime is how long a supervisor is waited for that has not begun its command, and whose
// agent died: it is about to see that.
const decideTime = 10 * time.Second

// Inspect returns what the spool file of an attempt says, without asking its supervisor. It
// waits a while for one that is about to begin its command or to give up. The error is
// [ErrNotFound], a *[DamagedError], [ErrVersion], that of ctx, or one of the system.
func Inspect(ctx context.Context, o Options, k Key) (Trace, error) {
	if o.Dir == "" {
		return Trace{}, ErrNotFound
	}
	p, err := placeOf(o, k)
	if err != nil {
		return Trace{}, err
	}
	for began := time.Now(); ; {
		t, err := p.inspect()
		if errors.Is(err, os.ErrNotExist) {
			err = ErrNotFound
		}
		if err != nil || !t.undecided || time.Since(began) > decideTime {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(attachPause):
		}
	}
}

// inspect is Inspect as it is now.
func (p place) inspect() (t Trace, err error) {
	lives, err := p.lives() // first: what it wrote before it died is there then
	if err != nil {
		return t, err
	}
	f, err := os.Open(p.spool())
	if err != nil {
		return t, err
	}
	defer f.Close()
	m, err := remainsOf(f)
	if err != nil {
		return t, err
	}
	t.Info, t.Created = m.Spec.Info, time.Unix(0, m.Created).UTC()
	if m.leader.Time != 0 {
		t.Created = time.Unix(0, m.leader.Time).UTC()
	}
	// What was not synced when the machine went down may be missing, and what is torn may be
	// the note that it was to be executed.
	idle := (!m.going || m.failed) && !m.torn && m.leader.Time == 0 && m.end == nil &&
		m.Supervisor.Boot != "" && m.Supervisor.Boot == proc.BootID()
	t.NeverBegan, t.undecided = idle && !lives, idle && lives
	return t, nil
}

// Discard removes what there is of an attempt that never began. The error is that of the file
// system.
func Discard(o Options, k Key) error {
	p, err := placeOf(o, k)
	if err != nil {
		return err
	}
	h, err := readHeader(p.spool())
	if err != nil {
		return err
	}
	secretDir{path: h.Secrets}.remove()
	removeCgroup(h.Cgroup)
	return p.remove()
}
