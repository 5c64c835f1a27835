package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// logged is what an agent logs.
type logged struct {
	mu   sync.Mutex // guards what follows
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines are those with a word.
func (l *logged) lines(word string) (with []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, word) {
			with = append(with, line)
		}
	}
	return with
}

// What a dispatcher asks again and again of attempts that are not here, or are another's, is logged the
// first time, and then how often, once a minute.
func TestLinesOfADispatcherAreCounted(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		var out logged
		c := newCounter()
		d := listen(t, p)
		a := newAgent(t, p, func(c *agent.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		c.offer(a)
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		peer := <-d.sessions
		over := peer.call("once", nil).accepted()
		over.end()
		runs := peer.call("count", nil).accepted()
		runs.x.Release()
		d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		peer.session.Close(nil)
		peer = <-d.sessions
		const times = 50
		for range times {
			if _, err := peer.resume(harp.NewID(), 0).x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("RESUME of what is not here is answered with %v", err)
			}
			forgotten := peer.call("once", nil, again(over))
			expect[wire.Accepted](forgotten, wire.TypeAccepted)
			forgotten.ending()
			peer.forget(wire.HeldAttempt{Job: runs.id, Attempt: 1})
		}
		time.Sleep(3 * time.Minute)
		for _, word := range []string{"asked to resume", "was here before", "does not know an attempt of another one"} {
			if lines := out.lines(word); len(lines) != 2 || !strings.Contains(lines[1], "times=49") {
				t.Errorf("%q is said %d times: %s", word, len(lines), lines)
			}
		}
		close(c.release)
	})
}

// A dispatcher that comes and goes all the time fills no log with that.
func TestLinesOfADispatcherThatComesAndGoesAreCounted(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		var out logged
		a := newAgent(t, p, func(c *agent.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		for epoch := range int64(20) {
			d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: "s", Epoch: epoch + 1, Heartbeat: int64(time.Hour)}}
			peer, err := d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
			if err != nil {
				t.Fatal(err)
			}
			peer.session.Close(nil)
			synctest.Wait()
		}
		time.Sleep(3 * time.Minute)
		for _, word := range []string{"session opened", "session ended"} {
			if lines := out.lines(word); len(lines) != 2 || !strings.Contains(lines[1], "times=19") {
				t.Errorf("%q is logged %d times: %s", word, len(lines), lines)
			}
		}
	})
}

// A caller that begins sessions which never open, or do, fills no log with them.
func TestLinesOfCallersAreCounted(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		var out logged
		a := newAgent(t, p, func(c *agent.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		for version := range int64(2) {
			for range 50 {
				s, err := dial(t, p, l, callerID, transport.ProtocolDirect).Opener(t.Context(), transport.Options{Logger: silent})
				if err != nil {
					t.Fatal(err)
				}
				caller := newPeer(t, s)
				caller.say(wire.TypeHello, wire.Hello{Version: version * wire.Version})
				if _, err := caller.control.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.Close(nil)
				synctest.Wait()
			}
		}
		time.Sleep(3 * time.Minute)
		if lines := out.lines("session"); len(lines) != 2 || !strings.Contains(lines[1], "times=49") {
			t.Errorf("%d lines: %s", len(lines), lines)
		}
	})
}

// An epoch belongs to a store: whatever a dispatcher states of its own, the dispatcher of another one
// is heard. The agent remembers a bounded number of them.
func TestAnEpochIsOfAStore(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		meet := func(store string, epoch int64) error {
			d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: store, Epoch: epoch, Heartbeat: int64(time.Hour)}}
			peer, err := d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
			if err == nil {
				peer.session.Close(nil)
				synctest.Wait()
			}
			return err
		}
		for _, c := range []struct {
			store string
			epoch int64
			heard bool
		}{
			{"real", 7, true},
			{"lie", math.MaxInt64, true},
			{"real", 8, true},
			{"lie", 1, false},
			{"real", 7, false},
			{"real", 8, true},
			{strings.Repeat("x", 128), 1, true},
			{strings.Repeat("x", 129), 1, false},
		} {
			if err := meet(c.store, c.epoch); (err == nil) != c.heard {
				t.Errorf("epoch %d of %.10q: %v", c.epoch, c.store, err)
			}
		}
		for range 100 {
			if err := meet(harp.NewID(), math.MaxInt64); err != nil {
				t.Fatal(err)
			}
			if err := meet("real", 7); err == nil {
				t.Fatal("an epoch of a store that was seen just now is forgotten")
			}
		}
		if n := a.Epochs(); n > 64 {
			t.Errorf("%d epochs are remembered", n)
		}
	})
}

