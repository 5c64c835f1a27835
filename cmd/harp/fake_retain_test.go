package main

import (
	"context"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// RetentionRules returns the rules that were put.
func (f *fake) RetentionRules(context.Context) ([]harp.RetentionStatus, error) {
	f.listed()
	return f.rules, nil
}

// PutRetentionRule keeps a rule.
func (f *fake) PutRetentionRule(_ context.Context, _ string, r harp.RetentionRule) error {
	f.rules = slices.DeleteFunc(f.rules, func(s harp.RetentionStatus) bool { return s.Name == r.Name })
	f.rules = append(f.rules, harp.RetentionStatus{RetentionRule: r, By: harp.Principal{Kind: "caller", Name: "ops"}, Bytes: 3 << 20})
	slices.SortFunc(f.rules, func(a, b harp.RetentionStatus) int { return a.Compare(b.RetentionRule) })
	return nil
}

// DeleteRetentionRule forgets a rule.
func (f *fake) DeleteRetentionRule(_ context.Context, _, name string) error {
	left := slices.DeleteFunc(slices.Clone(f.rules), func(s harp.RetentionStatus) bool { return s.Name == name })
	if len(left) == len(f.rules) {
		return failures.NotFound("retention rule", name)
	}
	f.rules = left
	return nil
}

// ExplainRetention returns what the test has set.
func (f *fake) ExplainRetention(_ context.Context, id string) (harp.Kept, error) {
	k := f.kept
	k.ID = id
	return k, nil
}
