package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// ailing is a journal's directory that can be made to fail.
type ailing struct {
	journal.FS
	ill    *atomic.Pointer[error] // what its calls return
	blind  *atomic.Pointer[error] // what reading returns
	anyway bool                   // writes are done all the same
}

func newAiling(fs journal.FS) ailing {
	return ailing{FS: fs, ill: new(atomic.Pointer[error]), blind: new(atomic.Pointer[error])}
}

func (a ailing) fail(err error) { a.ill.Store(&err) }
func (a ailing) heal()          { a.ill.Store(nil) }

func (a ailing) err() error {
	if err := a.ill.Load(); err != nil {
		return *err
	}
	return nil
}

func (a ailing) Open(name string) (journal.File, error) { return a.open(name, a.FS.Open) }

func (a ailing) Create(name string) (journal.File, error) { return a.open(name, a.FS.Create) }

func (a ailing) open(name string, open func(string) (journal.File, error)) (journal.File, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	f, err := open(name)
	return ailingFile{f, a}, err
}

// ailingFile is a file of an ailing directory. A disk that is full lets a file be
// cut, and what is there be synced; one that is broken lets nothing.
type ailingFile struct {
	journal.File
	of ailing
}

func (f ailingFile) Write(p []byte) (int, error) {
	err := f.of.err()
	if err == nil || f.of.anyway {
		n, other := f.File.Write(p)
		return n, errors.Join(err, other)
	}
	return 0, err
}

func (f ailingFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.of.blind.Load(); err != nil {
		return 0, *err
	}
	return f.File.ReadAt(p, at)
}

func (f ailingFile) Truncate(size int64) error {
	if err := f.of.err(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return f.File.Truncate(size)
}

// TestDiskFull checks a disk that is full for a while: no calls are taken, what runs
// is told as ever, and journalled later.
func TestDiskFull(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		x := m.peer.call("count", nil).accepted()
		ill.fail(syscall.ENOSPC)
		if reason := m.peer.call("once", nil).notNow(); reason != wire.NotNowNoSpace {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		for next := int64(0); next < 10; {
			r := expect[wire.Records](x, wire.TypeRecords)
			if r.First != next || len(r.Records) == 0 {
				t.Fatalf("%d records from %d, want some from %d", len(r.Records), r.First, next)
			}
			next += int64(len(r.Records))
		}
		close(c.release)
		if end := expect[wire.End](x, wire.TypeEnd); end.Records != 10 {
			t.Errorf("END %+v", end)
		}
		ill.heal()
		time.Sleep(3 * time.Second)
		m.crash()
		m.checkHeld(x, wire.HeldEnded, 10)
		if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
		if c.runs.Load() != 1 {
			t.Errorf("%d runs", c.runs.Load())
		}
	})
}

// TestUnreadForAWhile checks that what cannot be read from the journal for a while, a
// record or how an attempt ended, is told when it can be, to whoever asked before.
func TestUnreadForAWhile(t *testing.T) {
	for _, procedure := range []string{"once", "count"} {
		t.Run(procedure, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c := newCounter()
				close(c.release)
				disk := journal.NewMemory()
				ill := newAiling(disk.Mount())
				m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
				m.start(ill)
				x := m.peer.call(procedure, nil).accepted()
				time.Sleep(time.Second) // it is journalled
				m.lose()                // the journal alone has it
				err := errors.New("input/output error")
				ill.blind.Store(&err)
				y := m.peer.resume(x.id, 0)
				time.Sleep(time.Minute)
				ill.blind.Store(nil)
				end, records := y.ended()
				if end.Gone || end.Failure != nil || int64(len(records)) != end.Records || (len(records) == 10) != (procedure == "count") {
					t.Errorf("END %+v after %d records", end, len(records))
				}
			})
		})
	}
}

// TestStartBeforeSlow checks that a call whose time is over when its start is on disk
// at last is not started, and is not there after a crash.
func TestStartBeforeSlow(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(slow)
		slow.delay.Store(int64(10 * time.Second))
		left := func(d time.Duration) func(*wire.Call, *harp.Request) {
			return func(c *wire.Call, _ *harp.Request) { c.Left = int64(d) }
		}
		x := m.peer.call("once", nil, left(5*time.Second))
		if reason := x.notNow(); reason != wire.NotNowStartBefore {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		y := m.peer.call("once", nil, left(time.Minute)).accepted()
		if end := expect[wire.End](y, wire.TypeEnd); end.RanFor >= int64(time.Second) {
			t.Errorf("ran for %v", time.Duration(end.RanFor))
		}
		slow.delay.Store(0)
		time.Sleep(time.Minute)
		m.crash()
		m.checkHeld(y, wire.HeldEnded, 0)
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestStartBeforeBroken checks that such a call is not started either when it is not
// known whether that is on disk: it would be started once more later.
func TestStartBeforeBroken(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		ill := newAiling(slow)
		ill.anyway = true
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		slow.delay.Store(int64(10 * time.Second))
		x := m.peer.call("once", nil, func(c *wire.Call, _ *harp.Request) { c.Left = int64(5 * time.Second) })
		time.Sleep(7 * time.Second)
		ill.fail(errors.New("input/output error"))
		if f, err := x.x.Receive(t.Context()); err == nil {
			t.Errorf("answered with a frame of type %d", f.Type)
		}
		ill.heal()
		slow.delay.Store(0)
		m.peer = <-m.d.sessions
		m.checkHeld(x, "", 0)
		if n := c.runs.Load(); n != 0 {
			t.Errorf("%d runs of what is not held", n)
		}
	})
}

