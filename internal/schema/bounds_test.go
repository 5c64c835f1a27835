package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// TestHostileSchemas checks that schemas which would take a program down are refused.
func TestHostileSchemas(t *testing.T) {
	list := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	for name, text := range map[string]string{
		"no JSON":                  `{`,
		"two":                      `{}{}`,
		"a number":                 `5`,
		"a reference":              `{"$ref":"#"}`,
		"a reference elsewhere":    `{"$ref":"http://169.254.169.254/"}`,
		"an escaped one":           `{"\u0024ref":"#"}`,
		"one in capitals":          `{"$REF":"#"}`,
		"one below":                `{"properties":{"a":{"$Ref":"#/properties/a"}}}`,
		"a dynamic one":            `{"$dynamicRef":"#a","$dynamicAnchor":"a"}`,
		"a keyword in capitals":    `{"TYPE":"object"}`,
		"an unknown keyword":       `{"unevaluatedItems":false}`,
		"a keyword twice":          `{"type":"string","type":"object"}`,
		"a property twice":         `{"properties":{"a":true,"a":false}}`,
		"many schemas":             `{"anyOf":[` + list(2000, `{}`) + `]}`,
		"deep ones":                strings.Repeat(`{"not":`, 40) + "true" + strings.Repeat("}", 40),
		"deep data":                `{"default":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}",
		"a large pattern":          `{"pattern":"(a{1000}){9}b{1000}"}`,
		"many patterns":            `{"properties":{` + patternProperties(100, `(.{100}%d)`) + `}}`,
		"classes":                  `{"pattern":"` + strings.Repeat(`\\pL`, 1000) + `"}`,
		"classes beside case":      `{"pattern":"(?i)` + strings.Repeat(`[A-\\x{1e942}]`, 30) + `"}`,
		"a long pattern":           `{"pattern":"` + strings.Repeat("a|", 10000) + `"}`,
		"a pattern that is none":   `{"pattern":"("}`,
		"patterns of names":        `{"patternProperties":{"(a{1000}){9}b{1000}":true}}`,
		"a long name":              `{"properties":{"` + strings.Repeat("a", 300) + `":true}}`,
		"a long text":              `{"description":"` + strings.Repeat("a", 70000) + `"}`,
		"no schema":                `{"not":null}`,
		"no list of schemas":       `{"allOf":{"a":true}}`,
		"no map of schemas":        `{"properties":[true]}`,
		"an unknown type":          `{"type":"text"}`,
		"an unknown type in a map": `{"properties":{"a":{"type":["string","text"]}}}`,
		"a multiple of nothing":    `{"multipleOf":0}`,
		"no length":                `{"minLength":"5"}`,
		"cut short":                `{"properties":{`,
		"white space":              ` `,
	} {
		if _, err := schema.Compile(harp.ProcedureDoc{Name: "x", Args: json.RawMessage(text)}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if len(err.Error()) > 500 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func patternProperties(n int, pattern string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"p%d":{"pattern":%q}`, i, fmt.Sprintf(pattern, i)))
	}
	return strings.Join(list, ",")
}

// TestHostileArguments checks that no value makes a check take long, or its error large.
func TestHostileArguments(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	keys := map[string]any{}
	for i := range 10000 {
		keys[fmt.Sprint(i)] = true
	}
	branches := strings.TrimSuffix(strings.Repeat(`{"type":"integer"},`, 1000), ",")
	for name, c := range map[string]struct {
		schema string
		value  any
	}{
		"branches":           {`{"anyOf":[` + branches + `]}`, long},
		"branches of items":  {`{"items":{"anyOf":[` + branches + `]}}`, make([]string, 100000)},
		"branches that fail": {`{"items":{"anyOf":[` + branches + `,true]}}`, make([]string, 100000)},
		"an enum of many":    {`{"items":{"anyOf":[{"enum":["` + strings.Repeat(`a","`, 10000) + `"]},true]}}`, make([]int, 100000)},
		"compared numbers":   {`{"items":{"anyOf":[{"enum":[` + strings.Repeat(`1e308,`, 8000) + `5]},true]}}`, make([]int, 100000)},
		"patterns":           {`{"items":{"anyOf":[{"pattern":"^(a|b|ab)*(.{200})c$"},true]}}`, slices.Repeat([]string{long[:1000]}, 500)},
		"branches in depth":  {strings.Repeat(`{"oneOf":[true,`, 14) + "true" + strings.Repeat("]}", 14), long},
		"a pattern":          {`{"pattern":"^(a|b|ab)*(.{800})c$"}`, long},
		"names":              {`{"patternProperties":{"^(a|b|ab)*(.{800})c$":true}}`, map[string]any{long: 1}},
		"a long name":        {`{"additionalProperties":{"additionalProperties":{"type":"string"}}}`, map[string]any{long: keys}},
		"an unknown name":    {`{"additionalProperties":false}`, map[string]any{long: keys}},
		"an enum":            {`{"items":{"enum":["` + strings.Repeat("a", 50000) + `",` + strings.TrimSuffix(strings.Repeat(`"b",`, 1000), ",") + `]}}`, make([]string, 100000)},
		"unique items":       {`{"uniqueItems":true}`, make([]int, 100000)},
		"a number":           {`{"multipleOf":5e-324}`, 1e308},
		"no base64":          {`{"contentEncoding":"base64"}`, long + "!"},
		"no time":            {`{"type":"string","format":"date-time"}`, long},
	} {
		a, err := schema.Compile(harp.ProcedureDoc{Args: json.RawMessage(c.schema)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v, err := harp.NewValue(c.value)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		cost := allocated(func() { err = a.Check(v) })
		t.Logf("%s: %v, %d KiB, %.100v", name, time.Since(begun), cost>>10, err)
		if cost > 64<<20 || err != nil && (!errors.Is(err, harp.ErrInvalid) || len(err.Error()) > 1000) {
			t.Errorf("%s: %.200v, %d bytes", name, err, cost)
		}
	}
}

// allocated returns how many bytes are allocated by f.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// workOfCompile is how much processor time a schema may take: the 50 ms that any should, ten times over, for the instrumented code of a
// fuzzer on a processor that it shares. A schema that takes as long as its length squared would take seconds. It is time of the processor in this
// thread, not that of a clock: what else the machine does is not in it.
const workOfCompile = 500 * time.Millisecond

// FuzzSchema compiles what may be a schema. None takes much memory, or work.
func FuzzSchema(f *testing.F) {
	f.Add(string(service.Args))
	f.Add(`{"pattern":"(?i)[A-\\x{1e942}]\\pL(a{1000})"}`)
	f.Add(`{"anyOf":[{"not":{"items":{"enum":[1,"a",[true]]}}}],"patternProperties":{"^x":{}}}`)
	f.Add(`{"enum":[` + strings.Repeat(`{"a":[1,"b"]},`, 4000) + `0]}`)
	f.Add(`{"properties":{` + patternProperties(900, `^a%d[b-z]*$`) + `}}`)
	f.Add(`{"required":["` + strings.Repeat(`a","`, 15000) + `b"]}`)
	f.Add(`{"const":` + strings.Repeat("9", 60000) + `}`)
	f.Fuzz(func(t *testing.T, text string) {
		var err error
		var cost uint64
		work := worked(func() {
			cost = allocated(func() { _, err = schema.Compile(harp.ProcedureDoc{Args: json.RawMessage(text)}) })
		})
		if err != nil && !errors.Is(err, harp.ErrInvalid) || cost > 16<<20 || work > workOfCompile {
			t.Errorf("%v, %d bytes, %v of work", err, cost, work)
		}
	})
}
