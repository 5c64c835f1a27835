package harptest

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/transport"
)

// machine is a host: its disk, and the agent that runs on it.
type machine struct {
	sys    *System
	name   string
	id     transport.Identity
	rand   *rand.Rand // nil: what was not synced is forgotten
	disk   *journal.Memory
	faults diskFaults     // of the disk
	run    *run           // nil: down
	work   sync.WaitGroup // of the agents, those that crashed too
}

// run is an agent from its start to its end.
type run struct {
	agent *agent.Agent
	files *files
	stop  context.CancelFunc
	done  chan struct{}

	mu   sync.Mutex // guards what follows
	gone bool       // it reaches nobody any more
}

func newMachine(s *System, name string, number int) *machine {
	m := &machine{
		sys: s, name: name, disk: journal.NewMemory(),
		id: transport.Identity{Fleet: fleet, Role: transport.RoleAgent, Name: name},
	}
	if s.options.Seed != 0 {
		m.rand = rand.New(rand.NewPCG(s.options.Seed, uint64(number))) //nolint:gosec // chance that can be repeated
	}
	return m
}

// StartAgent starts the agent of a host, with what the one before has left on its
// disk. It does not wait until it is online: see [System.WaitOnline].
func (s *System) StartAgent(host string) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil && m.is(false) {
			m.startAgent()
		}
	})
}

// StopAgent stops the agent of a host in order and waits for it, as for the functions
// of its procedures.
func (s *System) StopAgent(host string) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil && m.is(true) {
			m.run.stop()
			<-m.run.done
			m.run = nil
		}
	})
}

// CrashAgent ends the agent of a host as the loss of its power would: it forgets what
// it had not synced, and its connections are reset.
func (s *System) CrashAgent(host string) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil && m.is(true) {
			m.crash()
		}
	})
}

// WipeAgent is CrashAgent of a host that loses its disk as well.
func (s *System) WipeAgent(host string) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil && m.is(true) {
			m.crash()
			m.disk = journal.NewMemory()
		}
	})
}

// machine returns a host; nil, and the test has failed, if there is none.
func (s *System) machine(host string) *machine {
	s.t.Helper()
	m := s.machines[host]
	if m == nil {
		s.t.Errorf("harptest: there is no host %q", host)
	}
	return m
}

// is fails the test if the agent does not run, or does, where it should not.
func (m *machine) is(up bool) bool {
	m.sys.t.Helper()
	if (m.run != nil) != up {
		m.sys.t.Errorf("harptest: agent %s: running is %v", m.name, !up)
		return false
	}
	return true
}

func (m *machine) startAgent() {
	s := m.sys
	r := &run{done: make(chan struct{}), files: &files{fs: m.disk, slow: s.slow, faults: &m.faults}}
	r.agent = agent.New(m.config(r))
	if s.options.Register != nil {
		s.options.Register(r.agent)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	r.stop = stop
	m.run = r
	m.work.Go(func() {
		defer close(r.done)
		for {
			err := r.agent.Connect(ctx, address)
			if err == nil || r.isGone() {
				return
			}
			if !m.faults.everFailed() {
				s.t.Errorf("harptest: agent %s: %v", m.name, err)
				return
			}
			select { // it could not open its journal: as a supervisor does
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	})
}

func (m *machine) config(r *run) agent.Config {
	cfg := agent.Config{
		Name:   m.name,
		Logger: m.sys.log,
		Facts:  func(context.Context) (map[string]any, error) { return map[string]any{"os": "test"}, nil },
	}
	if m.sys.options.Agent != nil {
		m.sys.options.Agent(&cfg)
	}
	dial := m.sys.dialer(m.id)
	cfg.Name, cfg.Journal = m.name, r.files
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if r.isGone() {
			return nil, net.ErrClosed
		}
		c, err := dial(ctx, addr)
		if err == nil && r.isGone() {
			_ = c.Close()
			return nil, net.ErrClosed
		}
		return c, err
	}
	return cfg
}

// crash takes everything from the agent if it runs, and does not wait until it has
// noticed: a function that goes on does so where nobody sees it.
func (m *machine) crash() {
	r := m.run
	if r == nil {
		return
	}
	m.run = nil
	r.disconnect()
	m.sys.network.Reset(m.id, dispatcherID)
	r.files.lose(func() {
		if m.rand != nil {
			m.disk.Tear(m.rand)
		} else {
			m.disk.Crash()
		}
	})
	r.stop()
}

// disconnect cuts the agent off from every peer, for good.
func (r *run) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
}

func (r *run) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}