// TestStopWhileTheJournalStandsStill checks that a cancel and a limit reach the procedure while the
// journal's disk stands still, and that its end is told.
func TestStopWhileTheJournalStandsStill(t *testing.T) {
	for cause, limit := range map[string]time.Duration{wire.CauseCancel: harp.NoLimit, wire.CauseMaxExecTime: time.Minute} {
		t.Run(cause, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				disk := journal.NewMemory()
				slow := &slowDisk{FS: disk.Mount()}
				m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) { offerHang(a) }}
				m.start(slow)
				x := m.peer.call("hang", nil, limits(harp.NoLimit, limit)).accepted()
				slow.delay.Store(int64(time.Hour))
				asked := time.Now()
				if cause == wire.CauseCancel {
					x.cancel()
				}
				if s := x.stopping(); s.Cause != cause {
					t.Errorf("STOPPING %+v", s)
				}
				if end := expect[wire.End](x, wire.TypeEnd); end.Stopped == nil || end.Stopped.Cause != cause {
					t.Errorf("END %+v", end)
				}
				if took := time.Since(asked); took > 2*time.Minute {
					t.Errorf("it ended after %v", took)
				}
				slow.delay.Store(0)
				time.Sleep(2 * time.Hour)
				m.crash()
				m.checkHeld(x, wire.HeldEnded, 0)
			})
		})
	}
}

// TestHeardWhileTheJournalStandsStill: what is said of an attempt is heard whatever was said of
// others before, of each in the goroutine that reads the session.
func TestHeardWhileTheJournalStandsStill(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		disk := journal.NewMemory()
		slow := &slowDisk{FS: disk.Mount()}
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) {
			offerHang(a)
			offerStream(a, "count", func(ctx context.Context, emit func(int) error) error {
				for n := range 100 {
					if err := emit(n); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return nil
			})
		}}
		m.start(slow)
		hangs := m.peer.call("hang", nil).accepted()
		counts := m.peer.call("count", nil).accepted()
		ended := m.peer.call("hang", nil).accepted()
		ended.cancel()
		ended.stopping()
		end := ended.restOf()
		slow.delay.Store(int64(time.Hour))
		asked := time.Now()
		m.peer.call("hang", nil) // waits for the journal
		synctest.Wait()
		counts.ack(50)
		counts.cancel()
		ended.ackEnd(end)
		counts.ack(100)
		hangs.cancel()
		if s := hangs.stopping(); s.Cause != wire.CauseCancel {
			t.Errorf("STOPPING %+v", s)
		}
		if took := time.Since(asked); took > 2*time.Minute {
			t.Errorf("it was heard after %v", took)
		}
		slow.delay.Store(0)
		time.Sleep(2 * time.Hour)
		m.crash()
	})
}

// slowDisk is a directory whose files take a while to be synced, or are not.
type slowDisk struct {
	journal.FS
	delay atomic.Int64
	fails atomic.Bool
}

func (d *slowDisk) Open(name string) (journal.File, error) {
	f, err := d.FS.Open(name)
	return slowFile{f, d}, err
}

func (d *slowDisk) Create(name string) (journal.File, error) {
	f, err := d.FS.Create(name)
	return slowFile{f, d}, err
}

type slowFile struct {
	journal.File
	of *slowDisk
}

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(f.of.delay.Load()))
	if f.of.fails.Load() {
		return io.ErrShortWrite
	}
	return f.File.Sync()
}

// TestBroken checks an agent that does not know what is on its disk: it answers
// nothing and has no session until its journal works again; what runs goes on, and
// what is not known to have been started is not called so.
func TestBroken(t *testing.T) {
	t.Run("nothing was written", func(t *testing.T) {
		inMemory(t, func(t *testing.T, p place) { testBroken(t, p, false) })
	})
	t.Run("all was written", func(t *testing.T) {
		inMemory(t, func(t *testing.T, p place) { testBroken(t, p, true) })
	})
}

