package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// halfForgotten is a store in which a name is forgotten and that is answered by an error, and in which no mark can be read while the test says so.
type halfForgotten struct {
	store.Store
	err    error
	unread atomic.Bool
}

func (s *halfForgotten) ForgetDrift(ctx context.Context, name string, op store.Operation) (int, error) {
	n, err := s.Store.ForgetDrift(ctx, name, op)
	return n, cmp.Or(s.err, err)
}

func (s *halfForgotten) Drift(ctx context.Context, host, name string) (harp.DriftStatus, error) {
	if s.unread.Load() {
		return harp.DriftStatus{}, errors.New("trouble")
	}
	return s.Store.Drift(ctx, host, name)
}

// Marks that are forgotten are in no target, also where an error ended that between two commits, or where the store could not be read
// just then: asked again it would not be there, and nobody would look.
func TestMarksThatAreForgottenInPartAreInNoTarget(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		unread bool
	}{
		"all":                {},
		"ended by an error":  {err: errors.New("trouble")},
		"unread for a while": {unread: true},
		"both":               {err: errors.New("trouble"), unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &halfForgotten{Store: memory.Open(nil), err: c.err}
				d := opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
				h := d.hosts.get("web01")
				h.setDrift("base", harp.DriftStatus{Host: "web01", Name: "base", Mark: harp.DriftDirty})
				st.unread.Store(c.unread)
				_, err := d.service(harp.Principal{Kind: "process"}).ForgetDrift(t.Context(), harp.NewID(), "base")
				if c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("it gives %v", err)
				}
				time.Sleep(2 * readAgain)
				st.unread.Store(false)
				time.Sleep(2 * readAgain)
				if marks := h.marks(""); len(marks) != 0 {
					t.Errorf("the marks are %+v", marks)
				}
			})
		})
	}
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
