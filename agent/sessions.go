package agent

import (
	"fmt"
	"sync"

	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/transport"
)

const (
	// maxDispatcherSessions is how many sessions an agent has with dispatchers: the current one, those that
	// it takes the place of, and those that are being refused.
	maxDispatcherSessions = 64

	// maxCallerSessions is how many sessions an agent has with direct callers.
	maxCallerSessions = 1024

	// fairShare is the part of them that one caller may have while more than half of them are in use.
	fairShare = 16

	// politeRefusals is how many callers beyond that are told why they are refused at a time. Others are
	// closed.
	politeRefusals = 64
)

// sessionCounts counts the sessions of all who are connected.
type sessionCounts struct {
	mu                   sync.Mutex
	dispatchers, callers int
	of                   map[string]int // of callers, by identity
	refusing             int            // sessions of callers that are being told why they are refused
}

// begin counts a session. One that is refused is counted too while hear is true: then its peer is to be
// told. What was counted is to be ended. Errors: harp.ErrRefused.
func (c *sessionCounts) begin(p transport.Peer) (hear bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Protocol != transport.ProtocolDirect {
		if c.dispatchers >= maxDispatcherSessions {
			return false, refusedSession("%d sessions with dispatchers, at most %d", c.dispatchers, maxDispatcherSessions)
		}
		c.dispatchers++
		return true, nil
	}
	if err := c.refusal(p.Identity.String()); err != nil {
		if c.refusing >= politeRefusals {
			return false, err
		}
		c.refusing++
		return true, err
	}
	c.callers++
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[p.Identity.String()]++
	return true, nil
}

// refusal says why a caller gets no more sessions; nil if it does.
func (c *sessionCounts) refusal(who string) error {
	switch own := c.of[who]; {
	case c.callers >= maxCallerSessions:
		return refusedSession("%d sessions with direct callers, at most %d", c.callers, maxCallerSessions)
	case c.callers >= maxCallerSessions/2 && own >= maxCallerSessions/fairShare:
		return refusedSession("%d sessions with direct callers, of which %d are of %s, at most %d beside others", c.callers, own, who, maxCallerSessions/fairShare)
	}
	return nil
}

func refusedSession(format string, args ...any) error {
	return failures.New("refused", "this agent has "+fmt.Sprintf(format, args...)).Err()
}

// end ends a session that begin has counted, with the error that it returned.
func (c *sessionCounts) end(p transport.Peer, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.Protocol != transport.ProtocolDirect:
		c.dispatchers--
	case refusal != nil:
		c.refusing--
	default:
		who := p.Identity.String()
		c.callers--
		if c.of[who]--; c.of[who] == 0 {
			delete(c.of, who)
		}
	}
}
