package agent

import (
	"sync"
	"testing"
)

// TestLatch checks that a latch fires once, for those that waited as for those that come later.
func TestLatch(t *testing.T) {
	var m latch
	if m.fired() {
		t.Fatal("it is past before it has fired")
	}
	select {
	case <-m.done():
		t.Fatal("it is told before it has fired")
	default:
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(m.wait)
		all.Go(func() { <-m.done() })
		all.Go(m.fire)
	}
	all.Wait()
	if !m.fired() {
		t.Error("it has fired and is not past")
	}
	var alone latch
	alone.fire()
	alone.wait()
	<-alone.done()
}

// TestLatchAllocs checks that a latch costs nothing where nobody waits.
func TestLatchAllocs(t *testing.T) {
	of := make([]latch, 101)
	n := testing.AllocsPerRun(len(of)-1, func() {
		m := &of[0]
		of = of[1:]
		m.fire()
		m.wait()
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
