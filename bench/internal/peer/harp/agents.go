package harp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/transport"
)

// agents are agents of one process.
type agents struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex // guards errs
	errs   []error
}

// agentsArg says which agents a process has.
type agentsArg struct {
	Dir     string `json:"dir,omitempty"` // "": journals in memory
	Connect string `json:"connect,omitempty"`
	Serve   bool   `json:"serve,omitempty"` // wait for direct callers
	Count   int    `json:"count"`
}

// host is the name of an agent.
func host(i int) string { return fmt.Sprintf("host%05d", i) }

// startAgents starts agents that connect to a dispatcher, or one that listens and
// says where.
func startAgents(ctx context.Context, l *lab.Lab, arg agentsArg) (*agents, string, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	as := &agents{cancel: cancel}
	addr := ""
	for i := range arg.Count {
		tc, err := l.TLS(transport.RoleAgent, host(i))
		if err != nil {
			return nil, "", errors.Join(err, as.Close())
		}
		cfg := agent.Config{Name: host(i), Dir: arg.Dir, TLS: tc, Logger: quiet()}
		if arg.Serve {
			cfg.Limits.MaxAttempts = directAtOnce
		}
		a := agent.New(cfg)
		register(a)
		if !arg.Serve {
			as.run(func() error { return a.Connect(ctx, arg.Connect) })
			continue
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", errors.Join(err, as.Close())
		}
		addr = listener.Addr().String()
		as.run(func() error { return a.Serve(ctx, listener) })
	}
	return as, addr, nil
}

// directAtOnce is how many direct calls an agent takes at a time: more than any point
// has.
const directAtOnce = 8192

func (as *agents) run(f func() error) {
	as.wg.Go(func() {
		err := f()
		as.mu.Lock()
		defer as.mu.Unlock()
		as.errs = append(as.errs, err)
	})
}

func (as *agents) Close() error {
	as.cancel()
	as.wg.Wait()
	return errors.Join(as.errs...)
}

// AgentsRole is the process of agents.
const AgentsRole = "harp-agents"

type agentsSaid struct {
	Addr string `json:"addr"` // of one that listens
}

// RunAgents is the Role of that name.
func RunAgents(ctx context.Context, l *lab.Lab, arg json.RawMessage, ready func(any) error) error {
	var a agentsArg
	if err := json.Unmarshal(arg, &a); err != nil {
		return err
	}
	defer lab.AsAgent.Set()()
	as, addr, err := startAgents(ctx, l, a)
	if err != nil {
		return err
	}
	if err := ready(agentsSaid{addr}); err != nil {
		return errors.Join(err, as.Close())
	}
	<-ctx.Done()
	return as.Close()
}
