package dispatcher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// What an agent says of a job that was lost is given to the callers that ask for the job, with its value.
func TestALateResultIsGivenToItsCaller(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(25 * time.Hour)
		_, asked := i.again(t, sys, "j", wire.HeldEnded)
		m := <-asked
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		m.expectAck(t)
		s := i.status(t)
		if s.State != harp.StateLost || s.Late == nil || s.Late.State != harp.StateSucceeded || string(s.Late.Value) != "\x07" {
			t.Errorf("it is %s, late %+v", s.State, s.Late)
		}
		if r := must[harp.Result](t)(i.job.Result(t.Context())); r.State != harp.StateLost || r.Value != nil {
			t.Errorf("its result is %+v, want that it was lost", r)
		}
	})
}

// resumed connects the agent again, which holds the job's attempt and whose records up to
// a number another dispatcher has acknowledged: that of a store of which this one is an
// older backup.
func (i interrupted) resumed(t *testing.T, sys *system, instance string, acked int64) agentExchange {
	t.Helper()
	a := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: instance, Journal: "j"},
		wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: wire.HeldAlive, Fence: 1, Acked: acked}))
	asked := a.exchanges(t)
	synctest.Wait()
	return <-asked
}

// records are those of the job, by their numbers.
func (i interrupted) records(t *testing.T) (got []harp.Record) {
	t.Helper()
	for r, err := range i.job.Stream(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	return got
}

// What comes behind records that are missing is stored and shown, under its own numbers.
func TestRecordsBehindAGapAreDelivered(t *testing.T) {
	for name, behind := range map[string][]wire.Record{
		"records":   {{Time: 2, Value: []byte{5}}, {Time: 3, Value: []byte{6}}},
		"no record": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, saidRecord, false)
				m := i.resumed(t, sys, "second", 5)
				if len(behind) > 0 {
					m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 5, Records: behind})
				}
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}, Records: 5 + int64(len(behind))})
				m.expectAck(t)
				s, data := i.status(t), map[uint64]string{}
				for _, r := range i.records(t) {
					if r.Kind == harp.KindData {
						data[r.Seq] = fmt.Sprintf("%x", []byte(r.Value))
					}
				}
				if s.State != harp.StateSucceeded || int(s.Records) != 5+len(behind) || len(data) != 1+len(behind) {
					t.Fatalf("it is %s with %d records, those of data are %v", s.State, s.Records, data)
				}
				if got := i.records(t); got[1].Seq != 1 || got[1].Missing != 4 || got[1].Kind != harp.KindLog {
					t.Errorf("in the place of the missing ones is %+v", got[1])
				}
				for n, r := range behind {
					if data[uint64(5+n)] != fmt.Sprintf("%x", r.Value) {
						t.Errorf("record %d is %s, want %x", 5+n, data[uint64(5+n)], r.Value)
					}
				}
			})
		})
	}
}

// An agent that still speaks of a job that was pruned meanwhile keeps its session, and is
// told that it may forget.
func TestAJobIsPrunedAmidLateRecords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidRecord, false)
		time.Sleep(25 * time.Hour)
		a, asked := i.again(t, sys, "j", wire.HeldAlive)
		m := <-asked
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 1, Records: []wire.Record{{Time: 2, Value: []byte{5}}}})
		synctest.Wait()
		if n := must[int](t)(sys.caller.Prune(t.Context(), time.Now())); n != 1 {
			t.Fatalf("%d jobs were pruned", n)
		}
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 2, Records: []wire.Record{{Time: 3, Value: []byte{6}}}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}, Records: 3})
		m.expectAck(t)
		if err := a.tr.Err(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

// damagedStore is a store that cannot read one job.
type damagedStore struct {
	store.Store
	id atomic.Pointer[string]
}

func (s *damagedStore) isDamaged(id string) bool { had := s.id.Load(); return had != nil && *had == id }

func (s *damagedStore) Job(ctx context.Context, id string) (*store.Job, error) {
	if s.isDamaged(id) {
		return nil, store.ErrDamaged
	}
	return s.Store.Job(ctx, id)
}

func (s *damagedStore) Active(ctx context.Context, host string) ([]*store.Job, error) {
	jobs, err := s.Store.Active(ctx, host)
	return slices.DeleteFunc(jobs, func(j *store.Job) bool { return s.isDamaged(j.ID) }), err
}

// A job that cannot be read does not keep its host from connecting, and its agent keeps what
// it has of it.
func TestADamagedJobDoesNotKeepItsHostAway(t *testing.T) {
	damaged := new(damagedStore)
	wrap := func(st store.Store) store.Store { damaged.Store = st; return damaged }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		id := i.job.ID()
		damaged.id.Store(&id)
		a, asked := i.again(t, sys, "j", wire.HeldAlive)
		if err := a.tr.Err(); err != nil {
			t.Fatalf("the session ended: %v", err)
		}
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		if m := <-asked; m.call == nil {
			t.Errorf("the agent hears %+v, want a call", m)
		}
	})
}

