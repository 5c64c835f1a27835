package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// TestManyPrincipalsAreSeldomLookedThrough has a large fleet connect: all of it is looked through for those that have
// nothing any more only when it has doubled, not at each of its sessions.
func TestManyPrincipalsAreSeldomLookedThrough(t *testing.T) {
	ps := newPrincipals(Limits{AgentSessions: 10 * manyPrincipals})
	agent := func(n int) harp.Principal { return harp.Principal{Kind: agentKind, Name: fmt.Sprintf("h%05d", n)} }
	looks := 0
	for n := range 10 * manyPrincipals {
		before := ps.forgetAt
		if _, err := ps.beginSession(agent(n)); err != nil {
			t.Fatal(err)
		}
		if ps.forgetAt != before {
			looks++
		}
	}
	if len(ps.known) != 10*manyPrincipals || looks > 5 {
		t.Errorf("%d principals are known, and all were looked through %d times; want %d, and at most 5 times", len(ps.known), looks, 10*manyPrincipals)
	}

	for n := range 10 * manyPrincipals {
		ps.endSession(agent(n), nil)
	}
	for n := 0; len(ps.known) > manyPrincipals; n++ {
		if n == 20*manyPrincipals {
			t.Fatalf("%d principals without anything are never forgotten", len(ps.known))
		}
		who := harp.Principal{Kind: "user", Name: fmt.Sprintf("u%05d", n)}
		ps.countBytes(who, 1)
		ps.known[who].calls.at = time.Now().Add(-2 * time.Hour)
	}
}
