package harp

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Durable submits jobs and reads their results. Dispatcher, agent and caller are in three
// processes.
func Durable() measure.Subject {
	return measure.Subject{
		Name:  Apart,
		Note:  apartNote + "; the agent journals too",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return durable(apart(ctx, l)) },
	}
}

// DurableTogether is Durable with all in one process.
func DurableTogether() measure.Subject {
	return measure.Subject{
		Name:  Together,
		Note:  "the same in one process, its GOMAXPROCS raised as documented; the caller needs no connection",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) { return raised(durable(together(ctx, l))) },
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
