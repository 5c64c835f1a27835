package dispatcher_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// BenchmarkFollow reads the records of one job while its agent sends them, 100 bytes
// each, by so many followers at a time. Nothing is synced: the store is in memory.
func BenchmarkFollow(b *testing.B) {
	for _, w := range []wiring{embedded, loopback} {
		for _, followers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s, %d", w, followers), func(b *testing.B) { benchmarkFollow(b, w, followers) })
		}
	}
}

func benchmarkFollow(b *testing.B, w wiring, followers int) {
	sys := newSystem(b, w, nil, dispatcher.Config{})
	sys.agent("web01", func(a *agent.Agent) {
		agent.HandleStream(a, harp.NewStreamProc[flood, []byte, bool]("flood"), flow)
	})
	b.ReportAllocs()
	b.ResetTimer()
	job, err := sys.caller.Host("web01").Call(b.Context(), "flood", flood{b.N})
	if err != nil {
		b.Fatal(err)
	}
	var reading sync.WaitGroup
	for range followers {
		reading.Go(func() {
			n := 0
			for _, err := range job.Follow(b.Context(), harp.Since(0)) {
				if err != nil {
					b.Error(err)
					return
				}
				n++
			}
			if n != b.N {
				b.Errorf("%d of %d records came", n, b.N)
			}
		})
	}
	reading.Wait()
	b.ReportMetric(float64(b.N*followers)/b.Elapsed().Seconds(), "records/s")
}

// flood says how many records there are to be.
type flood struct {
	Records int `json:"records"`
}

func flow(_ context.Context, in flood, emit func([]byte) error) (bool, error) {
	record := bytes.Repeat([]byte{0xc0}, 100)
	for range in.Records {
		if err := emit(record); err != nil {
			return false, err
		}
	}
	return true, nil
}
