package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

var noLog = slog.New(slog.DiscardHandler)

// A dispatcher inside a service, with its jobs on disk.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "harp-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	st, err := badger.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := dispatcher.Open(ctx, st, dispatcher.Config{
		Hosts:  dispatcher.StaticHosts{{Name: "web01"}}, // it will dial in
		Logger: noLog,
	})
	if err != nil {
		fmt.Println(err) // the store is closed
		return
	}
	job, err := d.Caller().Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"})
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := job.Status(ctx)
	fmt.Println(status.State, status.Reason, err)
	fmt.Println(d.Shutdown(ctx))
	// Output:
	// queued offline <nil>
	// <nil>
}

// Agents and callers elsewhere connect to it over TLS.
func ExampleDispatcher_Serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ca, err := devca.Open("", "example") // certificates for an example; a fleet has an authority of its own
	if err != nil {
		fmt.Println(err)
		return
	}
	dispatcherTLS, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "main"})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{Logger: noLog})
	if err != nil {
		fmt.Println(err)
		return
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := d.Serve(ctx, l, dispatcherTLS); err != nil {
			fmt.Println(err)
		}
	})

	callerTLS, err := ca.TLS(transport.Identity{Role: transport.RoleCaller, Name: "ada"})
	if err != nil {
		fmt.Println(err)
		return
	}
	caller, err := client.Dial(ctx, l.Addr().String(), client.Config{TLS: callerTLS})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = caller.Ping(ctx)
	fmt.Println(err, caller.Close())
	fmt.Println(d.Shutdown(ctx)) // ends Serve
	serving.Wait()
	// Output:
	// <nil> <nil>
	// <nil>
}

// Hosts that wait to be dialled are listed with their address.
func ExampleStaticHosts() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ca, err := devca.Open("", "example") // certificates for an example; a fleet has an authority of its own
	if err != nil {
		fmt.Println(err)
		return
	}
	agentTLS, err := ca.TLS(transport.Identity{Role: transport.RoleAgent, Name: "web01"})
	if err != nil {
		fmt.Println(err)
		return
	}
	dispatcherTLS, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "main"})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	a := agent.New(agent.Config{Name: "web01", TLS: agentTLS, Logger: noLog})
	agent.Handle(a, harp.NewProc[struct{}, string]("ping"), func(context.Context, struct{}) (string, error) { return "pong", nil })
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Serve(ctx, l); err != nil {
			fmt.Println(err)
		}
	})

	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{
		Hosts:  dispatcher.StaticHosts{{Name: "web01", Address: l.Addr().String(), Labels: map[string]string{"role": "web"}}},
		TLS:    dispatcherTLS,
		Logger: noLog,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := d.Caller().Host("web01").Call(ctx, "ping", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Get(ctx))
	cancel()
	running.Wait()
	fmt.Println(d.Shutdown(context.Background()))
	// Output:
	// "pong" <nil>
	// <nil>
}

// Hosts come from a program of your own, which prints one JSON object a line.
func ExampleHostScript() {
	script := dispatcher.HostScript{Command: []string{"/bin/echo", `{"name":"web01","address":"10.0.0.1:7442","labels":{"role":"web"}}`}}
	hosts, err := script.Hosts(context.Background())
	fmt.Println(hosts, err)

	script = dispatcher.HostScript{Command: []string{"/bin/echo", "web01 is at 10.0.0.1"}}
	_, err = script.Hosts(context.Background())
	fmt.Println(err != nil) // the hosts that were known stay
	// Output:
	// [{web01 10.0.0.1:7442 map[role:web]}] <nil>
	// true
}

// What a page for a load balancer would ask.
func ExampleDispatcher_Health() {
	ctx := context.Background()
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{Logger: noLog})
	if err != nil {
		fmt.Println(err)
		return
	}
	health := d.Health(ctx)
	var checks []string
	for name, err := range health.Checks {
		checks = append(checks, fmt.Sprint(name, " ", err))
	}
	slices.Sort(checks)
	fmt.Println(health.Ready, checks)

	fmt.Println(d.Shutdown(ctx))
	fmt.Println(d.Health(ctx).Ready)
	// Output:
	// true [clock <nil> disk <nil> dispatcher <nil> documents <nil> notifications <nil> registry <nil> retention <nil> schedules <nil> store <nil> windows <nil>]
	// <nil>
	// false
}

// A Caller inside the process; a closed one is no use, and the dispatcher works on.
func ExampleDispatcher_Caller() {
	ctx := context.Background()
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{Logger: noLog})
	if err != nil {
		fmt.Println(err)
		return
	}
	caller := d.Caller()
	fmt.Println(caller.Close())
	_, err = caller.Ping(ctx)
	fmt.Println(errors.Is(err, harp.ErrClosed), d.Health(ctx).Ready)
	fmt.Println(d.Shutdown(ctx))
	// Output:
	// <nil>
	// true true
	// <nil>
}

// A dispatcher that stops leaves what runs to the agents.
func ExampleDispatcher_Shutdown() {
	ctx := context.Background()
	disk := memory.NewDisk()
	d, err := dispatcher.Open(ctx, memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Logger: noLog})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := d.Caller().Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Shutdown(ctx), d.Shutdown(ctx))

	// Opened again, it knows what it knew.
	d, err = dispatcher.Open(ctx, memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Logger: noLog})
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := d.Caller().Job(job.ID()).Status(ctx)
	fmt.Println(status.State, err)
	fmt.Println(d.Shutdown(ctx))
	// Output:
	// <nil> <nil>
	// queued <nil>
	// <nil>
}
