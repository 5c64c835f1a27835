package inventory

import (
	"testing"

	"github.com/harpcaller/harp"
)

// FuzzAttributes takes apart what an agent may say are its facts.
func FuzzAttributes(f *testing.F) {
	for _, facts := range []any{
		map[string]any{"os": "linux", "addresses": []string{"10.0.0.1", "fe80::1%eth0", "x"}, "cpu": map[string]any{"n": 4, "flags": []string{"a"}}}, map[string]any{"a.b": 1}, []int{1}, nil,
	} {
		v, err := harp.NewValue(facts)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(v), "role", "web")
	}
	f.Fuzz(func(t *testing.T, facts []byte, label, value string) {
		a := NewAttributes(map[string]string{label: value}, harp.Value(facts))
		if n := len(a.values); n < 1 || n > MaxFacts+1 || len(a.keys.Value()) > (MaxFacts+1)*(maxPath+2)+len(label) {
			t.Errorf("%d attributes with %d bytes of keys", n, len(a.keys.Value()))
		}
		if len(a.Addresses()) > len(facts) {
			t.Errorf("%d addresses in %d bytes", len(a.Addresses()), len(facts))
		}
	})
}
