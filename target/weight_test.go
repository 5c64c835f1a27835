package target_test

import (
	"fmt"
	"strings"
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
		m, err := e.Compile(target.NewGroups(func(name string) (string, error) { return groups[name], nil }))
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

// A group is read once for all targets, each of which it weighs as if it were alone, with the groups it uses.
func TestGroupsAreShared(t *testing.T) {
	read := map[string]int{}
	texts := map[string]string{"inner": "a,b,c", "outer": "@inner or role=web", "twice": "@outer or @inner"}
	of := func(name string) (string, error) { read[name]++; return texts[name], nil }
	shared := target.NewGroups(of)
	for _, text := range []string{"@outer", "@inner", "@twice", "@twice and not @outer", "@outer and x=1", "@twice"} {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(shared)
		if err != nil {
			t.Fatal(err)
		}
		if alone, err := e.Compile(target.NewGroups(func(name string) (string, error) { return texts[name], nil })); err != nil || alone.Weight() != m.Weight() {
			t.Errorf("%s weighs %d beside others, %d alone, %v", text, m.Weight(), alone.Weight(), err)
		}
	}
	for name, n := range read {
		if n != 1 {
			t.Errorf("group %s is read %d times", name, n)
		}
	}
}

// Cost has each group as often as it is used, and no more of a long list than its looking up takes.
func TestCost(t *testing.T) {
	groups := map[string]string{"g": "a,b,c", "twice": "@g or @g", "long": strings.Repeat("n", 300)}
	for i := range 1000 {
		groups["long"] += fmt.Sprint(",n", i)
	}
	of := target.NewGroups(func(name string) (string, error) { return groups[name], nil })
	for text, want := range map[string]int{
		"a,b": 2, "role=web": 100, "@g": 103, "@g or @g": 206, "@twice and not @twice": 612, "@twice": 306, "@long": 356, "@long and @g": 459,
	} {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(of)
		if err != nil || m.Cost() != want {
			t.Errorf("%s costs %d, %v, want %d", text, m.Cost(), err, want)
		}
	}
}
