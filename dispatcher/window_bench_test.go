package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/window"
)

// openWithWindows opens a dispatcher with 10,000 hosts, and windows each of which is on a tenth of them.
func openWithWindows(b *testing.B, windows int) *Dispatcher {
	b.Helper()
	specs := make(StaticHosts, 10_000)
	for n := range specs {
		specs[n] = HostSpec{Name: fmt.Sprintf("h%05d", n), Labels: map[string]string{"rack": fmt.Sprint(n % 10), "env": "prod"}}
	}
	d, err := Open(context.Background(), memory.Open(nil), Config{Hosts: specs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	})
	for n := range windows {
		w := harp.Window{
			Name: fmt.Sprintf("w%04d", n), Target: fmt.Sprintf("rack=%d and env=prod", n%10),
			Cron: fmt.Sprintf("%d 2 * * *", n%60), For: time.Hour, TZ: "Europe/Berlin",
		}
		d.windows.set(newOpenWindow(windowDocument{Window: w}, 0))
	}
	d.reviewAllHolds()
	return d
}

// BenchmarkGateAll makes the gates of 10,000 hosts anew.
func BenchmarkGateAll(b *testing.B) {
	for _, windows := range []int{0, 100, 1000} {
		b.Run(fmt.Sprint(windows), func(b *testing.B) {
			d := openWithWindows(b, windows)
			for b.Loop() {
				d.reviewAllHolds()
			}
		})
	}
}

// BenchmarkGateOfOne makes the gate of one of 10,000 hosts anew, as its agent connects.
func BenchmarkGateOfOne(b *testing.B) {
	for _, windows := range []int{0, 100, 1000} {
		b.Run(fmt.Sprint(windows), func(b *testing.B) {
			d := openWithWindows(b, windows)
			h := d.hosts.get("h00005")
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					d.reviewHolds(h)
				}
			})
		})
	}
}

// BenchmarkHeldAmong says of 10,000 hosts on how many a start is kept back, as previews and the next times of a schedule do.
func BenchmarkHeldAmong(b *testing.B) {
	for _, windows := range []int{100, 1000} {
		b.Run(fmt.Sprint(windows), func(b *testing.B) {
			d := openWithWindows(b, windows)
			found, err := d.fleet.findCandidates(b.Context(), "*", "patch", nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				d.startsAmong(found, window.Start{Procedure: "patch"}).heldAt(time.Now())
			}
		})
	}
}

// BenchmarkNextTimes asks for the next 1,000 times of a schedule on 10,000 hosts, which are in windows, or each paused by itself.
func BenchmarkNextTimes(b *testing.B) {
	for _, paused := range []bool{false, true} {
		b.Run(fmt.Sprintf("paused=%v", paused), func(b *testing.B) {
			d := openWithWindows(b, 100)
			s, ctx := d.service(harp.Principal{Kind: processKind, Auth: "process"}), b.Context()
			req, err := harp.NewBatchRequest("*", "patch", nil)
			if err != nil {
				b.Fatal(err)
			}
			req.ID = ""
			if err := s.PutSchedule(ctx, harp.NewID(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: req}); err != nil {
				b.Fatal(err)
			}
			if paused {
				if _, err := s.PauseHosts(ctx, harp.NewID(), "*", harp.HostPauseChange{}); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if times, err := s.NextTimes(ctx, "s", time.Time{}, harp.MaxNextTimes); err != nil || len(times) != harp.MaxNextTimes || paused && times[0].Held != 10_000 {
					b.Fatal(len(times), err)
				}
			}
		})
	}
}
