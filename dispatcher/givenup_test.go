package dispatcher_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// Requests that are given up at any moment leave nothing behind of what all callers have together.
func TestNothingIsHeldForRequestsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	sys := newSystem(t, inMemory, nil, dispatcher.Config{})
	sys.webs(2)
	b := must[*harp.Batch](t)(hostName.Run(t.Context(), sys.caller.Target("web*"), struct{}{}))
	must[harp.BatchStatus](t)(b.Wait(t.Context()))
	waits := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "host.name", nil, harp.StartAfter(time.Now().Add(time.Hour))))
	ask := []func(ctx context.Context){
		func(ctx context.Context) { _, _ = b.Job("web01").Status(ctx) },
		func(ctx context.Context) { _, _ = b.Job("web01").Get(ctx) },
		func(ctx context.Context) { _, _ = waits.Get(ctx) },
		func(ctx context.Context) { _, _ = waits.Why(ctx) },
		func(ctx context.Context) { _, _ = b.Status(ctx) },
		func(ctx context.Context) { _, _ = sys.caller.Target("web*").Preview(ctx, "host.name", nil) },
		func(ctx context.Context) { _, _ = sys.caller.Target("web*").Hosts(ctx) },
		func(ctx context.Context) {
			for _, err := range sys.caller.Jobs(ctx, harp.JobFilter{}) {
				_ = err
			}
		},
		func(ctx context.Context) {
			for _, err := range b.Follow(ctx) {
				_ = err
			}
		},
	}
	var asking sync.WaitGroup
	for n := range 8 {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		asking.Go(func() {
			for range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.Int64N(int64(300*time.Microsecond))))
				ask[r.IntN(len(ask))](ctx)
				cancel()
			}
		})
	}
	asking.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for held := heldByAll(t, sys); held != ""; held = heldByAll(t, sys) {
		if time.Now().After(deadline) {
			t.Fatalf("when all is over the dispatcher holds %s", held)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// heldByAll is what is held of the bounds of all peers; "" if no more than a question takes.
func heldByAll(t *testing.T, sys *system) string {
	t.Helper()
	const question = 64 << 10
	var held []string
	for _, b := range must[harp.ServerInfo](t)(sys.caller.Ping(t.Context())).Bounds {
		if strings.HasSuffix(b.Name, "of all peers") && b.Used > question {
			held = append(held, fmt.Sprintf("%s: %d", b.Name, b.Used))
		}
	}
	return strings.Join(held, ", ")
}
