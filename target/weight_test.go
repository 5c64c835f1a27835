package target_test

import (
	"testing"

	"github.com/harpcaller/harp/target"
)

// What groups have counts where they are used, and what takes longer to match counts more.
func TestWeight(t *testing.T) {
	groups := map[string]string{"g": "a,b,c"}
	for text, want := range map[string]int{
		"a": 1, "a,b": 2, "role=web": 100, "a or role=web and not env=prod": 201, "@g": 103, "@g or @g": 203,
	} {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(func(name string) (string, error) { return groups[name], nil })
		if err != nil || m.Weight() != want {
			t.Errorf("%s weighs %d, %v, want %d", text, m.Weight(), err, want)
		}
	}
	for _, heavier := range [][2]string{{"~a[0-9]{100}", "~a[0-9]"}, {"~a", "a*"}} {
		var weights [2]int
		for i, text := range heavier {
			e, err := target.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			m, err := e.Compile(nil)
			if err != nil {
				t.Fatal(err)
			}
			weights[i] = m.Weight()
		}
		if weights[0] <= weights[1] {
			t.Errorf("%v weigh %v", heavier, weights)
		}
	}
}
