package dispatcher

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/memory"
)

// BenchmarkSubmit submits calls of one principal for a host that is away, so many at a time.
// Nothing is synced: the store is in memory.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			st := memory.Open(nil)
			if _, err := st.OpenSession(b.Context(), store.Session{Host: "h"}); err != nil {
				b.Fatal(err)
			}
			d, err := Open(b.Context(), st, Config{Logger: slog.New(slog.DiscardHandler), Limits: Limits{PerPrincipal: PrincipalLimits{Waiting: b.N + 1}}})
			if err != nil {
				b.Fatal(err)
			}
			s := d.service(harp.Principal{Kind: "caller", Name: "ci", Auth: "certificate"})
			var left atomic.Int64
			left.Store(int64(b.N))
			var submitting sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				submitting.Go(func() {
					for left.Add(-1) >= 0 {
						req := harp.Request{ID: harp.NewID(), Host: "h", Procedure: "p", OfflineWait: harp.NoLimit}
						if _, err := s.Submit(b.Context(), []harp.Submission{{Request: req.Encode()}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			submitting.Wait()
			b.StopTimer()
			if err := d.Shutdown(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkSubmitBesideFlood submits calls one after the other while another principal submits
// calls with so many bytes of arguments, 512 at a time.
func BenchmarkSubmitBesideFlood(b *testing.B) {
	for _, flood := range []struct {
		name           string
		callers, bytes int
	}{{"none", 0, 0}, {"small", 512, 16}, {"100 KiB", 512, 100 << 10}, {"1 MiB", 64, 1000 << 10}} {
		b.Run(flood.name, func(b *testing.B) { benchmarkFlood(b, flood.callers, flood.bytes) })
	}
}

func benchmarkFlood(b *testing.B, callers, size int) {
	st, err := badger.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := st.OpenSession(b.Context(), store.Session{Host: "h"}); err != nil {
		b.Fatal(err)
	}
	limits := Limits{PerPrincipal: PrincipalLimits{Waiting: 1 << 30, BytesPerHour: 1 << 50}}
	d, err := Open(b.Context(), st, Config{Logger: slog.New(slog.DiscardHandler), Limits: limits})
	if err != nil {
		b.Fatal(err)
	}
	submit := func(s harp.Service, args harp.Value) error {
		req := harp.Request{ID: harp.NewID(), Host: "h", Procedure: "p", OfflineWait: harp.NoLimit, Args: args}
		_, err := s.Submit(b.Context(), []harp.Submission{{Request: req.Encode()}})
		return err
	}
	var over atomic.Bool
	var flooded atomic.Int64
	var flooding sync.WaitGroup
	long := harp.Value(wire.Encode(map[string]string{"x": strings.Repeat("x", size)}))
	ada := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	for range callers {
		flooding.Go(func() {
			for !over.Load() {
				if err := submit(ada, long); err != nil {
					b.Error(err)
					return
				}
				flooded.Add(1)
			}
		})
	}
	for flooded.Load() < int64(callers) && !b.Failed() {
		time.Sleep(time.Millisecond)
	}
	bob := d.service(harp.Principal{Kind: "caller", Name: "bob"})
	took := make([]time.Duration, b.N)
	before := flooded.Load()
	b.ResetTimer()
	for n := range took {
		start := time.Now()
		if err := submit(bob, nil); err != nil {
			b.Fatal(err)
		}
		took[n] = time.Since(start)
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(flooded.Load()-before)/b.Elapsed().Seconds(), "flood/s")
	over.Store(true)
	flooding.Wait()
	if err := d.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
}
