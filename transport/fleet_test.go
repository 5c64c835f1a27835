package transport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestServeFleet: agents that all come at once, and again when they are refused, are all
// greeted in not much more time than the rate takes for them, also where so low a rate
// has most of them refused.
func TestServeFleet(t *testing.T) {
	for _, c := range []struct {
		rate          float64
		limit, agents int
	}{{5, 0, 500}, {20, 0, 500}, {100, 6, 2000}} {
		t.Run(fmt.Sprint(c.agents, " at ", c.rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { serveFleet(t, c.rate, c.limit, c.agents) })
		})
	}
}

func serveFleet(t *testing.T, rate float64, limit, agents int) {
	n := memnet.New()
	l, err := n.Listen("here", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t, l, transport.ServeConfig{HandshakeRate: rate, HandshakeLimit: limit}, echoSessions)
	needs := time.Duration(float64(agents) / rate * float64(time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 2*needs)
	defer cancel()
	var wg sync.WaitGroup
	for i := range agents {
		wg.Go(func() {
			id := agentID
			id.Name = fmt.Sprint("host", i)
			for ctx.Err() == nil {
				nc, err := n.Dialer(id)(ctx, "here")
				if err == nil {
					err = call(ctx, nc, nil)
					_ = nc.Close()
				}
				if err == nil {
					return
				}
				time.Sleep(time.Second + time.Duration(i*7919%4000)*time.Millisecond) // of virtual time
			}
			t.Errorf("host%d was not greeted", i)
		})
	}
	wg.Wait()
	s.stop()
}
