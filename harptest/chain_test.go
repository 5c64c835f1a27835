package harptest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
)

// booting is machines that are booted anew, each once.
type booting struct {
	mu     sync.Mutex
	booted map[string]bool // guarded by mu
	asked  chan string     // those that are about to
}

func (b *booting) isBooted(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booted[host]
}

func (b *booting) boot(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.booted[host] = true
}

// TestChainOverReboots installs something, reboots and checks on 20 hosts; one fails to install, and the dispatcher is killed
// while the others are down. Each of these is checked once, and nothing more begins on the one that failed.
func TestChainOverReboots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		var hosts []string
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("web%02d", i))
		}
		failing, others := hosts[7], slices.Concat(hosts[:7], hosts[8:])
		machines := &booting{booted: map[string]bool{}, asked: make(chan string, n)}
		witness := &harptest.Witness{}
		step := func(do func(ctx context.Context, host string) error) func(context.Context, struct{}) (string, error) {
			return harptest.Watch(witness, func(ctx context.Context, _ struct{}) (string, error) {
				info, _ := agent.FromContext(ctx)
				return info.Host, do(ctx, info.Host)
			})
		}
		sys := harptest.New(t, harptest.Options{
			Agents: hosts, DiskTime: 5 * time.Millisecond, Dispatcher: dispatcher.Config{Heartbeat: time.Second},
			Register: func(a *agent.Agent) {
				agent.Handle(a, harp.NewProc[struct{}, string]("install"), step(func(_ context.Context, host string) error {
					if host == failing {
						return agent.Errorf("no_room", nil, "the disk is full")
					}
					return nil
				}))
				agent.Handle(a, harp.NewProc[struct{}, string]("reboot"), step(func(ctx context.Context, host string) error {
					if machines.isBooted(host) {
						return nil
					}
					machines.asked <- host
					<-ctx.Done()
					return context.Cause(ctx)
				}))
				agent.Handle(a, harp.NewProc[struct{}, string]("check"), step(func(context.Context, string) error { return nil }))
			},
		})
		batch, err := sys.Caller().Target("web*").Chain(t.Context(), []harp.Step{
			{Procedure: "install"},
			{Procedure: "reboot", Options: []harp.Option{harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 3})}},
			{Procedure: "check"},
		})
		if err != nil {
			t.Fatal(err)
		}
		checked := make(chan harp.Result, 1) // waited for from before the first step has ended
		go func() {
			res, err := batch.Job(others[0], 3).Wait(t.Context())
			if err != nil {
				t.Error("wait for a step: ", err)
			}
			checked <- res
		}()
		for range others {
			host := <-machines.asked
			machines.boot(host)
			sys.CrashAgent(host)
		}
		sys.CrashDispatcher()
		for _, host := range others[:10] {
			sys.StartAgent(host)
		}
		time.Sleep(20 * time.Second)
		sys.StartDispatcher()
		for _, host := range others[10:] {
			sys.StartAgent(host)
		}
		status, err := batch.Wait(t.Context())
		if err != nil || status.State != harp.BatchFailed || status.Counts[harp.StateSucceeded] != n-1 || status.Counts[harp.StateFailed] != 1 {
			t.Fatalf("the batch is %+v, %v", status, err)
		}
		if res := <-checked; res.State != harp.StateSucceeded || res.Value.String() != `"`+others[0]+`"` {
			t.Errorf("the third step came to %+v", res)
		}
		ran := map[string]int{}
		for _, x := range witness.Executions() {
			ran[x.Procedure+" "+x.Host]++
		}
		for _, host := range others {
			if ran["install "+host] != 1 || ran["check "+host] != 1 || ran["reboot "+host] != 2 {
				t.Errorf("on %s %d installs, %d checks, and %d reboots ran", host, ran["install "+host], ran["check "+host], ran["reboot "+host])
			}
		}
		for step := 2; step <= 3; step++ {
			s, err := batch.Job(failing, step).Status(t.Context())
			if err != nil || s.State != harp.StateCancelled || s.Reason != harp.ReasonChain || s.Started != harp.DidNotRun || s.Step != step {
				t.Errorf("step %d of the one that failed is %+v, %v", step, s, err)
			}
		}
		if ran["reboot "+failing]+ran["check "+failing] != 0 {
			t.Errorf("on the one that failed %v ran", ran)
		}
		results := map[string]int{}
		for r, err := range batch.Results(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			results[r.Host] = r.Step
		}
		if len(results) != n || results[failing] != 1 || results[others[0]] != 3 {
			t.Errorf("the results are of steps %v", results)
		}
	})
}
