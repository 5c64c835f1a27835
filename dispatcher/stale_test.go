package dispatcher_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// onStore runs a test body in virtual time, on a store that wrap makes of one in memory.
func onStore(t *testing.T, wrap func(store.Store) store.Store, body func(t *testing.T, sys *system)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		body(t, newSystem(t, embedded, wrap(memory.Open(nil)), dispatcher.Config{}))
	})
}

// lateStore is a store whose Submit returns late, long after its commit.
type lateStore struct {
	store.Store
	committed chan struct{} // has a value for each commit
	proceed   chan struct{} // each takes one to return
}

func (s *lateStore) Submit(ctx context.Context, jobs []store.Submission, now time.Time) ([]store.Submitted, error) {
	out, err := s.Store.Submit(ctx, jobs, now)
	s.committed <- struct{}{}
	<-s.proceed
	return out, err
}

// A call that is on its way to a session of its host while that is replaced, and is
// proven not to have started there, and is cancelled, must not start in the next one.
func TestACallThatCameTooLateForItsSessionIsNotSent(t *testing.T) {
	late := new(lateStore)
	wrap := func(st store.Store) store.Store {
		*late = lateStore{Store: st, committed: make(chan struct{}), proceed: make(chan struct{})}
		return late
	}
	onStore(t, wrap, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		synctest.Wait()
		id, called := harp.NewID(), make(chan error, 1)
		go func() {
			_, err := sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.JobID(id))
			called <- err
		}()
		<-late.committed
		job := sys.caller.Job(id)
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateSent {
			t.Fatalf("it is %s", s.State)
		}
		first.tr.Close(nil)
		synctest.Wait()
		must[bool](t)(job.Cancel(t.Context()))
		second := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}))
		asked := second.exchanges(t)
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateCancelled || s.Started != harp.DidNotRun {
			t.Fatalf("it is %s, started %s", s.State, s.Started)
		}
		late.proceed <- struct{}{}
		if err := <-called; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case m := <-asked:
			t.Errorf("what is shown as not started is sent: %+v", m.call)
		default:
		}
	})
}

// brokenStore is a store that cannot read requests.
type brokenStore struct {
	store.Store
	reads atomic.Int32
}

func (s *brokenStore) Request(context.Context, string) (harp.Submission, error) {
	s.reads.Add(1)
	return harp.Submission{}, errors.New("cannot be read")
}

// A call that cannot be sent though its host is there is tried again, with pauses.
func TestACallThatCannotBeSentIsTriedAgainWithPauses(t *testing.T) {
	broken := new(brokenStore)
	wrap := func(st store.Store) store.Store { broken.Store = st; return broken }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.OfflineWait(harp.NoLimit))
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
		m := <-asked
		must[*harp.Job](t)(host.Call(t.Context(), "work", nil)) // its request is read when it is claimed
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{})
		m.expectAck(t)
		time.Sleep(10*time.Second + time.Millisecond)
		if n := broken.reads.Load(); n < 5 || n > 15 {
			t.Errorf("its request was read %d times in 10 s", n)
		}
		if agent.tr.Err() != nil {
			t.Errorf("the session ended: %v", agent.tr.Err())
		}
	})
}

// hastyStore is a store whose callers go away as soon as a queue is cancelled.
type hastyStore struct {
	store.Store
	leave context.CancelFunc
}

func (s *hastyStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	done, err := s.Store.CancelQueue(ctx, name, op)
	s.leave()
	return done, err
}

// What is shown as asked to cancel is told to its agent, though who asked has gone.
func TestACancelledQueueIsToldWhoeverWaits(t *testing.T) {
	hasty := new(hastyStore)
	wrap := func(st store.Store) store.Store { hasty.Store = st; return hasty }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01", harp.Queue(harp.Args{})).Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		hasty.leave = leave
		_, _ = sys.caller.Queues().Cancel(ctx, harp.Args{}) // it may be answered before it is seen to have left
		if f := must[transport.Frame](t)(m.x.Receive(t.Context())); f.Type != wire.TypeCancel {
			t.Errorf("the agent is told %d", f.Type)
		}
	})
}