// FORGET of what was never here leaves no trace: neither in the journal, nor of a call to come.
func TestForgetOfWhatWasNeverHere(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		id, before := harp.NewID(), m.copyJournal()
		for i := range 100 {
			page := wire.Forget{Last: true, Attempts: []wire.HeldAttempt{{Job: id, Attempt: 1}}}
			for n := range int64(200) {
				page.Attempts = append(page.Attempts, wire.HeldAttempt{Job: strings.Repeat("x", 128), Attempt: math.MaxInt64 - int64(i)*200 - n})
			}
			m.peer.forget(page.Attempts...)
		}
		m.lose()
		if after := m.copyJournal(); !reflect.DeepEqual(after, before) {
			t.Errorf("the journal is\n%q, it was\n%q", after, before)
		}
		this := func(_ *wire.Call, r *harp.Request) { r.ID = id }
		if n := value[int64](t, m.peer.call("once", nil, this).accepted().end()); n != 1 {
			t.Errorf("run %d", n)
		}
	})
}

// An attempt has no number, and no records, that no dispatcher that tells the truth would name.
func TestNumbersOutOfTheWorld(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		m.crash()
		for _, from := range []int64{math.MinInt64, -2, 1<<48 + 1, math.MaxInt64} {
			if _, err := m.peer.resume(x.id, from).x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("from record %d: %v", from, err)
			}
		}
		number := func(n int64) func(*wire.Call, *harp.Request) {
			return func(c *wire.Call, _ *harp.Request) { c.Attempt = n }
		}
		for _, n := range []int64{math.MinInt64, 0, 1 << 31, math.MaxInt64} {
			if f := m.peer.call("once", nil, number(n)).refused(); f.Field != "attempt" {
				t.Errorf("attempt %d: %+v", n, f)
			}
		}
		value[int64](t, m.peer.call("once", nil, number(1<<31-1)).accepted().end())
		close(c.release)
	})
}

// What attempts hold in memory for peers that acknowledge nothing is bounded for all of them together;
// each has some, and when one is done or goes away the others go on.
func TestUnacknowledgedRecordsOfMany(t *testing.T) {
	const (
		attempts = 20
		most     = 1 << 20
		each     = 40 // records
	)
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		agent.HoldAtMost(a, most)
		agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("emit"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
			for range each {
				if err := emit(make([]byte, 10<<10)); err != nil {
					return 0, err
				}
			}
			return each, nil
		})
		s, d, _ := connect(t, p, a)
		var calls []*exchange
		for range attempts {
			calls = append(calls, s.call("emit", nil).accepted())
		}
		time.Sleep(time.Minute)
		if n := a.HeldBytes(); n < most || n > most+attempts*(wire.MinWindow+2*11<<10) {
			t.Errorf("%d bytes are held", n)
		}
		for _, x := range calls[:3] {
			if _, records := x.ended(); len(records) != each {
				t.Errorf("%d records", len(records))
			}
		}
		s.session.Close(nil) // none of the others waits for a dispatcher that is away
		time.Sleep(time.Minute)
		s = <-d.sessions
		if len(s.held) != attempts-3 {
			t.Errorf("%d are held", len(s.held))
		}
		for _, h := range s.held {
			if h.State != wire.HeldEnded {
				t.Errorf("%+v", h)
			}
			if _, records := s.resume(h.Job, 0).ended(); len(records) != each {
				t.Errorf("%d records of one of them", len(records))
			}
		}
		synctest.Wait()
		if n := a.Counted(); n != 0 {
			t.Errorf("%d bytes are counted of attempts that have gone", n)
		}
	})
}

// Calls with very large arguments are there some at a time: others are put off until there is room.
func TestLargeCallsTakeTurns(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Journal = journal.NewMemory().Mount() })
		release := make(chan struct{})
		agent.Handle(a, harp.NewProc[[]byte, int]("take"), func(_ context.Context, b []byte) (int, error) { <-release; return len(b), nil })
		s, _, _ := connect(t, p, a)
		large := harp.Pos(make([]byte, 1<<20-1<<10))
		var taken []*exchange
		for range 32 {
			taken = append(taken, s.call("take", large).accepted())
		}
		if reason := s.call("take", large).notNow(); reason != wire.NotNowBusy {
			t.Errorf("one more is put off for %s", reason)
		}
		small := s.call("take", harp.Pos([]byte("x"))).accepted()
		close(release)
		small.end()
		for _, x := range taken {
			x.end()
		}
		if err := s.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
			t.Error("no READY: ", err)
		}
		s.call("take", large).accepted().end()
	})
}

