package rows

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// TestClaimsOverTheBeginningOfAWindow: of 10,000 jobs that 100 goroutines claim while the clock comes to the beginning of a window, none is claimed
// in the window or so shortly before it that it might start there; the others wait for its end.
func TestClaimsOverTheBeginningOfAWindow(t *testing.T) {
	const hosts, each, tick = 100, 100, 500 * time.Microsecond
	begin, end := noon.Add(3*time.Second), noon.Add(time.Hour)
	s := opened(t, newTrial(), Options{})
	expanded := window.Window{Name: "w", Source: window.Once{From: begin, To: end}}.Expand(noon.Add(-time.Hour), noon.Add(day))
	gate := window.NewGate(noon.Add(-time.Hour), noon.Add(day), []*window.Expanded{expanded}, nil)
	var names []string
	for n := range hosts {
		name := fmt.Sprint("h", n)
		var calls []store.Submission
		for range each {
			calls = append(calls, call(name))
		}
		submitted(t, s, calls...)
		s.SetHolds(name, &gate)
		s.SetGate(name, store.Gate{Open: true, Most: 1 << 20})
		names = append(names, name)
	}
	var ticks, claimed atomic.Int64
	var claiming sync.WaitGroup
	for _, name := range names {
		claiming.Go(func() {
			for has := 0; has < each; {
				now := noon.Add(time.Duration(ticks.Add(1)) * tick)
				jobs, err := s.Claim(t.Context(), []string{name}, 1, now)
				if err != nil {
					t.Error(err)
					return
				}
				has += len(jobs)
				for _, j := range jobs {
					if claimed.Add(1); !j.Since.Before(begin.Add(-window.Margin)) {
						t.Errorf("a job was claimed %v before the window", begin.Sub(j.Since))
					}
				}
				if now.After(begin.Add(time.Second)) { // each host has met the window
					return
				}
			}
		})
	}
	claiming.Wait()
	if n := claimed.Load(); n == 0 || n == hosts*each {
		t.Errorf("%d of %d jobs were claimed before it", n, hosts*each)
	}
	waiting := 0
	for _, name := range names {
		page, err := s.List(t.Context(), store.Filter{Host: name, States: []harp.State{harp.StateQueued}, Limit: each}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			if waiting++; j.Reason != harp.ReasonWindow {
				t.Fatalf("one waits for %q", j.Reason)
			}
		}
	}
	if n := int(claimed.Load()); waiting != hosts*each-n {
		t.Errorf("%d wait, and %d were claimed", waiting, n)
	}
	atEnd := 0
	for more := true; more; {
		did, err := s.Advance(t.Context(), end)
		if err != nil {
			t.Fatal(err)
		}
		atEnd, more = atEnd+len(did.Claimed), did.More
	}
	jobs, err := s.Claim(t.Context(), names, hosts*each, end)
	if atEnd += len(jobs); err != nil || atEnd != waiting {
		t.Errorf("at its end %d are claimed of %d, %v", atEnd, waiting, err)
	}
}
