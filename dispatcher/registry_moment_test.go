package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
)

// A target selects hosts by the labels of one registry, though that is read anew meanwhile.
func TestHostsOfATargetAreOfOneRegistry(t *testing.T) {
	registry := func(leader int) (specs []HostSpec) {
		for n := range 2 * matchedAtOnce {
			role := "follower"
			if n == leader {
				role = "leader"
			}
			specs = append(specs, HostSpec{Name: fmt.Sprintf("web%04d", n), Labels: map[string]string{"role": role}})
		}
		return specs
	}
	const target = "role=leader"
	for name, count := range map[string]func(*fleet) (int, error){
		"called": func(f *fleet) (int, error) {
			found, err := f.findCandidates(t.Context(), target, "work", harp.Value{0xc0})
			if err != nil {
				return 0, err
			}
			return len(found.hosts), nil
		},
		"listed": func(f *fleet) (int, error) {
			page, _, err := f.selectPage(t.Context(), target, "", pageSize)
			return len(page), err
		},
		"explained": func(f *fleet) (int, error) {
			explained, err := f.explain(t.Context(), target, "")
			return explained.Hosts, err
		},
	} {
		for _, c := range []struct{ from, to, looks int }{
			{0, 2*matchedAtOnce - 1, 4}, // both would be selected
			{2*matchedAtOnce - 1, 0, 4}, // neither
			{0, 0, 2},                   // read anew, and not changed
		} {
			d, err := Open(t.Context(), memory.Open(nil), Config{Hosts: StaticHosts(registry(c.from))})
			if err != nil {
				t.Fatal(err)
			}
			looks, now := 0, d.fleet.now
			d.fleet.now = func() time.Time {
				if looks++; looks == 2 {
					d.setRegistry(registry(c.to))
				}
				return now()
			}
			if n, err := count(d.fleet); err != nil || n != 1 || looks != c.looks {
				t.Errorf("%s, from %d to %d: it selects %d hosts, after %d looks, %v", name, c.from, c.to, n, looks, err)
			}
			if err := d.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Where the registry has changed while hosts were looked for, nothing changes it while they are again.
func TestRegistryStaysWhileHostsAreLookedForAgain(t *testing.T) {
	hs := newHosts()
	errs, looks := []error{errors.New("first"), errors.New("second")}, 0
	err := hs.findInOneRegistry(func() error {
		if looks++; looks == 1 {
			hs.list([]HostSpec{{Name: "web01", Address: "10.0.0.1"}})
		} else if hs.listing.TryLock() {
			t.Error("it may be changed")
		}
		return errs[looks-1]
	})
	if looks != len(errs) || !errors.Is(err, errs[1]) {
		t.Errorf("after %d looks: %v", looks, err)
	}
	for what, specs := range map[string][]HostSpec{
		"another address": {{Name: "web01", Address: "10.0.0.2"}},
		"another label":   {{Name: "web01", Address: "10.0.0.2", Labels: map[string]string{"a": "b"}}},
		"none":            nil,
	} {
		hs := newHosts()
		before := []HostSpec{{Name: "web01", Address: "10.0.0.1"}}
		hs.list(before)
		was := hs.listedAnew()
		if hs.list(before); hs.listedAnew() != was {
			t.Error("the same hosts count as others")
		}
		if hs.list(specs); hs.listedAnew() != was+1 {
			t.Errorf("%s: it has changed %d times", what, hs.listedAnew()-was)
		}
	}
}