func testBroken(t *testing.T, p place, anyway bool) {
	c := newCounter()
	disk := journal.NewMemory()
	ill := newAiling(disk.Mount())
	ill.anyway = anyway
	m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
	m.start(ill)
	x := m.peer.call("count", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	synctest.Wait() // all are numbered
	ill.fail(errors.New("input/output error"))
	y := m.peer.call("once", nil)
	if f, err := y.x.Receive(t.Context()); err == nil {
		t.Errorf("answered with a frame of type %d", f.Type)
	}
	<-m.peer.session.Done()
	time.Sleep(5 * time.Minute)
	select {
	case <-m.d.sessions:
		t.Error("a session without a journal")
	default:
	}
	close(c.release)
	time.Sleep(5 * time.Minute)
	ill.heal()
	before := m.peer.hello
	m.peer = <-m.d.sessions
	if h := m.peer.hello; h.Journal != before.Journal || h.Position < before.Position {
		t.Errorf("journal %q at %d, then %q at %d", before.Journal, before.Position, h.Journal, h.Position)
	}
	if anyway { // the start is on disk, but nothing was started
		if end := m.peer.resume(y.id, 0).end(); !end.Gone {
			t.Errorf("END %+v", end)
		}
	} else {
		m.peer.call("once", nil, again(y)).accepted().end()
	}
	time.Sleep(3 * time.Second)
	m.crash() // all was journalled after all
	m.checkHeld(x, wire.HeldEnded, 10)
	if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
		t.Errorf("END %+v after %d records", end, len(records))
	}
	if n := c.runs.Load(); n != 2 && !anyway || n != 1 && anyway {
		t.Errorf("%d runs", n)
	}
}

// TestFullAway checks records that a full disk did not take while the dispatcher was
// away: those that have a number are told all the same.
func TestFullAway(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		release := make(chan struct{})
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				<-release
				for range 300 {
					if err := emit(make([]byte, 1000)); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		}}
		m.start(ill)
		x := m.peer.call("flood", nil).accepted()
		m.away(true)
		ill.fail(syscall.ENOSPC)
		close(release)
		time.Sleep(time.Minute)
		ill.heal()
		m.away(false)
		_, records := m.peer.resume(x.id, 0).ended()
		var missed int64
		for _, r := range records {
			missed += r.Truncated
		}
		each := int64(len(records[0].Value))
		if n := len(records); n < 60 || n > 299 || int64(n-1)*each+missed != 300*each {
			t.Errorf("%d records, %d bytes missed", n, missed)
		}
	})
}

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

// TestDir checks that a journal on disk outlives its process, and that one process
// only has it.
func TestDir(t *testing.T) {
	t.Parallel() // it waits two seconds for the directory
	p, dir := loopback{}, t.TempDir()
	c := newCounter()
	begin := func(d *dispatcher) (*peer, *running) {
		a := newAgent(t, p, func(c *agent.Config) { c.Dir, c.Limits.Grace = dir, time.Millisecond })
		c.offer(a)
		r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		return <-d.sessions, r
	}
	d := listen(t, p)
	s, r := begin(d)
	x := s.call("once", nil).accepted()
	expect[wire.End](x, wire.TypeEnd)
	other := newAgent(t, p, func(c *agent.Config) { c.Dir = dir })
	var used *agent.DirInUseError
	if err := other.Connect(t.Context(), d.addr); !errors.As(err, &used) || used.Dir != dir || !errors.Is(err, harp.ErrConflict) {
		t.Errorf("Connect returned %v", err)
	}
	r.stop()
	r.wait()
	next, r := begin(d)
	if next.hello.Journal != s.hello.Journal || next.hello.Position <= s.hello.Position || next.hello.Instance == s.hello.Instance {
		t.Errorf("HELLO %+v, then %+v", s.hello, next.hello)
	}
	if h := next.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldEnded {
		t.Errorf("held %+v", h)
	}
	if end := next.resume(x.id, 0).end(); value[int64](t, end) != 1 {
		t.Errorf("END %+v", end)
	}
	r.stop()
	r.wait()
}

// TestStopAway checks that an agent that stops without a session journals the ends
// of what it interrupts.
func TestStopAway(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		m.away(true)
		m.run.stop()
		m.run.wait()
		m.d.set(func(d *dispatcher) { d.refuse = nil })
		m.boot()
		m.checkHeld(x, wire.HeldEnded, 10)
		end, records := m.peer.resume(x.id, 0).ended()
		if f := failure(t, end); f.Type != "agent_stopped" || len(records) != 10 {
			t.Errorf("END %+v after %d records", f, len(records))
		}
	})
}

// severed is a place from which nobody can be dialled while it is cut off.
type severed struct {
	place
	cut *atomic.Bool
}

func (s severed) dialer(id transport.Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	dial := s.place.dialer(id)
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if s.cut.Load() {
			return nil, syscall.ECONNREFUSED
		}
		return dial(ctx, addr)
	}
}

// TestEndIsLostThoughTheDiskIsWellAgain checks that a journal that broke takes the end of an attempt
// once the disk works again, also while the agent is cut off from its dispatcher, and is stopped
// before it is back.
func TestEndIsLostThoughTheDiskIsWellAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c, cut, disk := newCounter(), new(atomic.Bool), journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: severed{p, cut}, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		x := m.peer.call("count", nil).accepted()
		synctest.Wait() // all are numbered
		cut.Store(true)
		m.peer.session.Close(nil)
		ill.fail(errors.New("input/output error"))
		close(c.release)
		time.Sleep(time.Minute)
		ill.heal()
		time.Sleep(time.Minute)
		m.run.stop()
		m.run.wait()
		cut.Store(false)
		m.boot()
		m.checkHeld(x, wire.HeldEnded, 10)
		if end, records := m.peer.resume(x.id, 0).ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
	})
}
