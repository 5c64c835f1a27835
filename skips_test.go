package harp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoTestSkipsInSilence: in CI no test is left out. What the machine may lack goes
// through internal/needs; beside that a test may skip only in the short form, which CI
// does not run, and where the race detector makes it meaningless: for those CI runs their
// packages without it.
func TestNoTestSkipsInSilence(t *testing.T) {
	files := token.NewFileSet()
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, filepath.Join("internal", "needs")) {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		seen++
		for _, at := range silentSkips(file) {
			t.Errorf("%s skips in silence; what the machine lacks goes through internal/needs", files.Position(at))
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// silentSkips returns where tests are skipped in silence.
func silentSkips(file *ast.File) (at []token.Pos) {
	allowed := map[*ast.BlockStmt]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			condition := types.ExprString(n.Cond)
			allowed[n.Body] = condition == "testing.Short()" || condition == "needs.RaceDetector"
		case *ast.BlockStmt:
			return !allowed[n]
		case *ast.SelectorExpr:
			switch x, _ := n.X.(*ast.Ident); {
			case x == nil || x.Name != "t" && x.Name != "b" && x.Name != "f":
			case n.Sel.Name == "Skip" || n.Sel.Name == "Skipf" || n.Sel.Name == "SkipNow":
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}