// unreadStore is a store that cannot read the jobs of a queue that it has cancelled, and
// not write their rows, until it is asked again.
type unreadStore struct {
	store.Store
	asked atomic.Int32
}

func (s *unreadStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	done, err := s.Store.CancelQueue(ctx, name, op)
	switch s.asked.Add(1) {
	case 1:
		done.Active, done.More = nil, true
	case 2:
		return store.QueueCancelled{}, errors.New("cannot be asked")
	}
	return done, err
}

func (s *unreadStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind == store.CancelReq {
		return nil, errors.New("cannot be written")
	}
	return s.Store.Apply(ctx, ts...)
}

// What a queue's cancel has ended is known to whatever waits for it, and what it is to stop is
// told to the agents, though neither can be read or written when that was stored.
func TestACancelledQueueIsToldThoughItCannotBeRead(t *testing.T) {
	unread := new(unreadStore)
	wrap := func(st store.Store) store.Store { unread.Store = st; return unread }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		asked := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i")).exchanges(t)
		synctest.Wait()
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
		must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
		m := expectCall(t, asked)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		waits := must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
		ended := make(chan harp.Result, 1)
		go func() {
			res, _ := waits.Wait(t.Context())
			ended <- res
		}()
		synctest.Wait()
		if n, err := sys.caller.Queues().Cancel(t.Context(), harp.Args{}); n != 2 || err != nil {
			t.Errorf("it is said to have cancelled %d, %v", n, err)
		}
		synctest.Wait()
		select {
		case res := <-ended:
			if res.State != harp.StateCancelled {
				t.Errorf("the one that waited is %s", res.State)
			}
		default:
			t.Error("who waits for the one that waited is told nothing")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if f, err := m.x.Receive(ctx); err != nil || f.Type != wire.TypeCancel {
			t.Errorf("the agent of the one that runs is told %d, %v", f.Type, err)
		}
		time.Sleep(time.Minute)
		if n := unread.asked.Load(); n != 3 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// A cancel that could not be stored has not found its job ended.
func TestACancelThatIsNotStoredSaysSo(t *testing.T) {
	broken := errors.New("cannot be written")
	troubled := &troubledStore{kind: store.CancelReq, apply: func(context.Context, store.Store, []store.Transition) ([]store.Change, error) {
		return nil, broken
	}}
	wrap := func(st store.Store) store.Store { troubled.Store = st; return troubled }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked)
		if live, err := job.Cancel(t.Context()); live || !errors.Is(err, broken) {
			t.Errorf("a cancel that is not stored: live is %t, %v", live, err)
		}
		if live, err := job.Cancel(t.Context()); !live || err != nil {
			t.Errorf("the next one: live is %t, %v", live, err)
		}
	})
}

// A cancel is acknowledged when it is stored, whether its agent listens or not.
func TestACancelDoesNotWaitForItsAgentToListen(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i")) // which takes no exchange
		synctest.Wait()
		big := harp.Args{"text": strings.Repeat("x", 1_000_000)}
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", big))
		synctest.Wait()
		begun := time.Now()
		must[bool](t)(job.Cancel(t.Context()))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A cancel is told to the agent of the attempt that runs, though an earlier claim of the
// job came to the session after it.
func TestACancelIsToldThoughAnEarlierClaimCameLate(t *testing.T) {
	late := new(lateStore)
	wrap := func(st store.Store) store.Store {
		*late = lateStore{Store: st, committed: make(chan struct{}), proceed: make(chan struct{})}
		return late
	}
	onStore(t, wrap, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		synctest.Wait()
		id, called := harp.NewID(), make(chan error, 1)
		go func() {
			_, err := sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.JobID(id))
			called <- err
		}()
		<-late.committed
		first.tr.Close(nil)
		synctest.Wait()
		second := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}))
		m := <-second.exchanges(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		late.proceed <- struct{}{}
		if err := <-called; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		must[bool](t)(sys.caller.Job(id).Cancel(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if f, err := m.x.Receive(ctx); err != nil || f.Type != wire.TypeCancel {
			t.Errorf("the agent is told %d, %v", f.Type, err)
		}
	})
}
