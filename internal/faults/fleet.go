//go:build linux

package faults

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/internal/faults/witness"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Fleet is a dispatcher with agents, in processes of their own, and what is known
// of what they did. One goroutine starts and kills; the rest may be used by many.
type Fleet struct {
	Dir     string // all its files
	History *history.History
	Addr    string // of the dispatcher
	Via     string // where callers dial it; "": there

	// What processes are started with; what is empty is filled in.
	Program    string
	Dispatcher actor.Config
	Agent      actor.Config

	ca         *devca.CA
	dispatcher *Process
	agents     map[string]*Process
}

// NewFleet prepares a fleet in a directory. program is what its processes run.
func NewFleet(dir, program string) (*Fleet, error) {
	ca, err := devca.Open(filepath.Join(dir, "ca"), actor.Fleet)
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	return &Fleet{
		Dir: dir, History: history.New(), Addr: addr, Program: program,
		Dispatcher: actor.Config{Dir: filepath.Join(dir, "store")},
		ca:         ca, agents: map[string]*Process{},
	}, nil
}

// FreeAddr finds a port on loopback that stays free while nobody listens: below
// those that the system gives away by itself.
func FreeAddr() (string, error) {
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no port is free")
}

// readyWithin bounds the start of a process, on a machine that is busy.
const readyWithin = 30 * time.Second

// StartDispatcher starts the dispatcher and waits until it serves.
func (f *Fleet) StartDispatcher() error {
	cfg := f.Dispatcher
	cfg.Role, cfg.CA, cfg.Listen = "dispatcher", filepath.Join(f.Dir, "ca"), f.Addr
	p, err := Start(f.Program, cfg, filepath.Join(f.Dir, "dispatcher.log"))
	if err != nil {
		return err
	}
	f.dispatcher = p
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	return p.WaitReady(ctx)
}

// KillDispatcher kills it.
func (f *Fleet) KillDispatcher() {
	f.dispatcher.Kill()
	f.dispatcher = nil
}

// DispatcherProcess is the one that runs.
func (f *Fleet) DispatcherProcess() *Process { return f.dispatcher }

// AgentProcess is the one that runs under this name.
func (f *Fleet) AgentProcess(name string) *Process { return f.agents[name] }

// AgentDir is where an agent keeps its files.
func (f *Fleet) AgentDir(name string) string { return filepath.Join(f.Dir, "agent-"+name) }

// WitnessFile is where executions are witnessed.
func (f *Fleet) WitnessFile() string { return filepath.Join(f.Dir, "witness") }

// StartAgent starts an agent. It connects by itself, to the dispatcher or to
// where Agent.Connect says.
func (f *Fleet) StartAgent(name string) error { return f.StartAgents(name) }

// StartAgents is StartAgent for several hosts, whose agents are one process.
func (f *Fleet) StartAgents(name string, others ...string) error {
	cfg := f.Agent
	cfg.Role, cfg.CA, cfg.Name = "agent", filepath.Join(f.Dir, "ca"), name
	if cfg.Dir == "" {
		cfg.Dir = f.AgentDir(name)
	}
	if cfg.Connect == "" && cfg.Listen == "" {
		cfg.Connect = f.Addr
	}
	cfg.Witness, cfg.Others = f.WitnessFile(), map[string]string{}
	for _, other := range others {
		cfg.Others[other] = f.AgentDir(other)
	}
	if cfg.Boot != "" {
		cfg.Boot = filepath.Join(cfg.Boot, name)
	}
	p, err := Start(f.Program, cfg, filepath.Join(f.Dir, name+".log"))
	if err != nil {
		return err
	}
	for _, one := range append(others, name) {
		f.agents[one] = p
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	return p.WaitReady(ctx)
}

// KillAgent kills an agent, with those of the same process, and notes the ENDs that are in their journals.
func (f *Fleet) KillAgent(name string) error {
	for _, one := range f.KillAgentUnread(name) {
		if err := f.noteEnds(one); err != nil {
			return err
		}
	}
	return nil
}

// KillAgentUnread kills an agent of whose journal not all will be there, and returns the hosts that its process was of.
func (f *Fleet) KillAgentUnread(name string) (hosts []string) {
	p := f.agents[name]
	for one, of := range f.agents {
		if of == p {
			hosts = append(hosts, one)
		}
	}
	for _, one := range hosts {
		delete(f.agents, one)
	}
	p.Kill()
	f.History.Died(p.PID())
	return hosts
}

// noteEnds reads a copy of a dead agent's journal.
func (f *Fleet) noteEnds(name string) error {
	from := journalDir(f.AgentDir(name))
	if from == "" {
		return nil
	}
	dir, err := os.MkdirTemp(f.Dir, "journal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the whole run's directory is removed later
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return err
	}
	j, err := journal.Open(journal.Disk(dir), journal.Options{})
	if err != nil {
		return fmt.Errorf("the journal of %s after a kill: %w", name, err)
	}
	for _, h := range j.Held() {
		if h.State == journal.Ended {
			f.History.Ended(history.Attempt{Job: h.Job, Number: int(h.Attempt)})
		}
	}
	return j.Close()
}

// journalDir finds the directory of the journal in an agent's own; "": there is
// none.
func journalDir(dir string) string {
	for _, d := range []string{filepath.Join(dir, "journal"), dir} {
		if isDir(d) {
			return d
		}
	}
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Dial connects a caller that tries for a while.
func (f *Fleet) Dial(ctx context.Context, name string) (*harp.Caller, error) {
	tc, err := f.TLS(transport.RoleCaller, name)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, cmp.Or(f.Via, f.Addr), client.Config{TLS: tc, RetryFor: time.Minute, Logger: slog.New(slog.DiscardHandler)})
}

// TLS is the certificate of somebody.
func (f *Fleet) TLS(role transport.Role, name string) (*tls.Config, error) {
	return f.ca.TLS(transport.Identity{Role: role, Name: name})
}

// ReadWitness takes what was witnessed into the history.
func (f *Fleet) ReadWitness() error {
	lines, err := witness.Read(f.WitnessFile())
	f.History.Witness = lines
	return err
}

// Stop stops what runs, the agents first, and says what was wrong with it: I8.
func (f *Fleet) Stop() error {
	var mu sync.Mutex // guards errs
	var errs []error
	var stopping sync.WaitGroup
	for p, name := range f.agentProcesses() {
		stopping.Go(func() {
			if err := p.Stop(readyWithin); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("agent %s: %w", name, err))
			}
		})
	}
	stopping.Wait()
	clear(f.agents)
	if f.dispatcher != nil {
		if err := f.dispatcher.Stop(readyWithin); err != nil {
			errs = append(errs, fmt.Errorf("dispatcher: %w", err))
		}
		f.dispatcher = nil
	}
	return errors.Join(errs...)
}

// agentProcesses are the processes of agents, each with one of its hosts.
func (f *Fleet) agentProcesses() map[*Process]string {
	all := map[*Process]string{}
	for name, p := range f.agents {
		all[p] = name
	}
	return all
}

// Kill kills what runs.
func (f *Fleet) Kill() {
	for p := range f.agentProcesses() {
		p.Kill()
	}
	clear(f.agents)
	if f.dispatcher != nil {
		f.dispatcher.Kill()
		f.dispatcher = nil
	}
}
