package harp

import (
	"errors"
	"strings"
	"testing"
)

func TestDriftOf(t *testing.T) {
	type changes struct {
		Changed bool     `json:"changed,omitempty"`
		Changes []string `json:"changes"`
	}
	for _, c := range []struct {
		result any
		want   DriftMark
	}{
		{map[string]any{"changed": true}, DriftDirty},
		{map[string]any{"changed": false}, DriftClean},
		{map[string]any{"changes": []any{}}, DriftClean},
		{map[string]any{"changes": []any{nil}}, DriftDirty},
		{map[string]any{"changes": map[string]any{}}, DriftClean},
		{map[string]any{"changes": map[string]any{"a": map[string]any{"changed": false}}}, DriftDirty},
		{map[string]any{"changed": false, "changes": []int{1}}, DriftDirty},
		{map[string]any{"changed": true, "changes": []int{}}, DriftDirty},
		{map[string]any{"changed": false, "changes": []int{}}, DriftClean},
		{map[string]any{"changed": "yes", "changes": 3}, DriftUnknown},
		{map[string]any{"changed": nil}, DriftUnknown},
		{map[string]any{"changed": 1, "changes": []int{}}, DriftClean},
		{map[string]any{"Changed": true, "x": map[string]any{"changed": true}}, DriftUnknown},
		{map[int]any{1: true}, DriftUnknown},
		{changes{}, DriftClean}, // whose slice is nil
		{changes{Changes: []string{"a"}}, DriftDirty},
		{map[string]any{}, DriftUnknown},
		{[]any{"changed", true}, DriftUnknown},
		{true, DriftUnknown},
		{"dirty", DriftUnknown},
		{nil, DriftUnknown},
	} {
		v, err := NewValue(c.result)
		if err != nil {
			t.Fatal(err)
		}
		if got := DriftOf(v); got != c.want {
			t.Errorf("%s is %s, want %s", v, got, c.want)
		}
	}
	for _, text := range []string{"", "\x81\xa7changed", "\x81\xa7changed\xc3\xc3", "\x81", "\xc1", "\xdf\xff\xff\xff\xff", "\x81\xa7changes\xdd\xff\xff\xff\xff"} {
		if got := DriftOf(Value(text)); got != DriftUnknown {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// A check of another name is another request, and one of a host alone cannot be.
func TestDriftIsOfABatch(t *testing.T) {
	r, err := NewBatchRequest("web*", "p", nil, DryRun(), Drift("base"))
	if err != nil || r.Batch.Drift != "base" || !r.DryRun {
		t.Fatalf("%+v, %v", r, err)
	}
	other := r
	if other.Batch.Drift = "other"; other.Digest() == r.Digest() {
		t.Error("they are the same")
	}
	_, err = NewRequest("web01", "p", nil, DryRun(), Drift("base"))
	var wrong *FieldError
	if !errors.As(err, &wrong) || wrong.Field != "drift" || !strings.Contains(err.Error(), "batch") {
		t.Error(err)
	}
}
