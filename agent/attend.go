package agent

import (
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// startedAfter is how long an attempt runs before who asked for it is told that it does,
// unless there is something else to tell. That of a shorter one is in its END.
const startedAfter = 5 * time.Millisecond

// runsHere reports whether the function of an attempt, which is new, runs in the
// goroutine that answers its call: nobody but its caller will ever ask for it. That
// goroutine answers other calls afterwards, which one that is bound to its thread cannot.
func (s *session) runsHere(at *attempt) bool {
	return s.direct && at.task.cmd == nil && !at.task.ownThread && !at.spool.on
}

// attend reports a direct call, which lives no longer than its exchange.
func (s *session) attend(x *transport.Exchange, at *attempt) {
	at.begun.wait() // another exchange may have brought it here just now
	if here := at.claim(); here != nil {
		here.report = report{session: s, x: x, at: at}
		here.begin()
		defer here.end() // also when the function leaves by runtime.Goexit
		here.run()
		return
	}
	if s.tell(x, at, ask{from: fromAcked, greeting: wire.TypeStarted}) == notTaken {
		s.decline(x, at.no)
		return
	}
	if at.hasLeft() || at.isTold() {
		return
	}
	at.interrupt(gone("the caller has gone"))
	at.abandon() // what a command still prints waits for nobody
	at.returned.wait()
	at.settle()
}

// attendance is a direct call whose function runs where the call is answered. What
// comes in is heard by the goroutine that reads the session; one that sends is there as
// soon as there is something to tell before the end.
type attendance struct {
	at     *attempt
	report report
	out    outcome        // of the function
	work   sync.WaitGroup // who sends before the end

	// Guarded by the attempt's mutex.
	claimed bool
	sending bool
}

// claim returns the attendance for who comes first: the function runs once. nil: it
// runs elsewhere.
func (at *attempt) claim() *attendance {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.here == nil || at.here.claimed {
		return nil
	}
	at.here.claimed = true
	return at.here
}

// begin lets the caller be heard, and told what there is to tell.
func (h *attendance) begin() {
	at := h.at
	at.stay.work.Add(1)
	h.out.failure = &leftByGoexit // until it returns
	at.attach(&h.report, ask{from: fromAcked})
	h.report.x.Listen(h.heard)
	at.watch.begin()
}

// run runs the function.
func (h *attendance) run() { h.out = h.at.call() }

// end says how the call has ended, unless nobody hears it.
func (h *attendance) end() {
	at := h.at
	defer at.stay.work.Done()
	at.finish(h.out)
	at.mu.Lock()
	sending := h.sending
	at.mu.Unlock()
	if !sending {
		h.sendEnd()
	}
	h.work.Wait()
	at.detach(&h.report)
	h.report.close()
	at.mu.Lock()
	forgotten := at.report == nil && !at.hasLeft()
	at.mu.Unlock()
	if forgotten {
		at.settle()
	}
}

// sendEnd sends END where there was nothing to tell before.
func (h *attendance) sendEnd() {
	t, message, err := h.report.take()
	end, is := message.(*wire.End)
	if err != nil || !is {
		return // another exchange is told by now, or nobody
	}
	body := wire.NewScratch()
	defer body.Free()
	body.B = wire.Append(body.B, &end)
	if h.report.x.Send(t, true, body.B) == nil {
		h.report.sentEnd()
	}
}

// tell is tellLocked for a clock.
func (h *attendance) tell() {
	h.at.mu.Lock()
	defer h.at.mu.Unlock()
	h.tellLocked()
}

// tellLocked starts sending when there is something to tell before the end.
func (h *attendance) tellLocked() {
	if h.sending || h.at.report != &h.report || h.at.ended {
		return
	}
	h.sending = true
	h.report.wake = make(chan struct{}, 1)
	started := wire.Started{Time: h.at.started.UnixNano()}
	h.work.Go(func() {
		if h.report.greet(wire.TypeStarted, started) {
			h.report.sendLoop()
		}
	})
}

// heard takes what the caller says, or that it is gone.
func (h *attendance) heard(f transport.Frame, err error) {
	if err != nil {
		h.leave()
	}
	h.report.heard(f, err)
}

// leave stops the function when its caller is gone.
func (h *attendance) leave() {
	at := h.at
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.report == &h.report && !at.ended {
		at.interrupt(gone("the caller has gone"))
		at.report = nil
		at.abandonLocked()
	}
}