const (
	longResult    = 20 << 10
	roomOfResults = 10 * longResult
)

// returner is an agent with a procedure that is known to return long results, and room for ten of them;
// begun is how many functions of it have begun since.
func returner(t *testing.T, p place, takes time.Duration, disk journal.FS) (a *agent.Agent, s *peer, r *running, begun *atomic.Int64) {
	begun = new(atomic.Int64)
	a = newAgent(t, p, func(c *agent.Config) { c.Journal = disk })
	agent.HoldResultsAtMost(a, roomOfResults)
	agent.Handle(a, harp.NewProc[none, []byte]("return"), func(context.Context, none) ([]byte, error) {
		begun.Add(1)
		time.Sleep(takes)
		return make([]byte, longResult), nil
	})
	s, _, r = connect(t, p, a)
	s.call("return", nil).rest()
	time.Sleep(time.Second) // the journal has its end, and that it was taken: nothing is written when the disk gets slow
	begun.Store(0)
	return a, s, r, begun
}

// However many calls come at once, functions begin while there is room for what they will return: the disk has
// the results of those before them.
func TestFunctionsWaitForRoomForTheirResults(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		const calls = 100
		disk := &slowDisk{FS: journal.NewMemory().Mount()}
		a, s, _, begun := returner(t, p, 0, disk)
		disk.delay.Store(int64(time.Minute))
		all := make([]*exchange, calls)
		for i := range all {
			all[i] = s.call("return", nil)
		}
		time.Sleep(90 * time.Second) // the first starts are journalled, and what came then is being
		if n := begun.Load(); n == 0 || n > 10 {
			t.Errorf("%d functions have begun when the disk has none of their results", n)
		}
		time.Sleep(31 * time.Second) // all starts are, and perhaps the first results
		if n := a.CountedResults(); n > roomOfResults+longResult {
			t.Errorf("%d bytes of results are there", n)
		}
		for _, x := range all {
			if end, _ := x.rest(); len(value[[]byte](t, end)) != longResult {
				t.Error("a result is not whole")
			}
		}
		synctest.Wait()
		if n := a.CountedResults(); n != 0 || begun.Load() != calls {
			t.Errorf("at the end %d bytes of results are counted, and %d have begun", n, begun.Load())
		}
	})
}

// Functions that take long keep no others from beginning, however much they will return; their results are
// encoded when there is room.
func TestLongFunctionsKeepNoOthersWaiting(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		const calls = 100
		disk := &slowDisk{FS: journal.NewMemory().Mount()}
		a, s, _, begun := returner(t, p, time.Hour, disk)
		for range calls {
			s.call("return", nil).accepted()
		}
		time.Sleep(time.Minute)
		if n := begun.Load(); n != calls {
			t.Errorf("%d functions have begun after a minute", n)
		}
		disk.delay.Store(int64(time.Minute))
		time.Sleep(time.Hour)
		if n := a.CountedResults(); n == 0 || n > roomOfResults+longResult {
			t.Errorf("%d bytes of results are there when all have returned", n)
		}
		disk.delay.Store(0)
	})
}

// An agent stops though its disk takes no results, and more wait for room than there is.
func TestStopsWhileResultsWaitForTheDisk(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		disk := &slowDisk{FS: journal.NewMemory().Mount()}
		_, s, r, begun := returner(t, p, time.Minute, disk)
		for range 30 {
			s.call("return", nil).accepted()
		}
		time.Sleep(30 * time.Second)
		if n := begun.Load(); n != 30 {
			t.Errorf("%d have begun", n)
		}
		disk.fails.Store(true)
		time.Sleep(time.Hour)
		r.stop()
		r.wait()
	})
}

// One that has taken all the places it may have leaves some to others.
func TestNobodyTakesAllPlaces(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		const most = 32
		c := newCounter()
		d := listen(t, p)
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxAttempts = most })
		c.offer(a)
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		s := <-d.sessions
		direct, _ := serve(t, p, a)
		for range most - most/16 {
			s.call("count", nil).accepted()
		}
		if reason := s.call("count", nil).notNow(); reason != wire.NotNowBusy {
			t.Errorf("one more is put off for %s", reason)
		}
		expect[wire.Started](direct.call("count", nil), wire.TypeStarted)
		if reason := direct.call("count", nil).notNow(); reason != wire.NotNowBusy {
			t.Errorf("another one's second is put off for %s", reason)
		}
		close(c.release)
	})
}

