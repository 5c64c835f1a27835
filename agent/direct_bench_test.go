package agent_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
)

// echoArgs are 100 bytes that come back.
type echoArgs struct {
	Payload []byte `json:"payload"`
}

// dialAgent starts an agent that listens and connects to it as its users do.
func dialAgent(tb testing.TB, p place, a *agent.Agent) *client.DirectHost {
	tb.Helper()
	l := p.listen(tb, agentID)
	run(tb, func(ctx context.Context) error { return a.Serve(ctx, l) })
	cfg := client.Config{TLS: p.config(tb, callerID), Logger: slog.New(slog.DiscardHandler), Dial: p.dialer(callerID)}
	c, err := client.DialAgent(tb.Context(), l.Addr().String(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// dialEcho connects to an agent that sends back what it gets.
func dialEcho(tb testing.TB, p place) *client.DirectHost {
	tb.Helper()
	a := newAgent(tb, p)
	agent.Handle(a, harp.NewProc[echoArgs, []byte]("echo"), func(_ context.Context, in echoArgs) ([]byte, error) {
		return in.Payload, nil
	})
	return dialAgent(tb, p, a)
}

// echo makes one direct call.
func echo(ctx context.Context, c *client.DirectHost, payload []byte) error {
	call, err := c.Call(ctx, "echo", echoArgs{payload})
	if err != nil {
		return err
	}
	v, err := call.Get()
	if err != nil {
		return err
	}
	var got []byte
	return v.Decode(&got)
}

// BenchmarkDirect is a direct call of 100 bytes with its answer, both sides in one
// process.
func BenchmarkDirect(b *testing.B) {
	for _, flight := range []struct {
		name string
		n    int
	}{{"1", 1}, {"256", 256}} {
		b.Run(flight.name, func(b *testing.B) {
			benchmarks(b, func(b *testing.B, p place) {
				c := dialEcho(b, p)
				payload := bytes.Repeat([]byte{0x5a}, 100)
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for range flight.n {
					all.Go(func() {
						for range b.N/flight.n + 1 {
							if err := echo(b.Context(), c, payload); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// BenchmarkLive is a record of 100 bytes of a direct call, from emit to who reads it.
func BenchmarkLive(b *testing.B) {
	benchmarks(b, func(b *testing.B, p place) {
		a := newAgent(b, p)
		offerRecords(b, a)
		c := dialAgent(b, p, a)
		b.ReportAllocs()
		b.SetBytes(100)
		b.ResetTimer()
		call, err := c.Call(b.Context(), "emit", nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, err := range call.Records() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != b.N {
			b.Fatalf("%d records of %d", n, b.N)
		}
	})
}
