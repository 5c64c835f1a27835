package client_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// Greet is a procedure that yields a record for each letter.
var Greet = harp.NewStreamProc[GreetArgs, string, int]("greet", "Greet somebody, letter by letter")

// GreetArgs are its arguments.
type GreetArgs struct {
	Name string `json:"name"`
}

func spell(_ context.Context, in GreetArgs, emit func(string) error) (int, error) {
	for _, letter := range in.Name {
		if err := emit(string(letter)); err != nil {
			return 0, err
		}
	}
	return len(in.Name), nil
}

// Calls without a dispatcher: nothing is stored, and the call is cancelled when its
// context ends. Here the network is in memory; in earnest client.Config and agent.Config
// hold certificates: examples/direct is the whole of it.
func ExampleDialAgent() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	network := memnet.New()
	l, err := network.Listen("web01:7442", transport.Identity{Fleet: "example", Role: transport.RoleAgent, Name: "web01"})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := agent.New(agent.Config{Name: "web01"})
	agent.HandleStream(a, Greet, spell)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := a.Serve(ctx, l); err != nil {
			fmt.Println(err)
		}
	})

	ada := transport.Identity{Fleet: "example", Role: transport.RoleCaller, Name: "ada"}
	host, err := client.DialAgent(ctx, "web01:7442", client.Config{Dial: network.Dialer(ada)})
	if err != nil {
		fmt.Println(err) // harp.ErrUnreachable, harp.ErrDenied
		return
	}
	call, err := host.Call(ctx, Greet.Name, GreetArgs{"Ada"})
	if err != nil {
		fmt.Println(err) // it did not run
		return
	}
	for letter, err := range harp.Decode[string](call.Records()) {
		fmt.Println(letter, err)
	}
	fmt.Println(call.Get())

	fmt.Println(host.Close())
	cancel()
	serving.Wait()
	// Output:
	// A <nil>
	// d <nil>
	// a <nil>
	// 3 <nil>
	// <nil>
}