// While the disk is far behind no more results are handed to the journal, which would have them all in memory.
func TestResultsAreHandedOverAsTheDiskTakesThem(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		const calls = 30
		disk := &slowDisk{FS: journal.NewMemory().Mount()}
		a := newAgent(t, p, func(c *agent.Config) { c.Journal = disk })
		release := make(chan struct{})
		agent.Handle(a, harp.NewProc[none, []byte]("return"), func(context.Context, none) ([]byte, error) {
			<-release
			return make([]byte, 1000<<10), nil
		})
		s, _, _ := connect(t, p, a)
		all := make([]*exchange, calls)
		for i := range all {
			all[i] = s.call("return", nil).accepted()
		}
		disk.delay.Store(int64(time.Minute))
		close(release)
		time.Sleep(30 * time.Second)
		if n := a.HandedEnds(); n < 9 || n > 12 { // as many as may wait, and those of which each saw room for one more
			t.Errorf("%d are handed over while the disk has none", n)
		}
		var ended sync.WaitGroup // all take what they are sent: none waits behind another
		for _, x := range all {
			ended.Go(func() { x.rest() })
		}
		ended.Wait()
	})
}

// A function that is held back because there is no room for its records does not let the next one be encoded before
// there is some.
func TestRecordsAreEncodedWhenThereIsRoom(t *testing.T) {
	type record struct {
		N    int
		Fill []byte
	}
	inMemory(t, func(t *testing.T, p place) {
		const each = 20
		a := newAgent(t, p)
		agent.HoldAtMost(a, 100<<10)
		var now *record
		agent.HandleStream(a, harp.NewStreamProc[none, *record, int]("emit"), func(_ context.Context, _ none, emit func(*record) error) (int, error) {
			for range each {
				now = &record{Fill: make([]byte, 20<<10)}
				if err := emit(now); err != nil {
					return 0, err
				}
			}
			return each, nil
		})
		s, _, _ := connect(t, p, a)
		x := s.call("emit", nil).accepted()
		synctest.Wait()
		x.ack(1)
		synctest.Wait()
		now.N = 1 // of one that waits
		_, records := x.rest()
		marked := 0
		for _, r := range records {
			var v record
			if err := harp.Value(r.Value).Decode(&v); err != nil {
				t.Fatal(err)
			}
			marked += v.N
		}
		if marked != 1 {
			t.Errorf("%d records of %d were encoded after they had waited", marked, len(records))
		}
	})
}

// A function that has returned is within its limits, however long its result waits for the disk.
func TestALimitDoesNotRunWhileAResultWaits(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		disk := &slowDisk{FS: journal.NewMemory().Mount()}
		_, s, _, _ := returner(t, p, 2*time.Second, disk)
		var all []*exchange
		for range 30 {
			all = append(all, s.call("return", nil, func(c *wire.Call, _ *harp.Request) { c.MaxExecTime = int64(10 * time.Second) }).accepted())
		}
		time.Sleep(time.Second)
		disk.delay.Store(int64(time.Minute))
		time.Sleep(30 * time.Second) // no end is acknowledged
		for _, x := range all {
			if end, _ := x.rest(); end.Stopped != nil || time.Duration(end.RanFor) > 9*time.Second {
				t.Errorf("it ended by %+v and ran for %v", end.Stopped, time.Duration(end.RanFor))
			}
		}
	})
}

// A call that comes too late is refused for that, also by an agent that is busy: it is not to come again.
func TestACallThatIsLateIsNotPutOff(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxAttempts = 1 })
		c.offer(a)
		s, _, _ := connect(t, p, a)
		s.call("count", nil).accepted()
		if reason := s.call("count", nil, func(c *wire.Call, _ *harp.Request) { c.Left = -1 }).notNow(); reason != wire.NotNowStartBefore {
			t.Errorf("it is put off for %s", reason)
		}
		close(c.release)
	})
}

// A RESUME from behind all records that there can be is none, also of an attempt of an earlier agent, which may
// have told more than it has: the records that follow would have such numbers.
func TestResumeBehindAllRecords(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		time.Sleep(time.Second) // its records are synced
		m.crash()
		m.checkHeld(x, wire.HeldGone, 10)
		for _, from := range []int64{1<<48 + 1, math.MaxInt64} {
			over := m.peer.resume(x.id, from)
			if f, err := over.x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("from %d: %+v, %v", from, f, err)
			}
			over.x.Release()
		}
		if end, records := m.peer.resume(x.id, 0).rest(); !end.Gone || len(records) != 10 {
			t.Errorf("from the beginning: %+v, %d records", end, len(records))
		}
	})
}
