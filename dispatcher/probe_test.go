package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
)

// ping asks the hosts of a target whether they are there.
func ping(ctx context.Context, caller *harp.Caller, text string) (all []harp.HostPing, err error) {
	for p, err := range caller.Hosts().Ping(ctx, text) {
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Agents are asked whether they are there; of hosts that are away it is said that they could not be.
func TestPingingHosts(t *testing.T) {
	var specs dispatcher.StaticHosts
	for i := range 2100 { // more than a page
		specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%04d", i)})
	}
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: specs})
			sys.agent("web01", greeter)
			sys.agent("web02", greeter)
			got := must[[]harp.HostPing](t)(ping(t.Context(), sys.caller, "*"))
			if len(got) != 2102 {
				t.Fatalf("%d hosts were asked", len(got))
			}
			for i, p := range got {
				want := i >= 2100
				if p.Online != want || p.Answered != want || p.LastHeard.IsZero() == want || !want && p.Took != 0 {
					t.Errorf("it said %+v", p)
				}
			}
			if got := must[[]harp.HostPing](t)(ping(t.Context(), sys.caller, "web02")); len(got) != 1 || got[0].Host != "web02" || !got[0].Answered {
				t.Errorf("one host said %+v", got)
			}
			for text, want := range map[string]error{
				"": harp.ErrInvalid, "a b": harp.ErrInvalid, "nobody": harp.ErrNotFound, "nobody*": harp.ErrNotFound,
			} {
				if _, err := ping(t.Context(), sys.caller, text); !errors.Is(err, want) {
					t.Errorf("%q gives %v", text, err)
				}
			}
		})
	}
}

// An agent that is silent is asked once, however many want to know, and what it answers is an answer
// to all of them.
func TestASilentAgentIsAskedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		var asked atomic.Int64
		go func() {
			for {
				f, err := a.control.Receive(context.Background())
				if err != nil {
					return
				}
				if f.Type == wire.TypeForget {
					asked.Add(1)
				}
			}
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		askTwice := func(answered bool, after time.Duration) {
			t.Helper()
			begun := time.Now()
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					got := must[[]harp.HostPing](t)(ping(t.Context(), sys.caller, "web01"))
					if len(got) != 1 || !got[0].Online || got[0].Answered != answered || answered && got[0].Took != after {
						t.Errorf("it said %+v", got)
					}
				})
			}
			if answered {
				time.Sleep(after)
				a.sendFrame(t, wire.TypeReady, wire.Ready{})
			}
			both.Wait()
			if waited := time.Since(begun); waited != after {
				t.Errorf("they waited %v", waited)
			}
		}
		askTwice(false, 3*time.Second)
		askTwice(true, time.Second)
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		askTwice(true, 2*time.Second)
		if n := asked.Load(); n != 2 {
			t.Errorf("after it had answered it was asked %d times", n)
		}
	})
}

// Who gives a ping up does not wait for the agents.
func TestAPingIsGivenUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := ping(ctx, sys.caller, "web01"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 2*time.Second {
			t.Errorf("after %v it gives %v", time.Since(begun), err)
		}
	})
}

// The hosts of a batch are asked first where that is wanted: who does not answer counts as away. That it takes
// a while keeps nothing else of its caller waiting.
func TestHostsOfABatchAreAsked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}
		must[*rawAgent](t)(sys.greetAs(ctx, "web01", hello, wire.Held{})) // does not answer
		asked := must[*rawAgent](t)(sys.greetAs(ctx, "web02", hello, wire.Held{}))
		go asked.answerProbes()
		calls := asked.exchanges(t)
		synctest.Wait()
		time.Sleep(6 * time.Second)

		var other sync.WaitGroup
		other.Go(func() {
			time.Sleep(time.Second)
			begun := time.Now()
			must[harp.Preview](t)(sys.caller.Target("web02").Preview(ctx, "work", nil))
			if took := time.Since(begun); took > 0 {
				t.Errorf("another request of the caller took %v", took)
			}
		})
		begun := time.Now()
		_, err := sys.caller.Target("web*").Call(ctx, "work", nil, harp.Probe(), harp.WhenOffline(harp.FailFast))
		if !errors.Is(err, harp.ErrUnreachable) || !strings.Contains(err.Error(), "1 host, web01") || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v it is %v", time.Since(begun), err)
		}
		other.Wait()
		if _, err := sys.caller.Target("web01,web09").Call(ctx, "work", nil, harp.Probe()); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("a host that is not known: %v", err)
		}

		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "work", nil, harp.Probe(), harp.WhenOffline(harp.SkipHost)))
		if m := <-calls; m.call.Host != "web02" {
			t.Errorf("called is %s", m.call.Host)
		}
		s := must[harp.BatchStatus](t)(b.Status(ctx))
		if s.Skipped[harp.ReasonOffline] != 1 || s.Reached != 2 {
			t.Errorf("the batch is %+v", s)
		}
		if j := must[harp.JobStatus](t)(b.Job("web01").Status(ctx)); j.State != harp.StateExpired || j.Reason != harp.ReasonOffline {
			t.Errorf("the silent host is %s(%s)", j.State, j.Reason)
		}
	})
}

// A preview asks the hosts as the batch would, also of one that is made again, and says which are silent.
func TestHostsOfAPreviewAreAsked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}
		must[*rawAgent](t)(sys.greetAs(ctx, "web01", hello, wire.Held{})) // does not answer
		asked := must[*rawAgent](t)(sys.greetAs(ctx, "web02", hello, wire.Held{}))
		go asked.answerProbes()
		synctest.Wait()
		time.Sleep(6 * time.Second)
		check := func(what string, p harp.Preview, hosts int) {
			t.Helper()
			if p.Hosts != hosts || p.Away != 1 || !slices.Equal(p.AwayHosts, []string{"web01"}) || p.Refusal.Code != "unreachable" {
				t.Errorf("%s: it is %+v", what, p)
			}
		}
		fast := harp.WhenOffline(harp.FailFast)
		if p := must[harp.Preview](t)(sys.caller.Target("web*").Preview(ctx, "work", nil, fast)); p.Away != 0 || p.Refusal.Code != "" {
			t.Errorf("without being asked for: it is %+v", p)
		}
		check("a call", must[harp.Preview](t)(sys.caller.Target("web*").Preview(ctx, "work", nil, harp.Probe(), fast)), 2)
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(ctx, "work", nil, harp.Probe(), harp.WhenOffline(harp.SkipHost)))
		ended(t, b, harp.BatchFailed, harp.BatchReasonNoHost)
		p, _, err := b.PreviewRetry(ctx, []string{"expired"}, harp.Probe(), fast)
		if err != nil {
			t.Fatal(err)
		}
		check("a call again", p, 1)
	})
}
