// Command direct calls an agent without a dispatcher in between: the call lasts as long
// as the connection, and nothing is stored. The agent of this example waits to be
// dialled in the same process; it could be anywhere.
//
//	go run ./examples/direct
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"os"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Divisors is a procedure with records and a result.
var Divisors = harp.NewStreamProc[Args, int, Result]("divisors", "Find the divisors of a number")

// Args are its arguments.
type Args struct {
	Of int `json:"of"`
}

// Result is what it returns.
type Result struct {
	Prime bool `json:"prime"`
}

func divisors(ctx context.Context, args Args, emit func(int) error) (Result, error) {
	if args.Of < 1 {
		return Result{}, agent.Errorf("not_positive", args, "%d has no divisors", args.Of)
	}
	found := 0
	for n := 1; n <= args.Of && ctx.Err() == nil; n++ {
		if args.Of%n != 0 {
			continue
		}
		found++
		if err := emit(n); err != nil {
			return Result{}, err
		}
	}
	return Result{Prime: found == 2}, context.Cause(ctx)
}

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0).Printf); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, say func(format string, a ...any)) (err error) {
	ca, err := devca.Open("", "direct") // certificates in memory
	if err != nil {
		return err
	}
	addr, stop, err := startAgent(ctx, ca)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	callerTLS, err := certificate(ca, transport.RoleCaller, "ada")
	if err != nil {
		return err
	}
	web01, err := client.DialAgent(ctx, addr, client.Config{TLS: callerTLS})
	if err != nil {
		return err
	}
	defer web01.Close()

	for _, n := range []int{12, 13, -1} {
		if err := call(ctx, web01, n, say); err != nil {
			return err
		}
	}
	return nil
}

// call calls the procedure. The call is bound to ctx: when ctx ends, the procedure is stopped.
func call(ctx context.Context, web01 *client.DirectHost, n int, say func(format string, a ...any)) error {
	c, err := web01.Call(ctx, Divisors.Name, Args{Of: n})
	if err != nil {
		return err
	}
	for divisor, err := range harp.Decode[int](c.Records()) {
		if err != nil {
			return err
		}
		say("  %d is a divisor of %d", divisor, n)
	}
	value, err := c.Get()
	var failed *harp.RemoteError
	if errors.As(err, &failed) { // the procedure itself failed
		say("%d: %s (type %s)", n, failed.Message, failed.Type)
		return nil
	}
	if err != nil {
		return err
	}
	var result Result
	if err := value.Decode(&result); err != nil {
		return err
	}
	say("%d is prime: %t", n, result.Prime)
	return nil
}

// startAgent starts an agent that waits to be dialled.
func startAgent(ctx context.Context, ca *devca.CA) (addr string, stop func() error, err error) {
	agentTLS, err := certificate(ca, transport.RoleAgent, "web01")
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	a := agent.New(agent.Config{Name: "web01", TLS: agentTLS, Logger: slog.New(slog.DiscardHandler)})
	agent.HandleStream(a, Divisors, divisors)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	return l.Addr().String(), func() error { cancel(); return <-done }, nil
}

func certificate(ca *devca.CA, role transport.Role, name string) (*tls.Config, error) {
	return ca.TLS(transport.Identity{Role: role, Name: name})
}
