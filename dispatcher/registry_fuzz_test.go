package dispatcher

import (
	"testing"

	"github.com/harpcaller/harp/transport"
)

// FuzzHosts reads what a hosts script may print: of what is taken each host has a name of its own that can stand in a certificate.
func FuzzHosts(f *testing.F) {
	for _, text := range []string{
		`{"name":"web01","address":"10.0.0.1:7440","labels":{"role":"web"}}` + "\n\n" + `{"name":"web02"}`, `{"NAME":"x"}`, `{"name":"a","name":"b"}`, `{"name":"a"}{}`, "null", `[1]`,
		`{"name":"a","address":"[::1%lo]:1"}`, `{"name":"a","address":"h:0"}`, `{"name":"a","labels":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		specs, err := parseHosts(text)
		if err != nil {
			if len(err.Error()) > 1<<10 {
				t.Errorf("%d bytes make an error of %d", len(text), len(err.Error()))
			}
			return
		}
		if checkHosts(specs) != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range specs {
			if transport.CheckName(s.Name) != nil || seen[s.Name] || s.Address != "" && !canDial(s.Address) {
				t.Errorf("%+v is taken", s)
			}
			seen[s.Name] = true
		}
	})
}

// FuzzCursor opens what may be a cursor within a page.
func FuzzCursor(f *testing.F) {
	f.Add(mark{Cursor: "c", Key: "k"}.cursor())
	f.Add("within.AAAA")
	f.Add("member-1")
	f.Fuzz(func(t *testing.T, text string) {
		if m := markIn(text); m.Key == "" && m.Cursor != text {
			t.Errorf("%q is %+v", text, m)
		}
		if n, err := memberPlace(text); err == nil && n < 0 {
			t.Errorf("%q is %d", text, n)
		}
	})
}
