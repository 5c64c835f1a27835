package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Deploy is what the hosts offer: declared once, for those who call it and the agent.
var Deploy = harp.NewStreamProc[DeployArgs, string, DeployResult]("deploy", "Deploy a version, and tell how far it is")

// DeployArgs are its arguments.
type DeployArgs struct {
	Version string `json:"version" jsonschema:"what to deploy, minLength=1"`
}

// DeployResult is what it returns.
type DeployResult struct {
	Version string `json:"version"`
	Steps   int    `json:"steps"`
}

// deployVersion would do it; here it only says so.
func deployVersion(_ context.Context, args DeployArgs, say func(string) error) (DeployResult, error) {
	steps := []string{"fetch", "unpack", "restart"}
	for _, step := range steps {
		if err := say(step + " " + args.Version); err != nil {
			return DeployResult{}, err
		}
	}
	if args.Version == "broken" {
		return DeployResult{}, agent.Errorf("unit_failed", nil, "%s does not start", args.Version)
	}
	return DeployResult{Version: args.Version, Steps: len(steps)}, nil
}

func register(a *agent.Agent) { agent.HandleStream(a, Deploy, deployVersion) }

// system is the dispatcher of this service, with its data on disk, and for the sake
// of the example a host to call.
type system struct {
	dispatcher *dispatcher.Dispatcher
	orders     *orders
	cancel     context.CancelFunc
	running    sync.WaitGroup
}

func startSystem(ctx context.Context, dir string) (*system, error) {
	ca, err := devca.Open(filepath.Join(dir, "certs"), "webapp")
	if err != nil {
		return nil, err
	}
	dispatcherTLS, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "webapp"})
	if err != nil {
		return nil, err
	}
	agentTLS, err := ca.TLS(transport.Identity{Role: transport.RoleAgent, Name: "web01"})
	if err != nil {
		return nil, err
	}
	orders, err := openOrders(filepath.Join(dir, "orders.jsonl"))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	st, err := badger.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	d, err := dispatcher.Open(ctx, st, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	a := agent.New(agent.Config{Name: "web01", Dir: filepath.Join(dir, "web01"), TLS: agentTLS})
	register(a)

	// Both go on when ctx ends, so that requests under way are answered: see stop.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &system{dispatcher: d, orders: orders, cancel: cancel}
	s.running.Go(func() { report(d.Serve(ctx, l, dispatcherTLS)) })
	s.running.Go(func() { report(a.Connect(ctx, l.Addr().String())) })
	return s, nil
}

// callerAs is a Caller that acts for a user: jobs and events name them.
func (s *system) callerAs(user string) *harp.Caller {
	return s.dispatcher.CallerAs(harp.Principal{Kind: "user", Name: user})
}

// probes puts the probes of an orchestrator beside the service.
func (s *system) probes(service http.Handler) http.Handler {
	mux := http.NewServeMux()
	healthz, readyz := dispatcher.HealthHandler(s.dispatcher)
	mux.Handle("GET /healthz", healthz)
	mux.Handle("GET /readyz", readyz)
	mux.Handle("/", service)
	return mux
}

func report(err error) {
	if err != nil {
		log.Print(err)
	}
}

func (s *system) stop() error {
	s.cancel()
	s.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.dispatcher.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop the dispatcher: %w", err)
	}
	return s.orders.file.Close()
}
