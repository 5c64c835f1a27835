package agent_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// untaken receives END, and ends the exchange without taking it.
func (x *exchange) untaken() {
	x.t.Helper()
	for x.receive().Type != wire.TypeEnd {
	}
	if err := x.x.Send(wire.TypeAck, true, wire.Encode(wire.Ack{})); err != nil {
		x.t.Fatal(err)
	}
	x.x.Release()
}

// Two calls of one attempt at a time start it once, however far the other has come when the first
// was looked at: both are told of the same.
func TestTwoCallsOfOneAttemptAtATime(t *testing.T) {
	for name, far := range map[string]struct {
		other func(m *machine, x *exchange, c *counter)
		told  func(t *testing.T, x *exchange)
	}{
		"it runs": {
			func(*machine, *exchange, *counter) {},
			func(t *testing.T, x *exchange) { value[int](t, x.accepted().ending()) },
		},
		"it is in the journal": {
			func(_ *machine, x *exchange, c *counter) {
				close(c.release)
				x.untaken()
			},
			func(t *testing.T, x *exchange) { value[int](t, x.accepted().ending()) },
		},
		"it is forgotten": {
			func(_ *machine, x *exchange, c *counter) {
				close(c.release)
				x.ended()
			},
			func(_ *testing.T, x *exchange) { x.tombstone() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c, id := newCounter(), harp.NewID()
				same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
				m := newMachine(t, p, c.offer, agent.Limits{})
				agent.OnBind(m.agent, "count", func() {
					x := m.peer.call("count", nil, same).accepted()
					far.other(m, x, c)
					time.Sleep(time.Second) // its end is journalled
				})
				x := m.peer.call("count", nil, same)
				time.Sleep(time.Minute)
				if name == "it runs" {
					close(c.release)
				}
				far.told(t, x)
				if n := c.runs.Load(); n != 1 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// Who asks for an attempt that is about to start waits for that: it is told of what started, or
// why nothing did, and nothing is started for it.
func TestCallOfWhatIsAboutToStart(t *testing.T) {
	for name, denied := range map[string]bool{"it starts": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				c, id, begin := newCounter(), harp.NewID(), make(chan struct{})
				same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
				disk := journal.NewMemory()
				ill := newAiling(disk.Mount())
				m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: func(a *agent.Agent) {
					c.offer(a)
					agent.OnBegin(a, "once", func() { <-begin })
				}}
				m.start(ill)
				calls := []*exchange{m.peer.call("once", nil, same)}
				synctest.Wait()
				calls = append(calls, m.peer.call("once", nil, same))
				synctest.Wait()
				if denied {
					ill.fail(syscall.ENOSPC)
				}
				close(begin)
				synctest.Wait()
				if !denied {
					value[int64](t, calls[1].accepted().ending())
				} else {
					for i, x := range calls {
						if reason := x.notNow(); reason != wire.NotNowNoSpace {
							t.Errorf("call %d is put off for %s", i, reason)
						}
					}
				}
				if n := c.runs.Load(); denied != (n == 0) || n > 1 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// Who waits for the start of an attempt that turns out to be in the journal is told of that.
func TestCallOfWhatTurnsOutToBeJournalled(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c, id := newCounter(), harp.NewID()
		same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
		m := newMachine(t, p, c.offer, agent.Limits{})
		third := make(chan *exchange, 1)
		var begins atomic.Int64
		agent.OnBegin(m.agent, "once", func() {
			if begins.Add(1) == 2 { // of the one that was looked at before it was there
				third <- m.peer.call("once", nil, same)
				synctest.Wait()
			}
		})
		agent.OnBind(m.agent, "once", func() {
			x := m.peer.call("once", nil, same).accepted()
			x.untaken()
			time.Sleep(time.Second) // its end is journalled
		})
		m.peer.call("once", nil, same)
		time.Sleep(time.Minute)
		if n := begins.Load(); n != 2 {
			t.Fatalf("%d were taken on", n)
		}
		value[int64](t, (<-third).accepted().ending())
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// A direct call that is denied as it is to start denies the other that waits for it.
func TestDirectCallOfWhatIsDenied(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a, c, id := newAgent(t, p), newCounter(), harp.NewID()
		c.offer(a)
		agent.OnBegin(a, "once", func() { time.Sleep(time.Minute) })
		peer, _ := serve(t, p, a)
		late := func(c *wire.Call, r *harp.Request) { r.ID, c.Left = id, int64(time.Second) }
		for i, x := range []*exchange{peer.call("once", nil, late), peer.call("once", nil, late)} {
			if reason := x.notNow(); reason != wire.NotNowStartBefore {
				t.Errorf("call %d is put off for %s", i, reason)
			}
		}
		if n := c.runs.Load(); n != 0 {
			t.Errorf("%d runs", n)
		}
	})
}

// Who asks for records that a running attempt does not have is answered with nothing, and takes
// nobody's place.
func TestResumeOfRecordsToCome(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{})
		x := m.peer.call("count", nil).accepted()
		if _, err := m.peer.resume(x.id, 11).x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("from 11: %v", err)
		}
		close(c.release)
		if end, records := x.ended(); value[int](t, end) != 0 || len(records) != 10 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
	})
}

