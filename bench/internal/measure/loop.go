package measure

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// The metrics of Loop.
var (
	Rate = Metric{Name: "rate", Unit: "/s"}
	P50  = Metric{Name: "p50", Unit: "ms", Lower: true}
	P99  = Metric{Name: "p99", Unit: "ms", Lower: true}
)

// settle is the part of a round, at its beginning, that is not measured.
const settle = 0.25

// Loop keeps so many operations in flight for as long as the point says: each that
// ends begins the next. Those that are under way then are waited for and counted, in
// the time that they take: with many in flight one may take longer than the round.
func Loop(ctx context.Context, p Point, op func(context.Context) error) (Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	from := begin.Add(time.Duration(float64(p.For) * settle))
	until := begin.Add(p.For)
	var mu sync.Mutex // guards took and last
	var took []float64
	last := until
	var wg sync.WaitGroup
	for range p.Work {
		wg.Go(func() {
			mine, end, err := repeat(ctx, from, until, op)
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if end.After(last) {
				last = end
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := Latencies(took)
	s["rate"] = float64(len(took)) / last.Sub(from).Seconds()
	return s, nil
}

// repeat runs op until the time is over. It returns how long each took that ended
// after from, in milliseconds, and when the last one ended.
func repeat(ctx context.Context, from, until time.Time, op func(context.Context) error) (took []float64, end time.Time, err error) {
	for begin := time.Now(); begin.Before(until); begin = end {
		if err := op(ctx); err != nil {
			return nil, end, err
		}
		if end = time.Now(); end.After(from) {
			took = append(took, milliseconds(end.Sub(begin)))
		}
	}
	return took, end, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Latencies are the quantiles of times in milliseconds, which it sorts.
func Latencies(took []float64) Sample {
	if len(took) == 0 {
		return Sample{}
	}
	slices.Sort(took)
	return Sample{"p50": Quantile(took, 0.5), "p90": Quantile(took, 0.9), "p99": Quantile(took, 0.99)}
}

// Quantile of what is sorted; NaN of nothing.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-float64(i))
}

// Produce calls one until the time of the point is over and returns what it counted.
func Produce(ctx context.Context, p Point, one func() (int, error)) (int, error) {
	n := 0
	for until := time.Now().Add(p.For); time.Now().Before(until); {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		m, err := one()
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// Timed measures how many things a second a function does that does n.
func Timed(n int, do func() error) (Sample, error) {
	begin := time.Now()
	if err := do(); err != nil {
		return nil, err
	}
	return Sample{"rate": float64(n) / time.Since(begin).Seconds()}, nil
}
