package dispatcher_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// heapInUse returns what is live.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peakHeap returns by how much the heap grows, at most, while f runs.
func peakHeap(f func()) int64 {
	before, peak := heapInUse(), int64(0)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			peak = max(peak, heapInUse()-before)
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	f()
	close(over)
	watching.Wait()
	return peak
}

// deafConn is a connection of which nothing is read any more from some moment on.
type deafConn struct {
	net.Conn
	deaf   *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.deaf.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// deafDial makes connections that are deaf once deaf is set.
func deafDial(dial dialFunc, deaf *atomic.Bool) dialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: nc, deaf: deaf, closed: make(chan struct{})}, nil
	}
}

// submitLarge submits jobs with arguments of 900 KiB to a host that is away.
func submitLarge(t *testing.T, sys *system, n int) (ids []string) {
	t.Helper()
	for range n {
		job := must[*harp.Job](t)(sys.caller.Host("away").Call(t.Context(), "work", harp.Args{"x": make([]byte, 900<<10)}))
		ids = append(ids, job.ID())
	}
	return ids
}

// TestAnswersThatNobodyReadsAreNotMade: a caller that asks for long answers and reads none costs
// what its session may, however often it asks; another one is answered meanwhile.
func TestAnswersThatNobodyReadsAreNotMade(t *testing.T) {
	if needs.RaceDetector {
		t.Skip("its own memory is more than what is measured")
	}
	sys := newSystem(t, loopback, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "away"}}})
	ids := submitLarge(t, sys, 4)
	ref := wire.Encode(wire.JobRef{ID: ids[0]})
	asked := []struct {
		kind transport.Type
		body []byte
	}{
		{wire.TypeStatus, ref}, {wire.TypeRequest, ref}, {wire.TypeJobs, wire.Encode(wire.JobsQuery{Page: wire.Page{Limit: 1}})},
	}
	addr, tc, dial := sys.net.dial("dispatcher", "attacker", transport.RoleCaller)
	grown := peakHeap(func() {
		var silent []*transport.Exchange
		for range 3 {
			var deaf atomic.Bool
			raw := newRawCaller(t, addr, tc, deafDial(dial, &deaf))
			deaf.Store(true)
			for n := range 600 {
				x := must[*transport.Exchange](t)(raw.tr.Exchange())
				if err := x.Send(asked[n%len(asked)].kind, true, asked[n%len(asked)].body); err != nil {
					t.Fatal(err)
				}
				silent = append(silent, x)
			}
		}
		time.Sleep(2 * time.Second) // what is measured is what is made in that time
		st := must[harp.JobStatus](t)(sys.caller.Job(ids[1]).Status(t.Context()))
		if st.ID != ids[1] {
			t.Errorf("another caller is told of %s", st.ID)
		}
		runtime.KeepAlive(silent)
	})
	t.Logf("grew by %d MiB", grown>>20)
	if grown > 160<<20 { // 32 MiB of answers, and as much that they are made of; the jobs themselves
		t.Errorf("it grew by %d MiB", grown>>20)
	}
}