// A RESUME that cannot be read, or is of another epoch, is none: the session ends.
func TestResumeThatIsNone(t *testing.T) {
	for name, body := range map[string][]byte{
		"torn":          {0xc1},
		"another epoch": wire.Encode(wire.Resume{Job: harp.NewID(), Attempt: 1, Epoch: 9}),
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				m := newMachine(t, p, newCounter().offer, agent.Limits{})
				m.peer.begin(wire.TypeResume, body)
				<-m.peer.session.Done()
				m.peer = <-m.d.sessions
				value[int64](t, m.peer.call("once", nil).accepted().ending())
			})
		})
	}
}

// A direct caller that goes while its end is sent, which it does not take, leaves nothing behind.
func TestDirectCallerGoesWhileItsEndIsSent(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offer(a, "large", func(context.Context) ([]byte, error) { return make([]byte, 1<<20-5), nil })
		peer, _ := serve(t, p, a)
		for n := 0; a.HeldBytes() == 0; n++ { // until no end is taken any more
			if n == 100 {
				t.Fatal("every end was taken")
			}
			peer.call("large", nil) // and nobody receives
			synctest.Wait()
		}
		peer.session.Close(nil)
		synctest.Wait()
		if n := a.HeldBytes(); n != 0 {
			t.Errorf("%d bytes are left of it", n)
		}
	})
}

// A call that cannot be looked at as files or memory have run out is put off, and not refused for good.
func TestCallWhileFilesHaveRunOut(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		var short error
		id := harp.NewID()
		agent.FailBind(a, "greet", &short)
		peer, _, _ := connect(t, p, a)
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
			short = &fs.PathError{Op: "open", Path: "/bin/sh", Err: errno}
			if reason := peer.call("greet", harp.Pos("Ada")).notNow(); reason != wire.NotNowNoSpace {
				t.Errorf("%v: it is put off for %s", errno, reason)
			}
		}
		same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
		for range 10 {
			if reason := peer.call("greet", harp.Pos("Ada"), same).notNow(); reason != wire.NotNowNoSpace {
				t.Errorf("it is put off for %s", reason)
			}
			time.Sleep(time.Minute)
		}
		if f := peer.call("greet", harp.Pos("Ada"), same).refused(); f.Type != "exec" || f.Message != short.Error() {
			t.Errorf("after ten minutes it is refused with %+v", f)
		}
		short = &fs.PathError{Op: "open", Path: "/bin/sh", Err: syscall.ELOOP}
		if f := peer.call("greet", harp.Pos("Ada")).refused(); f.Code != "rejected_invalid" {
			t.Errorf("it is refused with %+v", f)
		}
		short = nil
		value[greeting](t, peer.call("greet", harp.Pos("Ada")).accepted().end())
	})
}
