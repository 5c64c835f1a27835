package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
)

// BenchmarkOpenSchedules opens a dispatcher with 10,000 schedules, of which nothing is due, or each of which has missed 60 times, and
// waits until it has settled them. It reports how long it and its store have worked for that, and the memory that each schedule takes
// besides what is stored of it.
func BenchmarkOpenSchedules(b *testing.B) {
	const schedules = 10_000
	quiet := slog.New(slog.DiscardHandler)
	for name, away := range map[string]time.Duration{"nothing is due": 0, "an hour was missed": time.Hour} {
		b.Run(name, func(b *testing.B) {
			disk, ctx := memory.NewDisk(), context.Background()
			at := time.Now().Truncate(time.Hour).Add(30 * time.Second)
			d, err := Open(ctx, memory.OpenDisk(disk, nil), Config{Logger: quiet, Now: func() time.Time { return at }})
			if err != nil {
				b.Fatal(err)
			}
			s := d.service(harp.Principal{Kind: processKind, Auth: "process"}) // others may have half of them
			for n := range schedules {
				req, err := harp.NewBatchRequest("h", "p", nil, harp.OfflineWait(harp.NoLimit))
				if err != nil {
					b.Fatal(err)
				}
				req.ID = ""
				if err := s.PutSchedule(ctx, harp.NewID(), harp.Schedule{Name: fmt.Sprint(n), Cron: "* * * * *", CatchUp: time.Second, Request: req}); err != nil {
					b.Fatal(err)
				}
			}
			if err := d.Shutdown(ctx); err != nil {
				b.Fatal(err)
			}
			var worked, heap int64
			b.ResetTimer()
			for range b.N {
				at = at.Add(away)
				now := at
				was, since := heapBytes(), workTime()
				d, err := Open(ctx, memory.OpenDisk(disk, nil), Config{Logger: quiet, Now: func() time.Time { return now }})
				if err != nil {
					b.Fatal(err)
				}
				for !areSettled(d.schedules, now) {
					time.Sleep(10 * time.Millisecond)
				}
				worked += workTime() - since
				heap += heapBytes() - was
				if err := d.Shutdown(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(worked)/float64(b.N)/1e6, "cpu-ms/op")
			if away == 0 { // else what was settled is stored, in memory too
				b.ReportMetric(float64(heap)/float64(b.N)/schedules, "B/schedule")
			}
		})
	}
}

// areSettled reports whether nothing of any schedule is due.
func areSettled(ss *schedules, now time.Time) bool {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	for _, s := range ss.byName {
		if !s.wake.After(now) {
			return false
		}
	}
	return true
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // bounded
}

// workTime is for how many nanoseconds this process has worked.
func workTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
