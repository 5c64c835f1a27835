package failures_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// TestRefusalsOfBatches checks why batches are refused, and in which words.
func TestRefusalsOfBatches(t *testing.T) {
	seven := []string{"h1", "h2", "h3", "h4", "h5", "h6", "h7"}
	unfit := func(n int, err error) *harp.Preview {
		p := &harp.Preview{Hosts: 9, Unfit: n}
		for _, name := range seven[:n] {
			p.UnfitHosts = append(p.UnfitHosts, harp.UnfitHost{Host: name, Err: err})
		}
		return p
	}
	for name, c := range map[string]struct {
		err, is error
		text    string
	}{
		"few enough":   {failures.CheckHostCount(&harp.BatchOptions{MaxHosts: 3, Subset: "3"}, 3), nil, ""},
		"too many":     {failures.CheckHostCount(&harp.BatchOptions{MaxHosts: 2}, 3), harp.ErrRefused, "refused by the dispatcher: max_hosts: the target selects 3 hosts, at most 2 are to be called"},
		"subset":       {failures.CheckHostCount(&harp.BatchOptions{Subset: "4"}, 3), harp.ErrInvalid, "invalid subset: is 4 of 3 hosts"},
		"fit":          {failures.CheckFit(&harp.Preview{Hosts: 3}), nil, ""},
		"lacking":      {failures.CheckFit(unfit(1, failures.NotFound("procedure", "p"))), harp.ErrNotFound, "no such procedure: p: 1 host, h1"},
		"do not fit":   {failures.CheckFit(unfit(7, &harp.FieldError{Field: "x", Message: "is 1."})), harp.ErrInvalid, "invalid x: is 1: 7 hosts, h1, h2, h3, h4, h5, …"},
		"present":      {failures.CheckPresent(&harp.Preview{Hosts: 3}), nil, ""},
		"away":         {failures.CheckPresent(&harp.Preview{Hosts: 3, Away: 2, AwayHosts: seven[:2]}), harp.ErrUnreachable, ""},
		"away and cut": {failures.CheckPresent(&harp.Preview{Hosts: 300, Away: 200, AwayHosts: slices.Repeat([]string{"h"}, 100)}), harp.ErrUnreachable, ""},
	} {
		if !errors.Is(c.err, c.is) || c.text != "" && c.err.Error() != c.text {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if err := failures.CheckFit(&harp.Preview{Hosts: 3, Unfit: 2}); err == nil || err.Error() != "refused by the dispatcher: cannot run the call: 2 hosts" {
		t.Errorf("unfit hosts that are not named: %v", err)
	}
	if err := failures.CheckFit(&harp.Preview{Hosts: 3, Unfit: 1, UnfitHosts: []harp.UnfitHost{{Host: "h1"}}}); err == nil {
		t.Error("an unfit host of which nothing is said is fit")
	}
	var away *harp.HostError
	if err := failures.CheckPresent(&harp.Preview{Away: 200, AwayHosts: slices.Repeat([]string{"h"}, 100)}); !errors.As(err, &away) || away.Host != "200 hosts, h, h, h, h, h, …" {
		t.Errorf("many that are away: %v", err)
	}
}
