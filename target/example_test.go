package target_test

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/harpcaller/harp/target"
)

// machine is a host of an inventory of one's own.
type machine struct {
	name   string
	labels map[string]string
	facts  map[string]any
}

func (m machine) Name() string { return m.name }

func (m machine) Label(key string) (string, bool) {
	v, ok := m.labels[key]
	return v, ok
}

func (m machine) Fact(path []string) (any, bool) {
	v, ok := m.facts[path[0]]
	return v, ok && len(path) == 1
}

func (m machine) Addresses() []netip.Addr        { return nil }
func (m machine) Procedures() []string           { return nil }
func (m machine) Heard() (time.Duration, bool)   { return 0, false }
func (m machine) Property(string) (string, bool) { return "", false }

func Example() {
	e, err := target.Parse("@frontend and fact.kernel>=6.1")
	if err != nil {
		fmt.Println(err)
		return
	}
	groups := map[string]string{"frontend": "web* and env!=dev"}
	m, err := e.Compile(target.NewGroups(func(name string) (string, error) { return groups[name], nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, host := range []machine{
		{"web01", map[string]string{"env": "prod"}, map[string]any{"kernel": "6.1.0-18-amd64"}},
		{"web02", map[string]string{"env": "prod"}, map[string]any{"kernel": "5.15.0-101-generic"}},
		{"web03", map[string]string{"env": "dev"}, map[string]any{"kernel": "6.5.0"}},
	} {
		fmt.Println(host.name, m.Match(host))
	}
	// Output:
	// web01 true
	// web02 false
	// web03 false
}

func ExampleParse() {
	for _, text := range []string{"web01 or  (web02 or web03)", "role = web", "G@os:Debian and web*"} {
		e, err := target.Parse(text)
		var wrong *target.SyntaxError
		if errors.As(err, &wrong) {
			fmt.Printf("%s\n%*s want %s\n", text, wrong.Offset+1, "^", wrong.Want)
			continue
		}
		fmt.Println(e)
	}
	// Output:
	// web01 or web02 or web03
	// role = web
	//      ^ want "and", "or" or the end (around = and its like there is no white space)
	// G@os:Debian and web*
	// ^ want fact.os=Debian
}

func ExampleMatcher_Explain() {
	e, err := target.Parse("role=web and not (fact.kernel<6.1,db*)")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := e.Compile(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	host := machine{"web02", map[string]string{"role": "web"}, map[string]any{"kernel": "5.15.0-101-generic"}}
	printNode(m.Explain(host), "")
	// Output:
	// 0 role=web and not fact.kernel<6.1,db*
	//   1 role=web, which is web
	//   0 not fact.kernel<6.1,db*
	//     1 fact.kernel<6.1,db*
	//       1 fact.kernel<6.1, which is 5.15.0-101-generic
	//       0 db*, which is web02
}

func printNode(n target.Node, indent string) {
	fmt.Printf("%s%d %s", indent, n.Hosts, n.Text)
	if n.Value != "" {
		fmt.Printf(", which is %s", n.Value)
	}
	fmt.Println()
	for _, part := range n.Parts {
		printNode(part, indent+"  ")
	}
}

func ExampleFromSalt() {
	expr, notes, err := target.FromSalt(`G@os:Debian and ( L@web01,web02 or E@db\d+ ) not S@10.0.0.0/8`)
	fmt.Println(expr, err)
	for _, note := range notes {
		fmt.Println("-", note)
	}
	// Output:
	// fact.os=Debian and (web01,web02 or ~db\d+.*) and not 10.0.0.0/8 <nil>
	// - Salt ignores case in grains and pillars; here a regular expression does that begins with (?i), as in fact.os~(?i)debian
}

func ExampleCompareVersions() {
	fmt.Println(target.CompareVersions("5.15.0-91-generic", "5.15.0-101-generic"), target.CompareVersions("1.2.0-rc1", "1.2"), target.CompareVersions("v1.2", "1.2.0"))
	// Output: -1 -1 0
}
