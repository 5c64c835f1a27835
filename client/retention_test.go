package client

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// newRule is a rule that has all that a rule can have.
func newRule(name string) harp.RetentionRule {
	return harp.RetentionRule{
		Name: name, Doc: "d", Order: -3, Procedure: "p*", Schedule: "nightly", States: []harp.State{harp.StateFailed, harp.StateLost},
		Labels: map[string]string{"env": "prod"}, Keep: 90 * 24 * time.Hour, MaxBytes: 1 << 40,
	}
}

func TestRetentionRules(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		r, ctx := caller.Retention(), t.Context()
		var want []harp.RetentionStatus
		for n := range harp.MaxRetentionRules { // each as long as it may be: all come in one answer
			rule := newRule(strings.Repeat("n", harp.MaxRetentionName-2) + string(rune('0'+n/10)) + string(rune('0'+n%10)))
			rule.Doc, rule.Labels = strings.Repeat("d", harp.MaxScheduleDoc), map[string]string{}
			for l := range harp.MaxLabels {
				rule.Labels[strings.Repeat("k", harp.MaxLabelKey-1)+string(rune('a'+l))] = strings.Repeat("v", harp.MaxLabelValue)
			}
			if err := r.Put(ctx, rule); err != nil {
				t.Fatal(err)
			}
			want = append(want, harp.RetentionStatus{RetentionRule: rule, ManagedBy: "ops", By: harp.Principal{Kind: "caller", Name: "ada"}, Changed: at(1), Bytes: 7})
		}
		got, err := r.List(ctx)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d rules, %v", len(got), err)
		}
		for n := range got {
			if got[n].Changed = got[n].Changed.UTC(); !got[n].Changed.Equal(want[n].Changed) {
				t.Fatal(got[n].Changed)
			}
			if want[n].Changed = got[n].Changed; !reflect.DeepEqual(got[n], want[n]) {
				t.Fatalf("got %+v", got[n])
			}
		}
		if err := r.Delete(ctx, "n"); err != nil || !reflect.DeepEqual(d.retention.deleted, []string{"n"}) {
			t.Error(d.retention.deleted, err)
		}
		d.retention.kept = harp.Kept{Batch: "b", Ended: at(1), Rule: "n", Keep: harp.NoLimit, MaxBytes: 5, Until: at(2)}
		id := harp.NewID()
		kept, err := r.Explain(ctx, id)
		if err != nil || kept.ID != id || kept.Rule != "n" || kept.Keep != harp.NoLimit || kept.MaxBytes != 5 || !kept.Ended.Equal(at(1)) || !kept.Until.Equal(at(2)) || kept.Batch != "b" {
			t.Errorf("kept %+v, %v", kept, err)
		}
		for method, ask := range map[string]func() error{
			"RetentionRules":      func() error { _, err := r.List(ctx); return err },
			"PutRetentionRule":    func() error { return r.Put(ctx, newRule("x")) },
			"DeleteRetentionRule": func() error { return r.Delete(ctx, "x") },
			"ExplainRetention":    func() error { _, err := r.Explain(ctx, id); return err },
		} {
			d.failing(method, harp.ErrConflict)
			if err := ask(); !errors.Is(err, harp.ErrConflict) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

// badRetention are requests of retention rules that are wrong, and in which field.
func badRetention() []badRequest {
	id := harp.NewID()
	return []badRequest{
		{"set a rule under a bad id", wire.TypeSetRetention, wire.SetRetention{Request: "x", Rule: newRule("n")}, "id"},
		{"set no rule", wire.TypeSetRetention, wire.SetRetention{Request: id}, "name"},
		{"set a rule that keeps nothing", wire.TypeSetRetention, wire.SetRetention{Request: id, Rule: harp.RetentionRule{Name: "n"}}, "keep"},
		{"delete a rule under a bad id", wire.TypeDeleteRetention, wire.DeleteRetention{Request: "x", Name: "n"}, "id"},
		{"delete no rule", wire.TypeDeleteRetention, wire.DeleteRetention{Request: id}, "name"},
		{"explain what is no id", wire.TypeRetentionRules, wire.RetentionQuery{Explain: "x"}, "id"},
	}
}
