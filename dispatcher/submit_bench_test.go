package dispatcher

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
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
						if _, err := s.Submit(b.Context(), harp.Submission{Request: req.Encode()}); err != nil {
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
