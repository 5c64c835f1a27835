package manifest_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
)

// FuzzRead reads what may be documents: each is refused as invalid, or is one that is written and read again as it was.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"kind: schedule\nname: s\ncron: 0 3 * * *\ntz: UTC\ntarget: web01\nprocedure: p\nargs: {a: [1, x, null]}\nretry: {max: 3}\n",
		"kind: schedule\nname: s\ncron: 0 3 * * *\ntarget: web01\nsteps:\n- {procedure: p}\n- {procedure: q, on: failed}\n",
		"kind: group\nname: g\ntarget: role=web and not (a,b[1-3])\n---\nkind: group\nname: h\ntarget: \"@g\"\n",
		"kind: window\nname: w\ntarget: \"*\"\ncron: 0 22 * * sat\nfor: 2h\nprocedures: [a.*]\n",
		"kind: notification\nname: n\non: [job.failed]\nto: {webhook: {url: \"https://x.invalid/\", secrets: [k]}}\n",
		"kind: retention\nname: r\nkeep: 30d\n",
		"a: &a [x, *a]\n", "kind: !!int group\n", "? {a: b}\n: c\n", "<<: {kind: group}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := manifest.Read(path)
		if err != nil {
			if !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		var all []byte
		for _, d := range set.Documents {
			one, err := manifest.Write(d, "file")
			if err != nil {
				t.Fatalf("%s %s is read and cannot be written: %v", d.Kind(), d.Name(), err)
			}
			all = append(append(all, "---\n"...), one...)
		}
		if len(all) == 0 || bytes.Contains(all, []byte("content: ")) { // a calendar's file is not there
			return
		}
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := manifest.Read(path)
		if err != nil {
			t.Fatalf("%v\nof what was written:\n%s\nfor:\n%s", err, all, text)
		}
		if len(again.Documents) != len(set.Documents) {
			t.Errorf("%d documents are %d", len(set.Documents), len(again.Documents))
		}
		for i, d := range again.Documents {
			one, err := manifest.Write(d, "file")
			if err != nil || !bytes.Contains(all, one) {
				t.Errorf("document %d is another when it is read again: %v\n%s\nof\n%s", i, err, one, all)
			}
		}
	})
}

// FuzzReadSteps reads what may be the steps of a chain.
func FuzzReadSteps(f *testing.F) {
	f.Add([]byte("- {procedure: p, args: {a: 1}}\n- {procedure: q, on: failed, retry: {max: 2, on: [lost]}, silence_timeout: 5m}\n"))
	f.Add([]byte("- &a {procedure: p}\n- *a\n- <<: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := manifest.ReadSteps("f", text); err != nil && !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}
