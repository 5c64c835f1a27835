package dispatcher

import (
	"fmt"
	"testing"
)

// BenchmarkNewHosts is a fleet that names itself for the first time, in no order.
func BenchmarkNewHosts(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				hs := newHosts()
				for i := range n {
					hs.get(fmt.Sprintf("host-%d", i*7919%n))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/host")
		})
	}
}
