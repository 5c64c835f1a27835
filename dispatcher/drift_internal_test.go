package dispatcher

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// staleMarks is a store of which the first mark that is read was forgotten as soon as it was read.
type staleMarks struct {
	store.Store
	first chan struct{} // is closed when it was read
	goOn  chan struct{} // until it is returned
}

func (s *staleMarks) Drift(_ context.Context, host, name string) (harp.DriftStatus, error) {
	select {
	case <-s.first:
		return harp.DriftStatus{}, harp.ErrNotFound
	default:
		close(s.first)
	}
	<-s.goOn
	return harp.DriftStatus{Host: host, Name: name, Mark: harp.DriftDirty}, nil
}

// manyMarks is a store in which a host has so many marks.
type manyMarks struct {
	store.Store
	marks []harp.DriftStatus
}

func (s *manyMarks) ListDrift(context.Context, string, int) ([]harp.DriftStatus, string, error) {
	return s.marks, "", nil
}

// Ten times as many marks of a host take about ten times as much to be read as a dispatcher is opened: none is read by copying all that the
// host has.
func TestMarksAreReadWithoutCopyingOthers(t *testing.T) {
	st := &manyMarks{Store: memory.Open(nil)}
	d := opened(t, st, Config{})
	taken := func(marks int) uint64 {
		st.marks = nil
		for n := range marks {
			st.marks = append(st.marks, harp.DriftStatus{Host: fmt.Sprint("of ", marks), Name: fmt.Sprint("name ", n), Mark: harp.DriftClean})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := d.loadDrift(t.Context())
		runtime.ReadMemStats(&after)
		if got := d.hosts.get(st.marks[0].Host).marks(""); err != nil || len(got) != marks {
			t.Fatalf("%d marks of %d, %v", len(got), marks, err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := taken(harp.MaxDrifts), taken(10*harp.MaxDrifts); many > 30*few {
		t.Errorf("%d marks take %d bytes, ten times as many %d", harp.MaxDrifts, few, many)
	}
}

// A mark that is forgotten while it is being read is forgotten in memory too.
func TestAForgottenMarkIsInNoTarget(t *testing.T) {
	st := &staleMarks{Store: memory.Open(nil), first: make(chan struct{}), goOn: make(chan struct{})}
	d := opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
	h := d.hosts.get("web01")
	read, forgotten := make(chan error), make(chan error, 1)
	go func() { read <- d.readDrift(t.Context(), h, "base") }()
	<-st.first
	go func() { forgotten <- d.rereadDrift(t.Context(), "base") }()
	for range 1000 {
		runtime.Gosched()
	}
	close(st.goOn)
	for _, done := range []chan error{read, forgotten} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if marks := h.marks(""); len(marks) != 0 {
		t.Errorf("the marks are %+v", marks)
	}
}
