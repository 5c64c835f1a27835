package agent_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// TestACallThatCannotBeJournalledWaitsForEver checks that a call which the journal never takes is put off for ten
// minutes, and then refused with the reason; and that it counts anew once one of its procedure was taken.
func TestACallThatCannotBeJournalledWaitsForEver(t *testing.T) {
	for name, c := range map[string]struct {
		limits agent.Limits
		err    error
		says   string
	}{
		"the disk is full":       {agent.Limits{}, syscall.ENOSPC, syscall.ENOSPC.Error()},
		"its quota is used up":   {agent.Limits{}, errors.Join(syscall.EDQUOT, syscall.ENOSPC), syscall.EDQUOT.Error()},
		"the journal is made so": {agent.Limits{MaxJournal: 1000}, nil, "at most 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				m := &machine{t: t, p: p, d: listen(t, p), disk: journal.NewMemory(), limits: c.limits, offers: newCounter().offer}
				ill := newAiling(m.disk.Mount())
				m.start(ill)
				for again := range 2 {
					if c.err != nil {
						ill.fail(c.err)
					}
					for range 20 {
						if reason := m.peer.call("once", nil).notNow(); reason != wire.NotNowNoSpace {
							t.Fatalf("NOT_NOW(%s)", reason)
						}
						time.Sleep(30 * time.Second)
					}
					if f := m.peer.call("once", nil).refused(); f.Code != "rejected" || f.Type != "no_space" || !strings.Contains(f.Message, c.says) {
						t.Errorf("in the end it is refused with %+v", f)
					}
					if reason := m.peer.call("count", nil).notNow(); reason != wire.NotNowNoSpace {
						t.Errorf("of another procedure: NOT_NOW(%s)", reason)
					}
					if ill.heal(); c.err == nil || again > 0 {
						return
					}
					m.peer.call("once", nil).accepted().end()
				}
			})
		})
	}
}

// TestACallWaitsForWhatRuns checks that a call is put off as long as what runs fills the journal, as it is where as many
// run as may.
func TestACallWaitsForWhatRuns(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		m := newMachine(t, p, c.offer, agent.Limits{MaxJournal: 6000})
		noLimit, calls := limits(harp.NoLimit, harp.NoLimit), []*exchange{}
		for x := m.peer.call("count", nil, noLimit); !x.isNotNow(); x = m.peer.call("count", nil, noLimit) {
			calls = append(calls, x)
		}
		for range 2 * 60 {
			if reason := m.peer.call("count", nil, noLimit).notNow(); reason != wire.NotNowNoSpace {
				t.Fatalf("NOT_NOW(%s)", reason)
			}
			time.Sleep(30 * time.Second)
		}
		close(c.release)
		for _, x := range calls {
			x.ended()
		}
		time.Sleep(time.Second)
		m.peer.call("once", nil).accepted().end()
	})
}
