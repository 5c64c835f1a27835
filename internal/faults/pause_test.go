//go:build linux && !race

package faults

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// T12, with one dispatcher: a process stands still for longer than silence, and
// goes on.
func TestPause(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Dispatcher.Heartbeat = pick(200*time.Millisecond, 10*time.Second)
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	hosts := names(2)
	startAgents(t, f, all[0], hosts...)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 300, Workers: 128, Args: longer}
	took := underLoad(t, l, func(r *rand.Rand) {
		for range pick(1, 3) {
			for _, p := range []*Process{f.AgentProcess(hosts[0]), f.DispatcherProcess()} {
				between(r, 200*time.Millisecond, time.Second)
				must(t, p.Signal(syscall.SIGSTOP))
				time.Sleep(pick(1200*time.Millisecond, 35*time.Second))
				must(t, p.Signal(syscall.SIGCONT))
				time.Sleep(pick(time.Second, 10*time.Second))
			}
		}
	})
	holds(t, f, all[0])
	report.Note(t.Name(), "seen unknown", sawUnknown(f.History))
	loaded(t, l, took)
}
