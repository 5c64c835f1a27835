package harp

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
)

// Direct calls an agent in another process without a dispatcher.
func Direct() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "an agent in a second process, set up as the program harp does, called directly",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			a, err := direct(ctx, l, &parts)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewEcho(func(ctx context.Context) ([]byte, error) { return callDirect(ctx, a) }, parts.Close), nil
		},
	}
}

// Live reads the records of a direct call.
func Live() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "an agent in a second process, set up as the program harp does, called directly; acknowledged by windows",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			a, err := direct(ctx, l, &parts)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				return measure.Timed(p.Work, func() error { return readLive(ctx, a, p.Work) })
			}, parts.Close), nil
		},
	}
}

// direct starts an agent in a process of its own and connects to it.
func direct(ctx context.Context, l *lab.Lab, parts *lab.Closers) (*client.DirectHost, error) {
	var said agentsSaid
	c, err := l.Start(ctx, AgentsRole, agentsArg{Serve: true, Count: 1}, &said)
	if err != nil {
		return nil, err
	}
	parts.Add(c.Close)
	tc, err := l.TLS(transport.RoleCaller, "bench")
	if err != nil {
		return nil, err
	}
	a, err := client.DialAgent(ctx, said.Addr, client.Config{TLS: tc, Logger: quiet()})
	if err != nil {
		return nil, err
	}
	parts.Add(a.Close)
	return a, nil
}

func callDirect(ctx context.Context, a *client.DirectHost) (out []byte, err error) {
	c, err := a.Call(ctx, work.Name, echo{measure.Payload})
	if err != nil {
		return nil, err
	}
	v, err := c.Get()
	if err != nil {
		return nil, err
	}
	err = v.Decode(&out)
	return out, err
}

func readLive(ctx context.Context, a *client.DirectHost, n int) error {
	c, err := a.Call(ctx, stream.Name, flood{Size: len(measure.Payload), Records: n})
	if err != nil {
		return err
	}
	got := 0
	for _, err := range c.Records() {
		if err != nil {
			return err
		}
		got++
	}
	if _, err := c.Get(); err != nil {
		return err
	}
	return same(got, n)
}

// same reports that not as many came as should.
func same(got, want int) error {
	if got != want {
		return fmt.Errorf("%d of %d records came", got, want)
	}
	return nil
}
