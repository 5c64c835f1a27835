package harp

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestComments: everything that this module exports says what it is, and everything
// that returns an error says which.
func TestComments(t *testing.T) {
	files := token.NewFileSet()
	packages := 0
	for _, dir := range publicPackages(t) {
		pkg := parse(t, files, dir)
		packages++
		if pkg.Doc == "" {
			t.Errorf("package %s has no comment", dir)
		}
		for _, line := range uncommented(files, pkg) {
			t.Error(line)
		}
	}
	if packages < 9 {
		t.Errorf("there are %d packages only", packages)
	}
}

// publicPackages returns the folders of the packages that others may import.
func publicPackages(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case path == "." || hasGo(path):
			dirs = append(dirs, path)
		}
		if skipped := []string{"internal", "testdata", "cmd", "examples", "bin", "docs"}; path != "." && (d.Name()[0] == '.' || slices.Contains(skipped, d.Name())) {
			dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == path })
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func hasGo(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	return err == nil && len(names) > 0
}

func parse(t *testing.T, files *token.FileSet, dir string) *doc.Package {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	pkg, err := doc.NewFromFiles(files, parsed, "github.com/harpcaller/harp/"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// standard are the methods whose meaning the standard library gives.
var standard = []string{"Error", "Unwrap", "Is", "String", "MarshalJSON"}

// namesErrors matches a comment that says something about the error that is returned,
// or whose method stands for others that do.
var namesErrors = regexp.MustCompile(`(?i)\berr|\bErr[A-Z]|FieldError|\bnil\b|implements|is that of`)

// uncommented returns a line for each exported name of a package that lacks words.
func uncommented(files *token.FileSet, pkg *doc.Package) (lines []string) {
	say := func(node ast.Node, name, what string) {
		lines = append(lines, files.Position(node.Pos()).String()+": "+name+" "+what)
	}
	function := func(f *doc.Func, of string) {
		switch {
		case slices.Contains(standard, f.Name):
		case f.Doc == "":
			say(f.Decl, of+f.Name, "has no comment")
		case returnsError(f.Decl.Type) && !namesErrors.MatchString(f.Doc):
			say(f.Decl, of+f.Name, "does not say its errors")
		}
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, spec := range v.Decl.Specs {
				if s := spec.(*ast.ValueSpec); v.Doc == "" && s.Doc == nil && s.Comment == nil {
					say(s, s.Names[0].Name, "has no comment")
				}
			}
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	for _, f := range pkg.Funcs {
		function(f, "")
	}
	for _, typ := range pkg.Types {
		if typ.Doc == "" {
			say(typ.Decl, typ.Name, "has no comment")
		}
		values(typ.Consts)
		values(typ.Vars)
		for _, f := range typ.Funcs {
			function(f, "")
		}
		for _, f := range typ.Methods {
			function(f, typ.Name+".")
		}
		for _, m := range interfaceMethods(typ) {
			if f, ok := m.Type.(*ast.FuncType); ok && m.Doc == nil && m.Comment == nil {
				say(f, typ.Name+"."+m.Names[0].Name, "has no comment")
			}
		}
	}
	return lines
}

func returnsError(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	for _, result := range f.Results.List {
		if name, ok := result.Type.(*ast.Ident); ok && name.Name == "error" {
			return true
		}
	}
	return false
}

func interfaceMethods(typ *doc.Type) []*ast.Field {
	for _, spec := range typ.Decl.Specs {
		if i, ok := spec.(*ast.TypeSpec).Type.(*ast.InterfaceType); ok {
			return i.Methods.List
		}
	}
	return nil
}
