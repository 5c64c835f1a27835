package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
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

// TestSoak lets sessions, exchanges, the disk and the agent's process fail at random, with
// a dispatcher that keeps what it is told and asks for the rest. Nothing runs twice, no
// record is told twice or out of order, what is missing is said, and what was seen to
// start is never said to be absent, nor the journal to have taken fewer calls than it had.
func TestSoak(t *testing.T) {
	testSoak(t, 1, 20_000, agent.Limits{MaxJobSpool: 40_000, MaxRecord: 4000})
}

// TestSoakOfStores does the same with dispatchers of several stores by turns, none of which knows what the others have called, beside
// a journal that is too small for all of them: of what gives way each is told that it was started, and nothing else.
func TestSoakOfStores(t *testing.T) {
	testSoak(t, 3, 300_000, agent.Limits{MaxJobSpool: 100_000, MaxRecord: 4000, MaxJournal: 150_000})
}

func testSoak(t *testing.T, stores, window int, limits agent.Limits) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				s := &soak{t: t, rand: rand.New(rand.NewPCG(seed, 1)), stores: stores, window: window, jobs: map[string]*soakJob{}, runs: map[string]int{}, taken: map[int]int64{}}
				s.m = &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), offers: s.offer, limits: limits}
				s.m.d.welcome.Store, s.m.d.ponders = "store0", 200*time.Millisecond
				s.boot()
				for range 60 {
					s.step()
				}
				s.finish()
			})
		})
	}
}

// soak is one run.
type soak struct {
	t         *testing.T
	m         *machine
	rand      *rand.Rand
	disk      ailing // of the agent's present process
	exchanges sync.WaitGroup
	listens   net.Listener
	serves    *running
	window    int // bytes that a call states, at most
	stores    int
	store     int // of the dispatcher that the agent has

	mu    sync.Mutex // guards what follows
	jobs  map[string]*soakJob
	runs  map[string]int
	taken map[int]int64 // calls of each store, by all that was told
}

// soakJob is what the dispatcher has of a job.
type soakJob struct {
	id      string
	store   int // of its dispatcher
	records int64
	last    int64 // value of the last record
	started bool  // it was told so
	ended   bool
	gone    bool // that is all that is known of its end
	crashed bool // its process may have crashed, or another dispatcher have needed its room
}

// soakRecord is a record: its number among those that were offered, and ballast.
type soakRecord struct {
	N    int64
	Fill string
}

