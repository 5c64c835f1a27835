package harp

import "testing"

// A field without a tag takes the keys that package encoding/json would give it.
func TestKeysInAnotherCase(t *testing.T) {
	type fields struct {
		Code  int
		Exact int `json:"exact"`
		EXACT int
	}
	v, err := NewValue(map[string]any{"code": 5, "exact": 1, "EXACT": 2, "other": 3})
	if err != nil {
		t.Fatal(err)
	}
	var got fields
	if err := v.Decode(&got); err != nil || got != (fields{5, 1, 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if v, err = NewValue(map[string]any{"CODE": 5, "Code": 6, "Exact": 7}); err != nil {
		t.Fatal(err)
	}
	got = fields{}
	if err := v.Decode(&got); err != nil || got.Exact != 7 || got.EXACT != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}
