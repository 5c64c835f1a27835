package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// copyJournal is what the files of the machine's journal hold now.
func (m *machine) copyJournal() map[string][]byte {
	m.t.Helper()
	names, err := m.disk.List()
	if err != nil {
		m.t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		files[name] = m.disk.Bytes(name)
	}
	return files
}

// end ends the process, with or without its knowledge.
func (m *machine) end(crash bool) {
	m.t.Helper()
	if crash {
		m.disk.Crash()
	}
	m.peer.session.Close(nil)
	m.run.stop()
	m.run.wait()
}

// setBack puts a copy of the journal in its place.
func (m *machine) setBack(files map[string][]byte) {
	m.t.Helper()
	for name := range m.copyJournal() {
		if err := m.disk.Remove(name); err != nil {
			m.t.Fatal(err)
		}
	}
	for name, data := range files {
		m.disk.Put(name, data)
	}
}

// TestSetBackAndGrownAgain: a journal is set back behind an end that its dispatcher has stored, and has grown again before
// that dispatcher hears of it, by what another dispatcher calls, or as its agent is started again and again. A start that was
// not heard is lost with it, and it tells that it knows of fewer.
func TestSetBackAndGrownAgain(t *testing.T) {
	for _, another := range []bool{true, false} {
		inMemory(t, func(t *testing.T, p place) {
			m := newMachine(t, p, newCounter().offer, agent.Limits{})
			before := m.copyJournal()
			end := m.peer.call("once", nil).accepted().end()
			unheard := m.peer.call("once", nil)
			time.Sleep(time.Second)
			m.end(true)
			m.setBack(before)
			if another {
				m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
				m.boot()
				for range 3 {
					m.peer.call("once", nil).accepted().end()
				}
				m.belongsTo("store")
			} else {
				for range 40 {
					j, err := journal.Open(m.disk.Mount(), journal.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if err := j.Close(); err != nil {
						t.Fatal(err)
					}
				}
				m.boot()
			}
			if m.peer.taken >= end.Taken {
				t.Errorf("END says %d, then HELD %d, though %s is not known: held %+v", end.Taken, m.peer.taken, unheard.id, m.peer.held)
			}
		})
	}
}

// setBackWalk lets dispatchers of several stores call an agent by turns, lose sessions and hear nothing of what begins, while the
// journal is set back at random to what it was before.
type setBackWalk struct {
	t         *testing.T
	m         *machine
	rand      *rand.Rand
	store     int
	exchanges sync.WaitGroup
	copies    []map[string][]byte // of the journal, the oldest first

	mu      sync.Mutex // guards what follows
	stores  [3]setBackStore
	jobs    []*setBackJob
	order   int // how many have begun
	found   int // journals that were known to be set back
	excused int // jobs that ran twice, as nothing told of it
}

// setBackStore is what a dispatcher knows of the journal.
type setBackStore struct {
	taken   int64
	setBack bool // since it met the agent last
}

// setBackJob is what its dispatcher knows of a job, and what is so.
type setBackJob struct {
	id      string
	store   int
	started bool // it was told so
	over    bool // ended, or given up as lost

	runs    int
	begun   int  // when it began last
	setBack bool // the journal was, since then
	implied bool // the dispatcher has heard the end of one that began later
}

// TestSoakOfSetBack: no call is run twice, but where nothing was heard of its start, nor of the end of any that its dispatcher has called later, and
// the journal was set back behind it. None is said to be set back that was not.
func TestSoakOfSetBack(t *testing.T) {
	found, excused := 0, 0
	for seed := range uint64(24) {
		inMemory(t, func(t *testing.T, p place) {
			w := &setBackWalk{t: t, rand: rand.New(rand.NewPCG(seed, 7))}
			w.m = &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), offers: w.offer}
			w.m.d.welcome.Store = "store0"
			w.m.boot()
			w.reconcile()
			for range 150 {
				w.step()
			}
			w.m.peer.session.Close(nil)
			w.exchanges.Wait()
			found, excused = found+w.found, excused+w.excused
		})
	}
	t.Logf("%d were known to be set back, %d ran twice of which nothing was heard", found, excused)
	if found < 20 {
		t.Errorf("only %d were known to be set back", found)
	}
}

// offer offers what takes a while.
func (w *setBackWalk) offer(a *agent.Agent) {
	offer(a, "work", func(ctx context.Context) (int, error) {
		info, _ := agent.FromContext(ctx)
		select {
		case <-time.After(w.begin(info.JobID)):
		case <-ctx.Done():
		}
		return 0, ctx.Err()
	})
}

// begin notes that a job begins, and says how long it takes.
func (w *setBackWalk) begin(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[slices.IndexFunc(w.jobs, func(j *setBackJob) bool { return j.id == id })]
	switch {
	case j.runs == 0:
	case j.started || j.implied || !j.setBack:
		w.t.Errorf("it runs again: %+v", *j)
	default:
		w.excused++
	}
	w.order++
	j.runs++
	j.begun, j.setBack, j.implied = w.order, false, false
	return time.Duration(w.order*37%2000) * time.Millisecond
}

