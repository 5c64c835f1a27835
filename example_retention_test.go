package harp_test

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
)

// Rules say how long jobs are kept: the first one that fits holds for a job from its end on.
func ExampleRetention() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	retention := caller.Retention()
	must(retention.Put(ctx, harp.RetentionRule{Name: "audit", Procedure: "greet", Keep: 365 * 24 * time.Hour}))
	must(retention.Put(ctx, harp.RetentionRule{Name: "failures", Order: 1, States: []harp.State{harp.StateFailed}, Keep: 30 * 24 * time.Hour, MaxBytes: 1 << 30}))

	for procedure, args := range map[string]any{"greet": greetArgs{"Ada"}, "disk.check": nil} {
		job, err := caller.Host("web01").Call(ctx, procedure, args)
		must(err)
		_, err = job.Wait(ctx)
		must(err)
		kept, err := retention.Explain(ctx, job.ID())
		must(err)
		fmt.Printf("%s: rule %q, %v\n", procedure, kept.Rule, kept.Until.Sub(kept.Ended))
	}
	// Unordered output:
	// greet: rule "audit", 8760h0m0s
	// disk.check: rule "failures", 720h0m0s
}
