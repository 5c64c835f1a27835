package dispatcher

import (
	"context"
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
