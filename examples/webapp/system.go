package main

import (
	"context"
	"errors"
	"log"
	"math/rand/v2"
	"net"
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

// system is the dispatcher of this service, with its data on disk, and for the sake
// of the example a host to call.
type system struct {
	dispatcher *dispatcher.Dispatcher
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
	a := agent.New(agent.Config{Name: "web01", TLS: agentTLS})
	agent.HandleStream(a, Roll, roll)

	// It goes on when ctx ends, so that requests under way are answered: see stop.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &system{dispatcher: d, cancel: cancel}
	s.running.Go(func() { report(d.Serve(ctx, l, dispatcherTLS)) })
	s.running.Go(func() { report(a.Connect(ctx, l.Addr().String())) })
	return s, nil
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
	return s.dispatcher.Shutdown(ctx)
}

// Roll is what the host offers.
var Roll = harp.NewStreamProc[RollArgs, int, RollResult]("roll", "Roll dice, one after the other")

// RollArgs are its arguments.
type RollArgs struct {
	Dice int `json:"dice" jsonschema:"how many"`
}

// RollResult is what it returns.
type RollResult struct {
	Sum int `json:"sum"`
}

func roll(_ context.Context, args RollArgs, emit func(int) error) (RollResult, error) {
	var result RollResult
	for range args.Dice {
		n := rand.IntN(6) + 1
		if err := emit(n); err != nil {
			return result, err
		}
		result.Sum += n
	}
	return result, nil
}
