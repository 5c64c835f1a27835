package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/harpcaller/harp"
)

// Between two attempts to connect again lies a random part of a pause, which is
// doubled from the first to the last. A dispatcher may ask for a longer last one.
const (
	firstPause   = time.Second
	lastPause    = 10 * time.Second
	longestPause = 5 * time.Minute
)

// reconnector keeps a session with a dispatcher: when one is lost, it opens another.
type reconnector struct {
	dialer dialer
	ctx    context.Context // ends when the reconnector is closed
	stop   context.CancelFunc
	loop   sync.WaitGroup

	mu      sync.Mutex    // guards what follows; never held while blocked
	session *session      // nil while there is none
	lastErr error         // why there is none
	changed chan struct{} // closed and replaced when session changes
}

func newReconnector(d dialer, first *session) *reconnector {
	l := &reconnector{dialer: d, session: first, changed: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.loop.Go(func() { l.reconnectLoop(first) })
	return l
}

// close ends the session and lets all that waits for one return ErrClosed.
func (l *reconnector) close() {
	l.stop()
	l.loop.Wait()
}

// reconnectLoop waits for the end of a session and opens the next, until close.
func (l *reconnector) reconnectLoop(s *session) {
	log := l.dialer.cfg.Logger.With("dispatcher", l.dialer.addr)
	for s != nil {
		select {
		case <-s.Done():
		case <-l.ctx.Done():
			s.closeAndWait(harp.ErrClosed)
			l.setSession(nil, harp.ErrClosed)
			return
		}
		s.reading.Wait()
		log.Info("connection lost", "err", s.Err())
		l.setSession(nil, l.dialer.hostError("read", l.dialer.noAnswer, s.Err()))
		last := min(max(time.Duration(s.welcome.Reconnect), lastPause), longestPause)
		if s = l.reconnect(last); s != nil {
			log.Info("connected again")
			l.setSession(s, nil)
		}
	}
}

// reconnect tries until it has a session; nil when the reconnector was closed.
func (l *reconnector) reconnect(last time.Duration) *session {
	var said string
	for pause := firstPause; ; pause = min(2*pause, last) {
		if l.sleep(l.ctx, rand.N(pause)) != nil {
			return nil
		}
		s, err := l.dialer.openSession(l.ctx)
		if err == nil {
			return s
		}
		l.setSession(nil, err)
		if errors.Is(err, harp.ErrDenied) && err.Error() != said {
			said = err.Error()
			l.dialer.cfg.Logger.Warn("the dispatcher does not let this caller in", "err", err)
		}
	}
}

func (l *reconnector) setSession(s *session, trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.lastErr = s, trouble
	if s != nil {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// awaitSession returns the session. While there is none it waits for one: until
// the reconnector is closed, ErrClosed; until ctx ends, its error; until patience has
// passed, the last error.
func (l *reconnector) awaitSession(ctx context.Context, patience time.Duration) (*session, error) {
	var passed <-chan time.Time
	for {
		s, changed := l.currentSession()
		switch {
		case l.ctx.Err() != nil:
			return nil, harp.ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case s != nil && s.Err() == nil:
			return s, nil
		case patience <= 0:
			return nil, l.noSessionErr()
		}
		if passed == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			passed = timer.C
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-passed:
			return nil, l.noSessionErr()
		}
	}
}

func (l *reconnector) currentSession() (*session, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.changed
}

// noSessionErr says why there is no session.
func (l *reconnector) noSessionErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErr != nil {
		return l.lastErr
	}
	return l.dialer.hostError("read", l.dialer.noAnswer, fmt.Errorf("no answer for %v", l.dialer.cfg.RetryFor))
}

// sleep waits for d. Errors: ErrClosed, ctx's.
func (l *reconnector) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return harp.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
