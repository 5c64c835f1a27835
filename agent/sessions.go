package agent

import (
	"fmt"
	"sync"

	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/transport"
)

// fairShare is the part of all sessions that one peer may have while more than half of them are in use.
const fairShare = 16

// sessionCounts counts the sessions of all who are connected.
type sessionCounts struct {
	mu                   sync.Mutex
	dispatchers, callers sessionCount
	refusing             int // sessions of callers that are being told why they are refused
}

// sessionCount counts those of one kind of peer.
type sessionCount struct {
	used int
	of   map[string]int // by identity
}

// beginSession counts a session. One that is refused may be counted, too: then its peer, a direct
// caller, is to be told. What was counted is to be ended. Errors: harp.ErrRefused.
func (c *sessionCounts) beginSession(p transport.Peer) (counted bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := p.Identity.String()
	if p.Protocol != transport.ProtocolDirect {
		if err := c.dispatchers.checkShare(who, "dispatchers", maxDispatcherSessions); err != nil {
			return false, err
		}
		c.dispatchers.add(who)
		return true, nil
	}
	if err := c.callers.checkShare(who, "direct callers", maxCallerSessions); err != nil {
		if c.refusing >= politeRefusals {
			return false, err
		}
		c.refusing++
		return true, err
	}
	c.callers.add(who)
	return true, nil
}

// endSession ends a session that beginSession has counted, with the error that it returned.
func (c *sessionCounts) endSession(p transport.Peer, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.Protocol != transport.ProtocolDirect:
		c.dispatchers.remove(p.Identity.String())
	case refusal != nil:
		c.refusing--
	default:
		c.callers.remove(p.Identity.String())
	}
}

// checkShare says why a peer gets no more sessions, of which there are most in all; nil if it does.
func (c *sessionCount) checkShare(who, kind string, most int) error {
	switch own, share := c.of[who], most/fairShare; {
	case c.used >= most:
		return refusedSession("%d sessions with %s, at most %d", c.used, kind, most)
	case c.used >= most/2 && own >= share:
		return refusedSession("%d sessions with %s, of which %d are of %s, at most %d beside others", c.used, kind, own, who, share)
	}
	return nil
}

func (c *sessionCount) add(who string) {
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[who]++
	c.used++
}

func (c *sessionCount) remove(who string) {
	c.used--
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
}

func refusedSession(format string, args ...any) error {
	return failures.New("refused", "this agent has "+fmt.Sprintf(format, args...)).Err()
}
