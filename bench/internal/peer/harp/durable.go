package harp

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Durable submits jobs and reads their results. Dispatcher, agent and caller are in
// one process.
func Durable() measure.Subject {
	return measure.Subject{
		Name:  "harp",
		Note:  "dispatcher, agent and caller in one process, its GOMAXPROCS raised as documented; the agent journals too",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return raised(durable(together(ctx, l))) },
	}
}

// DurableApart is Durable with each in a process of its own.
func DurableApart() measure.Subject {
	return measure.Subject{
		Name:  "harp apart",
		Note:  "dispatcher, agent and caller in three processes",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return durable(apart(ctx, l)) },
	}
}

func durable(s *system, err error) (measure.Rig, error) {
	if err != nil {
		return nil, err
	}
	h := s.caller.Host(host(0))
	return measure.NewEcho(func(ctx context.Context) ([]byte, error) {
		j, err := work.Call(ctx, h, echo{measure.Payload})
		if err != nil {
			return nil, err
		}
		return harp.Get[[]byte](ctx, j)
	}, s.Close), nil
}
