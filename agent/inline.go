package agent

import (
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// runsInline reports whether the function of an attempt runs in the goroutine that answers its
// call: nobody but its caller will ever ask for it. That goroutine answers other calls
// afterwards, which one that is bound to its thread cannot.
func (s *session) runsInline(at *attempt) bool {
	return s.direct && at.task.cmd == nil && !at.task.ownThread
}

// answerDirect answers a direct call, which lives no longer than its exchange.
func (s *session) answerDirect(x *transport.Exchange, at *attempt) telling {
	result := s.sendAttempt(x, at, ask{from: life.FromAcked, greeting: wire.TypeStarted})
	if result == notTaken {
		return notTaken
	}
	if now := at.look(); at.hasLeft() || now.IsTold() {
		return told
	}
	at.interrupt(gone("the caller has gone"))
	at.abandon() // what a command still prints waits for nobody
	at.returned.wait()
	at.settle()
	return told
}

// runInline runs a new attempt's function here and now. What the caller says is heard by the
// goroutine that reads the session; a goroutine sends as soon as there is something to tell
// before the end.
func (s *session) runInline(x *transport.Exchange, at *attempt) {
	if !at.begin() {
		return
	}
	r := &sender{session: s, x: x, at: at, lazy: true}
	at.scope.work.Add(1)
	defer at.scope.work.Done()
	at.watch.soon, at.watch.early = startedAfter, r.start
	at.attach(r, ask{from: life.FromAcked})
	at.begun.fire()
	x.Listen(r.heardInline)
	at.watch.begin()
	defer r.endInline() // also when the function leaves by runtime.Goexit
	at.run()
}

// endInline says how the call has ended, unless nobody hears it.
func (r *sender) endInline() {
	at := r.at
	at.mu.Lock()
	sends := r.wake != nil
	at.mu.Unlock()
	if !sends && r.reserve() {
		if m, err := r.next(); err == nil && m.End != nil { // else another exchange is told by now, or nobody
			_ = r.send(m)
		}
	}
	r.work.Wait()
	at.detach(r)
	r.close()
	if now := at.look(); !now.IsTold() && !at.hasLeft() {
		at.settle()
	}
}

// start is startLocked for a clock.
func (r *sender) start() {
	r.at.mu.Lock()
	defer r.at.mu.Unlock()
	r.startLocked()
}

// startLocked starts to send what there is before the end, if that has not come.
func (r *sender) startLocked() {
	if r.wake != nil || r.at.sender != r || r.at.life.HasEnded() {
		return
	}
	r.wake = make(chan struct{}, 1)
	r.work.Go(func() {
		if r.greet(wire.TypeStarted) {
			r.sendLoop()
		}
	})
}

// heardInline takes what the caller says. When it is gone the function is stopped.
func (r *sender) heardInline(f transport.Frame, err error) {
	if err != nil {
		r.stopInline()
	}
	r.heard(f, err)
}

func (r *sender) stopInline() {
	at := r.at
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.sender == r && !at.life.HasEnded() {
		at.interrupt(gone("the caller has gone"))
		at.applyLocked(life.Event{Kind: life.Abandon})
		at.sender = nil
	}
}
