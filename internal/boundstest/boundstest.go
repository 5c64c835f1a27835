// Package boundstest looks whether the bounds of a package are shown to its users.
package boundstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// AllShown fails for each constant at the top of a file that none of the file's composite literals, which are what is shown, uses.
// Others, which are no bounds, are named.
func AllShown(t *testing.T, file string, others ...string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok {
			ast.Inspect(lit, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					shown[id.Name] = true
				}
				return true
			})
		}
		return true
	})
	count := 0
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if count++; !shown[name.Name] && !slices.Contains(others, name.Name) {
					t.Errorf("%s: nobody is shown the bound %s", file, name.Name)
				}
			}
		}
	}
	if count == 0 {
		t.Errorf("%s has no bounds", file)
	}
}
