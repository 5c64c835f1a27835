package harp

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestEventTypesAreAll: EventTypes has every constant of type EventType, each once.
func TestEventTypesAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[EventType]int{}
	for _, e := range EventTypes() {
		listed[e]++
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "EventType" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || listed[EventType(text)] != 1 {
			t.Errorf("%s (%q) is listed %d times: %v", spec.Names[0], text, listed[EventType(text)], err)
		}
		declared++
		return true
	})
	if declared < 60 || declared != len(listed) {
		t.Errorf("%d are declared, %d listed", declared, len(listed))
	}
}

func TestCheckEventType(t *testing.T) {
	for _, known := range []string{"job.failed", "job.*", "job.fail*", "*", "chain.step", "jobs.pruned"} {
		if err := CheckEventType("on", known); err != nil {
			t.Errorf("%s: %v", known, err)
		}
	}
	for _, unknown := range []string{"job.faild", "jbo.*", "job", "job.failed.*", "", "**"} {
		var wrong *FieldError
		if err := CheckEventType("on", unknown); !errors.As(err, &wrong) || wrong.Field != "on" {
			t.Errorf("%s: %v", unknown, err)
		}
	}
}
