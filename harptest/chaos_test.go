package harptest_test

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/needs"
)

var (
	seedFlag  = flag.Uint64("seed", number("HARP_SEED", 1), "the first seed of TestChaos")
	seedsFlag = flag.Uint64("seeds", number("HARP_SEEDS", 0), "how many seeds TestChaos tries; 0: some")
	logFlag   = flag.Bool("log", false, "TestChaos logs what dispatcher and agents say")
)

// number is a number from the environment.
func number(name string, other uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return other
}

// TestChaos plays many plans, each made from a seed: a small system, calls of every
// kind and faults of every kind, and checks that every promise was kept. What a seed
// plans, and when, is always the same; what happens at one instant of virtual time
// may happen in another order, and the jitter of heartbeats and of reconnecting is
// not the seed's. A seed that fails is tried again with -seed S -seeds 1 -count N.
func TestChaos(t *testing.T) {
	seeds := *seedsFlag
	switch {
	case seeds > 0:
	case needs.RaceDetector, testing.Short():
		seeds = 10
	default:
		seeds = 50
	}
	begun := time.Now()
	all := tally{ends: map[string]int{}}
	var next atomic.Uint64
	next.Store(*seedFlag)
	var workers sync.WaitGroup
	for range min(seeds, uint64(runtime.GOMAXPROCS(0))) {
		workers.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= *seedFlag+seeds {
					return
				}
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { all.add(chaos(t, seed)) })
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds from %d in %v: %.0f a second", seeds, *seedFlag, time.Since(begun), float64(seeds)/time.Since(begun).Seconds())
	t.Logf("%v", &all)
}

// tally counts how jobs ended: chaos in which nothing happens proves nothing.
type tally struct {
	mu         sync.Mutex
	ends       map[string]int // by state and reason
	executions int
	attempts   int // beyond the first
	gone       int // events that were pruned
	told       int // how often a subscriber was told so
}

func (a *tally) add(h *history) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.executions += len(h.Executions)
	a.gone += len(h.Feed) - len(h.Kept)
	for _, s := range h.Subscribers {
		a.told += len(s.pruned)
	}
	for _, f := range h.Finals {
		if f.err != nil {
			a.ends["refused"]++
			continue
		}
		a.attempts += max(len(f.status.Attempts)-1, 0)
		a.ends[strings.TrimSpace(string(f.status.State)+" "+f.status.Reason)]++
	}
}

func (a *tally) String() string {
	text := fmt.Sprintf("%d executions, %d attempts beyond the first; %d events pruned, told %d times;", a.executions, a.attempts, a.gone, a.told)
	for _, end := range slices.Sorted(maps.Keys(a.ends)) {
		text += fmt.Sprintf(" %s: %d;", end, a.ends[end])
	}
	return text
}

// chaos plays the plan of a seed.
func chaos(t *testing.T, seed uint64) *history {
	p := newPlan(seed)
	log := slog.New(slog.DiscardHandler)
	if *logFlag {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var h *history
	synctest.Test(t, func(t *testing.T) { h = play(t, p, log) })
	if h == nil {
		t.Fatalf("the run was ended\n%v", p)
	}
	for _, what := range check(h) {
		t.Error(what)
	}
	if t.Failed() {
		t.Logf("%v\n%v\nagain: go test ./harptest -run 'TestChaos' -seed %d -seeds 1", p, h, seed)
	}
	return h
}
