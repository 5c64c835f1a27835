package harp_test

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp"
)

// A dry run on many hosts marks those on which something would be changed. Another batch then calls
// these alone, and the next check finds nothing.
func ExampleDrift() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	run := func(target string, opts ...harp.Option) {
		batch, err := caller.Target(target, opts...).Call(ctx, "base", nil)
		must(err)
		_, err = batch.Wait(ctx)
		must(err)
		for s, err := range caller.Hosts().Drift(ctx, "", "base") {
			must(err)
			fmt.Println(s.Host, "is", s.Mark)
		}
	}
	run("web*", harp.DryRun(), harp.Drift("base"))
	run("host.drift.base=dirty")
	run("web*", harp.DryRun(), harp.Drift("base"))
	// Output:
	// web01 is dirty
	// web01 is dirty
	// web01 is clean
}

// What a check says under a name counts until the name is forgotten.
func ExampleHosts_ForgetDrift() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	batch, err := caller.Target("web01", harp.DryRun(), harp.Drift("base")).Call(ctx, "base", nil)
	must(err)
	_, err = batch.Wait(ctx)
	must(err)

	marks, err := caller.Hosts().ForgetDrift(ctx, "base")
	must(err)
	fmt.Println(marks)
	host, err := caller.Hosts().Get(ctx, "web01")
	must(err)
	fmt.Println(len(host.Drift))
	// Output:
	// 1
	// 0
}
