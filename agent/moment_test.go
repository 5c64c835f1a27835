package agent

import (
	"sync"
	"testing"
)

// TestMoment: a moment that has come is past for everybody, who waited as who comes late,
// and comes once.
func TestMoment(t *testing.T) {
	var m moment
	if m.isPast() {
		t.Fatal("it is past before it has come")
	}
	select {
	case <-m.come():
		t.Fatal("it is told before it has come")
	default:
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(m.wait)
		all.Go(func() { <-m.come() })
		all.Go(m.comes)
	}
	all.Wait()
	if !m.isPast() {
		t.Error("it has come and is not past")
	}
	var alone moment
	alone.comes()
	alone.wait()
	<-alone.come()
}

// TestMomentAllocs: where nobody waits a moment costs nothing.
func TestMomentAllocs(t *testing.T) {
	of := make([]moment, 101)
	n := testing.AllocsPerRun(len(of)-1, func() {
		m := &of[0]
		of = of[1:]
		m.comes()
		m.wait()
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
