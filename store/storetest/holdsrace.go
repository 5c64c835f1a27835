package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// testHoldsRace submits and claims jobs in many goroutines while a window begins.
func testHoldsRace(w *world) {
	const goroutines = 100
	each := 100
	if needs.RaceDetector {
		each = 20
	}
	hosts := []string{"h", "closes"}
	opened := store.Gate{Open: true, Most: 2 * goroutines * each}
	for _, h := range hosts {
		w.st.SetGate(h, opened)
		w.setHolds(h, w.windowOf(2*time.Second, time.Hour))
	}
	begin := w.now
	var clock atomic.Int64
	tick := func() time.Time { // each call has a time of its own, of three seconds
		return begin.Add(time.Duration(clock.Add(1)) * 3 * time.Second / time.Duration(3*goroutines*each))
	}
	var mu sync.Mutex
	started := map[string]int{} // guarded by mu
	note := func(now time.Time, jobs ...*store.Job) {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range jobs {
			if started[j.ID]++; !now.Before(begin.Add(time.Second)) || started[j.ID] > 1 || j.State != harp.StateSent {
				w.Errorf("number %d is %s %v after the beginning, for the %d. time", j.No, j.State, now.Sub(begin), started[j.ID])
			}
		}
	}
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for i := range each {
				host := hosts[i%2]
				if i%2 == 1 {
					w.st.SetGate(host, store.Gate{Reason: harp.ReasonOffline})
				}
				now := tick()
				out, err := w.st.Submit(w.ctx(), []store.Submission{w.submission(on(host), priority(n%2))}, now)
				if err != nil || out[0].Err != nil {
					w.Errorf("submit: %v, %+v", err, out)
					return
				}
				if out[0].Job.State == harp.StateSent {
					note(now, out[0].Job)
				}
				w.st.SetGate(host, opened)
				now = tick()
				jobs, err := w.st.Claim(w.ctx(), hosts, 2, now)
				if err != nil {
					w.Errorf("claim: %v", err)
				}
				note(now, jobs...)
				if i%10 == 0 {
					now = tick()
					did, err := w.st.Advance(w.ctx(), now)
					if err != nil {
						w.Errorf("advance: %v", err)
					}
					note(now, did.Claimed...)
				}
			}
		})
	}
	all.Wait()
	before := len(started)
	w.now = begin.Add(time.Hour)
	for _, j := range w.advance().Claimed {
		started[j.ID]++
	}
	for id, n := range started {
		if n != 1 {
			w.Fatalf("job %s was started %d times", id, n)
		}
	}
	if len(started) != goroutines*each || before == 0 || before == len(started) {
		w.Fatalf("%d jobs were started before a window and %d in all", before, len(started))
	}
}
