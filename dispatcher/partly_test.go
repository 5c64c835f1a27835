package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// Where more hosts are changed than one commit takes, and one that is not the first fails, it is said how many were changed; the same again
// finishes it.
func TestHostsThatAreChangedInPart(t *testing.T) {
	const hosts = 1200
	var specs dispatcher.StaticHosts
	for i := range hosts {
		specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%04d", i)})
	}
	long := strings.Repeat("v", harp.MaxLabelValue)
	for name, change := range map[string]struct {
		do  func(ctx context.Context, c *harp.Caller) (int, error)
		has func(h *harp.HostStatus) bool
	}{
		"labelled": {func(ctx context.Context, c *harp.Caller) (int, error) {
			return c.Hosts().Label(ctx, "db*", map[string]string{"role": "db", "a": long, "b": long, "c": long})
		}, func(h *harp.HostStatus) bool { return h.Labels["role"] == "db" }},
		"paused": {func(ctx context.Context, c *harp.Caller) (int, error) {
			return c.Hosts().Pause(ctx, "db*", "", time.Time{})
		}, func(h *harp.HostStatus) bool { return h.Pause != nil }},
	} {
		for _, w := range []wiring{embedded, inMemory} {
			t.Run(name+"/"+string(w), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := memory.NewDisk()
					full := func() { disk.SetSpace(store.SpaceCritical) }
					sys := newSystem(t, w, &leavingStore{memory.OpenDisk(disk, nil), func() { full() }}, dispatcher.Config{Hosts: specs})
					changed := func() (n int) {
						for _, h := range allOf(t, sys.caller.Hosts().List(t.Context(), "")) {
							if change.has(&h) {
								n++
							}
						}
						return n
					}
					_, err := change.do(t.Context(), sys.caller)
					n := changed()
					if n == 0 || n == hosts {
						t.Fatalf("%d hosts are %s, %v", n, name, err)
					}
					if want := fmt.Sprintf("%d of %d hosts were %s", n, hosts, name); !errors.Is(err, harp.ErrNoSpace) || !strings.Contains(err.Error(), want) {
						t.Errorf("it says %v, and not that %s", err, want)
					}
					full = func() {}
					disk.SetSpace(store.SpacePlenty)
					if count, err := change.do(t.Context(), sys.caller); count != hosts || err != nil || changed() != hosts {
						t.Errorf("again it is %d, %v, and %d hosts are %s", count, err, changed(), name)
					}
				})
			})
		}
	}
}
