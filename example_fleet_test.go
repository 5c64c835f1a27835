package harp_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// The procedures that the hosts of the examples offer.
type (
	greetArgs struct {
		Name string `json:"name" jsonschema:"whom to greet"`
	}
	greeting struct {
		Text string `json:"text"`
	}
	countArgs struct {
		To int `json:"to"`
	}
)

var (
	greet = harp.NewProc[greetArgs, greeting]("greet", "Greet somebody")
	count = harp.NewStreamProc[countArgs, int, string]("count", "Count to a number")
)

// register gives an agent what the examples call: greet, count, disk.check, which
// fails, tmp.clean and base, which can say what they would do, and hang, which runs until
// it is stopped.
func register(a *agent.Agent) {
	var done atomic.Bool // by base
	agent.Handle(a, greet, func(_ context.Context, in greetArgs) (greeting, error) {
		return greeting{"hello " + in.Name}, nil
	}, agent.Idempotent())
	agent.HandleStream(a, count, func(_ context.Context, in countArgs, emit func(int) error) (string, error) {
		for n := range in.To {
			if err := emit(n + 1); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	agent.Handle(a, harp.NewProc[struct{}, string]("disk.check", "Check the disk"), func(context.Context, struct{}) (string, error) {
		return "", agent.Errorf("disk_full", map[string]any{"free": 0}, "no space left on /var")
	})
	agent.Handle(a, harp.NewProc[struct{}, string]("tmp.clean", "Delete old files"), func(ctx context.Context, _ struct{}) (string, error) {
		if info, _ := agent.FromContext(ctx); info.DryRun {
			return "would delete 3 files", nil
		}
		return "deleted 3 files", nil
	}, agent.DryRun())
	agent.Handle(a, harp.NewProc[struct{}, map[string]bool]("base", "Make the host what it should be"), func(ctx context.Context, _ struct{}) (map[string]bool, error) {
		changed := !done.Load()
		if info, _ := agent.FromContext(ctx); !info.DryRun {
			done.Store(true)
		}
		return map[string]bool{"changed": changed}, nil
	}, agent.DryRun())
	agent.Handle(a, harp.NewProc[struct{}, string]("hang", "Wait to be stopped"), func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
}

// quiet logs nothing.
var quiet = slog.New(slog.DiscardHandler)

// fleet runs a dispatcher with its jobs in memory and the host web01, all in this
// process, for one example. The host db01 is known and away.
func fleet() (caller *harp.Caller, stop func()) { return fleetOf(dispatcher.Config{}) }

// fleetOf is fleet with a dispatcher that is configured in more ways.
func fleetOf(cfg dispatcher.Config) (caller *harp.Caller, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Hosts, cfg.Logger = dispatcher.StaticHosts{{Name: "web01"}, {Name: "db01"}}, quiet
	d, err := dispatcher.Open(ctx, memory.Open(nil), cfg)
	if err != nil {
		panic(err)
	}
	network := memnet.New()
	l, err := network.Listen("dispatcher:7440", transport.Identity{Fleet: "example", Role: transport.RoleDispatcher, Name: "main"})
	if err != nil {
		panic(err)
	}
	web01 := transport.Identity{Fleet: "example", Role: transport.RoleAgent, Name: "web01"}
	a := agent.New(agent.Config{
		Name: "web01", Dial: network.Dialer(web01), Logger: quiet,
		Limits: agent.Limits{Grace: 10 * time.Millisecond}, // what hangs when an example is over need not be waited for
	})
	register(a)

	var running sync.WaitGroup
	running.Go(func() { must(d.Serve(ctx, l, nil)) })
	running.Go(func() { must(a.Connect(ctx, "dispatcher:7440")) })
	caller = d.Caller()
	for online := false; !online; time.Sleep(time.Millisecond) {
		host, err := caller.Hosts().Get(ctx, "web01")
		must(err)
		online = host.Online // until its agent has said what it offers
	}
	return caller, func() {
		cancel()
		running.Wait()
		must(d.Shutdown(context.Background()))
	}
}

// must stops an example that does not work.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
