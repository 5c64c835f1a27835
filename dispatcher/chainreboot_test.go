package dispatcher

import (
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// A step waits for its host as long as a boot may take if the step before it boots that, be it the first or a later one; any other
// step waits as the call says.
func TestStepsBehindABoot(t *testing.T) {
	d := opened(t, nil, Config{})
	req, err := harp.NewBatchRequest("web*", "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Batch.Then = []harp.ChainStep{{Procedure: "two"}, {Procedure: "three"}, {Procedure: "four"}}
	req.Batch.RebootWait = 7 * time.Minute
	of := func(boots ...int) class {
		steps := make([]class, 4)
		for _, n := range boots {
			steps[n-1].proc.Traits = []string{harp.TraitEndsReboot}
		}
		steps[0].then = steps[1:]
		return steps[0]
	}
	wants := [][]time.Duration{{req.Batch.RebootWait, 0, 0}, {0, req.Batch.RebootWait, 0}, {0, 0, req.Batch.RebootWait}, {0, 0, 0}, {req.Batch.RebootWait, 0, req.Batch.RebootWait}}
	_, further, err := d.grantSteps(req, []class{of(1), of(2), of(3), of(4), of(1, 3)})
	if err != nil || len(further) != 3 {
		t.Fatal(further, err)
	}
	for class, want := range wants {
		for n, s := range further {
			if got := s.Classes[class].OfflineWait; got != want[n] {
				t.Errorf("on hosts of class %d step %d waits %v, want %v", class, n+2, got, want[n])
			}
		}
	}
}

// Which step comes next is up to how the one that boots the host ended: what is left out between them does not wait, and what comes behind
// it does.
func TestStepsBehindABootThatAreLeftOut(t *testing.T) {
	d := opened(t, nil, Config{})
	req, err := harp.NewBatchRequest("web*", "boot", nil)
	if err != nil {
		t.Fatal(err)
	}
	boots := class{proc: harp.ProcedureDoc{Name: "boot", Traits: []string{harp.TraitEndsReboot}}}
	for _, c := range []struct {
		on    []harp.Ending
		waits []bool
	}{
		{[]harp.Ending{harp.OnFailed, harp.OnSucceeded}, []bool{true, true}},
		{[]harp.Ending{harp.OnFailed, harp.OnFailed, "", ""}, []bool{true, false, true, false}},
		{[]harp.Ending{harp.OnEnded, "", harp.OnFailed}, []bool{true, false, false}},
		{[]harp.Ending{"", harp.OnFailed, harp.OnEnded}, []bool{true, true, true}},
		{[]harp.Ending{"", "", ""}, []bool{true, false, false}},
	} {
		req.Batch.Then, boots.then = nil, nil
		for _, on := range c.on {
			req.Batch.Then, boots.then = append(req.Batch.Then, harp.ChainStep{Procedure: "then", On: on}), append(boots.then, class{})
		}
		_, further, err := d.grantSteps(req, []class{boots})
		if err != nil {
			t.Fatal(err)
		}
		for n, s := range further {
			if got := s.Classes[0].OfflineWait; (got == req.Batch.RebootTime()) != c.waits[n] {
				t.Errorf("on %q: step %d waits %v", c.on, n+2, got)
			}
		}
	}
}
