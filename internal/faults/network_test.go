//go:build linux && !race

package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/internal/faults/proxy"
)

// farFleet is a fleet whose agents are behind a bad network.
func farFleet(t *testing.T, heartbeat time.Duration, hosts ...string) (*Fleet, *proxy.Proxy, []*harp.Caller) {
	t.Helper()
	f := newFleet(t)
	p, err := proxy.New(f.Addr, report.Seed)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	f.Agent.Connect = p.Addr()
	f.Dispatcher.Heartbeat = heartbeat
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	startAgents(t, f, all[0], hosts...)
	return f, p, all
}

// phase is a time in which the network is bad.
type phase struct {
	name   string
	faults proxy.Faults
	lasts  time.Duration
}

// suffer makes the network bad, phase by phase, and good in between. It returns how
// long it was each time until every host was back.
func suffer(t *testing.T, p *proxy.Proxy, caller *harp.Caller, phases []phase, good time.Duration) (back Times) {
	t.Helper()
	for _, ph := range phases {
		p.Set(ph.faults)
		time.Sleep(ph.lasts)
		p.Set(proxy.Faults{})
		begun := time.Now()
		for host, err := range caller.Hosts().List(t.Context(), "") {
			must(t, err)
			waitOnline(t, caller, host.Name)
		}
		back = append(back, time.Since(begun))
		time.Sleep(good)
	}
	return back
}

// longer are arguments of jobs that are under way for a while.
func longer(r *rand.Rand) actor.Args {
	return actor.Args{Sleep: time.Duration(r.IntN(300)) * time.Millisecond, Records: r.IntN(30), Size: r.IntN(200)}
}

// sawUnknown is how many jobs were seen as unknown.
func sawUnknown(h *history.History) int {
	n := 0
	for _, c := range h.Calls() {
		for _, s := range c.Seen {
			if s.State == harp.StateUnknown {
				n++
				break
			}
		}
	}
	return n
}

// T9: nothing gets through, one way or both; what was said is heard later, or, where
// something in between has forgotten the connection, never.
func TestPartition(t *testing.T) {
	t.Parallel()
	beat, silence := pick(200*time.Millisecond, 10*time.Second), pick(1500*time.Millisecond, 35*time.Second)
	hosts := names(2)
	f, p, all := farFleet(t, beat, hosts...)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 300, Workers: 256, Args: longer}
	phases := []phase{
		{"short", proxy.Faults{StallUp: true, StallDown: true}, pick(200*time.Millisecond, time.Second)},
		{"both", proxy.Faults{StallUp: true, StallDown: true}, silence},
		{"up", proxy.Faults{StallUp: true}, silence},
		{"down", proxy.Faults{StallDown: true}, silence},
		{"forgotten", proxy.Faults{DropUp: true, DropDown: true}, silence},
	}
	var back Times
	took := underLoad(t, l, func(*rand.Rand) {
		back = suffer(t, p, all[0], phases, pick(500*time.Millisecond, 10*time.Second))
	})
	holds(t, f, all[0])
	report.Note(t.Name(), "back after healing", back.String())
	report.Note(t.Name(), "seen unknown", sawUnknown(f.History))
	if sawUnknown(f.History) == 0 {
		t.Error("no job was seen as unknown while its host was silent")
	}
	loaded(t, l, took)
}

// T10: the network is slow, in pieces, and resets connections.
func TestSlowNetwork(t *testing.T) {
	t.Parallel()
	hosts := names(3)
	f, p, all := farFleet(t, 0, hosts...)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 300, Workers: 64, Args: longer}
	lasts := pick(1500*time.Millisecond, 30*time.Second)
	phases := []phase{
		{"delay", proxy.Faults{Delay: 200 * time.Millisecond, Jitter: 100 * time.Millisecond}, lasts},
		{"rate", proxy.Faults{Rate: 125_000}, lasts},
		{"pieces", proxy.Faults{Piece: 1}, lasts},
		{"resets", proxy.Faults{Reset: 0.2}, lasts},
	}
	took := underLoad(t, l, func(*rand.Rand) {
		for _, ph := range phases {
			p.Set(ph.faults)
			if ph.faults.Reset > 0 {
				p.Cut()
			}
			time.Sleep(ph.lasts)
		}
		p.Set(proxy.Faults{})
	})
	holds(t, f, all[0])
	loaded(t, l, took)
}

// T11: one side does not read any more while the other has much to say.
func TestCongestion(t *testing.T) {
	t.Parallel()
	hosts := names(2)
	f, p, all := farFleet(t, pick(500*time.Millisecond, 10*time.Second), hosts...)
	l := &Load{
		Fleet: f, Callers: all, Hosts: hosts, Rate: 200, Workers: 128,
		Args: func(r *rand.Rand) actor.Args { return actor.Args{Records: r.IntN(20), Size: r.IntN(8 << 10)} },
	}
	stall := pick(3*time.Second, 11*time.Second)
	phases := []phase{
		{"up", proxy.Faults{StallUp: true}, stall},
		{"down", proxy.Faults{StallDown: true}, stall},
	}
	var back Times
	took := underLoad(t, l, func(*rand.Rand) { back = suffer(t, p, all[0], phases, time.Second) })
	holds(t, f, all[0])
	report.Note(t.Name(), "back after healing", back.String())
	loaded(t, l, took)
}
