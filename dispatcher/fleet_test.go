package dispatcher_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/target"
)

// A target selects hosts by what the registry, the dispatcher and the agents say of them.
func TestTargetsSelectHosts(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			var specs dispatcher.StaticHosts
			for i := range 250 {
				specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%03d", i), Labels: map[string]string{"role": "db", "rack": fmt.Sprint(i % 5)}})
			}
			specs = append(specs,
				dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"role": "web"}},
				dispatcher.HostSpec{Name: "and", Labels: map[string]string{"role": "odd"}},
				dispatcher.HostSpec{Name: "a,b", Labels: map[string]string{"role": "odd"}})
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: specs})
			sys.agent("web01", greeter)
			sys.agent("web02", greeter)

			for text, want := range map[string][]string{
				"web*":                               {"web01", "web02"},
				"web01":                              {"web01"},
				"web02,web01":                        {"web01", "web02"},
				"db[000-002] and rack!=1":            {"db000", "db002"},
				"role=web":                           {"web01"},
				"role=odd":                           {"a,b", "and"},
				`"and","a,b"`:                        {"a,b", "and"},
				"host.online=true":                   {"web01", "web02"},
				"host.proc=hello and host.heard<10m": {"web01", "web02"},
				"fact.os=* and not web02":            {"web01"},
				"host.software>=0 and label.role=*":  {"web01"},
			} {
				got, err := sys.caller.Target(text).Hosts(t.Context())
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s selects %v, %v", text, got, err)
				}
			}
			for text, n := range map[string]int{"db*": 250, "role=db and rack=3": 50, "*": 254, "not host.online=true": 252} {
				got := must[[]string](t)(sys.caller.Target(text).Hosts(t.Context()))
				if len(got) != n || !slices.IsSorted(got) || len(slices.Compact(got)) != n {
					t.Errorf("%s selects %d hosts, want %d", text, len(got), n)
				}
			}
			if got := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "a,b")); got.Name != "a,b" {
				t.Errorf("a,b is %+v", got)
			}
			for text, what := range map[string]string{
				"web03":                        "host",
				"web01,web03":                  "host",
				"role=web or db999":            "host",
				"nobody*":                      "target",
				"not *":                        "target",
				"db000 and db001":              "target",
				strings.Repeat("x", 500) + "*": "target",
			} {
				_, err := sys.caller.Target(text).Hosts(t.Context())
				if f := harp.FailureOf(err); !errors.Is(err, harp.ErrNotFound) || f.Type != what {
					t.Errorf("%s gives %v", text, err)
				}
			}
			for _, text := range []string{"", "web01 web02", "G@os:Debian", "@group", "(", "fact.os<*", strings.Repeat("a*,", 40_000) + "a"} {
				_, err := sys.caller.Target(text).Hosts(t.Context())
				var field *harp.FieldError
				if _, other := sys.caller.Target(text).Explain(t.Context(), ""); w != embedded || len(text) < 1000 {
					if !errors.As(err, &field) || field.Field != "target" || !errors.Is(other, harp.ErrInvalid) {
						t.Errorf("%.20q gives %v, explained %v", text, err, other)
					}
				}
			}
			testExplanations(t, sys)
		})
	}
}

func testExplanations(t *testing.T, sys *system) {
	all := must[target.Node](t)(sys.caller.Target("role=db and not (rack=1,db000)").Explain(t.Context(), ""))
	want := target.Node{Text: "role=db and not rack=1,db000", Hosts: 199, Parts: []target.Node{
		{Text: "role=db", Hosts: 250},
		{Text: "not rack=1,db000", Hosts: 203, Parts: []target.Node{
			{Text: "rack=1,db000", Hosts: 51, Parts: []target.Node{{Text: "rack=1", Hosts: 50}, {Text: "db000", Hosts: 1}}},
		}},
	}}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("explained as %+v", all)
	}
	one := must[target.Node](t)(sys.caller.Target("role=db and rack=1").Explain(t.Context(), "web01"))
	if one.Hosts != 0 || len(one.Parts) != 2 || one.Parts[0].Value != "web" || one.Parts[1].Value != "" {
		t.Errorf("explained as %+v", one)
	}
	if _, err := sys.caller.Target("*").Explain(t.Context(), "web03"); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("of a host that is not known: %v", err)
	}
	deep := strings.Repeat("not not ", 30) + "web01" // deeper than a message may be
	if n := must[target.Node](t)(sys.caller.Target(deep).Explain(t.Context(), "")); n.Hosts != 1 {
		t.Errorf("60 times not selects %d hosts", n.Hosts)
	}
	many := "web01" + strings.Repeat(" or web01", 6000)
	if _, err := sys.caller.Target(many).Explain(t.Context(), ""); sys.wiring != embedded && !errors.Is(err, harp.ErrRefused) {
		t.Errorf("of 6,000 parts: %v", err)
	}
}

// Hosts are found by the address of their session, or by that in the registry.
func TestTargetsOfAddresses(t *testing.T) {
	sys := newSystem(t, loopback, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "db01"}, {Name: "db02", Address: "10.1.2.3:7442"}}})
	sys.agent("web01", greeter)
	got := must[[]string](t)(sys.caller.Target("127.0.0.0/8 or ::1/128").Hosts(t.Context()))
	if !slices.Equal(got, []string{"web01"}) {
		t.Errorf("from this machine come %v", got)
	}
	got = must[[]string](t)(sys.caller.Target("host.addr=10.1.2.3").Hosts(t.Context()))
	if !slices.Equal(got, []string{"db02"}) {
		t.Errorf("by an address of the registry come %v", got)
	}
}
