package dispatcher_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// registryOf is a registry of so many hosts that never connect.
func registryOf(n int) (specs dispatcher.StaticHosts) {
	for i := range n {
		specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("a-host-with-a-long-name-%04d", i)})
	}
	return specs
}

// longList is a target that lists those of a registry, web01 and web02.
func longList(of dispatcher.StaticHosts) string {
	var names []string
	for _, spec := range of {
		names = append(names, spec.Name)
	}
	return strings.Join(append(names, "web01", "web02"), ",")
}

// A list of names that is too long for a request travels beside it: it is a batch like any other, its
// hosts are confirmed, and it can be submitted, and made again, under the same id.
func TestBatchOfALongList(t *testing.T) {
	const n = 3000
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			registry := registryOf(n)
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: registry})
			sys.webs(2)
			text := longList(registry)
			hosts := sys.caller.Target(text)
			preview := must[harp.Preview](t)(hosts.Preview(ctx, "host.name", nil))
			if preview.Hosts != n+2 || preview.Away != n {
				t.Fatalf("the preview is %+v", preview)
			}
			opts := []harp.Option{harp.JobID(harp.NewID()), harp.Confirmed(preview.Digest), harp.WhenOffline(harp.SkipHost)}
			b := must[*harp.Batch](t)(hosts.Call(ctx, "host.name", nil, opts...))
			s := ended(t, b, harp.BatchSucceeded, "")
			if s.Hosts != n+2 || s.Target != "" || s.Counts[harp.StateSucceeded] != 2 || s.Skipped[harp.ReasonOffline] != n {
				t.Errorf("it ended as %+v", s)
			}
			if got := must[string](t)(hostName.Get(ctx, b.Job("web01"))); got != "web01" {
				t.Errorf("web01 returned %q", got)
			}
			again := must[*harp.Batch](t)(sys.caller.Target("web02,"+text).Call(ctx, "host.name", nil, opts...)) // in another order, one twice
			if again.ID() != b.ID() || !again.Existed() {
				t.Errorf("submitted again it is %s, existed %v", again.ID(), again.Existed())
			}
			if _, err := sys.caller.Target(strings.TrimSuffix(text, ",web02")).Call(ctx, "host.name", nil, opts...); !errors.Is(err, harp.ErrConflict) {
				t.Errorf("another list under its id: %v", err)
			}
			if seen, req, err := b.PreviewRetry(ctx, []string{"succeeded"}); err != nil || seen.Hosts != 2 || req.List == nil {
				t.Errorf("made again it would be %+v, %+v, %v", seen, req, err)
			}
			made := must[*harp.Batch](t)(b.Retry(ctx, []string{"succeeded"}))
			if s := ended(t, made, harp.BatchSucceeded, ""); s.Hosts != 2 || s.RetryOf != b.ID() {
				t.Errorf("made again it is %+v", s)
			}
			isListRefused(t, sys, text)
		})
	}
}

// isListRefused checks what is said of lists that cannot be.
func isListRefused(t *testing.T, sys *system, text string) {
	t.Helper()
	ctx := t.Context()
	for name, c := range map[string]struct {
		target string
		opts   []harp.Option
		want   error
		text   string
	}{
		"unknown hosts": {text + ",nobody1,nobody2", nil, harp.ErrNotFound, "nobody1, nobody2"},
		"more":          {text + ",web*", nil, harp.ErrInvalid, "list of names"},
		"too long":      {text + manyNames(6000), nil, harp.ErrInvalid, "bytes, at most"},
		"max hosts":     {text, []harp.Option{harp.MaxHosts(5)}, harp.ErrRefused, "at most 5"},
		"confirmed":     {text, []harp.Option{harp.Confirmed("d")}, harp.ErrConflict, "confirmed"},
	} {
		_, err := sys.caller.Target(c.target).Call(ctx, "host.name", nil, c.opts...)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("%s: %.300v, ran %s", name, err, harp.RanOf(err))
		}
	}
}

// manyNames are so many long names.
func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%s%d", strings.Repeat("y", 200), i)
	}
	return b.String()
}
