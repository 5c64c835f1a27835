package main

import (
	"context"
	"errors"
	"log"
	"net"
	"path/filepath"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Deploy is what the hosts offer: declared once, for those who call it and for the agent.
var Deploy = harp.NewStreamProc[DeployArgs, string, DeployResult]("deploy", "Deploy a version, and report progress")

// DeployArgs are its arguments.
type DeployArgs struct {
	Version string `json:"version" jsonschema:"what to deploy"`
}

// DeployResult is what it returns.
type DeployResult struct {
	Version string `json:"version"`
	Steps   int    `json:"steps"`
}

// register makes an agent offer the procedure, which here only says what it would do.
func register(a *agent.Agent) {
	agent.HandleStream(a, Deploy, func(_ context.Context, args DeployArgs, say func(string) error) (DeployResult, error) {
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
	})
}

// startHost starts a host to call, in this process for the sake of the example, with certificates of its
// own. In production an agent runs on each host, and certificates are loaded by transport.LoadTLS.
func startHost(ctx context.Context, running *sync.WaitGroup, d *dispatcher.Dispatcher, dir string) error {
	ca, err := devca.Open(filepath.Join(dir, "certs"), "webapp")
	if err != nil {
		return err
	}
	ours, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "webapp"})
	theirs, err2 := ca.TLS(transport.Identity{Role: transport.RoleAgent, Name: "web01"})
	l, err3 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	a := agent.New(agent.Config{Name: "web01", Dir: filepath.Join(dir, "web01"), TLS: theirs})
	register(a)
	running.Go(func() { report(d.Serve(ctx, l, ours)) })
	running.Go(func() { report(a.Connect(ctx, l.Addr().String())) })
	return nil
}

func report(err error) {
	if err != nil {
		log.Print(err)
	}
}
