package dispatcher

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// BenchmarkFire has 1,000 schedules fire at the same second, on a host that is away, over a store on disk.
// It reports when the last of them had fired, after its time.
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
	const schedules = 1000
	var last []time.Duration
	for round := range b.N {
		at := time.Now().Add(20 * time.Second).Truncate(time.Second)
		for n := range schedules {
			req, err := harp.NewBatchRequest("h", "p", nil, harp.OfflineWait(harp.NoLimit))
			if err != nil {
				b.Fatal(err)
			}
			req.ID = ""
			sch := harp.Schedule{Name: fmt.Sprintf("r%d-%d", round, n), Cron: "at " + at.UTC().Format("2006-01-02 15:04:05"), Request: req}
			if err := s.PutSchedule(b.Context(), harp.NewID(), sch); err != nil {
				b.Fatal(err)
			}
		}
		fired, latest := 0, at
		for cursor := harp.EventsFromStart; fired < schedules; {
			page, err := s.Events(b.Context(), harp.EventFilter{After: cursor, Types: []string{string(harp.EventScheduleFired)}}, true)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range page.Events {
				if e.Time.Before(at) {
					continue
				}
				fired++
			}
			cursor, latest = page.Cursor, time.Now()
		}
		last = append(last, latest.Sub(at))
	}
	slices.Sort(last)
	b.ReportMetric(float64(last[len(last)/2].Milliseconds()), "ms-until-the-last")
}
