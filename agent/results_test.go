package agent

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// Room for results is given in the order in which it is waited for; one that is longer than there is
// any has it when nobody else has; who stops waiting is in nobody's way.
func TestRoomForResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := results{most: 100}
		var mu sync.Mutex
		var order []string
		over := make(chan struct{})
		take := func(who string, bytes int64, over <-chan struct{}) {
			go func() {
				if !r.take(over, bytes) {
					who += " is over"
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, who)
			}()
			synctest.Wait()
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(order)
			if !slices.Equal(order, want) {
				t.Fatalf("%q went on, not %q", order, want)
			}
			order = nil
		}
		take("first", 60, nil)
		take("long", 200, over)
		take("short", 40, nil)
		expect("first")
		close(over)
		expect("long is over", "short")
		take("longer", 300, nil)
		r.count(-60)
		expect()
		r.count(-40)
		expect("longer")
		r.count(-300)
		r.count(500) // more than expected
		take("next", 1, nil)
		expect()
		r.count(-500)
		expect("next")
		if r.used != 1 || len(r.queue) != 0 {
			t.Errorf("%d bytes are in use, %d wait", r.used, len(r.queue))
		}
	})
}

// TestExpectation: of a procedure that has returned nothing yet some is expected, and then as much as the most so far.
func TestExpectation(t *testing.T) {
	var e expectation
	for _, c := range []struct {
		returned int
		want     int64
	}{{-1, firstResult}, {0, 1}, {5000, 5000}, {70, 5000}, {1 << 20, 1 << 20}} {
		if c.returned >= 0 {
			e.note(c.returned)
		}
		if n := e.bytes(); n != c.want {
			t.Errorf("after a result of %d bytes %d are expected, want %d", c.returned, n, c.want)
		}
	}
}
