package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// TestFailAt lets each call to the disk fail once, in every manner, and looks after
// a crash whether what was said holds: nothing ran twice, what was said not to have
// started is not there, and each end that was told and is in the journal is the one
// that was told.
func TestFailAt(t *testing.T) {
	for _, manner := range []struct{ forever, anyway bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("forever=%v,anyway=%v", manner.forever, manner.anyway), func(t *testing.T) {
			for n := 1; ; n++ {
				calls := 0
				inMemory(t, func(t *testing.T, p place) {
					f := &failAt{disk: journal.NewMemory()}
					failing := journal.FailAt(f.disk.Mount(), n, errors.New("input/output error"))
					failing.Forever, failing.Anyway = manner.forever, manner.anyway
					f.run(t, p, failing)
					calls = failing.Calls()
				})
				if t.Failed() {
					t.Fatalf("call %d failed", n)
				}
				if calls < n {
					if n < 10 {
						t.Fatalf("%d calls in all", calls)
					}
					return
				}
			}
		})
	}
}

// failAt is one run with a failing disk.
type failAt struct {
	disk  *journal.Memory
	calls []failedCall
}

// failedCall is a call and what was said of it.
type failedCall struct {
	x       *exchange
	end     *wire.End
	refused bool
}

// run makes calls until the session ends, lets the process crash and looks what the
// next one says of them.
func (f *failAt) run(t *testing.T, p place, failing journal.FS) {
	runs := map[string]int{}
	offers := func(a *agent.Agent) {
		offerStream(a, "count", func(ctx context.Context, emit func(int) error) error {
			info, _ := agent.FromContext(ctx)
			runs[info.JobID]++
			for i := range 3 {
				if err := emit(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	d := listen(t, p)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	returned := make(chan error, 1)
	a := newAgent(t, p, func(c *agent.Config) { c.Journal = failing })
	offers(a)
	go func() { returned <- a.Connect(ctx, d.addr) }()
	select {
	case err := <-returned: // the journal could not be opened
		returned <- err
	case s := <-d.sessions:
		for range 3 {
			f.call(t, s)
		}
		s.session.Close(nil)
	}
	f.disk.Crash()
	stop()
	if err := <-returned; err != nil && len(f.calls) > 0 {
		t.Errorf("Connect returned %v", err)
	}
	m := &machine{t: t, p: p, d: d, disk: f.disk, offers: offers}
	for _, held := range m.boot().held {
		f.checkHeld(t, m, held)
	}
	for _, c := range f.calls {
		if c.refused && m.agent.Holds(c.x.id) {
			t.Errorf("job %s was said not to have started, and is held", c.x.id)
		}
		if n := runs[c.x.id]; n > 1 || c.refused && n > 0 || c.end != nil && n != 1 {
			t.Errorf("%d runs of a job that ended with %+v, refused %v", n, c.end, c.refused)
		}
	}
}

// call makes a call as far as the session lets it.
func (f *failAt) call(t *testing.T, s *peer) {
	if s.session.Err() != nil {
		return
	}
	c := failedCall{x: s.call("count", nil)}
	for next := int64(0); c.end == nil && !c.refused; {
		m, err := c.x.x.Receive(t.Context())
		if err != nil {
			break
		}
		switch m.Type {
		case wire.TypeRecords:
			var r wire.Records
			if err := wire.Decode(m.Body, &r); err != nil || r.First != next {
				t.Errorf("records from %d, want %d: %v", r.First, next, err)
			}
			next += int64(len(r.Records))
		case wire.TypeEnd:
			c.end = new(wire.End)
			if err := wire.Decode(m.Body, c.end); err != nil || c.end.Records != 3 || next != 3 {
				t.Errorf("END %+v after %d records: %v", c.end, next, err)
			}
		case wire.TypeNotNow:
			c.refused = true
		}
	}
	synctest.Wait()
	f.calls = append(f.calls, c)
}

// checkHeld asks for what is held, which must be of a call, and does not start it
// again.
func (f *failAt) checkHeld(t *testing.T, m *machine, h wire.HeldAttempt) {
	for _, c := range f.calls {
		if c.x.id != h.Job {
			continue
		}
		end, records := m.peer.call("count", nil, again(c.x)).ended()
		if end.Gone != (h.State == wire.HeldGone) || end.Records != int64(len(records)) || !end.Gone && value[int](t, end) != 0 {
			t.Errorf("%s: END %+v after %d records", h.State, end, len(records))
		}
		return
	}
	t.Errorf("held %+v, which was never asked for", h)
}