// offer offers a stream that takes its time.
func (s *soak) offer(a *agent.Agent) {
	agent.HandleStream(a, harp.NewStreamProc[none, soakRecord, int64]("stream"), func(ctx context.Context, _ none, emit func(soakRecord) error) (int64, error) {
		info, _ := agent.FromContext(ctx)
		s.mu.Lock()
		s.runs[info.JobID]++
		r := rand.New(rand.NewPCG(uint64(len(s.runs)), 2))
		s.mu.Unlock()
		n := int64(0)
		for range 5 + r.IntN(60) {
			n++
			if err := emit(soakRecord{N: n, Fill: strings.Repeat("x", r.IntN(3000))}); err != nil {
				return n, err
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
		}
		return n, nil
	}, agent.SilenceTimeout(time.Hour))
}

// step does something.
func (s *soak) step() {
	switch s.rand.IntN(12) {
	case 0, 1, 2:
		s.call(&soakJob{id: harp.NewID(), store: s.store})
	case 3:
		s.turn(s.rand.IntN(s.stores))
	case 4:
		s.m.away(true)
		time.Sleep(time.Duration(s.rand.IntN(5000)) * time.Millisecond)
		s.m.away(false)
		s.reconcile()
	case 5:
		s.mu.Lock()
		for _, j := range s.jobs {
			j.crashed = true
		}
		s.mu.Unlock()
		s.m.disk.Crash()
		s.m.peer.session.Close(nil)
		s.m.run.stop()
		s.serves.stop()
		s.m.run.wait()
		s.serves.wait()
		s.boot()
		s.reconcile()
	case 6:
		s.failDisk()
	case 7:
		s.beside()
	default:
		time.Sleep(time.Duration(s.rand.IntN(400)) * time.Millisecond)
	}
}

// boot starts another process of the agent.
func (s *soak) boot() {
	s.disk = newAiling(s.m.disk.Mount())
	s.disk.anyway = s.rand.IntN(2) == 0
	s.m.start(s.disk)
	a, l := s.m.agent, s.m.p.listen(s.t, agentID)
	s.listens = l
	s.serves = run(s.t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	synctest.Wait()
}

// beside lets the dispatcher dial the agent, while the session before goes on, and the agent dial the dispatcher again later.
func (s *soak) beside() {
	f := harp.FailureOf(harp.ErrUnavailable)
	s.m.d.set(func(d *dispatcher) { d.refuse = &f })
	d := &dispatcher{t: s.t, welcome: s.m.d.welcome, ponders: s.m.d.ponders}
	next, err := d.meet(s.t.Context(), dial(s.t, s.m.p, s.listens, dispatcherID, transport.ProtocolAgent))
	if err != nil {
		s.t.Fatal(err)
	}
	s.m.peer = next
	s.reconcile()
	time.Sleep(time.Duration(s.rand.IntN(2000)) * time.Millisecond)
	s.m.away(false)
	s.reconcile()
}

// failDisk lets the disk be full, or broken, for a while in which calls are made.
func (s *soak) failDisk() {
	s.disk.fail([]error{syscall.ENOSPC, syscall.EIO}[s.rand.IntN(2)])
	for range s.rand.IntN(3) {
		time.Sleep(time.Duration(s.rand.IntN(1000)) * time.Millisecond)
		if s.m.peer.session.Err() == nil {
			s.call(&soakJob{id: harp.NewID(), store: s.store})
		}
	}
	time.Sleep(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
	s.disk.heal()
	s.m.lose()
	s.reconcile()
}

// turn loses the session, and begins one with the dispatcher of a store.
func (s *soak) turn(store int) {
	s.store = store
	s.m.belongsTo(fmt.Sprint("store", store))
	s.mu.Lock()
	for _, j := range s.jobs {
		j.crashed = j.crashed || j.store != store
	}
	s.mu.Unlock()
	s.reconcile()
}

// finish waits until all jobs have ended.
func (s *soak) finish() {
	for store := range s.stores {
		for range 2 { // what there was no room for is called again
			s.turn(store)
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		s.m.lose()
		s.exchanges.Wait()
		for _, h := range s.m.peer.held {
			if s.jobs[h.Job].store == store {
				s.t.Errorf("held in the end: %+v", h)
			}
		}
	}
	for _, j := range s.jobs {
		if n := s.runs[j.id]; !j.ended || n > 1 || n == 0 && !j.gone {
			s.t.Errorf("%+v after %d runs", *j, s.runs[j.id])
		}
	}
}

// reconcile asks for what is held, calls again what is not, and lets the agent forget
// the rest.
func (s *soak) reconcile() {
	s.exchanges.Wait() // of the session before
	if taken := s.m.peer.taken; taken < s.taken[s.store] {
		s.t.Errorf("HELD says that %d calls of store %d were taken, of %d", taken, s.store, s.taken[s.store])
	}
	s.taken[s.store] = s.m.peer.taken
	held := map[string]wire.HeldAttempt{}
	for _, h := range s.m.peer.held {
		held[h.Job] = h
	}
	var forget []wire.HeldAttempt
	for id, j := range s.jobs {
		h, is := held[id]
		switch {
		case is && (j.ended || j.store != s.store):
			forget = append(forget, h)
		case j.ended || j.store != s.store:
		case is:
			j.started = true
			s.follow(j, s.m.peer.resume(id, j.records))
		case j.started:
			s.t.Errorf("job %s was started, and is absent", id)
		default:
			s.call(j)
		}
	}
	if len(forget) > 0 {
		s.m.peer.forget(forget...)
	}
}

// call sends a job.
func (s *soak) call(j *soakJob) {
	s.mu.Lock()
	s.jobs[j.id] = j
	s.mu.Unlock()
	window := int64(1000 + s.rand.IntN(s.window))
	s.follow(j, s.m.peer.call("stream", nil, func(c *wire.Call, r *harp.Request) { r.ID, c.Window = j.id, window }))
}

// follow takes what is told of a job until its end, or the session's.
func (s *soak) follow(j *soakJob, x *exchange) {
	slow := s.rand.IntN(4) == 0
	s.exchanges.Go(func() {
		for {
			f, err := x.x.Receive(context.Background())
			if err != nil {
				return
			}
			s.mu.Lock()
			ack := s.hear(j, f.Type, f.Body)
			s.mu.Unlock()
			if slow {
				time.Sleep(200 * time.Millisecond)
			}
			if ack != nil && x.x.Send(wire.TypeAck, false, wire.Encode(*ack)) != nil || ack != nil && ack.End {
				x.x.Release()
				return
			}
		}
	})
}

// hear takes a frame and returns what to answer.
func (s *soak) hear(j *soakJob, typ transport.Type, body []byte) *wire.Ack {
	switch typ {
	case wire.TypeAccepted:
		j.started = true
	case wire.TypeRecords:
		j.started = true
		var m wire.Records
		if err := wire.Decode(body, &m); err != nil || m.First != j.records {
			s.t.Errorf("records from %d, have %d: %v", m.First, j.records, err)
		}
		for _, r := range m.Records {
			s.record(j, r)
		}
		return &wire.Ack{Next: j.records}
	case wire.TypeEnd:
		var m wire.End
		if err := wire.Decode(body, &m); err != nil || m.Records != j.records {
			s.t.Errorf("END of %d records, have %d: %v", m.Records, j.records, err)
		}
		j.gone, s.taken[j.store] = m.Gone, max(s.taken[j.store], m.Taken)
		if n := int64(0); m.Gone && !j.crashed && s.runs[j.id] > 0 {
			s.t.Errorf("job %s is gone", j.id)
		} else if !m.Gone && m.Failure == nil && m.Value.Decode(&n) == nil && n < j.last {
			s.t.Errorf("returned %d after %d", n, j.last)
		}
		j.ended = true
		return &wire.Ack{Next: j.records, End: true}
	case wire.TypeNotNow: // it is called again when the disk works
	default:
		s.t.Errorf("frame of type %d", typ)
	}
	return nil
}

// record takes one record.
func (s *soak) record(j *soakJob, r wire.Record) {
	j.records++
	if len(r.Value) == 0 && r.Truncated > 0 {
		return
	}
	var v soakRecord
	if err := harp.Value(r.Value).Decode(&v); err != nil {
		s.t.Error(err)
	}
	if v.N != j.last+1 && (r.Truncated == 0 || v.N <= j.last) {
		s.t.Errorf("record %d has %d after %d, %d bytes dropped", j.records-1, v.N, j.last, r.Truncated)
	}
	j.last = v.N
}
