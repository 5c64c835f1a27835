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

// link keeps a session with a dispatcher: when one is lost it opens the next.
type link struct {
	door door
	ctx  context.Context // ends when the link is closed
	stop context.CancelFunc
	loop sync.WaitGroup

	mu      sync.Mutex    // guards what follows; never held while blocked
	session *session      // nil while there is none
	trouble error         // why there is none
	changed chan struct{} // closed and replaced when session changes
}

func newLink(d door, first *session) *link {
	l := &link{door: d, session: first, changed: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.loop.Go(func() { l.keepLoop(first) })
	return l
}

// close ends the session and lets all that waits for one return ErrClosed.
func (l *link) close() {
	l.stop()
	l.loop.Wait()
}

// keepLoop waits for the end of a session and opens the next, until close.
func (l *link) keepLoop(s *session) {
	log := l.door.cfg.Logger.With("dispatcher", l.door.addr)
	for s != nil {
		select {
		case <-s.Done():
		case <-l.ctx.Done():
			s.close(harp.ErrClosed)
			l.set(nil, harp.ErrClosed)
			return
		}
		s.reading.Wait()
		log.Info("connection lost", "err", s.Err())
		l.set(nil, l.door.failed("read", l.door.away, s.Err()))
		last := min(max(time.Duration(s.welcome.Reconnect), lastPause), longestPause)
		if s = l.reopen(last); s != nil {
			log.Info("connected again")
			l.set(s, nil)
		}
	}
}

// reopen tries until it has a session; nil when the link was closed.
func (l *link) reopen(last time.Duration) *session {
	var said string
	for pause := firstPause; ; pause = min(2*pause, last) {
		if l.pause(l.ctx, rand.N(pause)) != nil {
			return nil
		}
		s, err := l.door.open(l.ctx)
		if err == nil {
			return s
		}
		l.set(nil, err)
		if errors.Is(err, harp.ErrDenied) && err.Error() != said {
			said = err.Error()
			l.door.cfg.Logger.Warn("the dispatcher does not let this caller in", "err", err)
		}
	}
}

func (l *link) set(s *session, trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.trouble = s, trouble
	if s != nil {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// get returns the session. While there is none it waits for one: until the link is
// closed, ErrClosed; until ctx ends, its error; until patience has passed, the
// trouble there is.
func (l *link) get(ctx context.Context, patience time.Duration) (*session, error) {
	var passed <-chan time.Time
	for {
		s, changed := l.current()
		switch {
		case l.ctx.Err() != nil:
			return nil, harp.ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case s != nil && s.Err() == nil:
			return s, nil
		case patience <= 0:
			return nil, l.why()
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
			return nil, l.why()
		}
	}
}

func (l *link) current() (*session, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.changed
}

// why says why there is no session.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble != nil {
		return l.trouble
	}
	return l.door.failed("read", l.door.away, fmt.Errorf("no answer for %v", l.door.cfg.RetryFor))
}

// pause waits for d. Errors: ErrClosed, ctx's.
func (l *link) pause(ctx context.Context, d time.Duration) error {
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
