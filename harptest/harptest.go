// Package harptest runs a whole harp system inside a test: a dispatcher, agents and a
// caller, the real ones, over a network in memory and on disks in memory. Everything
// in it can be made to fail.
//
//	sys := harptest.New(t, harptest.Options{
//		Agents:   []string{"web01", "web02"},
//		Register: func(a *agent.Agent) { agent.Handle(a, Restart, restart) },
//	})
//	job, err := Restart.Call(ctx, sys.Caller().Host("web01"), args)
//	sys.Cut("web01")
//
// It works with the clock of the world, and inside a bubble of testing/synctest, where
// the hours that a test waits take no time. The system is taken down by t.Cleanup: its agents
// are stopped in order, which ends the contexts of what still runs after 5 s and waits for it.
//
// Procedures are Go functions of the test's own process. When their agent crashes
// their context ends, as it does when it stops, but a function that does not look at
// its context goes on: what it does then happens nowhere.
package harptest

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// Options say what a [System] is made of. Its zero value is a dispatcher without
// agents.
type Options struct {
	// Agents are the names of the hosts, each with an agent.
	Agents []string

	// Register gives an agent its procedures. It is called for each agent, and
	// again each time one is started anew.
	Register func(*agent.Agent)

	// Agent changes an agent's configuration.
	Agent func(*agent.Config)

	// Dispatcher is the dispatcher's configuration. With a heartbeat of a second
	// silence is noticed in three.
	Dispatcher dispatcher.Config

	// Caller is the configuration of [System.Caller].
	Caller client.Config

	// Logger gets what dispatcher, agents and caller log where their own
	// configuration has none. Default: the test's log, from warnings on.
	Logger *slog.Logger

	// DiskTime is the longest that a disk takes to sync: each write takes a random
	// part of it, and what crashes or is cut off meanwhile is in between. Default:
	// no time.
	DiskTime time.Duration

	// Seed decides how much of what it had not synced an agent that crashes
	// finds again, 0: nothing; and how long disks take.
	Seed uint64

	wrapStore func(store.Store) store.Store // nil: it is as it is
}

// CallerName is the name of [System.Caller], where a fault is to hit it.
const CallerName = "caller"

// fleet and address are those of every system: each has a network of its own.
const (
	fleet   = "harptest"
	address = "dispatcher:7440"
)

var (
	dispatcherID = transport.Identity{Fleet: fleet, Role: transport.RoleDispatcher, Name: "dispatcher"}
	callerID     = transport.Identity{Fleet: fleet, Role: transport.RoleCaller, Name: CallerName}
)

// dialTime is how long a connection may take to be made, as over TCP.
const dialTime = 10 * time.Second

// System is a dispatcher with agents and a caller. Its methods are safe for concurrent
// use: while a test waits for what it tests, another goroutine may make the faults.
// What makes no sense, such as to crash an agent that is down, fails the test. Dispatcher,
// Embedded, Agent and WaitOnline end it then, so that only the test's own goroutine
// may call them.
type System struct {
	t        testing.TB
	options  Options
	log      *slog.Logger
	network  *memnet.Network
	disk     *memory.Disk
	slow     *slowness
	turn     chan struct{} // 1 slot: who fills it may start and end programs
	node     *dispatcherNode
	machines map[string]*machine
	caller   *harp.Caller
}

// New starts a system and waits until every agent is online.
func New(t testing.TB, o Options) *System {
	t.Helper()
	s := &System{
		t: t, options: o, log: o.Logger,
		network:  memnet.New(),
		disk:     memory.NewDisk(),
		slow:     newSlowness(o.DiskTime, o.Seed),
		machines: map[string]*machine{},
		turn:     make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s.node = &dispatcherNode{sys: s}
	for i, name := range o.Agents {
		if s.machines[name] != nil || name == CallerName {
			t.Fatalf("harptest: there is one %q already", name)
		}
		s.machines[name] = newMachine(s, name, i)
	}
	t.Cleanup(s.takeDown)
	if err := s.node.startDispatcher(); err != nil {
		t.Fatal("harptest: start the dispatcher: ", err)
	}
	s.dialCaller()
	for _, name := range o.Agents {
		s.machines[name].startAgent()
	}
	s.WaitOnline(o.Agents...)
	return s
}

// inTurn runs do when nobody else starts or ends a program. Waiting for it is known
// to testing/synctest, as waiting for a mutex is not.
func (s *System) inTurn(do func()) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	do()
}

// dialCaller makes the caller.
func (s *System) dialCaller() {
	s.t.Helper()
	cfg := s.options.Caller
	if cfg.Logger == nil {
		cfg.Logger = s.log
	}
	cfg.Dial = s.dialer(callerID)
	c, err := client.Dial(s.t.Context(), address, cfg)
	if err != nil {
		s.t.Fatal("harptest: ", err)
	}
	s.caller = c
}

// takeDown takes the system down.
func (s *System) takeDown() {
	s.t.Helper()
	if s.caller != nil {
		if err := s.caller.Close(); err != nil {
			s.t.Error("harptest: close the caller: ", err)
		}
	}
	s.inTurn(func() {
		for _, name := range s.options.Agents {
			if r := s.machines[name].run; r != nil {
				r.stop()
			}
		}
		for _, name := range s.options.Agents {
			s.machines[name].run = nil
			s.machines[name].work.Wait()
		}
		s.node.stopDispatcher()
		s.node.work.Wait()
	})
}

// Caller returns the caller. It is connected over the network and stays usable when
// the dispatcher is started anew.
func (s *System) Caller() *harp.Caller { return s.caller }

// Embedded returns a caller inside the dispatcher's process: no fault of the network
// touches it. It ends with the dispatcher.
func (s *System) Embedded() *harp.Caller {
	s.t.Helper()
	return s.Dispatcher().Caller()
}

// Dispatcher returns the dispatcher that runs.
func (s *System) Dispatcher() (d *dispatcher.Dispatcher) {
	s.t.Helper()
	s.inTurn(func() { d = s.node.d })
	if d == nil {
		s.t.Fatal("harptest: the dispatcher is down")
	}
	return d
}

// Agent returns the agent that runs on a host.
func (s *System) Agent(host string) (a *agent.Agent) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machines[host]; m != nil && m.run != nil {
			a = m.run.agent
		}
	})
	if a == nil {
		s.t.Fatalf("harptest: no agent runs on %q", host)
	}
	return a
}

// WaitOnline waits until the dispatcher has reconciled a session with each of these
// hosts. It waits as long as the test may last.
func (s *System) WaitOnline(hosts ...string) {
	s.t.Helper()
	caller := s.Embedded()
	defer caller.Close()
	for _, name := range hosts {
		for !s.isOnline(caller, name) {
			s.pause()
		}
	}
}

func (s *System) isOnline(c *harp.Caller, name string) bool {
	s.t.Helper()
	h, err := c.Hosts().Get(s.t.Context(), name)
	if err != nil && !errors.Is(err, harp.ErrNotFound) { // one that has not connected yet
		s.t.Fatal("harptest: ", err)
	}
	return h.Online
}

// pause lets the others work. There is no event to wait for: a host that was online
// before may have been so to another dispatcher.
func (s *System) pause() {
	s.t.Helper()
	select {
	case <-time.After(5 * time.Millisecond):
	case <-s.t.Context().Done():
		s.t.Fatal("harptest: ", s.t.Context().Err())
	}
}
