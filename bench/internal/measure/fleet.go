package measure

import (
	"context"
	"sync"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// The metrics of a server with many clients that do nothing.
var (
	Memory = Metric{Name: "memory", Unit: "KiB each", Lower: true}
	AtRest = Metric{Name: "at rest", Unit: "% of a core", Lower: true}
	Back   = Metric{Name: "all back", Unit: "s", Lower: true}
	Asked  = Metric{Name: "p99 meanwhile", Unit: "ms", Lower: true}
)

// arriving is held while the clients of one fleet come: fleets rest beside each other, but
// come one after another.
var arriving sync.Mutex

// Idle measures what so many clients, each of which pings or is pinged once in an interval,
// cost the process of their server when all have come, which come sees to.
func Idle(ctx context.Context, l *lab.Lab, server *lab.Child, clients int, pings time.Duration, come func() error) (Sample, error) {
	before, err := lab.RSS(server.PID())
	if err != nil {
		return nil, err
	}
	arriving.Lock()
	err = come()
	arriving.Unlock()
	if err != nil {
		return nil, err
	}
	r, err := l.Rest(ctx, server.PID(), pings)
	return Sample{
		Memory.Name: float64(r.RSS-before) / 1024 / float64(clients),
		AtRest.Name: r.CPU,
	}, err
}

// First is how long the first of many answers took.
var First = Metric{Name: "first", Unit: "ms", Lower: true}

// Answers is what was measured of n answers, the first and all of them.
func Answers(n int, first, all time.Duration) Sample {
	return Sample{Rate.Name: float64(n) / all.Seconds(), First.Name: milliseconds(first)}
}
