package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// manyHosts are hosts with labels, of more than 1 MiB together.
func manyHosts(n int) []dispatcher.HostSpec {
	specs := make([]dispatcher.HostSpec, n)
	for i := range specs {
		specs[i] = dispatcher.HostSpec{Name: fmt.Sprintf("host%05d", i), Labels: map[string]string{
			"datacentre": "frankfurt-1", "rack": fmt.Sprint(i / 40), "role": "web", "operating-system": "debian 13", "team": "platform",
			"number": fmt.Sprint(i),
		}}
	}
	return specs
}

// A registry may be as long as it is: it is read, kept, and there after a restart.
func TestALongRegistryNeverLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		disk, registry := memory.NewDisk(), &changing{}
		registry.set(nil, manyHosts(n)...)
		open := func() *dispatcher.Dispatcher {
			d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: registry}))
			synctest.Wait()
			return d
		}
		knows := func(d *dispatcher.Dispatcher, hosts int) {
			t.Helper()
			caller := d.Caller()
			defer caller.Close()
			got := 0
			for h, err := range caller.Hosts().List(t.Context(), "") {
				if err != nil || h.Labels["number"] != fmt.Sprint(got) {
					t.Fatalf("host %d is %+v, %v", got, h, err)
				}
				got++
			}
			if got != hosts {
				t.Errorf("it knows %d hosts of %d", got, hosts)
			}
			if err := d.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		knows(open(), n)
		registry.set(errors.New("no such script"))
		knows(open(), n)
		registry.set(nil, manyHosts(3)...)
		knows(open(), 3)
		registry.set(errors.New("no such script"))
		knows(open(), 3)
	})
}

// hangingHosts is a registry whose source does not answer, as often as said, until it is
// told to stop.
type hangingHosts struct {
	hangs atomic.Int64
	hosts []dispatcher.HostSpec
}

func (h *hangingHosts) Hosts(ctx context.Context) ([]dispatcher.HostSpec, error) {
	if h.hangs.Add(-1) < 0 {
		return h.hosts, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A source that hangs once is asked again, and holds up no caller that asks meanwhile.
func TestAHungRegistryIsNeverReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := &hangingHosts{hosts: []dispatcher.HostSpec{{Name: "web01"}}}
		hanging.hangs.Store(1)
		sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: hanging})
		time.Sleep(10 * time.Minute)
		if err := sys.d.Health(t.Context()).Checks["registry"]; err == nil {
			t.Error("the dispatcher does not say that its registry hangs")
		}
		time.Sleep(10 * time.Minute)
		if _, err := sys.caller.Hosts().Get(t.Context(), "web01"); err != nil {
			t.Fatalf("after the next refresh: %v", err)
		}
		hanging.hangs.Store(1000)
		go sys.caller.Hosts().Refresh(t.Context()) //nolint:errcheck // it hangs
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := sys.caller.Hosts().Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("who asks meanwhile gets %v after %v", err, time.Since(begun))
		}
		if _, err := sys.caller.Hosts().Refresh(t.Context()); !errors.Is(err, harp.ErrUnavailable) {
			t.Errorf("who waits for it gets %v", err)
		}
	})
}
