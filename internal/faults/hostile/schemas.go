//go:build linux

package hostile

import (
	"fmt"
	"strings"
	"time"
)

func patternBomb(n int) string {
	return `{"properties":{"a":{"anyOf":[` + strings.TrimSuffix(strings.Repeat(`{"pattern":"(x{1000}){1000}|[\\p{L}\\p{N}]{1000}"},`, n), ",") + `]}}}`
}

func branchBomb(word string, n int) string {
	branch := `{"properties":{"a":{"type":"integer"},"b":{"enum":["` + strings.Repeat("y", 100) + `"]}}},`
	return `{"` + word + `":[` + strings.TrimSuffix(strings.Repeat(branch, n), ",") + `]}`
}

func notBomb(n int) string {
	return strings.Repeat(`{"not":{"allOf":[`, n) + `{}` + strings.Repeat(`]}}`, n)
}

// tellSchemas offers procedures with schemas, and calls them.
func tellSchemas(schemas ...string) func(*teller) error {
	return func(t *teller) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		fill := strings.Repeat("x", t.many(100000, 1000000))
		for _, schema := range schemas {
			name := newName("schema")
			a, err := t.session(name, answer(answerWith(accepted, end(0))))
			if err != nil {
				return err
			}
			err = liar{procedures: list{procedure("work", "args", []byte(schema), "result", []byte(schema), "record", []byte(schema))}}.introduce(a)
			if err == nil {
				if _, err := p.ask(typeSubmit, submission(request(newID(), name, "work", object{"a", fill, "b", fill}, "expires", time.Now().Add(time.Second).UnixNano()))); err != nil {
					return fmt.Errorf("schema %.100s: %w", schema, err)
				}
			}
			if _, err := p.ask(typeHostProcs, object{"name", name}); err != nil {
				return fmt.Errorf("schema %.100s: %w", schema, err)
			}
			a.close()
		}
		return nil
	}
}