func (w *setBackWalk) step() {
	switch w.rand.IntN(10) {
	case 0, 1, 2, 3:
		w.call(&setBackJob{id: harp.NewID(), store: w.store})
	case 4:
		w.copies = append(w.copies, w.m.copyJournal())
	case 5:
		w.meet(w.rand.IntN(len(w.stores)))
	case 6:
		if w.rand.IntN(2) == 0 {
			w.restart()
		}
	default:
		time.Sleep(time.Duration(w.rand.IntN(1500)) * time.Millisecond)
	}
}

// meet loses the session, and begins one with the dispatcher of a store.
func (w *setBackWalk) meet(store int) {
	w.store = store
	w.m.belongsTo(fmt.Sprint("store", store))
	w.reconcile()
}

// restart begins another process, often with a journal of before.
func (w *setBackWalk) restart() {
	w.m.end(w.rand.IntN(2) == 0)
	w.exchanges.Wait()
	if len(w.copies) > 0 && w.rand.IntN(3) > 0 {
		at := w.rand.IntN(len(w.copies))
		w.m.setBack(w.copies[at])
		w.copies = w.copies[:at+1] // what came after it never was
		w.noteSetBack()
	}
	w.store = w.rand.IntN(len(w.stores))
	w.m.d.set(func(d *dispatcher) { d.welcome.Store = fmt.Sprint("store", w.store) })
	w.m.boot()
	w.reconcile()
}

func (w *setBackWalk) noteSetBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.stores {
		w.stores[i].setBack = true
	}
	for _, j := range w.jobs {
		j.setBack = true
	}
}

// reconcile concludes from what the agent holds as a dispatcher does.
func (w *setBackWalk) reconcile() {
	w.exchanges.Wait() // of the session before
	held := map[string]bool{}
	for _, h := range w.m.peer.held {
		held[h.Job] = h.State != wire.HeldWithdrawn
	}
	calls, resumes := w.conclude(held)
	var forget []wire.HeldAttempt
	for _, h := range w.m.peer.held {
		if !slices.ContainsFunc(resumes, func(j *setBackJob) bool { return j.id == h.Job }) {
			forget = append(forget, h)
		}
	}
	if len(forget) > 0 {
		w.m.peer.forget(forget...)
	}
	for _, j := range resumes {
		w.follow(j, w.m.peer.resume(j.id, 0))
	}
	for _, j := range calls {
		w.call(j)
	}
}

// conclude says what is called again, and what asked for the rest.
func (w *setBackWalk) conclude(held map[string]bool) (calls, resumes []*setBackJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st, rolledBack := &w.stores[w.store], w.m.peer.taken < w.stores[w.store].taken
	isMine := func(j *setBackJob) bool { return j.store == w.store && !j.over }
	gone := rolledBack || slices.ContainsFunc(w.jobs, func(j *setBackJob) bool { return isMine(j) && j.started && !held[j.id] })
	if gone && !st.setBack {
		w.t.Errorf("store %d: a journal that was not set back has taken %d after %d, and holds %v", w.store, w.m.peer.taken, st.taken, held)
	}
	if gone {
		w.found++
	}
	st.taken, st.setBack = w.m.peer.taken, false
	for _, j := range w.jobs {
		switch {
		case !isMine(j):
		case rolledBack, gone && !held[j.id]:
			j.over = true
		case held[j.id]:
			j.started = true
			resumes = append(resumes, j)
		default:
			calls = append(calls, j)
		}
	}
	return calls, resumes
}

// call sends a job. Often nothing is heard of it.
func (w *setBackWalk) call(j *setBackJob) {
	w.mu.Lock()
	if !slices.Contains(w.jobs, j) {
		w.jobs = append(w.jobs, j)
	}
	w.mu.Unlock()
	x := w.m.peer.call("work", nil, func(_ *wire.Call, r *harp.Request) { r.ID = j.id })
	if w.rand.IntN(3) > 0 {
		w.follow(j, x)
	}
}

// follow takes what is told of a job until its end, or the session's.
func (w *setBackWalk) follow(j *setBackJob, x *exchange) {
	w.exchanges.Go(func() {
		for {
			f, err := x.x.Receive(context.Background())
			if err != nil || f.Type == wire.TypeNotNow {
				return
			}
			if w.hear(j, f.Type, f.Body) {
				_ = x.x.Send(wire.TypeAck, false, wire.Encode(wire.Ack{End: true}))
				x.x.Release()
				return
			}
		}
	})
}

// hear takes a frame, and reports whether it is the last one.
func (w *setBackWalk) hear(j *setBackJob, typ transport.Type, body []byte) (over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.started = true
	if typ != wire.TypeEnd {
		return false
	}
	var m wire.End
	if err := wire.Decode(body, &m); err != nil {
		w.t.Error(err)
	}
	st := &w.stores[j.store]
	st.taken, j.over = max(st.taken, m.Taken), true
	for _, before := range w.jobs {
		if before.store == j.store && before.begun > 0 && before.begun < j.begun && !before.setBack {
			before.implied = true
		}
	}
	return true
}
