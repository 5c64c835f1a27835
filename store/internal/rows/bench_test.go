package rows

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// forgetful is an engine in memory that does not keep what was committed when.
func forgetful() *trial {
	e := newTrial()
	e.onCommit = func([]Write) error {
		e.commits = e.commits[:0] // it is the committer that adds to them
		return nil
	}
	return e
}

// BenchmarkCommitter takes jobs from submission to their end, so many callers at a
// time: what the rules and the committer cost, without a disk.
func BenchmarkCommitter(b *testing.B) {
	for _, callers := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s := opened(b, forgetful(), Options{})
			s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := endNew(b, s); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// endNew submits a job and ends it.
func endNew(b *testing.B, s *Store) error {
	out, err := s.Submit(b.Context(), []store.Submission{call("h")}, noon)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return err
	}
	changes, err := s.Apply(b.Context(), about(out[0].Job, store.End))
	if err == nil {
		err = changes[0].Err
	}
	return err
}

// BenchmarkClaim claims jobs of one queue one by one, of so many that wait in it for
// a host that is away and as many as it takes for another, which has so many windows ahead.
func BenchmarkClaim(b *testing.B) {
	for _, c := range []struct{ away, windows int }{{0, 0}, {10_000, 0}, {0, 3}} {
		b.Run(fmt.Sprintf("%d wait, %d windows", c.away, c.windows), func(b *testing.B) {
			s := opened(b, forgetful(), Options{})
			waiting(b, s, "away", c.away)
			waiting(b, s, "h", b.N+1)
			if c.windows > 0 {
				s.SetHolds("h", gateAhead(c.windows))
			}
			s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
			jobs, err := s.Claim(b.Context(), []string{"h"}, 1, noon)
			if err != nil || len(jobs) != 1 {
				b.Fatal(len(jobs), err)
			}
			j := jobs[0]
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				j = applied(b, s, about(j, store.End))[0].Claimed[0]
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}

// gateAhead has so many windows, an hour each.
func gateAhead(n int) *window.Gate {
	var windows []*window.Expanded
	for i := range n {
		from := noon.Add(time.Duration(2*i+1) * time.Hour)
		is := window.Window{Name: fmt.Sprint(i), Procedures: []string{"deploy.*", "p*"}, Source: window.Once{From: from, To: from.Add(time.Hour)}}
		windows = append(windows, is.Expand(noon, noon.Add(24*time.Hour)))
	}
	g := window.NewGate(noon, noon.Add(24*time.Hour), windows, nil)
	return &g
}

// waiting submits jobs of one queue in which one runs at a time.
func waiting(b *testing.B, s *Store, host string, n int) {
	b.Helper()
	const group = 500
	for ; n > 0; n -= group {
		calls := make([]store.Submission, min(n, group))
		for i := range calls {
			calls[i] = call(host)
			calls[i].Job.Queue = harp.Value{0x80}
		}
		submitted(b, s, calls...)
	}
}
