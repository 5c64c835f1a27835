package schema_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

type restart struct {
	Service string        `json:"service" jsonschema:"systemd unit name"`
	Force   bool          `json:"force,omitempty"`
	Wait    time.Duration `json:"wait,omitempty"`
	secret  string
}

type everything struct {
	B    bool              `json:"b"`
	I8   int8              `json:"i8"`
	U    uint64            `json:"u"`
	F    float64           `json:"f"`
	S    string            `json:"s"`
	Data []byte            `json:"data"`
	Hash [4]byte           `json:"hash"`
	At   time.Time         `json:"at"`
	AtP  *time.Time        `json:"atp"`
	D    time.Duration     `json:"d"`
	List []string          `json:"list"`
	Map  map[string]int    `json:"map"`
	Sub  struct{ X int }   `json:"sub"`
	Ptr  *struct{ X int }  `json:"ptr"`
	Any  any               `json:"any"`
	Raw  harp.Value        `json:"raw"`
	RawP *harp.Value       `json:"rawp"`
	Big  *big.Int          `json:"big"`
	Addr netip.Addr        `json:"addr"`
	Deep map[string][]byte `json:"deep"`
	Skip chan int          `json:"-"`
}

func TestSignature(t *testing.T) {
	_ = restart{}.secret
	for _, c := range []struct {
		of     reflect.Type
		form   schema.Form
		params string
		args   string
	}{
		{
			reflect.TypeFor[restart](), schema.FormNamed, "service force wait",
			`{"type":"object","properties":{"service":{"type":"string","description":"systemd unit name"},"force":{"type":"boolean"},` +
				`"wait":{"type":"integer","format":"nanoseconds"}},"required":["service"],"additionalProperties":false}`,
		},
		{reflect.TypeFor[*restart](), schema.FormNamed, "service force wait", ""},
		{reflect.TypeFor[struct{}](), schema.FormNamed, "", `{"type":"object","additionalProperties":false}`},
		{reflect.TypeFor[harp.Args](), schema.FormNamed, "", `{"type":"object","additionalProperties":true}`},
		{reflect.TypeFor[map[string]int](), schema.FormNamed, "", `{"type":"object","additionalProperties":{"type":"integer"}}`},
		{reflect.TypeFor[[]string](), schema.FormList, "", `{"type":["null","array"],"items":{"type":"string"}}`},
		{reflect.TypeFor[[2]int](), schema.FormList, "", `{"type":"array","minItems":2,"maxItems":2,"items":{"type":"integer"}}`},
		{
			reflect.TypeFor[string](), schema.FormSingle, "value",
			`{"type":"object","required":["value"],"properties":{"value":{"type":"string"}},"additionalProperties":false}`,
		},
		{reflect.TypeFor[time.Time](), schema.FormSingle, "value", ""},
		{reflect.TypeFor[[]byte](), schema.FormSingle, "value", ""},
		{reflect.TypeFor[any](), schema.FormAny, "", `true`},
		{reflect.TypeFor[harp.Value](), schema.FormAny, "", `true`},
	} {
		sig, err := schema.SignatureOf(c.of)
		if err != nil {
			t.Errorf("%v: %v", c.of, err)
			continue
		}
		if sig.Form != c.form || strings.Join(sig.Params, " ") != c.params || c.args != "" && !sameJSON(t, string(sig.Args), c.args) {
			t.Errorf("%v: %v %v %s", c.of, sig.Form, sig.Params, sig.Args)
		}
		if _, err := schema.Compile(harp.ProcedureDoc{Params: sig.Params, Args: sig.Args}); err != nil {
			t.Errorf("%v: %v", c.of, err)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// TestRoundTrip checks that what a Go value is on the wire fits the schema of its
// type and comes back as it was, also from JSON.
func TestRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	raw, _ := harp.NewValue(5)
	full := everything{
		B: true, I8: -8, U: 1 << 63, F: 1.5, S: "s", Data: []byte{0xff, 0}, Hash: [4]byte{1, 2, 3, 4},
		At: at, AtP: &at, D: time.Minute, List: []string{"a"}, Map: map[string]int{"a": 1}, Any: "x", Raw: raw,
		Big: big.NewInt(7), Addr: netip.MustParseAddr("10.0.0.1"), Deep: map[string][]byte{"k": {1}},
	}
	full.Sub.X, full.Ptr = 1, &struct{ X int }{2}
	sig, err := schema.SignatureOf(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	args, err := schema.Compile(harp.ProcedureDoc{Params: sig.Params, Args: sig.Args})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]everything{"full": full, "empty": {Big: new(big.Int), Addr: full.Addr}} {
		wire, err := harp.NewValue(in)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(wire)
		if err != nil {
			t.Fatal(err)
		}
		var fromJSON harp.Value
		if err := json.Unmarshal(text, &fromJSON); err != nil {
			t.Fatal(err)
		}
		if name == "full" {
			fromJSON = withText(t, fromJSON, "big", "7") // a text, not its base64
			fromJSON = withText(t, fromJSON, "raw", nil)
		}
		for kind, v := range map[string]harp.Value{"wire": wire, "json": fromJSON} {
			bound, err := args.Bind(v)
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			if kind == "json" && name == "empty" {
				continue // the text of 0 as base64 is no number
			}
			var out everything
			if err := bound.Decode(&out); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			out.At, in.At = out.At.UTC(), in.At.UTC()
			if out.AtP != nil {
				*out.AtP = out.AtP.UTC()
			}
			if kind == "json" {
				out.Raw = in.Raw
			}
			if !reflect.DeepEqual(out, in) && name == "full" {
				t.Errorf("%s, %s:\ngot  %+v\nwant %+v", name, kind, out, in)
			}
		}
	}
}

// withText replaces one value of a map.
func withText(t *testing.T, v harp.Value, key string, with any) harp.Value {
	t.Helper()
	got, err := v.Any()
	if err != nil {
		t.Fatal(err)
	}
	got.(map[string]any)[key] = with
	v, err = harp.NewValue(got)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

type chain struct{ Next *chain }

type recursive map[string]recursive

type twoNames struct {
	A int `json:"a" msgpack:"b"`
}

func TestNoSchema(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[chan int](), reflect.TypeFor[func()](), reflect.TypeFor[complex128](), reflect.TypeFor[uintptr](),
		reflect.TypeFor[chain](), reflect.TypeFor[recursive](), reflect.TypeFor[map[int]string](), reflect.TypeFor[map[netip.Addr]string](),
		reflect.TypeFor[struct{ C chan int }](), reflect.TypeFor[map[string]func()](), reflect.TypeFor[twoNames](),
	} {
		if _, err := schema.SignatureOf(of); err == nil {
			t.Errorf("%v has a schema", of)
		}
		if _, err := schema.Of(of); err == nil {
			t.Errorf("%v has a schema", of)
		}
	}
}

func TestSchemaKeepsOrder(t *testing.T) {
	sig, err := schema.SignatureOf(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("b i8 u f s data hash at atp d list map sub ptr any raw rawp big addr deep")
	if !slices.Equal(sig.Params, want) {
		t.Errorf("%v", sig.Params)
	}
}
