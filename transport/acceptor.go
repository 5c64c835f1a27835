package transport

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Serve runs handle for each exchange the peer begins, with its first frame, in a
// goroutine of its own; the exchanges of one lane one after the other. The ctx of
// a handler ends when the lane does, or the session, or ctx. A handler that
// returns without having sent End, and goes on nowhere ([Exchange.Aside]), closes the
// lane.
//
// That the peer closed a lane is noticed as long as fewer than 16 frames and
// 256 KiB wait to be received from it.
//
// Serve returns when ctx or the session has ended and all handlers have returned.
// Only the acceptor may call it, once; the session takes no lanes afterwards and
// should be closed. The error is ctx's, [ErrSessionClosed], or [ErrProtocol] for
// an opener, before Control, or when called again.
func (s *Session) Serve(ctx context.Context, handle func(ctx context.Context, x *Exchange, first Frame)) error {
	if err := s.ready(false); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.serve(cancel); err != nil {
		return err
	}
	a := acceptor{session: s, handle: handle}
	err := a.acceptLoop(ctx)
	cancel()
	for _, l := range s.lanes.all() {
		l.close()
	}
	s.lanes.workers.Close()
	a.running.Wait()
	return err
}

// serve notes that the session is served; its end calls stop.
func (s *Session) serve(stop context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.serving:
		return fmt.Errorf("%w: Serve was called before", ErrProtocol)
	case s.after != nil:
		return s.after
	}
	s.serving, s.stopServe = true, stop
	return nil
}

// acceptor answers the exchanges of a session.
type acceptor struct {
	session *Session
	handle  func(ctx context.Context, x *Exchange, first Frame)
	running sync.WaitGroup // lane loops and handlers
}

// acceptLoop hands each new lane to a goroutine at once.
func (a *acceptor) acceptLoop(ctx context.Context) error {
	s := a.session
	for {
		st, err := s.mux.accept(ctx)
		if err != nil {
			return s.openFailed(ctx, err)
		}
		if !s.lanes.reserve() {
			s.fail(fmt.Errorf("%w: %w", ErrProtocol, ErrTooManyLanes))
			return s.closedErr()
		}
		l := newLane(s, st)
		s.lanes.add(l)
		a.running.Add(1)
		if !s.start(func() { a.laneLoop(ctx, l) }) {
			a.running.Done()
			return s.closedErr()
		}
	}
}

// laneLoop reads a lane until it ends.
func (a *acceptor) laneLoop(ctx context.Context, l *lane) {
	defer a.running.Done()
	defer l.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.serve, l.free = func() { a.serve(l) }, make(chan struct{}, 1)
	x := noExchange(l)
	for {
		f, err := l.read()
		if err == nil {
			x, err = a.sort(ctx, x, f)
		}
		if err != nil {
			x.in.close(err)
			return
		}
	}
}

// sort gives a frame to the exchange x in hand, or begins the next one with it.
// It returns the exchange then in hand.
func (a *acceptor) sort(ctx context.Context, x *Exchange, f Frame) (*Exchange, error) {
	if f.Exchange <= x.number || f.Type == heartbeat {
		return x, x.deliver(f)
	}
	if err := a.settle(x); err != nil {
		return x, err
	}
	return a.answer(ctx, x.lane, f), nil
}

// settle waits until the handler of x has returned. The peer may only begin the
// next exchange when it has got the End of x.
func (a *acceptor) settle(x *Exchange) error {
	if !x.released.Load() && !x.sentEnd.Load() {
		return x.violated("new exchange while one is in progress")
	}
	x.in.close(io.ErrUnexpectedEOF) // its own End will not come any more
	select {
	case <-x.lane.free:
	case <-x.lane.session.dying:
	}
	if x.lane.isClosed() || x.lane.session.isDying() {
		return x.lane.cutShort()
	}
	return nil
}

// answer begins an exchange and starts its handler.
func (a *acceptor) answer(ctx context.Context, l *lane, first Frame) *Exchange {
	l.session.lanes.busy(l)
	l.users.Add(1)
	x := &Exchange{lane: l, number: first.Exchange}
	if first.End {
		x.gotEnd.Store(true)
		x.in.close(io.EOF)
	}
	l.hand, l.part = x, func() { a.handle(ctx, x, first) }
	l.session.lanes.workers.Go(&a.running, l.serve)
	return x
}

// serve runs a part of the handler of the exchange in hand, and then lets what that
// leaves aside go on.
func (a *acceptor) serve(l *lane) {
	part := l.part
	l.part = nil
	defer func() {
		if l.part == nil {
			l.hand.finish()
			return
		}
		a.running.Add(1)
		go a.goAside(l)
	}()
	part()
}

// goAside runs what a handler has left aside, and then its next part.
func (a *acceptor) goAside(l *lane) {
	defer a.running.Done()
	defer l.session.lanes.workers.Go(&a.running, l.serve)
	aside := l.aside
	l.aside = nil
	aside()
}

// Aside lets the handler go on when it returns: f runs in a goroutine that nothing else
// runs in, which it may bind to its thread or leave by runtime.Goexit, and then, when
// that is over, is the rest of the handler. It is for code that is not known to leave its
// goroutine as it was: that of a handler is kept for the next exchange.
//
// The handler calls it at most once, and so may its rest.
func (x *Exchange) Aside(f, then func()) { x.lane.aside, x.lane.part = f, then }

// finish ends the acceptor's exchange: the lane is free if End was sent.
func (x *Exchange) finish() {
	x.released.Store(true)
	x.in.abandon(io.ErrClosedPipe)
	if !x.sentEnd.Load() {
		x.lane.close()
	}
	x.lane.session.lanes.put(x.lane)
	x.lane.leave()
	x.lane.free <- struct{}{}
}

// noExchange is what a lane has in hand before its first exchange.
func noExchange(l *lane) *Exchange {
	x := &Exchange{lane: l}
	x.released.Store(true)
	x.in.abandon(io.ErrClosedPipe)
	l.free <- struct{}{}
	return x
}
