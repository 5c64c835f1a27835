package harp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/transport"
)

// Direct calls an agent in another process without a dispatcher.
func Direct() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "an agent in a second process, called directly",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			return direct(ctx, l, func(ctx context.Context, a *harp.Agent, p measure.Point) (measure.Sample, error) {
				return measure.Loop(ctx, p, func(ctx context.Context) error { return callDirect(ctx, a) })
			})
		},
	}
}

// Live reads the records of a direct call.
func Live() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "an agent in a second process, called directly; acknowledged by windows",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			return direct(ctx, l, func(ctx context.Context, a *harp.Agent, p measure.Point) (measure.Sample, error) {
				return measure.Timed(p.Work, func() error { return readLive(ctx, a, p.Work) })
			})
		},
	}
}

func direct(ctx context.Context, l *lab.Lab, round func(context.Context, *harp.Agent, measure.Point) (measure.Sample, error)) (measure.Rig, error) {
	var parts lab.Closers
	var said agentsSaid
	c, err := l.Start(ctx, AgentsRole, agentsArg{Serve: true, Count: 1}, &said)
	if err != nil {
		return nil, err
	}
	parts.Add(c.Close)
	tc, err := l.TLS(transport.RoleCaller, "bench")
	if err != nil {
		return nil, parts.Unless(err)
	}
	a, err := harp.DialAgent(ctx, said.Addr, harp.Config{TLS: tc, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, parts.Unless(err)
	}
	parts.Add(a.Close)
	return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
		return round(ctx, a, p)
	}, parts.Close), nil
}

func callDirect(ctx context.Context, a *harp.Agent) error {
	c, err := a.Call(ctx, work.Name, echo{payload})
	if err != nil {
		return err
	}
	v, err := c.Get()
	if err != nil {
		return err
	}
	var out []byte
	if err := v.Decode(&out); err != nil {
		return err
	}
	if !bytes.Equal(out, payload) {
		return errors.New("another result than was asked for")
	}
	return nil
}

func readLive(ctx context.Context, a *harp.Agent, n int) error {
	c, err := a.Call(ctx, stream.Name, flood{Size: len(payload), Records: n})
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
