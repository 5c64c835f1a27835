package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// BenchmarkFire has 1,000 schedules fire at the same second, on a host that is away, over a store on disk, while somebody else makes calls.
// It reports when the last of them had fired, after its time, and how long the slowest of 100 calls took before and meanwhile. What is to be
// shown is of ten rounds: -benchtime 10x.
func BenchmarkFire(b *testing.B) {
	st, err := badger.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := st.OpenSession(b.Context(), store.Session{Host: "h"}); err != nil {
		b.Fatal(err)
	}
	d, err := Open(b.Context(), st, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Shutdown(b.Context()) //nolint:errcheck // what is measured is over
	s := d.service(harp.Principal{Kind: "caller", Name: "ci", Auth: "certificate"})
	var last, before, meanwhile []time.Duration
	for range b.N {
		at := time.Now().Add(30 * time.Second).Truncate(time.Second)
		putMany(b, s, at)
		time.Sleep(time.Until(at.Add(-4 * time.Second)))
		calls := startCalls(b, d.Caller())
		latest := awaitFires(b, s, at)
		last = append(last, latest.Sub(at))
		for _, c := range calls() {
			switch end := c.begun.Add(c.took); {
			case end.Before(at):
				before = append(before, c.took)
			case c.begun.Before(latest):
				meanwhile = append(meanwhile, c.took)
			}
		}
	}
	slices.Sort(last)
	b.ReportMetric(float64(last[len(last)/2].Milliseconds()), "ms-until-the-last")
	b.ReportMetric(float64(last[len(last)-1].Milliseconds()), "ms-until-the-last-p99")
	b.ReportMetric(percentile99(before), "ms-call-p99-before")
	b.ReportMetric(percentile99(meanwhile), "ms-call-p99-meanwhile")
}

func percentile99(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)*99/100].Microseconds()) / 1000
}

const firesAtOnce = 1000

// putMany puts schedules that all fire once, at the same time.
func putMany(b *testing.B, s *service, at time.Time) {
	b.Helper()
	for n := range firesAtOnce {
		req, err := harp.NewBatchRequest("h", "p", nil, harp.OfflineWait(harp.NoLimit))
		if err != nil {
			b.Fatal(err)
		}
		req.ID = ""
		sch := harp.Schedule{Name: fmt.Sprint(n), Cron: "at " + at.UTC().Format("2006-01-02 15:04:05"), Overlap: harp.OverlapAllow, Request: req}
		if err := s.PutSchedule(b.Context(), harp.NewID(), sch); err != nil {
			b.Fatal(err)
		}
	}
	if !time.Now().Before(at.Add(-4 * time.Second)) {
		b.Fatal("the schedules took too long to put")
	}
}

// timed is a call.
type timed struct {
	begun time.Time
	took  time.Duration
}

// startCalls makes calls, one after another, until the function that it returns is called, which returns them.
func startCalls(b *testing.B, c *harp.Caller) (stop func() []timed) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan []timed)
	go func() {
		var all []timed
		for ctx.Err() == nil {
			one := timed{begun: time.Now()}
			if _, err := c.Host("h", harp.OfflineWait(harp.NoLimit)).Call(b.Context(), "p", nil); err != nil {
				b.Error(err)
				break
			}
			one.took = time.Since(one.begun)
			all = append(all, one)
			time.Sleep(time.Millisecond)
		}
		done <- all
	}()
	return func() []timed {
		cancel()
		return <-done
	}
}

// awaitFires waits until all have fired, and returns when they had.
func awaitFires(b *testing.B, s *service, at time.Time) time.Time {
	b.Helper()
	fired := 0
	for cursor := harp.EventsFromStart; ; {
		page, err := s.Events(b.Context(), harp.EventFilter{After: cursor, Types: []string{string(harp.EventScheduleFired)}}, true)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range page.Events {
			if !e.Time.Before(at) {
				fired++
			}
		}
		if fired == firesAtOnce {
			return time.Now()
		}
		cursor = page.Cursor
	}
}
