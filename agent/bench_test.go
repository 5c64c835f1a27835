package agent_test

import (
	"context"
	"sync"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport/memnet"
)

// benchmarks runs one over both kinds of wire.
func benchmarks(b *testing.B, body func(b *testing.B, p place)) {
	b.Run("memory", func(b *testing.B) { body(b, memory{memnet.New()}) })
	b.Run("tls", func(b *testing.B) { body(b, loopback{}) })
}

// BenchmarkCall is a call with its answer: CALL, ACCEPTED, END, ACK.
func BenchmarkCall(b *testing.B) {
	benchmarks(b, func(b *testing.B, p place) {
		a := newAgent(b, p)
		offerGreet(a)
		s, _, _ := connect(b, p, a)
		b.ReportAllocs()
		for b.Loop() {
			s.call("greet", harp.Pos("Ada")).accepted().end()
		}
	})
}

// BenchmarkCalls is as many of them at the same time as a host usually has.
func BenchmarkCalls(b *testing.B) {
	const inFlight = 64
	benchmarks(b, func(b *testing.B, p place) {
		a := newAgent(b, p)
		offerGreet(a)
		s, _, _ := connect(b, p, a)
		b.ReportAllocs()
		b.ResetTimer()
		var all sync.WaitGroup
		for range inFlight {
			all.Go(func() {
				for range b.N/inFlight + 1 {
					s.call("greet", harp.Pos("Ada")).accepted().end()
				}
			})
		}
		all.Wait()
	})
}

// BenchmarkCallsOnDisk is more of them than that, with a journal on disk.
func BenchmarkCallsOnDisk(b *testing.B) {
	const inFlight = 256
	benchmarks(b, func(b *testing.B, p place) {
		a := newAgent(b, p, func(c *agent.Config) { c.Dir = b.TempDir() })
		offerGreet(a)
		s, _, _ := connect(b, p, a)
		b.ReportAllocs()
		b.ResetTimer()
		var all sync.WaitGroup
		for range inFlight {
			all.Go(func() {
				for range b.N/inFlight + 1 {
					s.call("greet", harp.Pos("Ada")).accepted().end()
				}
			})
		}
		all.Wait()
	})
}

// BenchmarkEmit is a record of 100 bytes, from emit to the dispatcher that has
// received and acknowledged it.
func BenchmarkEmit(b *testing.B) {
	benchmarks(b, func(b *testing.B, p place) {
		a := newAgent(b, p)
		offerRecords(b, a)
		s, _, _ := connect(b, p, a)
		b.ReportAllocs()
		b.SetBytes(100)
		b.ResetTimer()
		x := s.call("emit", nil).accepted()
		for got := 0; got < b.N; {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
			x.ack(int64(got))
		}
		x.end()
	})
}

// offerRecords offers a procedure that emits b.N records of 100 bytes.
func offerRecords(b *testing.B, a *agent.Agent) {
	b.Helper()
	agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("emit"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
		record := make([]byte, 100)
		for range b.N {
			if err := emit(record); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
}
