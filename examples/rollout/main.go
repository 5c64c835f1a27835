// Command rollout brings a version to 40 hosts: first to one, then to a tenth of them, then to all. When 5 % of
// them have failed it stops; once the cause is fixed, the hosts that failed and those that had not begun are retried.
//
//	go run ./examples/rollout
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// Deploy is the procedure that each host offers.
var Deploy = harp.NewProc[DeployArgs, string]("deploy", "Bring a version to the host")

// DeployArgs are its arguments.
type DeployArgs struct {
	Version string `json:"version" jsonschema:"which version"`
}

func main() {
	if err := run(context.Background(), log.New(log.Writer(), "", 0).Printf); err != nil {
		log.Fatal(err)
	}
}

// run rolls the version out and says through printf what happens.
func run(ctx context.Context, printf func(format string, args ...any)) error {
	web := startFleet(40, "web03", "web17")
	defer web.stop()
	hosts := web.dispatcher.Caller().Target("web*")
	seen, err := await(ctx, hosts)
	if err != nil {
		return err
	}
	// The digest holds the batch to the hosts that were just looked at.
	batch, err := Deploy.Run(ctx, hosts, DeployArgs{Version: "v2"}, harp.Confirmed(seen.Digest),
		harp.Rolling("1", "10%", "100%"), harp.Parallel(1), harp.StopAfter("5%"), harp.OnStop(harp.CancelBatch))
	if err != nil {
		return err
	}
	printf("v2 on %d hosts", seen.Hosts)
	status, err := follow(ctx, batch, printf)
	if err != nil || status.State == harp.BatchSucceeded {
		return err
	}

	web.clearDisks()
	again, err := batch.Retry(ctx, nil, harp.Parallel(10)) // by default those that failed and those that did not begin
	if err != nil {
		return err
	}
	printf("the disks are cleared: retrying")
	_, err = follow(ctx, again, printf)
	return err
}

// follow reports each host that fails when it does, and how the batch ended.
func follow(ctx context.Context, batch *harp.Batch, printf func(format string, args ...any)) (harp.BatchStatus, error) {
	for r, err := range batch.Results(ctx, harp.Since(0)) { // any process that has the id can do this, at any time
		if err != nil {
			return harp.BatchStatus{}, err
		}
		var failed *harp.RemoteError
		if errors.As(r.Err, &failed) {
			printf("  %s: %s", r.Host, failed.Message)
		}
	}
	s, err := batch.Wait(ctx)
	if err == nil {
		printf("%s: of %d hosts %d are done, %d failed, %d did not begin",
			s.State, s.Hosts, s.Counts[harp.StateSucceeded], s.Counts[harp.StateFailed], s.Counts[harp.StateCancelled])
	}
	return s, err
}

// fleet is a dispatcher and hosts in this process, in memory, so that the example needs nothing else.
type fleet struct {
	dispatcher *dispatcher.Dispatcher
	stop       func()

	mu   sync.Mutex
	full map[string]bool // hosts whose disk is full; guarded by mu
}

// startFleet starts this many hosts, web01 and so on. The disks of some are full.
func startFleet(hosts int, full ...string) *fleet {
	f := &fleet{full: map[string]bool{}}
	for _, name := range full {
		f.full[name] = true
	}
	const address = "dispatcher:7440"
	quiet := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	network := memnet.New()
	l, err := network.Listen(address, transport.Identity{Fleet: "example", Role: transport.RoleDispatcher, Name: "main"})
	if err == nil {
		f.dispatcher, err = dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{Logger: quiet})
	}
	if err != nil {
		panic(err) // none of this can fail in memory
	}
	var running sync.WaitGroup
	running.Go(func() { _ = f.dispatcher.Serve(ctx, l, nil) }) // until ctx ends
	for n := range hosts {
		name := fmt.Sprintf("web%02d", n+1)
		dial := network.Dialer(transport.Identity{Fleet: "example", Role: transport.RoleAgent, Name: name})
		a := agent.New(agent.Config{Name: name, Dial: dial, Logger: quiet})
		agent.Handle(a, Deploy, f.deploy)
		running.Go(func() { _ = a.Connect(ctx, address) }) // likewise
	}
	f.stop = func() {
		cancel()
		running.Wait()
		_ = f.dispatcher.Shutdown(context.Background()) // what it held was in memory
	}
	return f
}

// deploy runs on each host.
func (f *fleet) deploy(ctx context.Context, args DeployArgs) (string, error) {
	info, _ := agent.FromContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full[info.Host] {
		return "", agent.Errorf("disk_full", nil, "no space left on /var")
	}
	return args.Version, nil
}

// clearDisks fixes what makes hosts fail.
func (f *fleet) clearDisks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.full)
}

// await waits until all hosts are there and have said what they offer.
func await(ctx context.Context, hosts *harp.Target) (harp.Preview, error) {
	for {
		seen, err := hosts.Preview(ctx, Deploy.Name, DeployArgs{Version: "v2"})
		switch {
		case err != nil && !errors.Is(err, harp.ErrNotFound): // no host is there yet
			return seen, err
		case err == nil && seen.Hosts == 40 && seen.Away == 0 && seen.Unfit == 0:
			return seen, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return seen, context.Cause(ctx)
		}
	}
}