// troubledStore is a store that has trouble with the first event of a kind.
type troubledStore struct {
	store.Store
	kind  store.Kind
	once  sync.Once
	apply func(ctx context.Context, st store.Store, ts []store.Transition) ([]store.Change, error)
}

func (s *troubledStore) Apply(ctx context.Context, ts ...store.Transition) (out []store.Change, err error) {
	if ts[0].Event.Kind == s.kind {
		s.once.Do(func() { out, err = s.apply(ctx, s.Store, ts) })
	}
	if out == nil && err == nil {
		out, err = s.Store.Apply(ctx, ts...)
	}
	return out, err
}

// That jobs were lost with their agent's journal is told, though the session in which that
// was found out does not begin.
func TestALostJournalIsToldThoughItsSessionEnds(t *testing.T) {
	for name, apply := range map[string]func(context.Context, store.Store, []store.Transition) ([]store.Change, error){
		"it takes longer than a greeting may": func(ctx context.Context, st store.Store, ts []store.Transition) ([]store.Change, error) {
			defer time.Sleep(time.Minute)
			return st.Apply(ctx, ts...)
		},
		"one of them cannot be moved": func(ctx context.Context, st store.Store, ts []store.Transition) ([]store.Change, error) {
			out, err := st.Apply(ctx, ts[0])
			return append(out, store.Change{Err: errors.New("cannot be moved")}), err
		},
		"the others cannot be stored": func(ctx context.Context, st store.Store, ts []store.Transition) ([]store.Change, error) {
			out, err := st.Apply(ctx, ts[0])
			return append(out, store.Change{Err: errTrouble}), cmp.Or(err, errTrouble)
		},
	} {
		t.Run(name, func(t *testing.T) {
			troubled := &troubledStore{kind: store.Lose, apply: apply}
			wrap := func(st store.Store) store.Store { troubled.Store = st; return troubled }
			onStore(t, wrap, loseTwo)
		})
	}
}

func loseTwo(t *testing.T, sys *system) {
	first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
	asked := first.exchanges(t)
	synctest.Wait()
	lost := map[string]int{}
	for range 2 {
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked).sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		lost[job.ID()] = 0
	}
	synctest.Wait()
	first.tr.Close(nil)
	synctest.Wait()
	hello := wire.Hello{Version: wire.Version, Instance: "second", Journal: "another"}
	if _, err := sys.greetRaw(t.Context(), hello); err == nil {
		t.Error("the greeting has not ended")
	}
	time.Sleep(time.Minute)
	must[*rawAgent](t)(sys.greetRaw(t.Context(), hello))
	synctest.Wait()
	filter := harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostJournal)}}
	page, err := sys.caller.EventsPage(t.Context(), filter, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		lost[e.Job]++
	}
	for id, told := range lost {
		if s := must[harp.JobStatus](t)(sys.caller.Job(id).Status(t.Context())); s.State != harp.StateLost || told != 1 {
			t.Errorf("it is %s, which is told %d times", s.State, told)
		}
	}
}
