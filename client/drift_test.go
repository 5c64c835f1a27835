package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// someDrift are marks of hosts, each of which has two.
func someDrift(hosts int) (all []harp.DriftStatus) {
	for n := range hosts {
		for _, name := range []string{"base", "other"} {
			all = append(all, harp.DriftStatus{Host: fmt.Sprintf("h%03d", n), Name: name, Mark: harp.DriftDirty, Since: at(n), Checked: at(n + 1), Job: harp.NewID()})
		}
	}
	return all
}

func TestDriftIsListed(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.drift, d.pageSize = someDrift(20), 7
		list := func(target, name string) (got []harp.DriftStatus) {
			t.Helper()
			for s, err := range caller.Hosts().Drift(t.Context(), target, name) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, s)
			}
			return got
		}
		if got := list("", ""); !slices.Equal(got, d.drift) {
			t.Errorf("got %+v, want %+v", got, d.drift)
		}
		if got := list("h003", "other"); !slices.Equal(got, d.drift[7:8]) {
			t.Errorf("got %+v, want %+v", got, d.drift[7:8])
		}
	})
}

func TestDriftIsForgotten(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		if n, err := caller.Hosts().ForgetDrift(t.Context(), "base"); n != len("base") || err != nil {
			t.Error(n, err)
		}
		for _, name := range []string{"", strings.Repeat("n", harp.MaxDriftName+1), "\xff"} {
			_, err := caller.Hosts().ForgetDrift(t.Context(), name)
			wantField(t, err, "name")
		}
		if d.count("ForgetDrift") != 1 {
			t.Errorf("asked %d times", d.count("ForgetDrift"))
		}
		d.failing("ForgetDrift", harp.ErrNotFound)
		if _, err := caller.Hosts().ForgetDrift(t.Context(), "base"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
	})
}

// badDrift are requests of marks that are wrong, and in which field.
func badDrift() []badRequest {
	return []badRequest{
		{"drift with a bad limit", wire.TypeDrift, wire.DriftQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"forget drift under a bad id", wire.TypeForgetDrift, wire.ForgetDrift{Request: "x", Name: "n"}, "id"},
		{"forget drift of no name", wire.TypeForgetDrift, wire.ForgetDrift{Request: harp.NewID()}, "name"},
	}
}
