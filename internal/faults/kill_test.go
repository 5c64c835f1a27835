//go:build linux && !race

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// underLoad runs a load while faults does its work.
func underLoad(t *testing.T, l *Load, faults func(r *rand.Rand)) (took time.Duration) {
	t.Helper()
	l.Seed = report.Seed
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var loading sync.WaitGroup
	loading.Go(func() { l.Run(ctx) })
	func() {
		defer loading.Wait()
		defer cancel()
		faults(rand.New(rand.NewPCG(report.Seed, 77)))
	}()
	return time.Since(begun)
}

// between waits for a random time between two kills.
func between(r *rand.Rand, least, most time.Duration) {
	time.Sleep(least + time.Duration(r.Int64N(int64(most-least))))
}

// names are the names of so many hosts, in their order.
func names(n int) []string {
	var all []string
	width := max(len(strconv.Itoa(n-1)), 2)
	for i := range n {
		all = append(all, fmt.Sprintf("host%0*d", width, i))
	}
	return all
}

// killDispatcher kills the dispatcher so many times, and starts it again after a while.
func killDispatcher(t *testing.T, f *Fleet, r *rand.Rand, kills int, up, down time.Duration) {
	t.Helper()
	for range kills {
		between(r, 200*time.Millisecond, up)
		f.KillDispatcher()
		between(r, 0, down)
		must(t, f.StartDispatcher())
	}
}

// T1: the dispatcher is killed again and again.
func TestKillDispatcher(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all, hosts := started(t, f, 3, 3)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 400, Workers: 64, Limits: true}
	var back Times
	took := underLoad(t, l, func(r *rand.Rand) {
		for range pick(6, 200) {
			between(r, 200*time.Millisecond, 2*time.Second)
			back = append(back, restartDispatcher(t, f, all[0]))
		}
	})
	holds(t, f, all[0])
	report.Note(t.Name(), "accepting again", back.String())
	loaded(t, l, took)
}

// restartDispatcher kills the dispatcher and starts it again. It returns how long
// it was until it answered.
func restartDispatcher(t *testing.T, f *Fleet, caller *harp.Caller) time.Duration {
	t.Helper()
	f.KillDispatcher()
	begun := time.Now()
	must(t, f.StartDispatcher())
	_, err := caller.Ping(t.Context())
	must(t, err)
	return time.Since(begun)
}

// T2: agents are killed again and again.
func TestKillAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all, hosts := started(t, f, 3, pick(4, 20))
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 400, Workers: 64, Limits: true}
	took := underLoad(t, l, func(r *rand.Rand) {
		for range pick(8, 200) {
			between(r, 200*time.Millisecond, time.Second)
			name := hosts[r.IntN(len(hosts))]
			must(t, f.KillAgent(name))
			must(t, f.StartAgent(name))
		}
	})
	holds(t, f, all[0])
	loaded(t, l, took)
}

// T3: dispatcher and agents are killed, and callers submit the same ids again.
func TestKillBoth(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all, hosts := started(t, f, 3, 3)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 400, Workers: 64, Limits: true}
	took := underLoad(t, l, func(r *rand.Rand) {
		for range pick(4, 100) {
			between(r, 200*time.Millisecond, 2*time.Second)
			f.KillDispatcher()
			name := hosts[r.IntN(len(hosts))]
			must(t, f.KillAgent(name))
			must(t, f.StartDispatcher())
			must(t, f.StartAgent(name))
		}
	})
	holds(t, f, all[0])
	loaded(t, l, took)
}

// T3 with idempotency keys: several call under the same key at once, while the
// dispatcher is killed, and there is one job.
func TestKillWithIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	must(t, f.StartDispatcher())
	var all []*harp.Caller // of one principal, to whom the keys belong
	for range 4 {
		c, err := f.Dial(t.Context(), "caller")
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	startAgents(t, f, all[0], "host00")
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	var keys atomic.Int64
	for i := range 4 {
		calling.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				callUnderKey(t, f, all, fmt.Sprintf("%d-%d", i, n))
				keys.Add(1)
			}
		})
	}
	r := rand.New(rand.NewPCG(report.Seed, 78))
	for range pick(4, 50) {
		between(r, 200*time.Millisecond, time.Second)
		restartDispatcher(t, f, all[0])
	}
	cancel()
	calling.Wait()
	holds(t, f, all[0])
	report.Note(t.Name(), "keys", keys.Load())
}

// callUnderKey lets every caller call under one key, until it knows which job it is.
func callUnderKey(t *testing.T, f *Fleet, all []*harp.Caller, key string) {
	t.Helper()
	ids := make([]string, len(all))
	var calling sync.WaitGroup
	for i, caller := range all {
		calling.Go(func() {
			own := harp.NewID()
			f.History.Invoke(history.Call{ID: own, Host: "host00"})
			var maybe *harp.CallError
			for ids[i] == "" {
				job, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{}, harp.JobID(own),
					harp.IdempotencyKey(key, time.Hour), harp.OfflineWait(harp.NoLimit))
				if err == nil {
					ids[i] = job.ID()
				} else if !errors.As(err, &maybe) {
					t.Errorf("key %s: %v", key, err)
					return
				}
			}
		})
	}
	calling.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("key %s names the jobs %v", key, ids)
			return
		}
	}
	f.History.Change(ids[0], func(c *history.Call) { c.Acked = true })
}
